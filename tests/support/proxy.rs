//! A proxy on the loopback interface that breaks what passes: refuses, holds, delays or cuts
//! connections, or answers chosen requests itself. One request per connection, so that a change
//! takes effect at once. Knows HTTP/1.1 with `Content-Length`. A request's target is its
//! `X-Amz-Target`, or its method and path where the service has none, as Lambda and CloudWatch.

use crate::PATIENCE;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It passes.
    Pass,
    /// Nothing listens: the connection is refused.
    Refuse,
    /// It is carried out, and the connection cut instead of an answer.
    Cut,
    /// It waits until the mode changes.
    Hold,
    /// It passes after so long.
    Delay(Duration),
}

/// A running proxy. Ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<ProxyShared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ProxyShared {
    address: SocketAddr,
    upstream: SocketAddr,
    state: Mutex<ProxyState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ProxyState {
    mode: Mode,
    /// Whether connections are accepted at this moment.
    listening: bool,
    ended: bool,
    rules: VecDeque<Rule>,
    /// Every request so far.
    seen: Vec<SeenRequest>,
}

/// A request that came.
#[derive(Debug)]
struct SeenRequest {
    target: String,
    body: Vec<u8>,
    /// Whether the server has answered.
    answered: bool,
    /// Whether that answer was an empty JSON object.
    nothing: bool,
}

impl SeenRequest {
    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    fn is(&self, target: &str, body: &str) -> bool {
        self.target.contains(target) && self.text().contains(body)
    }
}

/// An answer that is given instead of the server's.
#[derive(Debug)]
struct Rule {
    target: String,
    left: usize,
    status: u16,
    body: String,
}

