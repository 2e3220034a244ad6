//! A proxy in front of an S3 server that breaks single answers on the wire: what the SDK really sees.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    /// It never reaches the server; the client gets this status.
    Refuse(u16),
    /// It takes effect; the client gets this status.
    Mask(u16),
    /// It takes effect; the client's connection is cut without an answer.
    Cut,
    /// It never reaches the server; the client's connection is cut.
    CutBefore,
    /// The client gets this status; the request reaches the server when [`Proxy::land`] is called.
    Late(u16),
    /// It takes effect; its answer comes this much later.
    Slow(Duration),
    /// The request's body is cut off in the middle on its way to the server.
    HalfBody,
}

#[derive(Debug, Default)]
struct Script {
    /// Method and end of the path (without the query) of the next request that breaks, and how.
    next: Vec<(String, String, Wire)>,
    /// By number of the request, as [`Proxy::log`] counts them.
    ahead: BTreeMap<usize, Wire>,
    late: Vec<Vec<u8>>,
    log: Vec<String>,
    heads: Vec<String>,
}

pub(super) struct Proxy {
    pub(super) port: u16,
    server: u16,
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn before(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::new(Mutex::new(Script::default()));
        let shared = script.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, server, shared.clone()));
            }
        });
        Self { port, server, script, task }
    }

    /// The next request by this method whose path ends so will break.
    pub(super) fn break_next(&self, method: &str, path_end: &str, how: Wire) {
        self.script.lock().unwrap().next.push((method.into(), path_end.into(), how));
    }

    /// The `n`th request from now will break, the next one being the first.
    pub(super) fn break_ahead(&self, n: usize, how: Wire) {
        let mut script = self.script.lock().unwrap();
        let number = script.log.len() + n;
        script.ahead.insert(number, how);
    }

    /// No request will break any more.
    pub(super) fn calm(&self) {
        let mut script = self.script.lock().unwrap();
        script.next.clear();
        script.ahead.clear();
    }

    /// Sends the late requests; gives the status of each.
    pub(super) async fn land(&self) -> Vec<u16> {
        let late = std::mem::take(&mut self.script.lock().unwrap().late);
        let mut statuses = vec![];
        for request in late {
            let answer = forward(&request, self.server).await.unwrap();
            statuses.push(String::from_utf8_lossy(&answer[9..12]).parse().unwrap());
        }
        statuses
    }

    /// Method and path of each request so far.
    pub(super) fn log(&self) -> Vec<String> {
        self.script.lock().unwrap().log.clone()
    }

    /// The header lines of each request so far, in lower case.
    pub(super) fn heads(&self) -> Vec<String> {
        self.script.lock().unwrap().heads.clone()
    }

    pub(super) fn is_spent(&self) -> bool {
        self.script.lock().unwrap().next.is_empty()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request per connection: the client is told to close, so that the script sees each one whole.
async fn serve(mut client: TcpStream, server: u16, script: Arc<Mutex<Script>>) {
    let Ok(request) = read_request(&mut client).await else { return };
    let line = String::from_utf8_lossy(&request[..request.iter().position(|b| *b == b'\r').unwrap_or(0)])
        .into_owned();
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let how = {
        let mut script = script.lock().unwrap();
        script.log.push(format!("{method} {target}"));
        let end = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(0);
        script.heads.push(String::from_utf8_lossy(&request[..end]).to_lowercase());
        let found = script.next.iter().position(|(m, end, _)| m == method && path.ends_with(end.as_str()));
        let found = found.map(|at| script.next.remove(at).2);
        let number = script.log.len();
        found.or(script.ahead.remove(&number))
    };
    let answer = match how {
        None => forward(&request, server).await,
        Some(Wire::Refuse(status)) => Ok(status_answer(status)),
        Some(Wire::Mask(status)) => forward(&request, server).await.map(|_| status_answer(status)),
        Some(Wire::Slow(time)) => {
            let answer = forward(&request, server).await;
            tokio::time::sleep(time).await;
            answer
        }
        Some(Wire::Cut) => {
            let _ = forward(&request, server).await;
            return;
        }
        Some(Wire::CutBefore) => return,
        Some(Wire::Late(status)) => {
            script.lock().unwrap().late.push(request);
            Ok(status_answer(status))
        }
        Some(Wire::HalfBody) => {
            if let Ok(mut upstream) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await {
                let _ = upstream.write_all(&request[..request.len() - request.len() / 3]).await;
            }
            return;
        }
    };
    if let Ok(answer) = answer {
        let _ = client.write_all(&answer).await;
        let _ = client.shutdown().await;
    }
}

async fn read_request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut request = vec![];
    let head_end = loop {
        if let Some(at) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if client.read_buf(&mut request).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&request[..head_end]).into_owned();
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    if header("expect").is_some() {
        client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let length: usize = header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    while request.len() < head_end + length {
        if client.read_buf(&mut request).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    // Not a signed header, so it may be added: the server closes, and the answer ends where the stream does.
    let insert_at = request.windows(2).position(|window| window == b"\r\n").unwrap_or(0) + 2;
    request.splice(insert_at..insert_at, *b"Connection: close\r\n");
    Ok(request)
}

async fn forward(request: &[u8], server: u16) -> std::io::Result<Vec<u8>> {
    let mut upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
    upstream.write_all(request).await?;
    let mut answer = vec![];
    upstream.read_to_end(&mut answer).await?;
    Ok(answer)
}

fn status_answer(status: u16) -> Vec<u8> {
    let code = match status {
        409 => "ConditionalRequestConflict",
        412 => "PreconditionFailed",
        503 => "SlowDown",
        _ => "InternalError",
    };
    let body =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>scripted</Message></Error>");
    let length = body.len();
    format!("HTTP/1.1 {status} Scripted\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}
