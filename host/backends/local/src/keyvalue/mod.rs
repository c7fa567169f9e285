//! Buckets in one SQLite file of the data folder, for all processes that share the folder.
//! Independent of the embedded queue's file.
//!
//! `schema` defines the file, `steps` the operations on it, `writer` the thread that writes. Reads
//! run on another thread with their own connection, so that they never wait for a write to reach
//! the disk.

mod schema;
mod steps;
mod writer;

#[cfg(test)]
mod tests;

use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::keyvalue::{Bucket, CALL, Page};
use dispatcher_sqlite::{CallFailure, Caller};
use std::path::Path;
use std::sync::Arc;
use steps::{BucketChange, Change, KeyRead};
use tokio::sync::Semaphore;
use writer::{BucketAnswer, BucketWrite};

/// The maximum number of bytes that wait to be written. A caller with more waits until there is
/// room. The bytes of callers that are gone count too; otherwise they would pile up when the disk
/// hangs.
const WAITING_BYTES: usize = 8 * CALL;

/// The key-value file of one data folder. Its threads end when the last clone and the last bucket
/// are dropped.
#[derive(Clone)]
pub struct Local(Arc<Threads>);

struct Threads {
    place: schema::BucketFile,
    writes: Caller<BucketWrite, BucketAnswer>,
    room: Arc<Semaphore>,
    reads: Caller<KeyRead, Result<steps::StoredPair, CallError>>,
}

impl Local {
    /// Opens `keyvalue.db` in the folder; creates both if they are missing. Blocks for some
    /// milliseconds.
    ///
    /// # Errors
    /// Fails if the file cannot be created or was not written by dispatcher.
    pub fn open(folder: &Path) -> Result<Self, CallError> {
        let place = schema::BucketFile::of(folder);
        let [database, reader] = place.open()?;
        let writes = Caller::start("keyvalue-writes", {
            let place = place.clone();
            move |calls| writer::run(&place, database, calls)
        })
        .map_err(|error| place.failed(ErrorKind::Transient, error))?;
        let reads = Caller::one_by_one("keyvalue-reads", {
            let place = place.clone();
            move |read| {
                let known = reader.known_damage();
                known.map_err(|damage| place.damaged(&damage))?;
                steps::read(&reader, read).map_err(|error| place.classify(&error))
            }
        })
        .map_err(|error| place.failed(ErrorKind::Transient, error))?;
        Ok(Self(Arc::new(Threads {
            place,
            writes,
            room: Arc::new(Semaphore::new(WAITING_BYTES)),
            reads,
        })))
    }

    /// Returns the bucket of this name.
    pub fn bucket(&self, name: &str) -> LocalBucket {
        LocalBucket {
            threads: Arc::clone(&self.0),
            name: name.to_owned(),
        }
    }
}

/// One bucket of the file.
pub struct LocalBucket {
    threads: Arc<Threads>,
    name: String,
}

impl LocalBucket {
    async fn read(&self, what: steps::BucketRead) -> Result<steps::StoredPair, CallError> {
        let bucket = self.name.clone();
        let answer = self.threads.reads.ask(KeyRead { bucket, what }).await;
        answer.unwrap_or_else(|unanswered| Err(self.unanswered(unanswered)))
    }

    /// Waits for room for `bytes`, then writes `change`, which copies that many bytes from the
    /// caller.
    async fn write(&self, bytes: usize, change: impl FnOnce() -> Change) -> Result<i64, CallError> {
        let bytes = u32::try_from(bytes.min(WAITING_BYTES)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.threads.room)
            .acquire_many_owned(bytes)
            .await
            .map_err(|_| self.unanswered(CallFailure::Ended))?;
        let bucket = self.name.clone();
        let change = change();
        let write = BucketWrite {
            write: BucketChange { bucket, change },
            _room: room,
        };
        let answer = self.threads.writes.ask(write).await;
        answer.unwrap_or_else(|unanswered| Err(self.unanswered(unanswered)))
    }

    fn unanswered(&self, unanswered: CallFailure) -> CallError {
        self.threads.place.failed(ErrorKind::Transient, unanswered)
    }
}

#[async_trait::async_trait]
impl Bucket for LocalBucket {
    async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        let seen = self.read(steps::BucketRead::Values(keys.to_vec())).await?;
        if seen.too_long {
            Err(dispatcher_core::keyvalue::too_long())
        } else {
            Ok(seen.values)
        }
    }

    async fn exists(&self, key: &str) -> Result<bool, CallError> {
        Ok(self
            .read(steps::BucketRead::Exists(key.to_owned()))
            .await?
            .exists)
    }

    async fn set(&self, pairs: &[(String, Vec<u8>)]) -> Result<(), CallError> {
        let bytes = pairs.iter().map(|(key, value)| key.len() + value.len());
        self.write(bytes.sum(), || Change::Set(pairs.to_vec()))
            .await
            .map(drop)
    }

    async fn delete(&self, keys: &[String]) -> Result<(), CallError> {
        let bytes = keys.iter().map(String::len).sum();
        self.write(bytes, || Change::Delete(keys.to_vec()))
            .await
            .map(drop)
    }

    async fn increment(&self, key: &str, by: i64) -> Result<i64, CallError> {
        self.write(key.len(), || Change::Increment(key.to_owned(), by))
            .await
    }

    async fn swap(
        &self,
        key: &str,
        stands: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, CallError> {
        let bytes = key.len() + stands.map_or(0, <[u8]>::len) + value.len();
        let swapped = self.write(bytes, || Change::Swap {
            key: key.to_owned(),
            stands: stands.map(<[u8]>::to_vec),
            value: value.to_vec(),
        });
        Ok(swapped.await? == steps::DONE)
    }

    async fn keys(&self, from: Option<u64>) -> Result<Page, CallError> {
        Ok(self.read(steps::BucketRead::Keys(from)).await?.page)
    }
}