impl Proxy {
    /// In front of a server.
    pub fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let shared = Arc::new(ProxyShared {
            address: listener.local_addr().expect("it is bound"),
            upstream,
            state: Mutex::new(ProxyState {
                mode: Mode::Pass,
                listening: true,
                ended: false,
                rules: VecDeque::new(),
                seen: Vec::new(),
            }),
            changed: Condvar::new(),
        });
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.accept(listener))
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

    /// Changes what happens to requests; returns once it does.
    pub fn set(&self, mode: Mode) {
        self.shared.update(|state| state.mode = mode);
        self.shared.wake_acceptor();
        let listening = mode != Mode::Refuse;
        self.shared
            .wait(|state| (state.listening == listening).then_some(()));
    }

    /// Answers the next `count` requests whose target contains `target` with this status
    /// and JSON, in which `ID-0` stands for the id of the first entry of the request, and so on. They do
    /// not reach the server.
    pub fn answer_next(&self, count: usize, target: &str, status: u16, body: &str) {
        let rule = Rule {
            target: target.to_owned(),
            left: count,
            status,
            body: body.to_owned(),
        };
        self.shared.update(|state| state.rules.push_back(rule));
    }

    /// Lets everything pass to the server again.
    pub fn forget_answers(&self) {
        self.shared.update(|state| state.rules.clear());
    }

    /// How many requests with such a target have come so far.
    pub fn seen(&self, target: &str) -> usize {
        count(&self.shared.lock(), target)
    }

    /// The requests so far whose target and body contain these words: the body of each, and
    /// whether the server has answered it.
    pub fn requests(&self, target: &str, body: &str) -> Vec<(String, bool)> {
        let state = self.shared.lock();
        let seen = state.seen.iter().filter(|seen| seen.is(target, body));
        seen.map(|seen| (seen.text().into_owned(), seen.answered))
            .collect()
    }

    /// How many of those with such a target the server has answered with an empty JSON object, as
    /// SQS answers a receive that brings nothing.
    pub fn answered_with_nothing(&self, target: &str) -> usize {
        let state = self.shared.lock();
        let seen = state.seen.iter().filter(|seen| seen.is(target, ""));
        seen.filter(|seen| seen.nothing).count()
    }

    /// Waits until a request whose target and body contain these words has come.
    pub fn wait_for_request(&self, target: &str, body: &str) {
        self.shared.wait(|state| {
            let mut seen = state.seen.iter();
            seen.any(|seen| seen.is(target, body)).then_some(())
        });
    }

    /// The same for so many such requests.
    pub fn wait_until_seen_with(&self, target: &str, body: &str, times: usize) {
        self.shared.wait(|state| {
            let seen = state.seen.iter().filter(|seen| seen.is(target, body));
            (seen.count() >= times).then_some(())
        });
    }

    /// Waits until so many requests with such a target have come since the start.
    pub fn wait_until_seen(&self, times: usize, target: &str) {
        self.shared
            .wait(|state| (count(state, target) >= times).then_some(()));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.update(|state| state.ended = true);
        self.shared.wake_acceptor();
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn count(state: &ProxyState, target: &str) -> usize {
    state
        .seen
        .iter()
        .filter(|seen| seen.target.contains(target))
        .count()
}

impl ProxyShared {
    fn lock(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut ProxyState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait<T>(&self, ask: impl Fn(&ProxyState) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        loop {
            if let Some(answer) = ask(&state) {
                return answer;
            }
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.unwrap_or_else(|| panic!("the proxy waits in vain: {state:?}"));
            (state, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An accept returns only for a connection.
    fn wake_acceptor(&self) {
        let _ = TcpStream::connect(self.address);
    }

    fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut listener = Some(listener);
        loop {
            let accepted = listener.as_ref().map(TcpListener::accept);
            let (ended, refuse) = {
                let state = self.lock();
                (state.ended, state.mode == Mode::Refuse)
            };
            if ended {
                return;
            }
            if refuse {
                // Closing it is the only way to be refused by the system itself.
                drop(listener.take());
                self.update(|state| state.listening = false);
                self.wait_for_end_of_refusal();
                continue;
            }
            if listener.is_none() {
                listener = Some(TcpListener::bind(self.address).expect("the port was ours"));
                self.update(|state| state.listening = true);
            }
            if let Some(Ok((client, _))) = accepted {
                let shared = Arc::clone(&self);
                // A broken connection is what this is for: the test sees it from the other side.
                std::thread::spawn(move || shared.serve(client));
            }
        }
    }

    fn wait_for_end_of_refusal(&self) {
        let mut state = self.lock();
        while state.mode == Mode::Refuse && !state.ended {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let Some(request) = Request::read(&mut client)? else {
            return Ok(());
        };
        let (number, canned) = self.note(&request);
        if let Some(answer) = canned {
            return client.write_all(answer.as_bytes());
        }
        let mode = self.released_mode();
        if let Mode::Delay(time) = mode {
            std::thread::sleep(time);
        }
        let mut server = TcpStream::connect(self.upstream)?;
        server.write_all(&request.head)?;
        server.write_all(&request.body)?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        let nothing = answer.ends_with(b"\r\n\r\n{}");
        self.update(|state| {
            state.seen[number].answered = true;
            state.seen[number].nothing = nothing;
        });
        if mode == Mode::Cut {
            return Ok(());
        }
        client.write_all(&answer)
    }

    /// Counts a request: its number, and the answer that a rule has for it.
    fn note(&self, request: &Request) -> (usize, Option<String>) {
        let (mut number, mut answer) = (0, None);
        let target = &request.target;
        self.update(|state| {
            number = state.seen.len();
            state.seen.push(SeenRequest {
                target: target.clone(),
                body: request.body.clone(),
                answered: false,
                nothing: false,
            });
            let rule = state.rules.iter_mut();
            let rule = rule.filter(|rule| rule.left > 0 && target.contains(&rule.target));
            if let Some(rule) = rule.into_iter().next() {
                rule.left -= 1;
                answer = Some(rule.answer(&request.body));
            }
        });
        (number, answer)
    }

    /// The mode once it is no longer to hold.
    fn released_mode(&self) -> Mode {
        let mut state = self.lock();
        while state.mode == Mode::Hold && !state.ended {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.mode
    }
}

impl Rule {
    fn answer(&self, request: &[u8]) -> String {
        let Self { status, body, .. } = self;
        let body = with_ids_of(request, body);
        format!(
            "HTTP/1.1 {status} As told\r\nContent-Type: application/x-amz-json-1.0\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

/// `answer` with the ids of the request's entries.
fn with_ids_of(request: &[u8], answer: &str) -> String {
    let request: serde_json::Value = serde_json::from_slice(request).unwrap_or_default();
    let entries = request["Entries"].as_array().into_iter().flatten();
    let ids = entries.filter_map(|entry| entry["Id"].as_str());
    let mut answer = answer.to_owned();
    for (position, id) in ids.enumerate() {
        answer = answer.replace(&format!("\"ID-{position}\""), &format!("\"{id}\""));
    }
    answer
}

/// One request, ready to be passed on.
pub(crate) struct Request {
    /// With `Connection: close`, so that the end of the answer is the end of the connection.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) target: String,
}

impl Request {
    /// `None` when the connection ends first.
    pub(crate) fn read(client: &mut TcpStream) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        let mut chunk = [0; 8_192];
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            match client.read(&mut chunk)? {
                0 => return Ok(None),
                n => bytes.extend_from_slice(&chunk[..n]),
            }
        };
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let header = |wanted: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(wanted).then(|| value.trim())
            })
        };
        let length = header("content-length").and_then(|n| n.parse().ok());
        let mut body = bytes.split_off(end + 4);
        let have = body.len();
        body.resize(length.unwrap_or(0).max(have), 0);
        client.read_exact(&mut body[have..])?;
        let mut head = String::new();
        for line in text.lines() {
            if !line.to_ascii_lowercase().starts_with("connection:") {
                head.push_str(line);
                head.push_str("\r\n");
            }
        }
        head.push_str("Connection: close\r\n\r\n");
        Ok(Some(Self {
            head: head.into_bytes(),
            body,
            target: header("x-amz-target")
                .or_else(|| text.lines().next())
                .unwrap_or_default()
                .to_owned(),
        }))
    }
}
