//! The connections to a server, or to the nodes of a cluster: each opened when it is first needed
//! and again whenever it is lost. Retries nothing that may have been carried out: the caller knows
//! whether that is safe. `topology` decides which node a call goes to.

use super::call::{Asking, RedisCall};
use super::dial::TlsFiles;
use super::errors;
use super::notifier::{Notifier, Notifiers};
use super::slots;
use super::topology::{ANSWER, Heard, Node, Servers};
use dispatcher_core::clock;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use redis::{AsyncConnectionConfig, FromRedisValue, Pipeline, PushInfo, ScriptInvocation};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How many calls may carry much at once: so many of `LONGEST` bytes a line of 100 Mbit/s carries in
/// the time of an answer.
const LONG: usize = 2;
/// So often a call follows a queue to its new node before it is left to the caller.
const MOVES: usize = 5;
/// How long a call waits, in milliseconds, before each further try while its slot is being moved.
/// Together they are shorter than a worker's sign of life lasts.
const WAITS_MS: [u64; 6] = [10, 20, 40, 80, 160, 320];

/// Where a server is and how it is spoken to.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisAddress {
    /// See `address`.
    pub url: String,
    /// For `rediss://`.
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

/// One connection to a server, or to each node of a cluster that it calls, for commands and for what
/// servers tell. Clones share it.
#[derive(Clone)]
pub struct Link {
    servers: Arc<Servers>,
    /// The slot that its calls are about; without one, any node will do.
    slot: Option<u16>,
}

/// The connections of a process to a server. Answers come in the order of the calls, so what keeps
/// the process alive there has a connection that no payload travels on.
#[derive(Clone)]
pub struct RedisConnections {
    /// For whatever takes its time, and for what the server tells.
    pub link: Link,
    /// For what is short and must be in time.
    pub urgent: Link,
    long: Arc<Semaphore>,
}

impl RedisConnections {
    /// To the server of this address; see `Link::new`.
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

    /// The same for calls about `key`, and keys in its slot.
    pub(crate) fn of(&self, key: &str) -> Self {
        Self {
            link: self.link.of(key),
            urgent: self.urgent.of(key),
            long: self.long.clone(),
        }
    }

    /// Waits for the turn of a call on `link` that carries much, or may bring it: its time runs from
    /// when it is made, and all that are made at once share the line. The turn ends with what this
    /// returns; keep it for no longer than the call.
    pub(crate) async fn turn(&self) -> SemaphorePermit<'_> {
        self.long.acquire().await.expect("nobody closes it")
    }
}

fn answers() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER))
}

impl Link {
    /// Reads the address and the files of TLS; connects to nothing. No error quotes the address.
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

    /// The same for calls about `key`, and keys in its slot.
    pub(crate) fn of(&self, key: &str) -> Self {
        Self {
            servers: self.servers.clone(),
            slot: Some(slots::slot(key)),
        }
    }

    /// Hosts and ports, for messages.
    pub(crate) fn place(&self) -> &str {
        self.servers.place()
    }

    /// Whether the server is one of a cluster.
    pub(crate) async fn is_cluster(&self) -> Result<bool, CallError> {
        self.servers.node_of(self.slot).await?;
        Ok(self.servers.is_cluster())
    }

    /// Runs a script. Follows its key to another node of a cluster: a node that says that the key is
    /// elsewhere has done nothing.
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
                Heard::Moving { slot, to } => {
                    if self.servers.has_given_away(&node, slot).await {
                        self.on(&self.servers.node(&to), call, true).await?
                    } else {
                        Heard::Unsettled
                    }
                }
                heard => heard,
            };
            match heard {
                Heard::Answer(answer) => return answer,
                Heard::Moved if moves + 1 < MOVES => moves += 1,
                Heard::Moved => {
                    return Err(self.passing(self.place(), "the queue keeps moving between nodes"));
                }
                Heard::Moving { .. } | Heard::Unsettled => match waits.next() {
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

    /// Makes a call on one node; `asking` as one to which the slot is being moved.
    async fn on<T: FromRedisValue>(
        &self,
        node: &Arc<Node>,
        call: RedisCall<'_>,
        asking: bool,
    ) -> Result<Heard<T>, CallError> {
        let (number, mut live) = self.servers.connection(node).await?;
        let answer = if asking {
            call.on(&mut Asking(&mut live.connection)).await
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
            if let Heard::Answer(answer) =
                self.on(&node, RedisCall::Commands(pipeline), false).await?
            {
                answers.push(answer);
            }
        }
        Ok(answers)
    }

    /// Passes on to the notifier what is said on the channel, from now on and after every reconnection.
    /// Ask again now and then: in a cluster that finds another node if the one that told is gone.
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
