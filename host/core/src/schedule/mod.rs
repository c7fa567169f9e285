//! Scheduled messages: jobs that wait in a store until they are due, and periodic ones. The port to
//! stores is small on purpose; `mover` moves due jobs from a store to their queues. Knows no queue
//! and no store by name; each store is in the crate of its backend.

pub mod cron;
pub mod decide;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "for tests")]
mod fakes;
pub mod mover;
#[cfg(any(test, feature = "samples"))]
#[allow(clippy::unwrap_used, missing_docs, reason = "for tests")]
pub mod samples;
pub mod when;

#[cfg(test)]
mod mover_failure_tests;
#[cfg(test)]
mod mover_order_tests;
#[cfg(test)]
mod mover_tests;

use crate::clock::Timestamp;
pub use crate::error_kind::{CallError as StoreError, ErrorKind};
use crate::message::Outgoing;
use cron::Periodic;
use std::time::Duration;

/// How often a store is looked at that costs little to look at: the embedded queues', and Redis.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// One message that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledJob {
    /// Unique within its store; has no `/`.
    pub id: String,
    /// The queue that it goes to, as people write it: `payments`, `local:default`.
    pub queue: String,
    /// When it may be received first; of a periodic job the next time that it fires.
    pub due: Timestamp,
    /// What is sent; its `delay` means nothing.
    pub message: Outgoing,
    /// When it fires again, for jobs that do.
    pub every: Option<Periodic>,
    /// Who is sending it.
    pub claim: Option<Claim>,
    /// The store's own words for `due`, by which it knows a job that was changed meanwhile. Empty
    /// for a job that is yet to be added.
    pub stamp: String,
}

/// The right to send a job, for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Made anew for every claim; proves whose it is.
    pub token: String,
    /// From then on anybody may take it over.
    pub until: Timestamp,
}

/// What has become of a claimed job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// As it was read.
    pub job: ScheduledJob,
    /// The token of our claim.
    pub token: String,
    /// When it is due next; `None`: never again. The same `due` gives it back unsent.
    pub next: Option<Timestamp>,
}

/// Some jobs of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobPage {
    /// The soonest first.
    pub jobs: Vec<ScheduledJob>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<String>,
    /// Jobs of this page whose message is missing or cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// A job that waits in a store, and whose message is missing or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its id, as far as the store tells.
    pub id: String,
    /// The queue that it would go to, where that can be read.
    pub queue: Option<String>,
    /// What is wrong with it.
    pub why: String,
    /// The store's own words for its place, by which it knows a job that was changed meanwhile.
    pub stamp: String,
}

/// What became of a wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not be sent.
    Yes,
    /// There is none of the id: never was, sent, or cancelled before.
    Unknown,
    /// A dispatcher is sending it at this moment.
    BeingSent,
}

/// A place where jobs wait. All calls may run at once, in many processes. A call that is dropped may
/// have been carried out or not.
#[async_trait::async_trait]
pub trait ScheduleStore: Send + Sync + 'static {
    /// What people call it.
    fn place(&self) -> String;

    /// Makes what jobs wait in, where people must ask for it; whether it is new.
    async fn make(&self) -> Result<bool, StoreError> {
        Err(StoreError {
            kind: ErrorKind::Invalid,
            message: format!("{} needs no table", self.place()),
        })
    }

    /// The id that a job must have in this store, where that follows from its message.
    fn own_id(&self, _job: &ScheduledJob) -> Option<String> {
        None
    }

    /// Adds a job; `Ok` means that it survives a crash. False if there is one of the id already,
    /// which stays as it is.
    async fn add(&self, job: &ScheduledJob) -> Result<bool, StoreError>;

    /// The jobs due no later than `until`, claimed ones included; from where the page `after` ended.
    /// Sees all that was added before the call.
    async fn due(&self, until: Timestamp, after: Option<&str>) -> Result<JobPage, StoreError>;

    /// Claims jobs that nobody has claimed until later than `now`, and that are as they were read.
    /// Of two who claim the same job, whatever their clocks say, one is told true. One answer per
    /// job, in order.
    async fn claim(
        &self,
        jobs: &[ScheduledJob],
        claim: &Claim,
        now: Timestamp,
    ) -> Vec<Result<bool, StoreError>>;

    /// Ends claims: the jobs go, or get a new time and no claim. Does nothing to a job that is no
    /// longer claimed by this token: somebody else's by now, or written anew. One answer per item.
    async fn end(&self, endings: &[JobOutcome]) -> Vec<Result<(), StoreError>>;

    /// Takes an unreadable job out of what waits and keeps what there is of it, with `reason`, among the
    /// dead jobs of the store. True if this call did; false if somebody has claimed it until later than
    /// `now`, or it is not as it was read.
    async fn set_aside(
        &self,
        job: &Unreadable,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Takes a job away that nobody has claimed until later than `now`.
    async fn cancel(&self, id: &str, now: Timestamp) -> Result<Cancelled, StoreError>;
}

/// All that waits in a store, the soonest first within each page.
pub async fn list(store: &dyn ScheduleStore) -> Result<Vec<ScheduledJob>, StoreError> {
    let mut jobs = Vec::new();
    let mut after = None;
    loop {
        let page = store.due(when::NEVER, after.as_deref()).await?;
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            return Ok(jobs);
        }
    }
}

/// A job that nobody has claimed, with its own id.
pub fn job(
    queue: &str,
    due: Timestamp,
    message: Outgoing,
    every: Option<Periodic>,
) -> ScheduledJob {
    ScheduledJob {
        id: uuid::Uuid::now_v7().to_string(),
        queue: queue.to_owned(),
        due,
        message,
        every,
        claim: None,
        stamp: String::new(),
    }
}
