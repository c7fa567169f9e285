//! The port to a store of idempotency records, each the id of a message whose handler was done.
//! Knows no queue and no store by name; each store is in the crate of its backend, the only place
//! that names its library. Leases are in `lease`.

pub mod guard;

use crate::clock::Timestamp;

/// A call that failed as a whole, in one line: where, and the store's own words. It may be made
/// again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordsError(pub String);

/// A store of idempotency records. The key of a record is the queue's own name (an ARN, or the
/// backend's name) and the message's id. All calls may run at once; a call that is dropped may have
/// been carried out or not. How long a call may take is up to the caller.
#[async_trait::async_trait]
pub trait Records: Send + Sync + 'static {
    /// Which of these messages are done, by the records that have not expired: one answer per id,
    /// in order.
    async fn known(&self, queue: &str, ids: &[&str]) -> Result<Vec<bool>, RecordsError>;

    /// These messages are done. `Ok` means that their records survive a crash and that every later
    /// `known` of the same store sees them, in whatever process, until the date `until`. A record
    /// that is there already is kept until the later of both dates.
    async fn remember(
        &self,
        queue: &str,
        ids: &[&str],
        until: Timestamp,
    ) -> Result<(), RecordsError>;
}

/// A store for tests.
#[cfg(test)]
#[allow(clippy::unwrap_used, missing_docs, reason = "for tests")]
pub(crate) mod samples {
    use super::{Records, RecordsError, Timestamp};
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    /// What the store does when it is called.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) enum FakeBehaviour {
        /// What it promises.
        #[default]
        Well,
        /// It fails.
        Failing,
        /// It never answers.
        Hanging,
    }

    /// Records in memory. Every call is a line of the log, which others may write as well.
    #[derive(Debug, Default)]
    pub(crate) struct Fake {
        /// What it does from now on.
        pub mood: Mutex<FakeBehaviour>,
        /// What was called.
        pub log: Arc<Mutex<Vec<String>>>,
        records: Mutex<BTreeMap<(String, String), Timestamp>>,
    }

    impl Fake {
        async fn enter(&self, line: String) -> Result<(), RecordsError> {
            self.log.lock().unwrap().push(line);
            let mood = *self.mood.lock().unwrap();
            match mood {
                FakeBehaviour::Well => Ok(()),
                FakeBehaviour::Failing => Err(RecordsError("the disk is full".into())),
                FakeBehaviour::Hanging => std::future::pending().await,
            }
        }
    }

    #[async_trait::async_trait]
    impl Records for Fake {
        async fn known(&self, queue: &str, ids: &[&str]) -> Result<Vec<bool>, RecordsError> {
            self.enter(format!("known {queue} {}", ids.join(" ")))
                .await?;
            let now = crate::clock::wall_clock_now();
            let records = self.records.lock().unwrap();
            let key = |id: &&str| (queue.to_owned(), (*id).to_owned());
            let known = |id: &&str| records.get(&key(id)).is_some_and(|until| *until > now);
            Ok(ids.iter().map(known).collect())
        }

        async fn remember(
            &self,
            queue: &str,
            ids: &[&str],
            until: Timestamp,
        ) -> Result<(), RecordsError> {
            self.enter(format!("remember {queue} {}", ids.join(" ")))
                .await?;
            let mut records = self.records.lock().unwrap();
            for id in ids {
                let kept = records.entry((queue.to_owned(), (*id).to_owned()));
                let kept = kept.or_default();
                *kept = until.max(*kept);
            }
            Ok(())
        }
    }
}
