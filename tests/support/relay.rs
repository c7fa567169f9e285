//! A relay of bytes in front of any server, which loses an answer, brings a call late or lets a
//! connection stand still when it is told to. Knows no protocol.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// A running relay. Its threads end with the test's process.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    order: BytesOrder,
}

/// What is to befall which bytes, once.
type BytesOrder = Arc<Mutex<Option<(Vec<u8>, BytesFate)>>>;

#[derive(Debug)]
enum BytesFate {
    /// An answer does not come, and its connection is cut.
    Swallowed,
    /// Neither these bytes nor any later ones of their direction are passed on.
    Stalled { seen: Sender<()> },
    /// A call's connection is cut, and the server is told all the same, when it may.
    Late { may: Receiver<()> },
}

/// A call on its way. The server hears it once this is dropped.
#[derive(Debug)]
pub struct OnItsWay(#[expect(dead_code, reason = "its end is the signal")] Sender<()>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Calls,
    Answers,
}

impl Relay {
    /// Relays to `server` from its own port.
    pub fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let order = BytesOrder::default();
        let orders = order.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let (from, to) = (client.try_clone(), server.try_clone());
                let (Ok(from), Ok(to)) = (from, to) else {
                    continue;
                };
                let (calls, answers) = (orders.clone(), orders.clone());
                std::thread::spawn(move || copy(from, to, Direction::Calls, &calls));
                std::thread::spawn(move || copy(server, client, Direction::Answers, &answers));
            }
        });
        Self { address, order }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next bytes from the server that hold these are not passed on, and their connection is
    /// cut.
    pub fn swallow_answer_with(&self, needle: &str) {
        self.order(needle, BytesFate::Swallowed);
    }

    /// The connection on which these bytes come next, from either side, stands still from then on:
    /// whoever waits there waits forever. Says when that has begun.
    pub fn stall_at(&self, needle: &str) -> Receiver<()> {
        let (seen, begun) = channel();
        self.order(needle, BytesFate::Stalled { seen });
        begun
    }

    /// The next call that holds these bytes is cut off from its answer, and comes to the server
    /// when what is returned here is dropped.
    pub fn delay_call_with(&self, needle: &str) -> OnItsWay {
        let (go, may) = channel();
        self.order(needle, BytesFate::Late { may });
        OnItsWay(go)
    }

    fn order(&self, needle: &str, fate: BytesFate) {
        *self.order.lock().expect("nobody panicked") = Some((needle.as_bytes().to_vec(), fate));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, direction: Direction, order: &BytesOrder) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        match befalls(bytes, direction, order) {
            _ if count == 0 => break,
            None if to.write_all(bytes).is_ok() => {}
            None | Some(BytesFate::Swallowed) => break,
            Some(BytesFate::Stalled { seen }) => {
                // The test may have ended.
                let _ = seen.send(());
                while from.read(&mut buffer).is_ok_and(|count| count > 0) {}
                break;
            }
            Some(BytesFate::Late { may }) => {
                let _ = from.shutdown(Shutdown::Both);
                let _ = may.recv();
                let _ = to.write_all(bytes);
                // The other thread ends both once the answer is there.
                return;
            }
        }
    }
    // Whoever has gone already needs no telling.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn befalls(bytes: &[u8], direction: Direction, order: &BytesOrder) -> Option<BytesFate> {
    let mut order = order.lock().expect("nobody panicked");
    let (needle, fate) = order.as_ref()?;
    let meant = match fate {
        BytesFate::Swallowed => direction == Direction::Answers,
        BytesFate::Late { .. } => direction == Direction::Calls,
        BytesFate::Stalled { .. } => true,
    };
    let there = bytes.windows(needle.len()).any(|window| window == needle);
    let (_, fate) = order.take_if(|_| meant && there)?;
    Some(fate)
}
