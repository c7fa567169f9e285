//! The running attempts of one shared instance, and which of them must stop computing. Part of the
//! store, so that the engine's callbacks see it. Knows no other instance.

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

/// How long an attempt that is over, or has answered, may still compute at a stretch. It may have
/// waited, not computed, when it ended, and a stop costs all others in the instance their attempt.
const PATIENCE: Duration = Duration::from_millis(100);

/// An attempt on its way into an instance.
pub(crate) struct SharedAttempt {
    /// Unique within the plugin; grows with the order of arrival.
    pub(crate) id: u64,
    pub(crate) attempt: Arc<Attempt>,
    /// Its span, where attempts are traced.
    pub(crate) span: Option<ActiveSpan>,
    /// Closed once nobody waits for the answer any longer: the attempt is abandoned.
    pub(crate) answer: oneshot::Sender<Vec<Verdict>>,
    /// Bytes of its messages.
    pub(crate) bytes: usize,
}

/// The running attempts in one instance.
#[derive(Default)]
pub(crate) struct Underway {
    entries: HashMap<u64, UnderwayEntry>,
    /// For whom the instance is being made; nothing else is running then.
    birth: Option<Arc<Attempt>>,
    /// Since when the guest has computed without giving the thread back to the event loop.
    stretch: Option<BootInstant>,
    /// Whose attempt the guest was stopped for.
    stopped: Option<u64>,
}

struct UnderwayEntry {
    job: SharedAttempt,
    /// How long it was allowed to run.
    limit: Duration,
    /// The guest's task, once there is one.
    task: Option<GuestTaskId>,
}

impl Underway {
    /// For an instance that is made for this attempt.
    pub(crate) fn born_for(attempt: Arc<Attempt>) -> Self {
        Self {
            birth: Some(attempt),
            ..Self::default()
        }
    }

    /// The instance is there.
    pub(crate) fn born(&mut self) {
        self.birth = None;
    }

    /// Takes an attempt that is about to be begun.
    pub(crate) fn take(&mut self, job: SharedAttempt) {
        let limit = attempt::limit(&job.attempt);
        let entry = UnderwayEntry {
            limit,
            task: None,
            job,
        };
        self.entries.insert(entry.job.id, entry);
    }

    /// The guest has been given it, as this task.
    pub(crate) fn begun(&mut self, id: u64, task: GuestTaskId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.task = Some(task);
        }
    }

    /// The guest has answered.
    pub(crate) fn ended(&mut self, id: u64) -> Option<SharedAttempt> {
        self.entries.remove(&id).map(|entry| entry.job)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The guest computes no longer: the event loop has the thread.
    pub(crate) fn rests(&mut self) {
        self.stretch = None;
    }

    /// Whether what the guest answers about this message no longer counts; so it is for one that is
    /// not under way.
    pub(crate) fn is_message_cancelled(&self, id: &str) -> bool {
        let jobs = self.entries.values().map(|entry| &entry.job);
        jobs.filter(|job| !job.answer.is_closed()).all(|job| {
            let messages = job.attempt.messages.iter();
            messages
                .zip(&job.attempt.cancelled)
                .all(|(message, cancelled)| message.id != id || cancelled.is_cancelled())
        })
    }

    /// The attempt on this message, if it is running. Looks at all of them.
    pub(crate) fn attempt_of(&self, id: &str) -> Option<&Arc<Attempt>> {
        let mut attempts = self.entries.values().map(|entry| &entry.job.attempt);
        attempts.find(|attempt| attempt.messages.iter().any(|message| message.id == id))
    }

    /// The attempt that this task of the guest works on.
    pub(crate) fn of_task(&self, task: GuestTaskId) -> Option<&SharedAttempt> {
        let mut entries = self.entries.values();
        let found = entries.find(|entry| entry.task == Some(task));
        found.map(|entry| &entry.job)
    }

    /// Whom a stop of the instance is about: the queue, the message, and the limit of the attempt
    /// that it was stopped for; where it was for none, those of all that are running.
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

    /// Answers everything that the guest was given when it failed: whoever it was stopped for with
    /// its own failure, the others with theirs. What it was not yet given comes back.
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
            // Closed if it was abandoned, and then nobody wants to know.
            let _ = job.answer.send(verdicts);
        }
        untouched
    }

    /// Whether the guest must stop. It is asked at every epoch tick at which the guest computes,
    /// and yields the thread if it need not.
    ///
    /// A guest's task cannot be stopped alone, so a stop ends the instance and fails all attempts
    /// in it. The rule, therefore: *the attempt that computes* is stopped once it is over (its
    /// deadline has passed, it is abandoned, or all its messages are cancelled) and the guest has
    /// computed without a pause for `PATIENCE`. Time that an attempt spends waiting is not held
    /// against it, nor against the one that computes meanwhile: an attempt that ends while it
    /// waits stops nobody, and one that wakes after its end has `PATIENCE` to come to its own.
    /// One that computes when its deadline passes is stopped then, or `PATIENCE` after it began to.
    /// The same patience holds for a guest that computes on behalf of nobody, as after its answer.
    /// Making an instance is held to the deadline of the attempt that it is made for, as where
    /// instances are not shared.
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
        let over = attempt_is_over(&job.attempt, now);
        let over = over.and_then(|()| match job.answer.is_closed() {
            true => Err(AttemptStop::Cancelled),
            false => Ok(()),
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
