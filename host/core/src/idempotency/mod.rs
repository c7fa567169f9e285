//! The port to a store of idempotency records. Each record is the id of a message that was handled.
//! Knows no queue and no store by name; each store is in the crate of its backend, the only place
//! that names its library. Leases are in `lease`.

pub mod guard;

use crate::clock::Timestamp;

/// A failed call: one line with the place and the error text of the store. The call may be
/// repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordsError(pub String);

/// A store of idempotency records. The key of a record is the queue's own name (an ARN, or the
/// backend's name for it) and the id of the message. All calls may run concurrently. A call that is
/// dropped may or may not have been carried out. The caller limits the duration of a call.
#[async_trait::async_trait]
pub trait Records: Send + Sync + 'static {
    /// Returns which of these messages were handled, by the records that have not expired: one
    /// answer per id, in order.
    async fn known(&self, queue: &str, ids: &[&str]) -> Result<Vec<bool>, RecordsError>;

    /// Records that these messages were handled. `Ok` means that the records survive a crash and
    /// that every later `known` on the same store, in any process, sees them until the date
    /// `until`. An existing record is kept until the later of both dates.
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

    /// The behaviour of the store when it is called.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) enum FakeBehaviour {
        /// It does as it promises.
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
        /// Its behaviour from now on.
        pub mood: Mutex<FakeBehaviour>,
        /// The calls so far.
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
            let keys = ids.iter().map(|id| (queue.to_owned(), (*id).to_owned()));
            Ok(keys
                .map(|key| records.get(&key).is_some_and(|until| *until > now))
                .collect())
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
                let kept = records
                    .entry((queue.to_owned(), (*id).to_owned()))
                    .or_default();
                *kept = until.max(*kept);
            }
            Ok(())
        }
    }
}
