//! A relay of bytes in front of any server, which loses an answer when it is told to. Knows no
//! protocol.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A running relay. Its threads end with the test's process.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    swallow: Needle,
}

/// What the answer holds that is to be lost.
type Needle = Arc<Mutex<Option<Vec<u8>>>>;

impl Relay {
    /// Relays to `server` from a port of its own.
    pub fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let swallow = Needle::default();
        let lost = swallow.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let (from, to) = (client.try_clone(), server.try_clone());
                let (Ok(from), Ok(to)) = (from, to) else {
                    continue;
                };
                let lost = lost.clone();
                std::thread::spawn(move || copy(from, to, &Needle::default()));
                std::thread::spawn(move || copy(server, client, &lost));
            }
        });
        Self { address, swallow }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next bytes from the server that hold these are not passed on, and their connection is
    /// cut.
    pub fn swallow_answer_with(&self, needle: &str) {
        *self.swallow.lock().expect("nobody panicked") = Some(needle.as_bytes().to_vec());
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, swallow: &Needle) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || is_lost(&buffer[..count], swallow) {
            break;
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Whoever has gone already needs no telling.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn is_lost(bytes: &[u8], swallow: &Needle) -> bool {
    let mut needle = swallow.lock().expect("nobody panicked");
    let lost = needle
        .as_ref()
        .is_some_and(|needle| bytes.windows(needle.len()).any(|window| window == needle));
    if lost {
        *needle = None;
    }
    lost
}
