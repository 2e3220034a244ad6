//! A TCP proxy that can fall silent without closing anything, as a load balancer does that has forgotten a
//! connection.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc::{Receiver, channel},
    },
    thread::{park, sleep, spawn},
    time::{Duration, Instant},
};

/// The proxy. It serves until the test ends.
pub struct Proxy {
    /// Its port on 127.0.0.1.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Connections of an earlier number than this pass nothing on, for ever.
    alive_from: AtomicU64,
    next: AtomicU64,
    /// New connections pass nothing on either.
    closed: AtomicBool,
}

impl Proxy {
    /// Starts one before a port of this machine.
    pub fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let state = proxy.state.clone();
        spawn(move || {
            for client in listener.incoming().flatten() {
                let number = state.next.fetch_add(1, SeqCst);
                if state.closed.load(SeqCst) {
                    // Accepted and never answered; dropping it would send a FIN.
                    std::mem::forget(client);
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)) else { continue };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let there = state.clone();
                spawn(move || pass(&there, number, from, to));
                let back = state.clone();
                spawn(move || pass(&back, number, server, client));
            }
        });
        proxy
    }

    /// All connections of this time fall silent; later ones work.
    pub fn forget_connections(&self) {
        self.state.alive_from.store(self.state.next.load(SeqCst), SeqCst);
    }

    /// Nothing passes any more, until `open`.
    pub fn close(&self) {
        self.state.closed.store(true, SeqCst);
        self.forget_connections();
    }

    /// New connections work again; the old ones stay silent.
    pub fn open(&self) {
        self.state.closed.store(false, SeqCst);
    }
}

fn pass(state: &State, number: u64, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        if number < state.alive_from.load(SeqCst) {
            // Neither end may hear that the other has gone.
            loop {
                park();
            }
        }
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}

/// Starts a proxy before a port that speaks HTTP/1.1 without TLS: what comes for a watch is passed on this much
/// later, the rest at once. Gives its port.
pub fn start_late(upstream: u16, delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)) else { continue };
            let watches = Arc::new(AtomicBool::new(false));
            let (from, to, watch) =
                (client.try_clone().unwrap(), server.try_clone().unwrap(), watches.clone());
            spawn(move || ask(from, to, &watch));
            spawn(move || answer_late(server, client, &watches, delay));
        }
    });
    port
}

/// Passes requests on, and notes whether the newest is a watch. A connection has one request at a time.
fn ask(mut from: TcpStream, mut to: TcpStream, watches: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let line = String::from_utf8_lossy(buffer[..read].split(|b| *b == b'\n').next().unwrap_or_default());
        if line.trim_end().ends_with("HTTP/1.1") {
            watches.store(line.contains("watch=true"), SeqCst);
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn answer_late(mut from: TcpStream, to: TcpStream, watches: &AtomicBool, delay: Duration) {
    let (late, inbox) = channel();
    let writer = spawn(move || write_late(to, &inbox));
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let at = Instant::now() + if watches.load(SeqCst) { delay } else { Duration::ZERO };
        if late.send((at, buffer[..read].to_vec())).is_err() {
            break;
        }
    }
    drop(late);
    let _ = writer.join();
}

fn write_late(mut to: TcpStream, inbox: &Receiver<(Instant, Vec<u8>)>) {
    for (at, bytes) in inbox {
        sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
