//! A TCP proxy that can fall silent without closing anything, as a load balancer does that has forgotten a
//! connection.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{park, spawn},
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
