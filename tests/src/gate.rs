//! A proxy before the S3 server that stops at a chosen request, so that a test can act at exactly that
//! moment: kill the pod before its snapshot is published, or after, when only the answer is missing.
//!
//! Bytes are passed on as they are (a changed Host would break the signature).

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Where to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Before the server sees the request.
    Request,
    /// After the server has done it, before the client gets the answer.
    Answer,
}

#[derive(Debug)]
struct Rule {
    hold: Hold,
    /// Part of the request line, e.g. `PUT ` and `/HEAD.json`.
    parts: Vec<String>,
    /// How many matches still pass.
    pass: u32,
}

#[derive(Debug, Default)]
struct State {
    rule: Option<Rule>,
    held: bool,
    released: bool,
    /// Request lines seen.
    seen: Vec<String>,
}

/// The proxy. It serves until the test ends.
#[derive(Debug, Clone)]
pub struct Gate {
    shared: Arc<(Mutex<State>, Condvar)>,
    port: u16,
    host: String,
}

impl Gate {
    /// Starts a proxy before `upstream` (`host:port`), on the same host and a free port.
    pub fn new(upstream: &str) -> Self {
        let host = upstream.rsplit_once(':').unwrap().0.to_owned();
        let listener = TcpListener::bind((host.as_str(), 0)).expect("a port for the proxy");
        let gate = Self { shared: Arc::default(), port: listener.local_addr().unwrap().port(), host };
        let (shared, upstream) = (gate.shared.clone(), upstream.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (shared, upstream) = (shared.clone(), upstream.clone());
                std::thread::spawn(move || {
                    // An error of a connection is the client's to see: its connection closes.
                    let _ = serve(&client, &upstream, &shared);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        gate
    }

    /// URL for the agent's store.
    pub fn url(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }

    /// Stops at the request whose first line has all `parts`, after `pass` such requests have gone by.
    pub fn hold(&self, hold: Hold, parts: &[&str], pass: u32) {
        let mut state = self.shared.0.lock().unwrap();
        state.rule = Some(Rule { hold, parts: parts.iter().map(|&p| p.into()).collect(), pass });
        state.held = false;
        state.released = false;
    }

    /// Waits until a request is held.
    #[track_caller]
    pub fn wait_held(&self, seconds: u64) {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut state = self.shared.0.lock().unwrap();
        while !state.held {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no request was held within {seconds} s; seen: {:#?}", state.seen);
            state = self.shared.1.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Lets the held request (and all later ones) go.
    pub fn release(&self) {
        self.shared.0.lock().unwrap().released = true;
        self.shared.1.notify_all();
    }

    /// Request lines that passed so far.
    pub fn seen(&self) -> Vec<String> {
        self.shared.0.lock().unwrap().seen.clone()
    }
}

/// Passes a connection on, one request and its answer after the other, which is how HTTP/1.1 clients that
/// do not pipeline use it.
fn serve(client: &TcpStream, upstream: &str, shared: &Arc<(Mutex<State>, Condvar)>) -> std::io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    let answering = Arc::new((Mutex::new(false), Condvar::new()));
    let back = {
        let (mut from, mut to, answers) = (server.try_clone()?, client.try_clone()?, answering.clone());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                let mut held = answers.0.lock().unwrap();
                while *held {
                    held = answers.1.wait(held).unwrap();
                }
                drop(held);
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        })
    };
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if let Some(line) = request_line(&buffer[..read])
            && let Some(hold) = stop_here(shared, line)
        {
            if hold == Hold::Answer {
                *answering.0.lock().unwrap() = true;
                to.write_all(&buffer[..read])?;
                // The rest of the request (a body in later packets) still has to reach the server.
                let mut rest = from.try_clone()?;
                let mut server = to.try_clone()?;
                std::thread::spawn(move || std::io::copy(&mut rest, &mut server));
            }
            wait_released(shared);
            if hold == Hold::Answer {
                *answering.0.lock().unwrap() = false;
                answering.1.notify_all();
                break;
            }
        }
        to.write_all(&buffer[..read])?;
    }
    let _ = back.join();
    Ok(())
}

/// The first line, if these bytes begin a request.
fn request_line(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().take(4096).position(|&b| b == b'\r')?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    (line.ends_with(" HTTP/1.1")
        && ["GET ", "PUT ", "POST ", "HEAD ", "DELETE "].iter().any(|m| line.starts_with(m)))
    .then_some(line)
}

fn stop_here(shared: &Arc<(Mutex<State>, Condvar)>, line: &str) -> Option<Hold> {
    let mut state = shared.0.lock().unwrap();
    state.seen.push(line.to_owned());
    let rule = state.rule.as_mut()?;
    if !rule.parts.iter().all(|part| line.contains(part.as_str())) {
        return None;
    }
    if rule.pass > 0 {
        rule.pass -= 1;
        return None;
    }
    let hold = rule.hold;
    state.rule = None;
    state.held = true;
    shared.1.notify_all();
    Some(hold)
}

fn wait_released(shared: &Arc<(Mutex<State>, Condvar)>) {
    let mut state = shared.0.lock().unwrap();
    while !state.released {
        state = shared.1.wait(state).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each request with its number; knows when it has got one.
    fn server(got: Arc<Mutex<u32>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let got = got.clone();
                std::thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    while let Ok(1..) = client.read(&mut buffer) {
                        *got.lock().unwrap() += 1;
                        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                    }
                });
            }
        });
        address
    }

    fn put(gate: &Gate, path: &str) -> TcpStream {
        let mut client = TcpStream::connect(("127.0.0.1", gate.port)).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        write!(client, "PUT {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        client
    }

    fn answered(client: &mut TcpStream) -> bool {
        matches!(client.read(&mut [0; 256]), Ok(1..))
    }

    #[test]
    fn a_held_request_reaches_the_server_only_when_released() {
        let got = Arc::new(Mutex::new(0));
        let gate = Gate::new(&server(got.clone()));
        gate.hold(Hold::Request, &["PUT ", "/HEAD.json"], 1);
        assert!(answered(&mut put(&gate, "/b/HEAD.json")), "the first passes");
        let mut second = put(&gate, "/b/HEAD.json");
        gate.wait_held(5);
        assert!(!answered(&mut second));
        assert_eq!(*got.lock().unwrap(), 1);
        assert!(answered(&mut put(&gate, "/b/other")), "other requests go by");
        gate.release();
        assert!(answered(&mut second));
    }

    #[test]
    fn a_held_answer_leaves_the_request_done() {
        let got = Arc::new(Mutex::new(0));
        let gate = Gate::new(&server(got.clone()));
        gate.hold(Hold::Answer, &["/HEAD.json"], 0);
        let mut client = put(&gate, "/b/HEAD.json");
        gate.wait_held(5);
        assert!(!answered(&mut client));
        assert_eq!(*got.lock().unwrap(), 1);
        gate.release();
        assert!(answered(&mut client));
    }
}
