//! The servers, and the choice of the one that gets a call: one server, the master that Sentinels
//! name, or the master of a key's slot in a cluster. Each has one connection.
//!
//! In a cluster a call follows `MOVED`, which means that nothing was done. It follows `ASK` only
//! once the node that gives the slot away has no key of it any more. Scripts compute the names of
//! their keys, so a node that has only some of a queue's keys would work on half a queue: until the
//! last key has moved, the queue stands still. The first key of a script is never written, so the
//! node that gives the slot away answers every script with `ASK`, and nothing can be added there
//! meanwhile.

use super::address::{Address, Host, WANTED};
use super::dial::{LiveConnection, Tls, dial, tls};
use super::errors;
use super::link::RedisAddress;
use super::notifier::{Notifier, Notifiers};
use super::slots::Slots;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use parking_lot::{Mutex, MutexGuard};
use redis::{AsyncConnectionConfig, ErrorKind as ServerError, RedisError, ServerErrorKind, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The time limit of an answer, after which the connection counts as lost. It is longer than any
/// script blocks the server.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// The time after a failed attempt to connect in which other calls share its error.
const AGAIN: Duration = Duration::from_millis(100);

/// The advice for a cluster whose nodes do not match their certificates.
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
    /// The node that sends published messages. In a cluster, each node sends all of them.
    ear: Mutex<Host>,
}

/// The answer of a node that does not serve a slot.
enum Redirection {
    Moved { slot: u16, to: Host },
    Ask { slot: u16, to: Host },
}

#[derive(Default)]
struct Topology {
    known: Mutex<KnownTopology>,
    /// The master that a Sentinel named last.
    master: Mutex<Option<Host>>,
    /// Allows one look at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
enum KnownTopology {
    #[default]
    Nothing,
    One,
    Cluster {
        slots: Slots,
        /// Whether a node could not be reached, or does not have the slots that it should have.
        stale: bool,
    },
}

/// The meaning of a node's answer to a call.
pub(super) enum NodeAnswer<T> {
    /// The call was made, or has failed.
    Answer(Result<T, CallError>),
    /// The node did nothing: another node has the slot, which is recorded.
    Moved,
    /// The node did nothing: the slot is being moved, and the requested keys are not there.
    Moving {
        /// The slot.
        slot: u16,
        /// The node to which it is moved.
        to: Host,
    },
    /// The node did nothing, and it is not known yet which node has the slot.
    Unsettled,
}

/// The connection to one server.
pub(super) struct Node {
    host: Host,
    state: tokio::sync::Mutex<TopologyState>,
}

impl Node {
    /// Returns host and port, for messages.
    pub(super) fn name(&self) -> String {
        self.host.to_string()
    }
}

#[derive(Default)]
struct TopologyState {
    /// A number that grows with every connection.
    number: u64,
    live: Option<LiveConnection>,
    failed: Option<(BootInstant, CallError)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete or not begun.
    mutex.lock()
}

impl Servers {
    /// Reads the address and the TLS files. `notifiers` get published messages.
    pub(super) fn new(
        place: &RedisAddress,
        config: AsyncConnectionConfig,
        notifiers: Arc<Notifiers>,
    ) -> Result<Self, CallError> {
        let address = Address::parse(&place.url)
            .map_err(|why| invalid(format!("the address of Redis: {why}; wanted {WANTED}")))?;
        let tls = address
            .tls
            .then(|| tls(&place.tls))
            .transpose()
            .map_err(|why| invalid(format!("TLS to Redis: {why}")))?;
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

    /// Returns other connections to the same servers. They do not support listening.
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

    /// Returns hosts and ports, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Whether this is a cluster, as far as is known.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(&*lock(&self.topology.known), KnownTopology::Cluster { .. })
    }

    /// Returns the node for calls about a slot; without a slot, any node.
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

