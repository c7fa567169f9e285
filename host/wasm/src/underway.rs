//! The running attempts of one shared instance, and which of them must stop computing. Part of the
//! store, so that the engine's callbacks see it. Does not depend on other instances.

use crate::attempt;
use crate::attempt::AttemptStop;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{FailureReason, Verdict};
use dispatcher_core::telemetry::trace::ActiveSpan;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use wasmtime::component::GuestTaskId;

/// The time for which an attempt that is over, or has answered, may still compute without a pause.
/// It may have waited, not computed, when it ended, and a stop fails all other attempts in the
/// instance.
const PATIENCE: Duration = Duration::from_millis(100);

/// An attempt on its way into an instance.
pub(crate) struct SharedAttempt {
    /// Unique within the plugin; grows with the order of arrival.
    pub(crate) id: u64,
    pub(crate) attempt: Arc<Attempt>,
    /// The span, if attempts are traced.
    pub(crate) span: Option<ActiveSpan>,
    /// Closed once no caller waits for the answer any longer: the attempt is abandoned.
    pub(crate) answer: oneshot::Sender<Vec<Verdict>>,
    /// The bytes of its messages.
    pub(crate) bytes: usize,
}

/// The running attempts in one instance.
#[derive(Default)]
pub(crate) struct Underway {
    entries: HashMap<u64, UnderwayEntry>,
    /// The attempt for which the instance is being created; nothing else is running then.
    birth: Option<Arc<Attempt>>,
    /// The time since which the guest has computed without yielding the thread to the event loop.
    stretch: Option<BootInstant>,
    /// The attempt for which the guest was stopped.
    stopped: Option<u64>,
}

struct UnderwayEntry {
    job: SharedAttempt,
    /// The time that it was allowed to run.
    limit: Duration,
    /// The guest's task, once there is one.
    task: Option<GuestTaskId>,
}

impl Underway {
    /// Creates the state of an instance that is created for this attempt.
    pub(crate) fn born_for(attempt: Arc<Attempt>) -> Self {
        Self {
            birth: Some(attempt),
            ..Self::default()
        }
    }

    /// Records that the instance has been created.
    pub(crate) fn born(&mut self) {
        self.birth = None;
    }

    /// Adds an attempt that is about to begin.
    pub(crate) fn take(&mut self, job: SharedAttempt) {
        let limit = attempt::limit(&job.attempt);
        let entry = UnderwayEntry {
            limit,
            task: None,
            job,
        };
        self.entries.insert(entry.job.id, entry);
    }

