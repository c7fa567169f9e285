//! Idempotency records in one SQLite file of the data folder, for all processes that share the
//! folder. Independent of the embedded queue and its file.
//!
//! `schema` defines the file, `steps` the operations on it, `writer` the thread that writes.
//! Lookups run on another thread with their own connection, so that they never wait for a write to
//! reach the disk.

mod schema;
mod steps;
mod writer;

use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::idempotency::{Records, RecordsError};
use dispatcher_sqlite::Caller;
use std::path::{Path, PathBuf};
use writer::{RecordsAnswer, RecordsWrite, RecordsWriter};

pub use schema::path;

/// The file of one data folder. Its threads end when it is dropped.
pub(crate) struct LocalRecords {
    folder: PathBuf,
    writes: Caller<RecordsWrite, RecordsAnswer>,
    lookups: Caller<Lookup, Result<Vec<bool>, RecordsError>>,
}

struct Lookup {
    queue: String,
    ids: Vec<String>,
}

impl LocalRecords {
    /// Opens `idempotency.db` in the folder; creates both if they are missing. Blocks for some
    /// milliseconds.
    pub(crate) fn open(folder: &Path) -> Result<Self, RecordsError> {
        let [database, reader] = schema::open(folder)?;
        let writes = Caller::start("idempotency-writes", {
            let folder = folder.to_owned();
            move |calls| RecordsWriter::new(folder, database, calls).run()
        });
        let lookups = Caller::one_by_one("idempotency-lookups", {
            let folder = folder.to_owned();
            move |Lookup { queue, ids }| {
                let known = reader.known_damage();
                known.map_err(|damage| schema::failed(&folder, damage))?;
                let known = steps::known(&reader, clock::wall_clock_now(), queue, ids);
                known.map_err(|error| schema::classify(&folder, &error))
            }
        });
        Ok(Self {
            folder: folder.to_owned(),
            writes: writes.map_err(|error| schema::failed(folder, error))?,
            lookups: lookups.map_err(|error| schema::failed(folder, error))?,
        })
    }
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[async_trait::async_trait]
impl Records for LocalRecords {
    async fn known(&self, queue: &str, ids: &[&str]) -> Result<Vec<bool>, RecordsError> {
        let lookup = Lookup {
            queue: queue.to_owned(),
            ids: owned(ids),
        };
        let known = self.lookups.ask(lookup).await;
        known.unwrap_or_else(|unanswered| Err(schema::failed(&self.folder, unanswered)))
    }

    async fn remember(
        &self,
        queue: &str,
        ids: &[&str],
        until: Timestamp,
    ) -> Result<(), RecordsError> {
        let write = RecordsWrite {
            queue: queue.to_owned(),
            ids: owned(ids),
            until,
        };
        let written = self.writes.ask(write).await;
        written.unwrap_or_else(|unanswered| Err(schema::failed(&self.folder, unanswered)))
    }
}

#[cfg(test)]
mod tests;
