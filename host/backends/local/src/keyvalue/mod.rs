//! Buckets in one SQLite file of the data folder, for all processes that share the folder. Knows
//! nothing of the embedded queue's file.
//!
//! `schema` is the file, `steps` what can be done to it, `writer` the thread that writes. Reads have
//! a thread and their own connection, so that none waits for the disk to take a write.

mod schema;
mod steps;
mod writer;

#[cfg(test)]
mod tests;

use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::keyvalue::{Bucket, CALL, Page};
use dispatcher_sqlite::{Caller, Unanswered};
use std::path::Path;
use std::sync::Arc;
use steps::{BucketChange, Change, Read};
use tokio::sync::Semaphore;
use writer::{BucketAnswer, BucketWrite};

/// So many bytes may wait to be written; whoever comes with more waits before that thread. Also
/// those of callers who have gone count, which a disk that hangs would pile up.
const WAITING_BYTES: usize = 8 * CALL;

/// The file of one data folder. Its threads end with the last clone and bucket.
#[derive(Clone)]
pub struct Local(Arc<Threads>);

struct Threads {
    place: schema::BucketFile,
    writes: Caller<BucketWrite, BucketAnswer>,
    room: Arc<Semaphore>,
    reads: Caller<Read, Result<steps::StoredPair, CallError>>,
}

impl Local {
    /// Opens `keyvalue.db` in the folder; creates both if they are missing. Blocks for some
    /// milliseconds.
    ///
    /// # Errors
    /// Where the file cannot be made, or is not ours.
    pub fn open(folder: &Path) -> Result<Self, CallError> {
        let place = schema::BucketFile::of(folder);
        let [database, reader] = place.open()?;
        let started = |error| place.failed(ErrorKind::Transient, error);
        let writes = Caller::start("keyvalue-writes", {
            let place = place.clone();
            move |calls| writer::run(&place, database, calls)
        });
        let writes = writes.map_err(started)?;
        let reads = Caller::one_by_one("keyvalue-reads", {
            let place = place.clone();
            move |read| {
                let known = reader.known_damage();
                known.map_err(|damage| place.damaged(&damage))?;
                steps::read(&reader, read).map_err(|error| place.classify(&error))
            }
        });
        let reads = reads.map_err(started)?;
        Ok(Self(Arc::new(Threads {
            place,
            writes,
            room: Arc::new(Semaphore::new(WAITING_BYTES)),
            reads,
        })))
    }

    /// The bucket of this name.
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
        let answer = self.threads.reads.ask(Read { bucket, what }).await;
        answer.unwrap_or_else(|unanswered| Err(self.unanswered(unanswered)))
    }

    /// `change` copies so many bytes of what the caller has, once there is room for them.
    async fn write(&self, bytes: usize, change: impl FnOnce() -> Change) -> Result<i64, CallError> {
        let bytes = u32::try_from(bytes.min(WAITING_BYTES)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.threads.room).acquire_many_owned(bytes);
        let room = room.await;
        let room = room.map_err(|_| self.unanswered(Unanswered::Ended))?;
        let bucket = self.name.clone();
        let change = change();
        let write = BucketWrite {
            write: BucketChange { bucket, change },
            _room: room,
        };
        let answer = self.threads.writes.ask(write).await;
        answer.unwrap_or_else(|unanswered| Err(self.unanswered(unanswered)))
    }

    fn unanswered(&self, unanswered: Unanswered) -> CallError {
        self.threads.place.failed(ErrorKind::Transient, unanswered)
    }
}

#[async_trait::async_trait]
impl Bucket for LocalBucket {
    async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        let seen = self.read(steps::BucketRead::Values(keys.to_vec())).await?;
        match seen.too_long {
            true => Err(dispatcher_core::keyvalue::too_long()),
            false => Ok(seen.values),
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
        let change = || Change::Set(pairs.to_vec());
        self.write(bytes.sum(), change).await.map(drop)
    }

    async fn delete(&self, keys: &[String]) -> Result<(), CallError> {
        let bytes = keys.iter().map(String::len).sum();
        let change = || Change::Delete(keys.to_vec());
        self.write(bytes, change).await.map(drop)
    }

    async fn increment(&self, key: &str, by: i64) -> Result<i64, CallError> {
        let change = || Change::Increment(key.to_owned(), by);
        self.write(key.len(), change).await
    }

    async fn swap(
        &self,
        key: &str,
        stands: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, CallError> {
        let bytes = key.len() + stands.map_or(0, <[u8]>::len) + value.len();
        let change = || Change::Swap {
            key: key.to_owned(),
            stands: stands.map(<[u8]>::to_vec),
            value: value.to_vec(),
        };
        Ok(self.write(bytes, change).await? == steps::DONE)
    }

    async fn keys(&self, from: Option<u64>) -> Result<Page, CallError> {
        Ok(self.read(steps::BucketRead::Keys(from)).await?.page)
    }
}