    /// Returns all masters, or the one server.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let hosts = match &*lock(&self.topology.known) {
            KnownTopology::Cluster { slots, .. } => slots.masters(),
            KnownTopology::One | KnownTopology::Nothing => vec![self.address.hosts[0].clone()],
        };
        hosts.iter().map(|host| self.node(host)).collect()
    }

    /// Returns the node of a host, whether or not the known cluster contains it.
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

    /// Marks the known slots of a cluster as stale, so that they are fetched before the next call.
    fn outdate(&self) {
        if let KnownTopology::Cluster { stale, .. } = &mut *lock(&self.topology.known) {
            *stale = true;
        }
    }

    /// Fetches the kind of server, and the slots of a cluster.
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
                // Another node would not know better.
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
        if !known {
            let answer = redis::cmd("HELLO").query_async(&mut live.connection).await;
            let hello: HashMap<String, Value> = self.plainly(&node, number, answer).await?;
            match word(&hello, "mode").as_str() {
                "cluster" => {}
                "sentinel" => {
                    let why = "it is a Sentinel; write redis+sentinel://HOST:PORT,…/MASTER";
                    return Err(invalid(errors::named(&place, why)));
                }
                _ if self.address.hosts.len() > 1 => {
                    let why = "several hosts mean a cluster, and it is a single server";
                    return Err(invalid(errors::named(&place, why)));
                }
                _ => return Ok(KnownTopology::One),
            }
        }
        let mut slots = redis::cmd("CLUSTER");
        let asked = slots.arg("SLOTS").query_async(&mut live.connection).await;
        let answer: Value = self.plainly(&node, number, asked).await?;
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

    /// Records what an answer means for the connection and the cluster.
    pub(super) async fn note_answer<T>(
        &self,
        node: &Arc<Node>,
        number: u64,
        answer: Result<T, RedisError>,
    ) -> NodeAnswer<T> {
        let error = match answer {
            Ok(answer) => return NodeAnswer::Answer(Ok(answer)),
            Err(error) => error,
        };
        if !self.is_cluster() {
            return NodeAnswer::Answer(self.plainly(node, number, Err(error)).await);
        }
        match self.redirection(node, &error) {
            Some(Redirection::Moved { slot, to }) => {
                if let KnownTopology::Cluster { slots, .. } = &mut *lock(&self.topology.known) {
                    slots.moved(slot, to);
                }
                return NodeAnswer::Moved;
            }
            Some(Redirection::Ask { slot, to }) => return NodeAnswer::Moving { slot, to },
            None => {}
        }
        match error.kind() {
            // The error does not say where the slot is.
            ServerError::Server(ServerErrorKind::Moved) => {
                self.outdate();
                NodeAnswer::Moved
            }
            // A transaction is done completely or not at all.
            ServerError::Server(ServerErrorKind::ExecAbort) => {
                self.outdate();
                NodeAnswer::Unsettled
            }
            ServerError::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain) => {
                NodeAnswer::Unsettled
            }
            _ => {
                if errors::is_over(&error)
                    || error.kind() == ServerError::Server(ServerErrorKind::ClusterDown)
                {
                    self.outdate();
                }
                NodeAnswer::Answer(self.plainly(node, number, Err(error)).await)
            }
        }
    }

    /// Returns where a slot is, or is going, according to a node. Also reads the errors of a
    /// pipeline.
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

    /// Whether a node that gives a slot away has no key of it any more, so that all its keys are on
    /// the other node.
    pub(super) async fn has_given_away(&self, node: &Arc<Node>, slot: u16) -> bool {
        let Ok((number, mut live)) = self.connection(node).await else {
            return false;
        };
        let mut count = redis::cmd("CLUSTER");
        count.arg("COUNTKEYSINSLOT").arg(slot);
        let keys = count.query_async::<u64>(&mut live.connection).await;
        matches!(self.plainly(node, number, keys).await, Ok(0))
    }

    /// Records what an answer means for the connection alone.
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

    /// Returns a node's connection and its number. Connects if there is none.
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
        let node = match self.address.sentinels {
            Some(_) => &self.master().await?,
            None => host,
        };
        let login = &self.address.login;
        let mut live = dial(node, self.tls.as_ref(), login, &self.config)
            .await
            .map_err(|error| self.not_connected(host, &error))?;
        if self.address.sentinels.is_some() {
            let hello: HashMap<String, Value> = redis::cmd("HELLO")
                .query_async(&mut live.connection)
                .await
                .map_err(|error| self.not_connected(host, &error))?;
            if word(&hello, "role") != "master" {
                let why = format!("{node} is not a master yet, or no longer");
                return Err(CallError {
                    kind: ErrorKind::Transient,
                    message: errors::named(&self.place, &why),
                });
            }
        }
        let is_ear = self.address.sentinels.is_some() || *lock(&self.ear) == *node;
        let channels = self.notifiers.channels();
        if is_ear && !channels.is_empty() {
            let subscribed = live.connection.subscribe(&channels).await;
            subscribed.map_err(|error| self.not_connected(host, &error))?;
        }
        Ok(live)
    }

    /// Returns the error of a connection to a host.
    fn not_connected(&self, host: &Host, error: &RedisError) -> CallError {
        let mut failed = errors::failed(&self.name_of(host), error);
        // The node's certificate has another name, as is common with addresses.
        if self.is_cluster()
            && !self.address.hosts.contains(host)
            && failed.message.contains("certificate")
        {
            failed.message.push_str(ANNOUNCE);
        }
        failed
    }

    /// Returns the master that the first answering Sentinel names.
    async fn master(&self) -> Result<Host, CallError> {
        let sentinels = self
            .address
            .sentinels
            .as_ref()
            .expect("only asked where there are some");
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

    /// Listens to a channel; see `Link::listen`.
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

    /// Subscribes on the node that sends published messages, or on another if it cannot be reached.
    async fn subscribe(&self, channel: &str, first: bool) -> Result<(), CallError> {
        let mut failed = None;
        let before = lock(&self.ear).clone();
        let others = self
            .masters()
            .into_iter()
            .map(|node| node.host.clone())
            .filter(|host| *host != before);
        let hosts: Vec<Host> = if self.is_cluster() {
            std::iter::once(before.clone()).chain(others).collect()
        } else {
            vec![before.clone()]
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

/// Logs a failover, or a master that came or went. Logs nothing if none was known before.
fn note_change(before: Vec<Host>, now: Vec<Host>) {
    let (gone, new) = (other_than(&before, &now), other_than(&now, &before));
    let has_changed = !gone.is_empty() || !new.is_empty();
    if has_changed && !before.is_empty() {
        tracing::warn!(gone, new, "Redis masters changed");
    }
}

/// Returns the hosts that are not among the others.
fn other_than(hosts: &[Host], others: &[Host]) -> String {
    let missing = hosts.iter().filter(|host| !others.contains(host));
    missing.map(Host::to_string).collect::<Vec<_>>().join(",")
}

fn invalid(message: String) -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message,
    }
}

/// Returns a word of an answer to `HELLO`; empty if it is missing.
fn word(hello: &HashMap<String, Value>, name: &str) -> String {
    match hello.get(name) {
        Some(Value::BulkString(word)) => String::from_utf8_lossy(word).into_owned(),
        Some(Value::SimpleString(word)) => word.clone(),
        _ => String::new(),
    }
}
