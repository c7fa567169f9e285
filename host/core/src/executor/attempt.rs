//! Runs one attempt: until the handler answers, its timeout expires, its leases are lost, or the
//! process must end. A panic is an ending too.

use super::running::{RunningAttempts, RunningLease};
use crate::clock;
use crate::clock::{BootInstant, Timestamp};
use crate::handler::{Attempt, Deadline, Handler, TimeLimit};
use crate::job::{Job, JobEnding};
use crate::lease::Lease;
use crate::memory::HeldBytes;
use crate::message::{FailureReason, Message, Verdict};
use crate::scheduler::permits::Permit;
use crate::telemetry::trace;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// What ends an attempt that does not end by itself.
#[derive(Clone, Copy)]
pub struct AttemptLimits<'a> {
    /// The longest it may take.
    pub timeout: TimeLimit,
    /// Set when it must end at once.
    pub halt: &'a CancellationToken,
    /// The runtime whose timers it uses.
    pub control: &'a Handle,
    /// Where it is shown while it runs.
    pub running: &'a RunningAttempts,
    /// Its queue, by its place in the route.
    pub lane: usize,
}

/// Splits jobs into those that can still be attempted and those that cannot: a lease that was lost
/// while the job waited, and in an ordered group everything after it.
pub(crate) fn still_ours(jobs: Vec<Job>, ordered: bool) -> (Vec<Job>, Vec<(Job, JobEnding)>) {
    let now = clock::now();
    let mut ours = Vec::with_capacity(jobs.len());
    let mut over: Vec<(Job, JobEnding)> = Vec::new();
    for job in jobs {
        job.lease.check(now);
        let group = job.message.group.as_deref().filter(|_| ordered);
        let same = |(other, _): &(Job, JobEnding)| other.message.group.as_deref() == group;
        if job.lease.lost().is_cancelled() {
            over.push((job, JobEnding::Lost));
        } else if group.is_some() && over.iter().any(same) {
            over.push((job, JobEnding::Returned));
        } else {
            ours.push(job);
        }
    }
    (ours, over)
}

enum AttemptEnd {
    Answered(Vec<Verdict>),
    Panicked(String),
    TimedOut,
    AllLost,
    Halted,
    Unbegun,
}

/// Attempts the jobs together and says how each ended, in order.
pub async fn attempt(
    handler: &dyn Handler,
    jobs: Vec<Job>,
    limits: AttemptLimits<'_>,
) -> Vec<(Job, JobEnding)> {
    let mut messages = Vec::with_capacity(jobs.len());
    let mut kept = Vec::with_capacity(jobs.len());
    for job in jobs {
        messages.push(job.message);
        kept.push(JobRest {
            lease: job.lease,
            permit: job.permit,
            held: job.held,
            sent_at: job.sent_at,
            expires: job.expires,
            holds: job.holds,
            tries: job.tries,
            first_attempt: job.first_attempt,
            not_before: job.not_before,
            last_chance: job.last_chance,
        });
    }
    let attempt = Arc::new(Attempt {
        messages,
        cancelled: kept.iter().map(|kept| kept.lease.lost().clone()).collect(),
        tries: kept.iter().map(|kept| kept.tries).collect(),
        deadline: Deadline::after(limits.timeout),
    });
    // Asked before: the handler may be another by the end.
    let reaches_out = handler.reaches_out();
    let leases = kept.iter().map(JobRest::running);
    let version = handler.version(&attempt);
    if let Some(version) = &version {
        trace::note_version(version);
    }
    let shown = limits
        .running
        .begin(limits.lane, &attempt, leases.collect(), version);
    let began = clock::now();
    let end = run(handler, &attempt, limits).await;
    let took = (!matches!(end, AttemptEnd::Unbegun)).then(|| clock::now().since(began));
    let cancelled = shown.end();
    // The handler is done with it, unless an instance that is kept still names it.
    let attempt = Arc::try_unwrap(attempt).unwrap_or_else(|shared| (*shared).clone());
    let lost: Vec<bool> = attempt
        .cancelled
        .iter()
        .map(CancellationToken::is_cancelled)
        .collect();
    let left = attempt.deadline.left(clock::now());
    let halted = match reaches_out {
        true => JobEnding::Stopped(left),
        false => JobEnding::Returned,
    };
    let allowed = limits.timeout.timeout + attempt.deadline.added();
    let mut endings = endings(end, &lost, allowed, &halted);
    cancel(&mut endings, &cancelled);
    let jobs = attempt.messages.into_iter().zip(kept);
    jobs.zip(endings)
        .map(|((message, kept), ending)| (kept.with(message, took), ending))
        .collect()
}

/// What was cancelled is to be deleted, whatever came of it.
fn cancel(endings: &mut [JobEnding], cancelled: &[bool]) {
    for (ending, cancelled) in endings.iter_mut().zip(cancelled) {
        if *cancelled && *ending != JobEnding::Verdict(Verdict::Done) {
            *ending = JobEnding::Cancelled;
        }
    }
}

