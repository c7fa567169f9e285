//! The connections to a server, or to the nodes of a cluster. Each is opened when it is first
//! needed, and again whenever it is lost. A call that may have been carried out is not retried
//! here: the caller knows whether that is safe. `topology` decides which node gets a call.

use super::call::{AskingConnection, RedisCall};
use super::dial::TlsFiles;
use super::errors;
use super::notifier::{Notifier, Notifiers};
use super::slots;
use super::topology::{ANSWER, Node, NodeAnswer, Servers};
use dispatcher_core::clock;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use redis::{AsyncConnectionConfig, FromRedisValue, Pipeline, PushInfo, ScriptInvocation};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The maximum number of long calls at once: a line of 100 Mbit/s carries this many of `LONGEST`
/// bytes in the time of an answer.
const LONG: usize = 2;
/// The number of times that a call follows a queue to its new node before it is left to the caller.
const MOVES: usize = 5;
/// The waits, in milliseconds, before each further try of a call while its slot is being moved.
/// Together they are shorter than the life of a worker without a heartbeat.
const WAITS_MS: [u64; 6] = [10, 20, 40, 80, 160, 320];

/// The address of a server, and the TLS files.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisAddress {
    /// The address; see `address`.
    pub url: String,
    /// The files for `rediss://`.
    pub tls: TlsFiles,
}

impl From<&str> for RedisAddress {
    fn from(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            tls: TlsFiles::default(),
        }
    }
}

impl From<&String> for RedisAddress {
    fn from(url: &String) -> Self {
        Self::from(url.as_str())
    }
}

/// A connection to a server, or to each node of a cluster that it calls, for commands and for the
/// servers' notifications. Clones share it.
#[derive(Clone)]
pub struct Link {
    servers: Arc<Servers>,
    /// The slot of its calls; without one, any node will do.
    slot: Option<u16>,
}

/// The connections of a process to a server. Answers come in the order of the calls, so the calls
/// that keep the process alive there have a connection that carries no payloads.
#[derive(Clone)]
pub struct RedisConnections {
    /// The link for calls that take time, and for the server's notifications.
    pub link: Link,
    /// The link for short calls that must be in time.
    pub urgent: Link,
    long: Arc<Semaphore>,
}

impl RedisConnections {
    /// Creates connections to the server of this address; see `Link::new`.
    pub(crate) fn new(place: &RedisAddress) -> Result<Self, CallError> {
        let link = Link::new(place)?;
        Ok(Self {
            urgent: Link {
                servers: Arc::new(link.servers.beside(answers())),
                slot: None,
            },
            link,
            long: Arc::new(Semaphore::new(LONG)),
        })
    }

    /// Returns the connections for calls about `key`, and keys in its slot.
    pub(crate) fn of(&self, key: &str) -> Self {
        Self {
            link: self.link.of(key),
            urgent: self.urgent.of(key),
            long: self.long.clone(),
        }
    }

    /// Waits for the turn of a call on `link` that sends or may return much data: its time limit
    /// runs from when it is made, and concurrent calls share the line. The turn ends with the
    /// permit; the caller keeps it no longer than the call.
    pub(crate) async fn turn(&self) -> SemaphorePermit<'_> {
        self.long.acquire().await.expect("nobody closes it")
    }
}

fn answers() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER))
}

impl Link {
    /// Reads the address and the TLS files. Does not connect. Errors do not quote the address.
    pub(crate) fn new(place: &RedisAddress) -> Result<Self, CallError> {
        let notifiers = Arc::new(Notifiers::default());
        let ears = notifiers.clone();
        let config = answers().set_push_sender(move |said: PushInfo| {
            ears.pass_on(&said);
            Ok::<(), redis::aio::SendError>(())
        });
        Ok(Self {
            servers: Arc::new(Servers::new(place, config, notifiers)?),
            slot: None,
        })
    }

