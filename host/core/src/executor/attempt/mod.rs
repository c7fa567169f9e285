//! Runs one attempt until the handler returns or panics, its timeout expires, all its leases are
//! lost, or the process must end.

use super::running::{RunningAttempts, RunningLease};
use crate::clock;
use crate::fleet::keeper::FleetPermit;
use crate::handler::{Attempt, Deadline, Handler, TimeLimit};
use crate::job::{Hold, Job, JobEnding};
use crate::message::{FailureReason, Verdict};
use crate::telemetry::trace;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// The limits of an attempt, and where it runs.
#[derive(Clone, Copy)]
pub struct AttemptLimits<'a> {
    /// The time limit of the attempt.
    pub timeout: TimeLimit,
    /// Set when the attempt must end at once.
    pub halt: &'a CancellationToken,
    /// The runtime whose timers the attempt uses.
    pub control: &'a Handle,
    /// The list that shows the attempt while it runs.
    pub running: &'a RunningAttempts,
    /// The place of the attempt's queue in the route.
    pub lane: usize,
}

/// Splits jobs into those that can still be attempted and those that cannot. A job cannot be
/// attempted if its lease was lost while it waited or, in an ordered group, if an earlier job of
/// the group cannot be attempted.
pub(crate) fn still_ours(jobs: Vec<Job>, ordered: bool) -> (Vec<Job>, Vec<(Job, JobEnding)>) {
    let now = clock::now();
    let mut ours = Vec::with_capacity(jobs.len());
    let mut over: Vec<(Job, JobEnding)> = Vec::new();
    for job in jobs {
        job.lease.check(now);
        let group = if ordered {
            job.message.group.as_deref()
        } else {
            None
        };
        if job.lease.lost().is_cancelled() {
            over.push((job, JobEnding::Lost));
        } else if group.is_some()
            && over
                .iter()
                .any(|(other, _): &(Job, JobEnding)| other.message.group.as_deref() == group)
        {
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
    /// Permits of the fleet end, and could not be renewed.
    Revoked,
    Unbegun,
}

/// Attempts the jobs together and returns how each ended, in order.
pub async fn attempt(
    handler: &dyn Handler,
    jobs: Vec<Job>,
    limits: AttemptLimits<'_>,
) -> Vec<(Job, JobEnding)> {
    let (messages, kept): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .map(|job| (job.message, (job.lease, job.hold)))
        .unzip();
    let attempt = Arc::new(Attempt {
        messages,
        cancelled: kept.iter().map(|(lease, _)| lease.lost().clone()).collect(),
        tries: kept.iter().map(|(_, hold)| hold.tries).collect(),
        deadline: Deadline::after(limits.timeout),
    });
    // Read before the attempt: the handler may have been replaced by its end.
    let reaches_out = handler.reaches_out();
    let leases = kept.iter().map(|(lease, hold)| RunningLease {
        lease: lease.id(),
        attempt: hold.attempt(),
    });
    let version = handler.version(&attempt);
    if let Some(version) = &version {
        trace::note_version(version);
    }
    let shown = limits
        .running
        .begin(limits.lane, &attempt, leases.collect(), version);
    let began = clock::now();
    let permits = kept.iter().filter_map(|(_, hold)| hold.limits.as_ref());
    let end = run(handler, &attempt, &permits.collect::<Vec<_>>(), limits).await;
    let took = (!matches!(end, AttemptEnd::Unbegun)).then(|| clock::now().since(began));
    let cancelled = shown.end();
    // The handler has dropped its reference, unless an instance that is kept still holds one.
    let attempt = Arc::try_unwrap(attempt).unwrap_or_else(|shared| (*shared).clone());
    let lost: Vec<bool> = attempt
        .cancelled
        .iter()
        .map(CancellationToken::is_cancelled)
        .collect();
    let left = attempt.deadline.left(clock::now());
    let halted = if reaches_out {
        JobEnding::Abandoned(left)
    } else {
        JobEnding::Interrupted
    };
    let allowed = limits.timeout.timeout + attempt.deadline.added();
    let mut endings = endings(end, &lost, allowed, &halted);
    cancel(&mut endings, &cancelled);
    let jobs = attempt.messages.into_iter().zip(kept).zip(endings);
    jobs.map(|((message, (lease, hold)), ending)| {
        let hold = Hold {
            took,
            trace: None,
            limits: None,
            ..hold
        };
        let job = Job {
            message,
            lease,
            hold,
        };
        (job, ending)
    })
    .collect()
}

/// Marks cancelled messages for deletion, however their attempts ended.
fn cancel(endings: &mut [JobEnding], cancelled: &[bool]) {
    for (ending, cancelled) in endings.iter_mut().zip(cancelled) {
        if *cancelled && *ending != JobEnding::Verdict(Verdict::Done) {
            *ending = JobEnding::Cancelled;
        }
    }
}

async fn run(
    handler: &dyn Handler,
    attempt: &Arc<Attempt>,
    permits: &[&FleetPermit],
    limits: AttemptLimits<'_>,
) -> AttemptEnd {
    if attempt
        .cancelled
        .iter()
        .all(CancellationToken::is_cancelled)
    {
        return AttemptEnd::AllLost; // lost while the jobs waited
    }
    if limits.halt.is_cancelled() {
        return AttemptEnd::Unbegun;
    }
    let mut handling = pin!(CatchPanic(Some(handler.handle(attempt.clone()))));
    // Most attempts end in their first poll: they need no timer and need not watch their leases.
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
    // All permits are renewed together.
    let revoked = async {
        match permits.first() {
            Some(permit) => permit.revoked().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased; // handler first: it stops a computing guest from inside, with a backtrace
        end = &mut handling => end,
        () = all_lost => AttemptEnd::AllLost,
        () = limits.halt.cancelled() => AttemptEnd::Halted,
        () = revoked => AttemptEnd::Revoked,
        () = timer => AttemptEnd::TimedOut,
    }
}

/// Returns one ending per message. A message whose lease is lost ends as `Lost`, unless its verdict
/// is `Done`.
fn endings(
    end: AttemptEnd,
    lost: &[bool],
    timeout: Duration,
    halted: &JobEnding,
) -> Vec<JobEnding> {
    let messages = lost.len();
    let all = match end {
        AttemptEnd::Answered(verdicts) if verdicts.len() == messages => {
            verdicts.into_iter().map(JobEnding::Verdict).collect()
        }
        other => vec![common_ending(other, messages, timeout, halted); messages],
    };
    all.into_iter()
        .zip(lost)
        .map(|(ending, &lost): (JobEnding, &bool)| match ending {
            // The message was handled, even if another process holds it now: remember it for its
            // redelivery.
            JobEnding::Verdict(Verdict::Done) => ending,
            _ if lost => JobEnding::Lost,
            _ => ending,
        })
        .collect()
}

/// Returns the ending that all messages of an attempt have if it did not give each its verdict.
fn common_ending(
    end: AttemptEnd,
    messages: usize,
    timeout: Duration,
    halted: &JobEnding,
) -> JobEnding {
    let why = match end {
        AttemptEnd::AllLost => return JobEnding::Lost,
        AttemptEnd::Unbegun => return JobEnding::Returned,
        AttemptEnd::Halted | AttemptEnd::Revoked => return halted.clone(),
        AttemptEnd::Answered(verdicts) => FailureReason::Host(format!(
            "the handler returned {} verdicts for {messages} messages",
            verdicts.len()
        )),
        AttemptEnd::Panicked(why) => FailureReason::Host(why),
        AttemptEnd::TimedOut => FailureReason::TimedOut(timeout),
    };
    JobEnding::Verdict(Verdict::Retry { after: None, why })
}

/// A future that turns a panic of the host's own code into an `AttemptEnd`.
struct CatchPanic<'a>(Option<Pin<Box<dyn Future<Output = Vec<Verdict>> + Send + 'a>>>);

impl Drop for CatchPanic<'_> {
    fn drop(&mut self) {
        let future = self.0.take();
        // A panic in the future's drop would end the worker; it has been reported already.
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
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "a panic without a message".into());
                Poll::Ready(AttemptEnd::Panicked(text))
            }
        }
    }
}

#[cfg(test)]
mod tests;
