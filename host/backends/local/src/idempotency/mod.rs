//! Idempotency records in one SQLite file of the data folder, for all processes that share the
//! folder. Knows no queue, and nothing of the embedded queue's file.
//!
//! `schema` is the file, `steps` what can be done to it, `writer` the thread that writes. Lookups
//! have a thread and their own connection, so that none waits for the disk to take a write.

mod schema;
mod steps;
mod writer;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod store_tests;

use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::idempotency::{Records, RecordsError};
use dispatcher_sqlite::Database;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tokio::sync::oneshot;
use writer::{RecordsWrite, RecordsWriter};

pub use schema::path;

/// So many calls may wait for a thread. More is only asked for if the disk hangs.
const WAITING: usize = 4_096;

/// The file of one data folder. Its threads end when it is dropped.
pub struct LocalRecords {
    folder: PathBuf,
    writes: SyncSender<RecordsWrite>,
    lookups: SyncSender<Lookup>,
}

struct Lookup {
    queue: String,
    ids: Vec<String>,
    reply: oneshot::Sender<Result<Vec<bool>, RecordsError>>,
}

impl LocalRecords {
    /// Opens `idempotency.db` in the folder; creates both if they are missing. Blocks for some
    /// milliseconds.
    pub fn open(folder: &Path) -> Result<Self, RecordsError> {
        let [writer, reader] = schema::open(folder)?;
        let (writes, jobs) = sync_channel(WAITING);
        let (lookups, asked) = sync_channel(WAITING);
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into()).spawn(run);
            thread.map_err(|error| schema::failed(folder, error))
        };
        let writer = RecordsWriter::new(folder.to_owned(), writer, jobs);
        start("idempotency-writes", Box::new(move || writer.run()))?;
        start(
            "idempotency-lookups",
            Box::new({
                let folder = folder.to_owned();
                move || look_up(&folder, &reader, &asked)
            }),
        )?;
        Ok(Self {
            folder: folder.to_owned(),
            writes,
            lookups,
        })
    }

    /// Hands a call to its thread.
    fn hand<T>(&self, calls: &SyncSender<T>, call: T) -> Result<(), RecordsError> {
        calls.try_send(call).map_err(|error| {
            let why = match error {
                TrySendError::Full(_) => "too many calls are waiting for the disk",
                TrySendError::Disconnected(_) => "its thread has ended",
            };
            schema::failed(&self.folder, why)
        })
    }

    fn ended<E>(&self, _: E) -> RecordsError {
        schema::failed(&self.folder, "its thread has ended")
    }
}

/// Answers lookups until nobody can ask any more.
fn look_up(folder: &Path, connection: &Database, asked: &Receiver<Lookup>) {
    for Lookup { queue, ids, reply } in asked {
        if !reply.is_closed() {
            let damage = connection.known_damage();
            let damage = damage.map_err(|damage| schema::failed(folder, damage));
            let known = damage.and_then(|()| {
                let known = steps::known(connection, clock::wall_clock_now(), &queue, &ids);
                known.map_err(|error| schema::classify(folder, &error))
            });
            // A caller who has gone needs no answer.
            let _ = reply.send(known);
        }
    }
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[async_trait::async_trait]
impl Records for LocalRecords {
    async fn known(&self, queue: &str, ids: &[&str]) -> Result<Vec<bool>, RecordsError> {
        let (reply, answer) = oneshot::channel();
        let lookup = Lookup {
            queue: queue.to_owned(),
            ids: owned(ids),
            reply,
        };
        self.hand(&self.lookups, lookup)?;
        answer.await.map_err(|gone| self.ended(gone))?
    }

    async fn remember(
        &self,
        queue: &str,
        ids: &[&str],
        until: Timestamp,
    ) -> Result<(), RecordsError> {
        let (reply, answer) = oneshot::channel();
        let job = RecordsWrite {
            queue: queue.to_owned(),
            ids: owned(ids),
            until,
            reply,
        };
        self.hand(&self.writes, job)?;
        answer.await.map_err(|gone| self.ended(gone))?
    }
}
