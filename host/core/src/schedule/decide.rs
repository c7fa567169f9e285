//! Decides about jobs: which are sent now, with what delay, when a periodic one fires next, and
//! when to look again. Pure: `now` is an argument.

use super::{Claim, ScheduledJob};
use crate::clock::Timestamp;
use crate::message::Outgoing;
use std::time::Duration;

/// How far ahead jobs are looked for: no queue that is known to limit delays takes longer ones than
/// SQS's 15 minutes (SendMessage in the SQS API reference).
pub(crate) const AHEAD: Duration = Duration::from_secs(900);
/// How long a claim holds.
pub const LEASE: Duration = Duration::from_secs(120);
/// How long after it was asked for a claim is still used to send. One call of the AWS SDK takes 27 s
/// at most (two attempts of 3.1 s and 10 s each, see `aws`), so that the last of them has ended 72 s
/// after the claim. What is left of `LEASE` is how far the clocks of two dispatchers may be apart.
pub const SEND_WITHIN: Duration = Duration::from_secs(45);
/// The most times that a periodic job fires in one round.
pub(crate) const MOST_TICKS: usize = 1_000;

/// What a queue takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendLimits {
    /// The longest delay of one message; zero where none can be delayed.
    pub longest_delay: Duration,
    /// The longest delay of a message with a group; zero as well if it would delay its group.
    pub longest_delay_in_group: Duration,
    /// What the queue adds to every message, where a message cannot say otherwise.
    pub own_delay: Duration,
    /// Maximum messages of one call.
    pub batch: usize,
    /// Whether what is sent first is handled first.
    pub ordered: bool,
}

impl SendLimits {
    /// The longest delay of this message.
    pub fn longest_delay_of(&self, message: &Outgoing) -> Duration {
        match message.group {
            Some(_) => self.longest_delay_in_group,
            None => self.longest_delay,
        }
    }
}

/// A job that is to be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueJob {
    /// Which.
    pub job: ScheduledJob,
    /// When each message of it is due, in order; one for a job that is not periodic.
    pub ticks: Vec<Timestamp>,
    /// When it is due after them; `None`: never again.
    pub next: Option<Timestamp>,
}

/// Whether somebody is sending the job.
pub fn is_claimed(job: &ScheduledJob, now: Timestamp) -> bool {
    job.claim.as_ref().is_some_and(|claim| claim.until >= now)
}

/// A claim from now on.
pub fn claim(token: String, now: Timestamp) -> Claim {
    Claim {
        token,
        until: now + LEASE,
    }
}

/// From when on a job may be sent to its queue. What fires again is sent as late as the next two
/// looks allow, since it can be cancelled until then. What its queue delays by itself it is sent so
/// much earlier.
pub(crate) fn ready_at(job: &ScheduledJob, reach: SendLimits, interval: Duration) -> Timestamp {
    let longest = reach.longest_delay_of(&job.message);
    let ahead = match job.every {
        None => longest,
        Some(_) => longest.min(interval.saturating_mul(2)),
    };
    let ahead = ahead.max(reach.own_delay).min(AHEAD);
    let ahead = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
    Timestamp(job.due.0.saturating_sub(ahead))
}

/// What to send of a job now; `None` if nothing. A periodic job that is late fires once for all that
/// it has missed. An error if its pattern cannot be read.
pub fn plan(
    job: &ScheduledJob,
    reach: SendLimits,
    interval: Duration,
    now: Timestamp,
) -> Result<Option<DueJob>, String> {
    if is_claimed(job, now) || ready_at(job, reach, interval) > now {
        return Ok(None);
    }
    let mut ticks = vec![job.due];
    let mut next = None;
    if let Some(every) = &job.every {
        // What could not be visible in time any more is missed.
        let mut last = job.due.max(now + reach.own_delay);
        loop {
            next = every.next(last)?;
            let Some(tick) = next else { break };
            let later = ScheduledJob {
                due: tick,
                ..job.clone()
            };
            if ticks.len() == MOST_TICKS || ready_at(&later, reach, interval) > now {
                break;
            }
            ticks.push(tick);
            last = tick;
        }
    }
    let job = job.clone();
    Ok(Some(DueJob { job, ticks, next }))
}

/// The delay with which a message that is due at `tick` is sent now.
pub fn delay(message: &Outgoing, tick: Timestamp, now: Timestamp, reach: SendLimits) -> Duration {
    tick.since(now).min(reach.longest_delay_of(message))
}

/// Returns when a job is due after its queue accepted only the first of its messages.
pub(crate) fn next_after(planned: &DueJob, sent: usize) -> Option<Timestamp> {
    planned.ticks.get(sent).copied().or(planned.next)
}

/// How long until the next look: the interval, or less where something is held that is ready sooner.
pub fn wait(now: Timestamp, interval: Duration, held: Option<Timestamp>) -> Duration {
    held.map_or(interval, |ready| ready.since(now).min(interval))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