    /// Records the guest's task for an attempt.
    pub(crate) fn begun(&mut self, id: u64, task: GuestTaskId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.task = Some(task);
        }
    }

    /// Removes an attempt that the guest has answered.
    pub(crate) fn ended(&mut self, id: u64) -> Option<SharedAttempt> {
        self.entries.remove(&id).map(|entry| entry.job)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Records that the guest has stopped computing: the event loop has the thread.
    pub(crate) fn rests(&mut self) {
        self.stretch = None;
    }

    /// Whether the guest's answer about this message no longer counts. This is also true for a
    /// message that is not running.
    pub(crate) fn is_message_cancelled(&self, id: &str) -> bool {
        let jobs = self.entries.values().map(|entry| &entry.job);
        jobs.filter(|job| !job.answer.is_closed()).all(|job| {
            let messages = job.attempt.messages.iter();
            messages
                .zip(&job.attempt.cancelled)
                .all(|(message, cancelled)| message.id != id || cancelled.is_cancelled())
        })
    }

    /// Returns the attempt on this message, if it is running. Searches all attempts.
    pub(crate) fn attempt_of(&self, id: &str) -> Option<&Arc<Attempt>> {
        let mut attempts = self.entries.values().map(|entry| &entry.job.attempt);
        attempts.find(|attempt| attempt.messages.iter().any(|message| message.id == id))
    }

    /// Returns the attempt that this task of the guest works on.
    pub(crate) fn of_task(&self, task: GuestTaskId) -> Option<&SharedAttempt> {
        let mut entries = self.entries.values();
        let found = entries.find(|entry| entry.task == Some(task));
        found.map(|entry| &entry.job)
    }

    /// Returns the queue, the message and the limit of the attempt for which the instance was
    /// stopped. If it was stopped for none, they describe all running attempts.
    pub(crate) fn place(&self) -> (String, String, Duration) {
        let mut begun = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.task.is_some());
        let others = begun.clone().count().saturating_sub(1);
        let of_one = self.stopped.and_then(|id| self.entries.get(&id));
        let more = match of_one {
            None if others > 0 => format!(" and {others} more"),
            _ => String::new(),
        };
        let Some(entry) = of_one.or_else(|| begun.next().map(|(_, entry)| entry)) else {
            return (String::new(), String::new(), Duration::ZERO);
        };
        let (queue, id) = attempt::place(&entry.job.attempt);
        (queue, id + &more, entry.limit)
    }

    /// Answers every attempt that the guest was given when it failed. If it was stopped for one
    /// attempt, the others fail because of that. Returns the attempts that the guest was not yet
    /// given.
    pub(crate) fn fail(
        &mut self,
        failure_reason: impl Fn(Duration) -> FailureReason,
    ) -> Vec<SharedAttempt> {
        let mut untouched = Vec::new();
        let stopped = self.stopped.take();
        for (id, UnderwayEntry { job, limit, task }) in self.entries.drain() {
            if task.is_none() {
                untouched.push(job);
                continue;
            }
            let why = match stopped {
                Some(other) if other != id => FailureReason::Trapped(
                    "the instance that it shared was stopped for another attempt".into(),
                ),
                _ => failure_reason(limit),
            };
            let verdicts = attempt::retry_all(&job.attempt, why);
            // The channel is closed if the attempt was abandoned. Then no caller needs the answer.
            let _ = job.answer.send(verdicts);
        }
        untouched
    }

    /// Checks whether the guest must stop. Called at every epoch tick at which the guest computes;
    /// a guest that need not stop yields the thread.
    ///
    /// A single task of a guest cannot be stopped, so a stop ends the instance and fails all
    /// attempts in it. The rule is therefore: *the attempt that computes* is stopped once it is
    /// over (its deadline has passed, it is abandoned, or all its messages are cancelled) and the
    /// guest has computed without a pause for `PATIENCE`. The time that an attempt spends waiting
    /// counts neither against it nor against the one that computes meanwhile: an attempt that ends
    /// while it waits stops no other, and one that wakes after its end has `PATIENCE` to finish. An
    /// attempt that computes when its deadline passes is stopped then, or `PATIENCE` after it began
    /// to compute. The same patience applies to a guest that computes for no attempt, for example
    /// after its answer. The creation of an instance must end by the deadline of its attempt, as
    /// without sharing.
    pub(crate) fn tick(
        &mut self,
        task: Option<GuestTaskId>,
        now: BootInstant,
    ) -> Result<(), AttemptStop> {
        if let Some(attempt) = &self.birth {
            return attempt_is_over(attempt, now);
        }
        let since = *self.stretch.get_or_insert(now);
        if now.since(since) < PATIENCE {
            return Ok(());
        }
        let mut entries = self.entries.values();
        let computing = entries.find(|entry| entry.task.is_some() && entry.task == task);
        let Some(UnderwayEntry { job, .. }) = computing else {
            return Err(AttemptStop::Answered);
        };
        let over = attempt_is_over(&job.attempt, now).and_then(|()| {
            if job.answer.is_closed() {
                Err(AttemptStop::Cancelled)
            } else {
                Ok(())
            }
        });
        if over.is_err() {
            self.stopped = Some(job.id);
        }
        over
    }
}

fn attempt_is_over(attempt: &Attempt, now: BootInstant) -> Result<(), AttemptStop> {
    if attempt.cancelled.iter().all(|one| one.is_cancelled()) {
        return Err(AttemptStop::Cancelled);
    }
    if attempt.deadline.is_over(now) {
        return Err(AttemptStop::Deadline);
    }
    Ok(())
}
