//! Which servers there are and which of them a call goes to: one server, the master that Sentinels
//! name, or the master of a key's slot in a cluster; and one connection to each.
//!
//! In a cluster a call follows `MOVED`, which says that nothing was done, and `ASK` only once the
//! node that gives the slot away has no key of it any more. Scripts compute the names of their keys,
//! so a node that has only some of a queue's keys would work on half a queue: until the last key has
//! moved, a queue stands still. The first key of a script is never written, so the node that gives
//! the slot away answers every script with `ASK`, and nothing can be added there meanwhile.

use super::address::{Address, Host, WANTED};
use super::dial::{LiveConnection, Tls, dial, tls};
use super::errors;
use super::link::RedisAddress;
use super::notifier::{Notifier, Notifiers};
use super::slots::Slots;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use redis::{AsyncConnectionConfig, ErrorKind as ServerError, RedisError, ServerErrorKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an answer may take before the connection counts as lost: longer than any of our scripts
/// holds the server up.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// Calls that come so soon after a failed attempt to connect share its answer.
const AGAIN: Duration = Duration::from_millis(100);

/// What to do where the nodes of a cluster are not who their certificates are for.
const ANNOUNCE: &str = "; the cluster announced this node: set cluster-announce-hostname on each node to \
                        the name in its certificate, and cluster-preferred-endpoint-type to hostname";

/// The servers of one address.
pub(super) struct Servers {
    address: Address,
    tls: Option<Tls>,
    place: String,
    config: AsyncConnectionConfig,
    notifiers: Arc<Notifiers>,
    topology: Arc<Topology>,
    nodes: Mutex<HashMap<Host, Arc<Node>>>,
    /// The node that tells of what is published: in a cluster each tells of everything.
    ear: Mutex<Host>,
}

/// What a node says of a slot that it does not serve.
enum Redirection {
    Moved { slot: u16, to: Host },
    Ask { slot: u16, to: Host },
}

#[derive(Default)]
struct Topology {
    known: Mutex<KnownTopology>,
    /// What a Sentinel named last.
    master: Mutex<Option<Host>>,
    /// One looks at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
enum KnownTopology {
    #[default]
    Nothing,
    One,
    Cluster {
        slots: Slots,
        /// A node could not be reached, or has not what it should have.
        stale: bool,
    },
}

/// What a node's answer to a call means.
pub(super) enum Heard<T> {
    /// The call was made, or has failed.
    Answer(Result<T, CallError>),
    /// Nothing was done: another node has the slot, which is known now.
    Moved,
    /// Nothing was done: the slot is being moved, and what was asked for is not on this node.
    Moving {
        /// The slot.
        slot: u16,
        /// Where it is moved to.
        to: Host,
    },
    /// Nothing was done, and nobody knows yet who would do it.
    Unsettled,
}

/// The connection to one server.
pub(super) struct Node {
    host: Host,
    state: tokio::sync::Mutex<TopologyState>,
}

impl Node {
    /// Host and port, for messages.
    pub(super) fn name(&self) -> String {
        self.host.to_string()
    }
}

#[derive(Default)]
struct TopologyState {
    /// Grows with every connection.
    number: u64,
    live: Option<LiveConnection>,
    failed: Option<(BootInstant, CallError)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete or not begun.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    /// Reads the address and the files of TLS. `notifiers` are notified of what is published.
    pub(super) fn new(
        place: &RedisAddress,
        config: AsyncConnectionConfig,
        notifiers: Arc<Notifiers>,
    ) -> Result<Self, CallError> {
        let refused = |message: String| CallError {
            kind: ErrorKind::Invalid,
            message,
        };
        let address = Address::parse(&place.url)
            .map_err(|why| refused(format!("the address of Redis: {why}; wanted {WANTED}")))?;
        let tls = address.tls.then(|| tls(&place.tls)).transpose();
        let tls = tls.map_err(|why| refused(format!("TLS to Redis: {why}")))?;
        let known = match address.sentinels {
            Some(_) => KnownTopology::One,
            None => KnownTopology::Nothing,
        };
        Ok(Self {
            place: address.to_string(),
            tls,
            config,
            notifiers,
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
    pub(super) fn beside(&self, config: AsyncConnectionConfig) -> Self {
        Self {
            address: self.address.clone(),
            tls: self.tls.clone(),
            place: self.place.clone(),
            config,
            notifiers: Arc::default(),
            topology: self.topology.clone(),
            nodes: Mutex::default(),
            ear: Mutex::new(self.address.hosts[0].clone()),
        }
    }

    /// Hosts and ports, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Whether this is a cluster, as far as is known.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(&*lock(&self.topology.known), KnownTopology::Cluster { .. })
    }

    /// The node that calls about a slot go to; without a slot, any.
    pub(super) async fn node_of(&self, slot: Option<u16>) -> Result<Arc<Node>, CallError> {
        for _ in 0..2 {
            match &*lock(&self.topology.known) {
                KnownTopology::One => return Ok(self.node(&self.address.hosts[0])),
                KnownTopology::Cluster {
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
                KnownTopology::Nothing | KnownTopology::Cluster { .. } => {}
            }
            self.look().await?;
        }
        self.outdate();
        Err(CallError {
            kind: ErrorKind::Transient,
            message: errors::named(&self.place, "no node of the cluster has the queue's slot"),
        })
    }

    /// All masters, or the one server.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let hosts = match &*lock(&self.topology.known) {
            KnownTopology::Cluster { slots, .. } => slots.masters(),
            KnownTopology::One | KnownTopology::Nothing => vec![self.address.hosts[0].clone()],
        };
        hosts.iter().map(|host| self.node(host)).collect()
    }

    /// A node by its place, whatever is known of the cluster.
    pub(super) fn node(&self, host: &Host) -> Arc<Node> {
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
        if let KnownTopology::Cluster { stale, .. } = &mut *lock(&self.topology.known) {
            *stale = true;
        }
    }

    /// Asks what kind of server this is, and who has which slots.
    async fn look(&self) -> Result<(), CallError> {
        let _one_at_a_time = self.topology.looking.lock().await;
        let mut hosts = match &*lock(&self.topology.known) {
            KnownTopology::One | KnownTopology::Cluster { stale: false, .. } => return Ok(()),
            KnownTopology::Nothing => Vec::new(),
            KnownTopology::Cluster { slots, .. } => slots.masters(),
        };
        for host in &self.address.hosts {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        let mut failed = None;
        for host in &hosts {
            match self.fetch_topology(host).await {
                Ok(known) => {
                    let before = std::mem::replace(&mut *lock(&self.topology.known), known.clone());
                    if let (
                        KnownTopology::Cluster { slots: old, .. },
                        KnownTopology::Cluster { slots, .. },
                    ) = (&before, &known)
                    {
                        note_change(old.masters(), slots.masters());
                    }
                    return Ok(());
                }
                // Nothing that another node could know better.
                Err(error) if error.kind == ErrorKind::AccessDenied => return Err(error),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.expect("an address has a host"))
    }

    async fn fetch_topology(&self, host: &Host) -> Result<KnownTopology, CallError> {
        let node = self.node(host);
        let (number, mut live) = self.connection(&node).await?;
        let known = matches!(&*lock(&self.topology.known), KnownTopology::Cluster { .. });
        let place = host.to_string();
        let refused = |why: &str| CallError {
            kind: ErrorKind::Invalid,
            message: errors::named(&place, why),
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
                        "several hosts mean a cluster, and it is a single server",
                    ));
                }
                _ => return Ok(KnownTopology::One),
            }
        }
        let mut slots = redis::cmd("CLUSTER");
        let answer = slots.arg("SLOTS").query_async(&mut live.connection).await;
        let answer: Value = self.plainly(&node, number, answer).await?;
        match Slots::read(&answer, host, self.address.tls) {
            Some(slots) if slots.masters().is_empty() => Err(CallError {
                kind: ErrorKind::Transient,
                message: errors::named(&place, "it knows no slots of its cluster"),
            }),
            Some(slots) => Ok(KnownTopology::Cluster {
                slots,
                stale: false,
            }),
            None => Err(errors::unexpected_answer(&place, "CLUSTER SLOTS")),
        }
    }

    /// Notes what an answer says of the connection and the cluster.
    pub(super) async fn note_answer<T>(
        &self,
        node: &Arc<Node>,
        number: u64,
        answer: Result<T, RedisError>,
    ) -> Heard<T> {
        let error = match answer {
            Ok(answer) => return Heard::Answer(Ok(answer)),
            Err(error) => error,
        };
        if !self.is_cluster() {
            return Heard::Answer(self.plainly(node, number, Err(error)).await);
        }
        match self.redirection(node, &error) {
            Some(Redirection::Moved { slot, to }) => {
                if let KnownTopology::Cluster { slots, .. } = &mut *lock(&self.topology.known) {
                    slots.moved(slot, to);
                }
                return Heard::Moved;
            }
            Some(Redirection::Ask { slot, to }) => return Heard::Moving { slot, to },
            None => {}
        }
        match error.kind() {
            // It does not tell where to.
            ServerError::Server(ServerErrorKind::Moved) => {
                self.outdate();
                Heard::Moved
            }
            // Of a transaction nothing is done unless all is.
            ServerError::Server(ServerErrorKind::ExecAbort) => {
                self.outdate();
                Heard::Unsettled
            }
            ServerError::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain) => {
                Heard::Unsettled
            }
            _ => {
                if errors::is_over(&error)
                    || error.kind() == ServerError::Server(ServerErrorKind::ClusterDown)
                {
                    self.outdate();
                }
                Heard::Answer(self.plainly(node, number, Err(error)).await)
            }
        }
    }

    /// Where a node says that a slot is, or is going. The errors of a pipeline say the same.
    fn redirection(&self, node: &Node, error: &RedisError) -> Option<Redirection> {
        let errors = error.clone().into_server_errors()?;
        errors.iter().find_map(|(_, error)| {
            let kind = error.kind()?;
            let mut words = error.details()?.split_ascii_whitespace();
            let (slot, to) = (words.next()?.parse().ok()?, words.next()?);
            let KnownTopology::Cluster { slots, .. } = &*lock(&self.topology.known) else {
                return None;
            };
            let to = slots.node(to, &node.host)?;
            match kind {
                ServerErrorKind::Moved => Some(Redirection::Moved { slot, to }),
                ServerErrorKind::Ask => Some(Redirection::Ask { slot, to }),
                _ => None,
            }
        })
    }

    /// Whether a node that gives a slot away has no key of it any more, so that all that there is of
    /// it is on the other node.
    pub(super) async fn has_given_away(&self, node: &Arc<Node>, slot: u16) -> bool {
        let Ok((number, mut live)) = self.connection(node).await else {
            return false;
        };
        let mut count = redis::cmd("CLUSTER");
        count.arg("COUNTKEYSINSLOT").arg(slot);
        let keys = count.query_async::<u64>(&mut live.connection).await;
        matches!(self.plainly(node, number, keys).await, Ok(0))
    }

    /// Notes what an answer says of the connection alone.
    async fn plainly<T>(
        &self,
        node: &Node,
        number: u64,
        answer: Result<T, RedisError>,
    ) -> Result<T, CallError> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if errors::is_over(&error) {
            let mut state = node.state.lock().await;
            if state.number == number {
                state.live = None;
            }
        }
        Err(errors::failed(&self.name_of(&node.host), &error))
    }

    fn name_of(&self, host: &Host) -> String {
        match self.address.sentinels {
            Some(_) => self.place.clone(),
            None => host.to_string(),
        }
    }

    /// A node's connection and its number; made if there is none.
    pub(super) async fn connection(&self, node: &Node) -> Result<(u64, LiveConnection), CallError> {
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

    async fn connect(&self, host: &Host) -> Result<LiveConnection, CallError> {
        let failed = |error: &RedisError| {
            let mut failed = errors::failed(&self.name_of(host), error);
            // The name of the node's certificate is another, as often with addresses.
            if self.is_cluster()
                && !self.address.hosts.contains(host)
                && failed.message.contains("certificate")
            {
                failed.message.push_str(ANNOUNCE);
            }
            failed
        };
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
                let why = format!("{host} is not a master yet, or no longer");
                return Err(CallError {
                    kind: ErrorKind::Transient,
                    message: errors::named(&self.place, &why),
                });
            }
        }
        let is_ear = self.address.sentinels.is_some() || *lock(&self.ear) == *host;
        let channels = self.notifiers.channels();
        if is_ear && !channels.is_empty() {
            let subscribed = live.connection.subscribe(&channels).await;
            subscribed.map_err(|error| failed(&error))?;
        }
        Ok(live)
    }

    /// The master that the first Sentinel names which answers.
    async fn master(&self) -> Result<Host, CallError> {
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
                Ok(Some((name, port))) => {
                    let master = Host { name, port };
                    let before = lock(&self.topology.master).replace(master.clone());
                    note_change(Vec::from_iter(before), vec![master.clone()]);
                    return Ok(master);
                }
                Ok(None) => {
                    let why = format!("this Sentinel knows no master `{}`", sentinels.master);
                    failed.get_or_insert(CallError {
                        kind: ErrorKind::NotFound,
                        message: errors::named(&host.to_string(), &why),
                    });
                }
                Err(error) => {
                    failed.get_or_insert(errors::failed(&host.to_string(), &error));
                }
            }
        }
        Err(failed.expect("an address has a host"))
    }

    /// See `Link::listen`.
    pub(super) async fn listen(
        &self,
        slot: Option<u16>,
        channel: &str,
        notifier: &Arc<Notifier>,
    ) -> Result<(), CallError> {
        let first = self.notifiers.register(channel, notifier);
        if !first && !self.is_cluster() {
            return Ok(());
        }
        let listening = async {
            self.node_of(slot).await?;
            self.subscribe(channel, first).await
        };
        listening.await.inspect_err(|_| {
            if first {
                self.notifiers.unregister(channel);
            }
        })
    }

    /// Subscribes on the node that tells, or on another if it cannot be reached.
    async fn subscribe(&self, channel: &str, first: bool) -> Result<(), CallError> {
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
                    self.notifiers.channels()
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

/// Logs a failover, or a master that came or went. Nothing where none was known before.
fn note_change(before: Vec<Host>, now: Vec<Host>) {
    let other_than = |hosts: &[Host], others: &[Host]| {
        let missing = hosts.iter().filter(|host| !others.contains(host));
        missing.map(Host::to_string).collect::<Vec<_>>().join(",")
    };
    let (gone, new) = (other_than(&before, &now), other_than(&now, &before));
    let has_changed = !gone.is_empty() || !new.is_empty();
    if has_changed && !before.is_empty() {
        tracing::warn!(gone, new, "Redis masters changed");
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