/// A job without its message, which the handler has.
struct JobRest {
    lease: Lease,
    permit: Permit,
    held: Option<HeldBytes>,
    sent_at: Timestamp,
    expires: Option<BootInstant>,
    holds: u32,
    tries: u32,
    first_attempt: u32,
    not_before: Option<BootInstant>,
    last_chance: bool,
}

impl JobRest {
    fn running(&self) -> RunningLease {
        RunningLease {
            lease: self.lease.id(),
            attempt: self.first_attempt.max(1).saturating_add(self.tries),
        }
    }

    fn with(self, message: Message, took: Option<Duration>) -> Job {
        Job {
            message,
            lease: self.lease,
            permit: self.permit,
            held: self.held,
            sent_at: self.sent_at,
            expires: self.expires,
            holds: self.holds,
            tries: self.tries,
            first_attempt: self.first_attempt,
            took,
            trace: None,
            not_before: self.not_before,
            last_chance: self.last_chance,
        }
    }
}

async fn run(
    handler: &dyn Handler,
    attempt: &Arc<Attempt>,
    limits: AttemptLimits<'_>,
) -> AttemptEnd {
    if attempt
        .cancelled
        .iter()
        .all(CancellationToken::is_cancelled)
    {
        return AttemptEnd::AllLost; // while they waited
    }
    if limits.halt.is_cancelled() {
        return AttemptEnd::Unbegun;
    }
    let mut handling = pin!(CatchPanic(Some(handler.handle(attempt.clone()))));
    // Most attempts end in their first poll: they need no timer and no watch on their leases.
    let first = std::future::poll_fn(|cx| Poll::Ready(handling.as_mut().poll(cx))).await;
    if let Poll::Ready(end) = first {
        return end;
    }
    let timer = attempt.deadline.passed(limits.control);
    let all_lost = async {
        for lost in &attempt.cancelled {
            lost.cancelled().await;
        }
    };
    tokio::select! {
        biased; // a guest that computes is stopped from inside, with a backtrace
        end = &mut handling => end,
        () = all_lost => AttemptEnd::AllLost,
        () = limits.halt.cancelled() => AttemptEnd::Halted,
        () = timer => AttemptEnd::TimedOut,
    }
}

/// One ending per message. What a handler answered about a message whose lease is lost does not
/// count, whatever it was.
fn endings(
    end: AttemptEnd,
    lost: &[bool],
    timeout: Duration,
    halted: &JobEnding,
) -> Vec<JobEnding> {
    let same = |ending: JobEnding| vec![ending; lost.len()];
    let retry = |why| JobEnding::Verdict(Verdict::Retry { after: None, why });
    let answered = match end {
        AttemptEnd::Answered(verdicts) if verdicts.len() == lost.len() => {
            verdicts.into_iter().map(JobEnding::Verdict).collect()
        }
        AttemptEnd::Answered(verdicts) => same(retry(FailureReason::Host(format!(
            "the handler returned {} verdicts for {} messages",
            verdicts.len(),
            lost.len()
        )))),
        AttemptEnd::Panicked(why) => same(retry(FailureReason::Host(why))),
        AttemptEnd::TimedOut => same(retry(FailureReason::TimedOut(timeout))),
        AttemptEnd::AllLost => same(JobEnding::Lost),
        AttemptEnd::Unbegun => same(JobEnding::Returned),
        AttemptEnd::Halted => same(halted.clone()),
    };
    let fence = |(ending, &lost): (JobEnding, &bool)| match ending {
        // It was done, whoever holds the message now: worth remembering when it comes back.
        JobEnding::Verdict(Verdict::Done) => ending,
        _ if lost => JobEnding::Lost,
        _ => ending,
    };
    answered.into_iter().zip(lost).map(fence).collect()
}

/// Turns a panic of the host's own code into an answer.
struct CatchPanic<'a>(Option<Pin<Box<dyn Future<Output = Vec<Verdict>> + Send + 'a>>>);

impl Drop for CatchPanic<'_> {
    fn drop(&mut self) {
        let future = self.0.take();
        // One in the future's drop would take the worker with it; it has been reported already.
        drop(std::panic::catch_unwind(AssertUnwindSafe(|| drop(future))));
    }
}

impl Future for CatchPanic<'_> {
    type Output = AttemptEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AttemptEnd> {
        // After a panic the future is never polled again, so no broken state is seen.
        let Some(future) = &mut self.0 else {
            return Poll::Pending;
        };
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(AttemptEnd::Answered),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "a panic without a message".into());
                Poll::Ready(AttemptEnd::Panicked(text))
            }
        }
    }
}

#[cfg(test)]
#[path = "attempt_tests.rs"]
mod tests;
