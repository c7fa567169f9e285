//! Scheduled messages: jobs that wait in a store until they are due, once or periodically. The port
//! to stores is deliberately small; `mover` moves due jobs from a store to their queues. Knows no
//! queue and no store by name; each store is in the crate of its backend.

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

use crate::clock::Timestamp;
pub use crate::error_kind::{CallError as StoreError, ErrorKind};
use crate::message::OutgoingMessage;
use cron::Periodic;
use std::time::Duration;

/// The interval between looks at a store that is cheap to read: the embedded queues' store, and
/// Redis.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A message that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledJob {
    /// The id; unique within its store, without `/`.
    pub id: String,
    /// The queue that it goes to, as the configuration writes it: `payments`, `local:default`.
    pub queue: String,
    /// The earliest time at which it may be received; for a periodic job, the next time that it
    /// fires.
    pub due: Timestamp,
    /// The message to send; its `delay` is ignored.
    pub message: OutgoingMessage,
    /// The pattern by which a periodic job fires again.
    pub every: Option<Periodic>,
    /// The claim of the dispatcher that is sending it.
    pub claim: Option<Claim>,
    /// The store's own form of `due`, by which it detects that a job has changed. Empty for a job
    /// that is not yet added.
    pub stamp: String,
}

/// The right to send a job for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// A unique token of this claim, which identifies its owner.
    pub token: String,
    /// The time after which any dispatcher may take the job over.
    pub until: Timestamp,
}

/// The end of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// The job as it was read.
    pub job: ScheduledJob,
    /// The token of this process's claim.
    pub token: String,
    /// The next time at which the job is due; `None` if never again. The job's own `due` returns it
    /// unsent.
    pub next: Option<Timestamp>,
}

/// A page of the jobs of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobPage {
    /// The jobs, soonest first.
    pub jobs: Vec<ScheduledJob>,
    /// The start of the next page; `None` on the last.
    pub next: Option<String>,
    /// The jobs of this page whose message is missing or cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// A waiting job whose message is missing or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The id, as far as the store can tell.
    pub id: String,
    /// The queue of the job, if that can be read.
    pub queue: Option<String>,
    /// The description of the problem.
    pub why: String,
    /// The store's own form of its position, by which it detects that a job has changed.
    pub stamp: String,
}

/// The result of a request to cancel a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobCancellation {
    /// The job is cancelled and will not be sent.
    Yes,
    /// There is no job with the id: it never existed, was sent, or was cancelled before.
    Unknown,
    /// A dispatcher is sending the job at this moment.
    BeingSent,
}

/// A store of jobs. Many processes may make calls concurrently. A call that is dropped may or may
/// not have been carried out.
#[async_trait::async_trait]
pub trait ScheduleStore: Send + Sync + 'static {
    /// Returns the name of the store for people.
    fn place(&self) -> String;

    /// Creates the table of jobs, if the store needs one that people must create. Returns whether
    /// it is new.
    async fn make(&self) -> Result<bool, StoreError> {
        Err(StoreError {
            kind: ErrorKind::Invalid,
            message: format!("{} needs no table", self.place()),
        })
    }

    /// Returns the id that a job must have in this store, if the id follows from its message.
    fn own_id(&self, _job: &ScheduledJob) -> Option<String> {
        None
    }

    /// Adds a job; `Ok` means that it survives a crash. Returns false and changes nothing if there
    /// is a job with the id already.
    async fn add(&self, job: &ScheduledJob) -> Result<bool, StoreError>;

    /// Returns the jobs due no later than `until`, claimed ones included; starts after the page
    /// `after`. Sees every job added before the call.
    async fn due(&self, until: Timestamp, after: Option<&str>) -> Result<JobPage, StoreError>;

    /// Claims these jobs if they have not changed and have no claim that lasts until later than
    /// `now`. If two processes claim the same job, one of them gets true, regardless of their
    /// clocks. Returns one answer per job, in order.
    async fn claim(
        &self,
        jobs: &[ScheduledJob],
        claim: &Claim,
        now: Timestamp,
    ) -> Vec<Result<bool, StoreError>>;

    /// Ends claims: removes the jobs, or gives them a new time and no claim. Leaves a job alone
    /// that this token no longer claims: another process has claimed it, or its producer has
    /// written it again. Returns one answer per item.
    async fn end(&self, endings: &[JobOutcome]) -> Vec<Result<(), StoreError>>;

    /// Moves an unreadable job from the waiting jobs to the dead jobs of the store, with its
    /// readable parts and `reason`. Returns true if this call moved it; false if it has a claim
    /// until later than `now`, or has changed.
    async fn set_aside(
        &self,
        job: &Unreadable,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Removes a job, unless it has a claim until later than `now`.
    async fn cancel(&self, id: &str, now: Timestamp) -> Result<JobCancellation, StoreError>;
}

/// Lists all jobs of a store, the soonest first within each page.
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

/// Makes an unclaimed job with a new id.
pub fn job(
    queue: &str,
    due: Timestamp,
    message: OutgoingMessage,
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
