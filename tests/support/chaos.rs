//! A proxy on the loopback interface that breaks a share of what passes, by dice with a seed: cuts,
//! truncates and delays requests and answers, answers 5xx and throttles. Keeps counts and no bodies,
//! so that it may run for hours. `proxy` is the one that a test steers call by call.

use crate::proxy::Request;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What can befall a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Read and not passed on; the connection is closed.
    RequestCut,
    /// The server gets a part of it and then the end of the connection; the client gets nothing.
    RequestTruncated,
    /// Carried out, and the connection closed instead of an answer.
    AnswerCut,
    /// Carried out, and a part of the answer given.
    AnswerTruncated,
    /// Carried out, and answered 500 all the same.
    ErrorAfter,
    /// Answered 503, and not passed on.
    Unavailable,
    /// Answered as SQS throttles, and not passed on.
    Throttled,
    /// Passed on late.
    Delayed,
    /// The answer comes in drops.
    Trickled,
}

/// All of them.
pub const FAULTS: [Fault; 9] = [
    Fault::RequestCut,
    Fault::RequestTruncated,
    Fault::AnswerCut,
    Fault::AnswerTruncated,
    Fault::ErrorAfter,
    Fault::Unavailable,
    Fault::Throttled,
    Fault::Delayed,
    Fault::Trickled,
];

/// The longest delay, and the time that a trickled answer takes.
const LONGEST_MS: u64 = 1_500;
/// So many drops make an answer.
const DROPS: usize = 10;

/// A running proxy. Ends when dropped.
#[derive(Debug)]
pub struct Chaos {
    shared: Arc<ChaosState>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ChaosState {
    address: SocketAddr,
    upstream: SocketAddr,
    /// Of a thousand requests so many are broken.
    permille: AtomicU32,
    ended: AtomicBool,
    dice: Mutex<fastrand::Rng>,
    counts: Mutex<BTreeMap<(String, Option<Fault>), u64>>,
}

impl Chaos {
    /// In front of a server, breaking so many of a thousand requests.
    pub fn before(upstream: SocketAddr, permille: u32, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let shared = Arc::new(ChaosState {
            address: listener.local_addr().expect("it is bound"),
            upstream,
            permille: AtomicU32::new(permille),
            ended: AtomicBool::new(false),
            dice: Mutex::new(fastrand::Rng::with_seed(seed)),
            counts: Mutex::default(),
        });
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.accept(&listener))
        };
        Self {
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// From now on breaks so many of a thousand requests.
    pub fn set(&self, permille: u32) {
        self.shared.permille.store(permille, Relaxed);
    }

    /// How many requests of each target met each fault, or none.
    pub fn counts(&self) -> BTreeMap<(String, Option<Fault>), u64> {
        self.shared.counts().clone()
    }

    /// How many requests met this fault.
    pub fn met(&self, wanted: Fault) -> u64 {
        let counts = self.shared.counts();
        let counts = counts.iter();
        let of_it = counts.filter(|((_, fault), _)| *fault == Some(wanted));
        of_it.map(|(_, count)| count).sum()
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
        // An accept returns only for a connection.
        let _ = TcpStream::connect(self.shared.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl ChaosState {
    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, Option<Fault>), u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.ended.load(Relaxed) {
                return;
            }
            let Ok(client) = client else { continue };
            let shared = Arc::clone(&self);
            // Broken connections are what this is for.
            std::thread::spawn(move || shared.serve(client));
        }
    }

    /// A number below `end`.
    fn roll(&self, end: usize) -> usize {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        dice.usize(..end.max(1))
    }

    fn draw(&self) -> Option<Fault> {
        let broken = self.roll(1_000) < self.permille.load(Relaxed) as usize;
        broken.then(|| FAULTS[self.roll(FAULTS.len())])
    }

    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let Some(request) = Request::read(&mut client)? else {
            return Ok(());
        };
        let fault = self.draw();
        let target = request.target.rsplit('.').next().unwrap_or_default();
        *self.counts().entry((target.to_owned(), fault)).or_default() += 1;
        match fault {
            Some(Fault::RequestCut) => return Ok(()),
            Some(Fault::Unavailable) => return client.write_all(&error(503, "ServiceUnavailable")),
            Some(Fault::Throttled) => return client.write_all(&error(400, "ThrottlingException")),
            Some(Fault::Delayed) => {
                let delay = self.roll(usize::try_from(LONGEST_MS).unwrap_or(1));
                std::thread::sleep(Duration::from_millis(delay as u64));
            }
            _ => {}
        }
        let mut server = TcpStream::connect(self.upstream)?;
        if fault == Some(Fault::RequestTruncated) {
            server.write_all(&request.head)?;
            server.write_all(&request.body[..self.roll(request.body.len())])?;
            return server.shutdown(Shutdown::Both);
        }
        server.write_all(&request.head)?;
        server.write_all(&request.body)?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        match fault {
            Some(Fault::AnswerCut) => Ok(()),
            Some(Fault::AnswerTruncated) => client.write_all(&answer[..self.roll(answer.len())]),
            Some(Fault::ErrorAfter) => client.write_all(&error(500, "InternalFailure")),
            Some(Fault::Trickled) => {
                let drop = answer.len().div_ceil(DROPS).max(1);
                for drop in answer.chunks(drop) {
                    client.write_all(drop)?;
                    std::thread::sleep(Duration::from_millis(LONGEST_MS / DROPS as u64));
                }
                Ok(())
            }
            _ => client.write_all(&answer),
        }
    }
}

fn error(status: u16, kind: &str) -> Vec<u8> {
    let body = format!(r#"{{"__type":"com.amazonaws.sqs#{kind}","message":"as the dice fell"}}"#);
    let head = format!(
        "HTTP/1.1 {status} {kind}\r\nContent-Type: application/x-amz-json-1.0\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers every request with its length.
    fn server() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                if let Ok(Some(request)) = Request::read(&mut client) {
                    let body = format!("{:04}", request.body.len());
                    let _ = write!(client, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{body}");
                }
            }
        });
        address
    }

    fn request(chaos: &Chaos) -> String {
        let mut stream = TcpStream::connect(chaos.shared.address).expect("it listens");
        let request = "POST / HTTP/1.1\r\nX-Amz-Target: A.Call\r\nContent-Length: 7\r\n\r\n1234567";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        // A reset is an answer like any other.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn unbroken_calls_pass_unchanged() {
        let chaos = Chaos::before(server(), 0, 1);
        assert!(request(&chaos).ends_with("0007"));
        chaos.set(1_000);
        let mut whole = 0;
        for _ in 0..60 {
            whole += usize::from(request(&chaos).ends_with("0007"));
        }
        let passed = chaos.met(Fault::Delayed) + chaos.met(Fault::Trickled);
        assert_eq!(whole as u64, passed, "{:?}", chaos.counts());
        assert!(FAULTS.iter().all(|fault| chaos.met(*fault) > 0));
        let all: u64 = chaos.counts().values().sum();
        assert_eq!(all, 61);
    }
}