    /// Returns the link for calls about `key`, and keys in its slot.
    pub(crate) fn of(&self, key: &str) -> Self {
        Self {
            servers: self.servers.clone(),
            slot: Some(slots::slot(key)),
        }
    }

    /// Returns hosts and ports, for messages.
    pub(crate) fn place(&self) -> &str {
        self.servers.place()
    }

    /// Whether the server belongs to a cluster.
    pub(crate) async fn is_cluster(&self) -> Result<bool, CallError> {
        self.servers.node_of(self.slot).await?;
        Ok(self.servers.is_cluster())
    }

    /// Runs a script. Follows its key to another node of a cluster: a node that redirects a call
    /// has done nothing.
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, CallError> {
        self.call(RedisCall::Script(script)).await
    }

    /// Runs commands, which are atomic or only read; see `run`.
    pub(crate) async fn pipe<T: FromRedisValue>(
        &self,
        pipeline: &Pipeline,
    ) -> Result<T, CallError> {
        self.call(RedisCall::Commands(pipeline)).await
    }

    async fn call<T: FromRedisValue>(&self, call: RedisCall<'_>) -> Result<T, CallError> {
        let (mut moves, mut waits) = (0, WAITS_MS.iter());
        loop {
            let node = self.servers.node_of(self.slot).await?;
            let heard = match self.on(&node, call, false).await? {
                NodeAnswer::Moving { slot, to } => {
                    if self.servers.has_given_away(&node, slot).await {
                        self.on(&self.servers.node(&to), call, true).await?
                    } else {
                        NodeAnswer::Unsettled
                    }
                }
                heard => heard,
            };
            match heard {
                NodeAnswer::Answer(answer) => return answer,
                NodeAnswer::Moved if moves + 1 < MOVES => moves += 1,
                NodeAnswer::Moved => {
                    return Err(self.passing(self.place(), "the queue keeps moving between nodes"));
                }
                NodeAnswer::Moving { .. } | NodeAnswer::Unsettled => match waits.next() {
                    Some(wait) => {
                        let wait = Duration::from_millis(*wait);
                        clock::sleep_until(Some(clock::now() + wait)).await;
                    }
                    None => {
                        let why = "the slot of the queue is being moved to another node";
                        return Err(self.passing(&node.name(), why));
                    }
                },
            }
        }
    }

    /// Makes a call on one node. With `asking`, the slot is being moved to this node.
    async fn on<T: FromRedisValue>(
        &self,
        node: &Arc<Node>,
        call: RedisCall<'_>,
        asking: bool,
    ) -> Result<NodeAnswer<T>, CallError> {
        let (number, mut live) = self.servers.connection(node).await?;
        let answer = if asking {
            call.on(&mut AskingConnection(&mut live.connection)).await
        } else {
            call.on(&mut live.connection).await
        };
        Ok(self.servers.note_answer(node, number, answer).await)
    }

    /// Runs commands on the server, or on every master of a cluster.
    pub(crate) async fn pipe_everywhere<T: FromRedisValue>(
        &self,
        pipeline: &Pipeline,
    ) -> Result<Vec<Result<T, CallError>>, CallError> {
        self.servers.node_of(self.slot).await?;
        let mut answers = Vec::new();
        for node in self.servers.masters() {
            if let NodeAnswer::Answer(answer) =
                self.on(&node, RedisCall::Commands(pipeline), false).await?
            {
                answers.push(answer);
            }
        }
        Ok(answers)
    }

    /// Passes messages on the channel to the notifier, from now on and after every reconnection.
    /// The caller repeats this now and then: in a cluster it finds another node if the one that
    /// sent the messages is gone.
    pub(crate) async fn listen(
        &self,
        channel: &str,
        notifier: &Arc<Notifier>,
    ) -> Result<(), CallError> {
        self.servers.listen(self.slot, channel, notifier).await
    }

    fn passing(&self, place: &str, why: &str) -> CallError {
        CallError {
            kind: ErrorKind::Transient,
            message: errors::named(place, why),
        }
    }
}
