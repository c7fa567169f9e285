//! Queues on Redis. Independent of other backends; the connection is `crate::server`.
//!
//! The state of a queue is on the server, and each step is one script there (`lua`). `keys` names
//! the keys, `wire` encodes arguments and decodes answers, `endings` distributes outcomes over
//! calls, and `turns` decides which receives wait for one another. `native` is one queue, `doubts`
//! keeps its claims whose answers were lost, `worker` is this process as a worker, `worqr` is one
//! queue in the format of the npm package, and `server` reads the settings of a server.

mod controls;
mod doubts;
mod endings;
mod item_errors;
mod keys;
mod native;
mod script;
mod server;
mod turns;
mod wire;
mod worker;
mod worqr;

pub use native::NativeQueue;
pub use server::Eviction;
pub use worqr::WorqrQueue;

use crate::server::{link, notifier, slot};
use dispatcher_core::backend::{CancelCount, WorkerInfo, newer_format};
use dispatcher_core::memory::Budget;
use dispatcher_core::queue::{ErrorKind, Identity, QueueError};
use keys::{DEAD, Keys};
use link::{RedisAddress, RedisConnections};
use native::DeadLetterQueue;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use worker::RedisWorker;

/// The maximum number of messages of one call: a hundred take the server about half a millisecond.
const BATCH: usize = 100;
/// The maximum number of messages that one script removes. The server does nothing else meanwhile.
const PURGED_AT_ONCE: usize = 500;
/// The format of the data that this version keeps on a server. It is the first, which no key names.
/// A version that changes it writes its number to `Keys::format` before anything else.
const FORMAT: u32 = 1;
/// The longest `wait` of one receive: that of SQS, so that routes behave alike.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// A server and the prefix of the keys there. Clones share the connections.
#[derive(Clone)]
pub struct Redis {
    lines: RedisConnections,
    keys: Keys,
    worker: Arc<RedisWorker>,
}

impl Redis {
    /// Reads the address and the TLS files. All keys begin with `{prefix`. The connection is made
    /// when it is first needed. Errors say what is wrong with the address or the prefix.
    pub fn new(place: impl Into<RedisAddress>, prefix: &str) -> Result<Self, QueueError> {
        Self::on(&RedisConnections::new(&place.into())?, prefix)
    }

