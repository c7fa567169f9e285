//! Which servers there are and which of them a call goes to: one server, the master that Sentinels
//! name, or the master of a key's slot in a cluster; and one connection to each.
//!
//! In a cluster a call follows `MOVED`, which says that nothing was done, and never `ASK`: our
//! scripts compute the names of their keys, so a node that has only some of a queue's keys would
//! work on half a queue. While a slot is moved its queues therefore stand still. The first key of a
//! script is never written, so the node that gives the slot away answers every script with `ASK`.

use super::address::{Address, Host, WANTED};
use super::bell::{Bell, Bells};
use super::dial::{Live, Tls, dial, tls};
use super::link::Place;
use super::slots::Slots;
use super::trouble;
use crate::clock::{self, Moment};
use crate::trouble::{Failed, Trouble};
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, ServerErrorKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an answer may take before the connection counts as lost: longer than any script of ours
/// holds the server up.
pub const ANSWER: Duration = Duration::from_secs(5);
/// Calls that come so soon after a failed attempt to connect share its answer.
const AGAIN: Duration = Duration::from_millis(100);

/// The servers of one address.
pub struct Servers {
    address: Address,
    tls: Option<Tls>,
    place: String,
    config: AsyncConnectionConfig,
    bells: Arc<Bells>,
    topology: Arc<Topology>,
    nodes: Mutex<HashMap<Host, Arc<Node>>>,
    /// The node that tells of what is published: in a cluster each tells of everything.
    ear: Mutex<Host>,
}

#[derive(Default)]
struct Topology {
    known: Mutex<Known>,
    /// One looks at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
enum Known {
    #[default]
    Nothing,
    One,
    Cluster {
        slots: Slots,
        /// A node could not be reached, or has not what it should have.
        stale: bool,
    },
}

/// The connection to one server.
pub struct Node {
    host: Host,
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Grows with every connection.
    number: u64,
    live: Option<Live>,
    failed: Option<(Moment, Failed)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete or not begun.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    /// Reads the address and the files of TLS. `bells` are told what is published.
    pub fn new(
        place: &Place,
        config: AsyncConnectionConfig,
        bells: Arc<Bells>,
    ) -> Result<Self, Failed> {
        let refused = |message: String| Failed {
            kind: Trouble::Refused,
            message,
        };
        let address = Address::parse(&place.url)
            .map_err(|why| refused(format!("the address of Redis: {why}; wanted {WANTED}")))?;
        let tls = address.tls.then(|| tls(&place.tls)).transpose();
        let tls = tls.map_err(|why| refused(format!("TLS to Redis: {why}")))?;
        let known = match address.sentinels {
            Some(_) => Known::One,
            None => Known::Nothing,
        };
        Ok(Self {
            place: address.to_string(),
            tls,
            config,
            bells,
            topology: Arc::new(Topology {
                known: Mutex::new(known),
                ..Topology::default()
            }),
            nodes: Mutex::default(),
            ear: Mutex::new(address.hosts[0].clone()),
            address,
        })
    }

    /// Other connections to the same servers. Nothing can be listened to on them.
    pub fn beside(&self, config: AsyncConnectionConfig) -> Self {
        Self {
            address: self.address.clone(),
            tls: self.tls.clone(),
            place: self.place.clone(),
            config,
            bells: Arc::default(),
            topology: self.topology.clone(),
            nodes: Mutex::default(),
            ear: Mutex::new(self.address.hosts[0].clone()),
        }
    }

    /// Hosts and ports, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether this is a cluster, as far as is known.
    pub fn is_cluster(&self) -> bool {
        matches!(&*lock(&self.topology.known), Known::Cluster { .. })
    }

    /// The node that calls about a slot go to; without a slot, any.
    pub async fn node_of(&self, slot: Option<u16>) -> Result<Arc<Node>, Failed> {
        for _ in 0..2 {
            match &*lock(&self.topology.known) {
                Known::One => return Ok(self.node(&self.address.hosts[0])),
                Known::Cluster {
                    slots,
                    stale: false,
                } => {
                    let found = match slot {
                        Some(slot) => slots.master(slot).cloned(),
                        None => slots.masters().into_iter().next(),
                    };
                    if let Some(host) = found {
                        return Ok(self.node(&host));
                    }
                }
                Known::Nothing | Known::Cluster { .. } => {}
            }
            self.look().await?;
        }
        self.outdate();
        Err(Failed {
            kind: Trouble::Passing,
            message: trouble::named(&self.place, "no node of the cluster has the queue's slot"),
        })
    }

    /// All masters, or the one server.
    pub fn masters(&self) -> Vec<Arc<Node>> {
        let hosts = match &*lock(&self.topology.known) {
            Known::Cluster { slots, .. } => slots.masters(),
            Known::One | Known::Nothing => vec![self.address.hosts[0].clone()],
        };
        hosts.iter().map(|host| self.node(host)).collect()
    }

    fn node(&self, host: &Host) -> Arc<Node> {
        let mut nodes = lock(&self.nodes);
        let node = nodes.entry(host.clone()).or_insert_with(|| {
            Arc::new(Node {
                host: host.clone(),
                state: tokio::sync::Mutex::default(),
            })
        });
        node.clone()
    }

    /// What is known of a cluster is to be asked again before the next call.
    fn outdate(&self) {
        if let Known::Cluster { stale, .. } = &mut *lock(&self.topology.known) {
            *stale = true;
        }
    }