    /// Uses these connections, which others use as well. All keys begin with `{prefix`.
    pub fn on(lines: &RedisConnections, prefix: &str) -> Result<Self, QueueError> {
        if prefix.is_empty() || prefix.contains(['{', '}', ':']) {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!(
                    "`{prefix}` is not a prefix for Redis; wanted a word without {{, }} and :"
                ),
            });
        }
        let keys = Keys::new(prefix);
        let lines = lines.of(&keys.registry());
        let worker = RedisWorker::new(lines.clone(), keys.clone());
        Ok(Self {
            lines,
            keys,
            worker,
        })
    }

    /// Opens a queue by its bare name. Dead letters go to the queue `dead_letter` of the same
    /// server, else to `NAME.dead`; a queue whose name ends in `.dead` has no default.
    pub async fn queue(
        &self,
        name: &str,
        dead_letter: Option<&str>,
    ) -> Result<NativeQueue, QueueError> {
        let dead_letter = dead_letter_queue(name, dead_letter)?;
        self.check_format().await?;
        let base = self.keys.queue(name);
        if let Some(dead_letter) = &dead_letter
            && slot(&self.keys.queue(dead_letter)) != slot(&base)
            && self.lines.link.is_cluster().await?
        {
            return Err(self.refused(&format!(
                "in a cluster the dead letters of `{name}` go to `{name}{DEAD}` in the same slot, and not to `{dead_letter}`; omit the dead-letter queue"
            )));
        }
        let identity = identity(name, true, dead_letter.is_some());
        let lines = self.lines.of(&base);
        let dead_letter_queue = dead_letter.map(|name| DeadLetterQueue {
            base: self.keys.queue(&name),
            name,
        });
        Ok(NativeQueue::new(
            (identity, name.to_owned(), base),
            dead_letter_queue,
            (lines, self.worker.clone()),
            self.keys.registry(),
        ))
    }

    /// Opens a queue of npm `worqr` by its bare name; `prefix` is the package's. Dead letters go to
    /// another queue of the package, by the rules of `queue`.
    pub async fn worqr(
        &self,
        prefix: &str,
        name: &str,
        dead_letter: Option<&str>,
    ) -> Result<WorqrQueue, QueueError> {
        let dead_letter = dead_letter_queue(name, dead_letter)?;
        self.reach().await?;
        if self.lines.link.is_cluster().await? {
            return Err(self.refused(
                "the keys of npm worqr do not share a slot, so its queues cannot be in a cluster",
            ));
        }
        let identity = identity(name, false, dead_letter.is_some());
        let lines = self.lines.clone();
        Ok(WorqrQueue::new(
            identity,
            (prefix, name),
            dead_letter,
            lines,
        ))
    }

    /// Removes every instance of a task from a queue of npm `worqr` and notifies its workers.
    /// Workers of the package stop the task if they are programmed to.
    pub(crate) async fn cancel_worqr(
        &self,
        prefix: &str,
        name: &str,
        task: &str,
    ) -> Result<CancelCount, QueueError> {
        let mut call = script::WORQR_CANCEL.key(prefix);
        let (waiting, running) = self.lines.link.run(call.arg(name).arg(task)).await?;
        Ok(CancelCount { waiting, running })
    }

    /// Checks that the server is reachable and accepts this client.
    async fn reach(&self) -> Result<(), QueueError> {
        let mut pipe = redis::pipe();
        pipe.cmd("PING").ignore();
        self.lines.link.pipe::<()>(&pipe).await
    }

    /// Checks that the server is reachable, accepts this client, and has no data of a later format.
    async fn check_format(&self) -> Result<(), QueueError> {
        let mut pipe = redis::pipe();
        pipe.get(self.keys.format());
        match self.lines.link.pipe(&pipe).await {
            Ok((format,)) => self.understands(format),
            // A user who may not read this key may have all the rights that messages need.
            Err(error) if error.kind == ErrorKind::AccessDenied => self.reach().await,
            Err(error) => Err(error),
        }
    }

    /// Refuses data of this format if it is a later one.
    fn understands(&self, format: Option<String>) -> Result<(), QueueError> {
        match format
            .filter(|format: &String| !format.parse().is_ok_and(|number: u32| number <= FORMAT))
        {
            Some(format) => Err(self.refused(&format!(
                "the data below {}: {}",
                self.keys.registry(),
                newer_format(format, FORMAT)
            ))),
            None => Ok(()),
        }
    }

    /// Refuses data of a later format, for steps that need no queue. If the server cannot be asked,
    /// the step itself reports the error.
    pub(crate) async fn refuse_newer(&self) -> Result<(), QueueError> {
        match self.check_format().await {
            Err(error) if error.kind == ErrorKind::Invalid => Err(error),
            _ => Ok(()),
        }
    }

    fn refused(&self, why: &str) -> QueueError {
        QueueError {
            kind: ErrorKind::Invalid,
            message: crate::server::errors::named(self.lines.link.place(), why),
        }
    }

    /// Returns whether the server, or a master of the cluster, evicts messages when its memory is
    /// full; `None` if it does not answer. Asks `INFO`, then `CONFIG`: a user may be denied either,
    /// and some services have only one.
    pub async fn eviction(&self) -> Option<Eviction> {
        let link = &self.lines.link;
        let mut info = redis::pipe();
        info.cmd("INFO").arg("memory");
        let told = match link.pipe_everywhere::<(String,)>(&info).await {
            Ok(told) => told.into_iter().map(|one| match one {
                Ok((text,)) => server::of_info(&text),
                Err(error) => Eviction::Unknown(error.message),
            }),
            Err(_) => return None,
        };
        match server::worst(told) {
            Eviction::Unknown(_) => {}
            known => return Some(known),
        }
        let mut config = redis::pipe();
        let names = ["maxmemory", "maxmemory-policy"];
        config.cmd("CONFIG").arg("GET").arg(&names);
        type Settings = (HashMap<String, String>,);
        let told = link.pipe_everywhere::<Settings>(&config).await.ok()?;
        Some(server::worst(told.into_iter().map(|one| match one {
            Ok((settings,)) => server::of_settings(&settings),
            Err(error) => Eviction::Unknown(error.message),
        })))
    }

    /// Returns the bare names of all queues that were received from or sent to, sorted.
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        self.refuse_newer().await?;
        let mut pipe = redis::pipe();
        pipe.smembers(self.keys.queues());
        let (mut names,): (Vec<String>,) = self.lines.link.pipe(&pipe).await?;
        names.sort();
        Ok(names)
    }

    /// Returns the workers that are alive, sorted.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, QueueError> {
        worker::all(&self.lines.link, &self.keys).await
    }

    /// Removes a task from the queue of this bare name: the message with that id or, if there is
    /// none, every message with that payload, for which the whole queue is searched.
    pub async fn cancel(&self, name: &str, task: &str) -> Result<CancelCount, QueueError> {
        let base = self.keys.queue(name);
        let link = self.lines.link.of(&base);
        let mut cancelled = CancelCount::default();
        let mut step = async |kind: &str, cursor: &str| {
            let mut call = script::CANCEL.key(&base);
            call.arg(kind).arg(task).arg(cursor);
            let (next, waiting, running): (String, u64, u64) = link.run(&call).await?;
            cancelled.waiting += waiting;
            cancelled.running += running;
            Ok::<_, QueueError>((next, waiting + running))
        };
        if step("id", "0").await?.1 == 0 {
            let mut cursor = "0".to_owned();
            loop {
                cursor = step("body", &cursor).await?.0;
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok(cancelled)
    }
}

/// Returns the properties of a queue that are known without the server.
fn identity(name: &str, ordered_groups: bool, dead_letters: bool) -> Identity {
    let full = format!("redis:{name}");
    Identity {
        name: full.clone(),
        source: full,
        visibility: Duration::from_secs(30),
        batch: BATCH,
        longest_wait: LONGEST_WAIT,
        proof_wait: Duration::ZERO,
        ordered_groups,
        deduplicates: false,
        dead_letters,
        most_receives: None,
        redrive_target: false,
    }
}

/// Returns the maximum number of bytes of a body that is loaded.
fn largest(budget: Option<&Arc<Budget>>) -> u64 {
    let longest = wire::LONGEST as u64;
    budget.map_or(longest, |budget| budget.capacity())
}

/// Returns the dead-letter queue of a queue.
fn dead_letter_queue(name: &str, dead_letter: Option<&str>) -> Result<Option<String>, QueueError> {
    match dead_letter {
        Some(same) if same == name => Err(QueueError {
            kind: ErrorKind::Invalid,
            message: format!("`{name}` cannot be its own dead-letter queue"),
        }),
        Some(other) => Ok(Some(other.to_owned())),
        None if name.ends_with(DEAD) => Ok(None),
        None => Ok(Some(format!("{name}{DEAD}"))),
    }
}