    /// Asks what kind of server this is, and who has which slots.
    async fn look(&self) -> Result<(), Failed> {
        let _one_at_a_time = self.topology.looking.lock().await;
        let mut hosts = match &*lock(&self.topology.known) {
            Known::One | Known::Cluster { stale: false, .. } => return Ok(()),
            Known::Nothing => Vec::new(),
            Known::Cluster { slots, .. } => slots.masters(),
        };
        for host in &self.address.hosts {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        let mut failed = None;
        for host in &hosts {
            match self.ask(host).await {
                Ok(known) => {
                    *lock(&self.topology.known) = known;
                    return Ok(());
                }
                // Nothing that another node could know better.
                Err(error) if error.kind == Trouble::Denied => return Err(error),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.expect("an address has a host"))
    }

    async fn ask(&self, host: &Host) -> Result<Known, Failed> {
        let node = self.node(host);
        let (number, mut live) = self.connection(&node).await?;
        let known = matches!(&*lock(&self.topology.known), Known::Cluster { .. });
        let place = host.to_string();
        let refused = |why: &str| Failed {
            kind: Trouble::Refused,
            message: trouble::named(&place, why),
        };
        if !known {
            let answer = redis::cmd("HELLO").query_async(&mut live.connection).await;
            let hello: HashMap<String, Value> = self.plainly(&node, number, answer).await?;
            match word(&hello, "mode").as_str() {
                "cluster" => {}
                "sentinel" => {
                    return Err(refused(
                        "it is a Sentinel; write redis+sentinel://HOST:PORT,…/MASTER",
                    ));
                }
                _ if self.address.hosts.len() > 1 => {
                    return Err(refused(
                        "several hosts are for a cluster, and it is a single server",
                    ));
                }
                _ => return Ok(Known::One),
            }
        }
        let mut slots = redis::cmd("CLUSTER");
        let answer = slots.arg("SLOTS").query_async(&mut live.connection).await;
        let answer: Value = self.plainly(&node, number, answer).await?;
        match Slots::read(&answer, host) {
            Some(slots) if slots.masters().is_empty() => Err(Failed {
                kind: Trouble::Passing,
                message: trouble::named(&place, "it knows of no slots of its cluster"),
            }),
            Some(slots) => Ok(Known::Cluster {
                slots,
                stale: false,
            }),
            None => Err(trouble::strange(&place, "CLUSTER SLOTS")),
        }
    }

    /// Notes what an answer says of the connection and the cluster. `None`: nothing was done, since
    /// the slot is elsewhere, which is known now.
    pub async fn heard<T>(
        &self,
        node: &Arc<Node>,
        number: u64,
        answer: Result<T, RedisError>,
    ) -> Option<Result<T, Failed>> {
        let error = match answer {
            Ok(answer) => return Some(Ok(answer)),
            Err(error) => error,
        };
        if !self.is_cluster() {
            return Some(self.plainly(node, number, Err(error)).await);
        }
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                if !self.follow(node, &error) {
                    self.outdate();
                }
                None
            }
            // Of a transaction nothing is done unless all is.
            ErrorKind::Server(ServerErrorKind::ExecAbort) => {
                self.outdate();
                None
            }
            ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain) => {
                let why = "the slot of the queue is being moved to another node";
                Some(Err(Failed {
                    kind: Trouble::Passing,
                    message: trouble::named(&node.host.to_string(), why),
                }))
            }
            _ => {
                if trouble::is_over(&error)
                    || error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown)
                {
                    self.outdate();
                }
                Some(self.plainly(node, number, Err(error)).await)
            }
        }
    }

    /// Notes where a slot is now. False if that cannot be read.
    fn follow(&self, node: &Node, error: &RedisError) -> bool {
        let Some((host, slot)) = error.redirect_node() else {
            return false;
        };
        // A node that does not know its own address leaves it out.
        let full = match host.strip_prefix(':') {
            Some(port) => format!("{}:{port}", node.host.name),
            None => host.to_owned(),
        };
        // Without brackets, an IPv6 address ends at its last colon.
        let found = match full.rsplit_once(':') {
            Some((name, port)) => port.parse().ok().map(|port| Host {
                name: name.trim_matches(['[', ']']).to_owned(),
                port,
            }),
            None => None,
        };
        match (&mut *lock(&self.topology.known), found) {
            (Known::Cluster { slots, .. }, Some(host)) => {
                slots.moved(slot, host);
                true
            }
            _ => false,
        }
    }

    /// Notes what an answer says of the connection alone.
    async fn plainly<T>(
        &self,
        node: &Node,
        number: u64,
        answer: Result<T, RedisError>,
    ) -> Result<T, Failed> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if trouble::is_over(&error) {
            let mut state = node.state.lock().await;
            if state.number == number {
                state.live = None;
            }
        }
        Err(trouble::failed(&self.name_of(&node.host), &error))
    }

    fn name_of(&self, host: &Host) -> String {
        match self.address.sentinels {
            Some(_) => self.place.clone(),
            None => host.to_string(),
        }
    }

    /// A node's connection and its number; made if there is none.
    pub async fn connection(&self, node: &Node) -> Result<(u64, Live), Failed> {
        let mut state = node.state.lock().await;
        if let Some(live) = &state.live {
            return Ok((state.number, live.clone()));
        }
        let now = clock::now();
        if let Some((at, error)) = &state.failed
            && now.since(*at) < AGAIN
        {
            return Err(error.clone());
        }
        match self.connect(&node.host).await {
            Ok(live) => {
                state.number += 1;
                state.live = Some(live.clone());
                state.failed = None;
                Ok((state.number, live))
            }
            Err(error) => {
                self.outdate();
                state.failed = Some((clock::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self, host: &Host) -> Result<Live, Failed> {
        let failed = |error: &RedisError| trouble::failed(&self.name_of(host), error);
        let host = match self.address.sentinels {
            Some(_) => &self.master().await?,
            None => host,
        };
        let login = &self.address.login;
        let mut live = dial(host, self.tls.as_ref(), login, &self.config)
            .await
            .map_err(|error| failed(&error))?;
        if self.address.sentinels.is_some() {
            let hello = redis::cmd("HELLO").query_async(&mut live.connection).await;
            let hello: HashMap<String, Value> = hello.map_err(|error| failed(&error))?;
            if word(&hello, "role") != "master" {
                let why = format!("{host} is no master yet, or no more");
                return Err(Failed {
                    kind: Trouble::Passing,
                    message: trouble::named(&self.place, &why),
                });
            }
        }
        let is_ear = self.address.sentinels.is_some() || *lock(&self.ear) == *host;
        let channels = self.bells.channels();
        if is_ear && !channels.is_empty() {
            let subscribed = live.connection.subscribe(&channels).await;
            subscribed.map_err(|error| failed(&error))?;
        }
        Ok(live)
    }

    /// The master that the first Sentinel names which answers.
    async fn master(&self) -> Result<Host, Failed> {
        let sentinels = self.address.sentinels.as_ref();
        let sentinels = sentinels.expect("only asked where there are some");
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER));
        let mut failed = None;
        for host in &self.address.hosts {
            let asked = async {
                let mut live = dial(host, self.tls.as_ref(), &sentinels.login, &config).await?;
                redis::cmd("SENTINEL")
                    .arg("GET-MASTER-ADDR-BY-NAME")
                    .arg(&sentinels.master)
                    .query_async::<Option<(String, u16)>>(&mut live.connection)
                    .await
            };
            match asked.await {
                Ok(Some((name, port))) => return Ok(Host { name, port }),
                Ok(None) => {
                    let why = format!("this Sentinel knows no master `{}`", sentinels.master);
                    failed.get_or_insert(Failed {
                        kind: Trouble::Missing,
                        message: trouble::named(&host.to_string(), &why),
                    });
                }
                Err(error) => {
                    failed.get_or_insert(trouble::failed(&host.to_string(), &error));
                }
            }
        }
        Err(failed.expect("an address has a host"))
    }

    /// See `Link::listen`.
    pub async fn listen(
        &self,
        slot: Option<u16>,
        channel: &str,
        bell: &Arc<Bell>,
    ) -> Result<(), Failed> {
        let first = self.bells.hang(channel, bell);
        if !first && !self.is_cluster() {
            return Ok(());
        }
        let listening = async {
            self.node_of(slot).await?;
            self.subscribe(channel, first).await
        };
        listening.await.inspect_err(|_| {
            if first {
                self.bells.take_down(channel);
            }
        })
    }

    /// Subscribes on the node that tells, or on another if it cannot be reached.
    async fn subscribe(&self, channel: &str, first: bool) -> Result<(), Failed> {
        let mut failed = None;
        let before = lock(&self.ear).clone();
        let others = self.masters().into_iter().map(|node| node.host.clone());
        let others = others.filter(|host| *host != before);
        let hosts: Vec<Host> = match self.is_cluster() {
            true => std::iter::once(before.clone()).chain(others).collect(),
            false => vec![before.clone()],
        };
        for host in hosts {
            let node = self.node(&host);
            let (number, mut live) = match self.connection(&node).await {
                Ok(connection) => connection,
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            };
            let channels = match (host == before, first) {
                (true, false) => return Ok(()),
                (true, true) => vec![channel.to_owned()],
                (false, _) => {
                    *lock(&self.ear) = host.clone();
                    self.bells.channels()
                }
            };
            let answer = live.connection.subscribe(&channels).await;
            match self.plainly(&node, number, answer).await {
                Ok(()) => return Ok(()),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.expect("there is one host at least"))
    }
}

/// A word of an answer to `HELLO`; empty if it is not there.
fn word(hello: &HashMap<String, Value>, name: &str) -> String {
    match hello.get(name) {
        Some(Value::BulkString(word)) => String::from_utf8_lossy(word).into_owned(),
        Some(Value::SimpleString(word)) => word.clone(),
        _ => String::new(),
    }
}
