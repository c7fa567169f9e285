//! Decides which jobs are sent now and with what delay, when a periodic job fires next, and when to
//! look again. Pure: `now` is an argument.

use super::{Claim, ScheduledJob};
use crate::clock::Timestamp;
use crate::message::OutgoingMessage;
use std::time::Duration;

/// The time by which jobs are read ahead. No known queue with a limit on delays accepts a longer
/// one than SQS's 15 minutes (SendMessage in the SQS API reference).
pub(crate) const AHEAD: Duration = Duration::from_secs(900);
/// The duration of a claim.
pub const LEASE: Duration = Duration::from_secs(120);
/// The time after the request for a claim within which calls to send may begin. One call of the AWS
/// SDK takes at most 27 s (two attempts of 3.1 s and 10 s each, see `aws`), so the last call ends
/// 72 s after the claim at the latest. The rest of `LEASE` is the permitted difference between the
/// clocks of two dispatchers.
pub const SEND_WITHIN: Duration = Duration::from_secs(45);
/// The maximum number of times that a periodic job fires in one round.
pub(crate) const MOST_TICKS: usize = 1_000;

/// The limits of a queue on sent messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendLimits {
    /// The longest delay of one message; zero if the queue cannot delay messages.
    pub longest_delay: Duration,
    /// The longest delay of a message with a group; also zero if the delay would hold up the group.
    pub longest_delay_in_group: Duration,
    /// The delay that the queue adds to every message, if messages cannot have their own delay.
    pub own_delay: Duration,
    /// The maximum number of messages of one call.
    pub batch: usize,
    /// Whether messages of a group are handled in the order in which they are sent.
    pub ordered: bool,
}

impl SendLimits {
    /// Returns the longest delay of this message.
    pub fn longest_delay_of(&self, message: &OutgoingMessage) -> Duration {
        match message.group {
            Some(_) => self.longest_delay_in_group,
            None => self.longest_delay,
        }
    }
}

/// A job that is to be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueJob {
    /// The job.
    pub job: ScheduledJob,
    /// The time at which each of its messages is due, in order; one for a job that is not periodic.
    pub ticks: Vec<Timestamp>,
    /// The time at which the job is due after these; `None` if never again.
    pub next: Option<Timestamp>,
}

/// Returns whether a dispatcher has claimed the job and is sending it.
pub fn is_claimed(job: &ScheduledJob, now: Timestamp) -> bool {
    job.claim.as_ref().is_some_and(|claim| claim.until >= now)
}

/// Makes a claim that begins now.
pub fn claim(token: String, now: Timestamp) -> Claim {
    Claim {
        token,
        until: now + LEASE,
    }
}

/// Returns the earliest time at which a job may be sent to its queue: ahead of its due time by the
/// longest delay that the queue accepts. A periodic job is sent at most two intervals ahead,
/// because it can be cancelled until it is sent. If the queue delays every message, the job is sent
/// at least that much earlier.
pub(crate) fn ready_at(job: &ScheduledJob, reach: SendLimits, interval: Duration) -> Timestamp {
    let longest = reach.longest_delay_of(&job.message);
    let wanted = match job.every {
        None => longest,
        Some(_) => longest.min(interval.saturating_mul(2)),
    };
    let ahead = wanted.max(reach.own_delay).min(AHEAD);
    let ahead_ms = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
    Timestamp(job.due.0.saturating_sub(ahead_ms))
}

/// Returns the messages of a job to send now; `None` if there are none. A late periodic job fires
/// once for all the times that it missed.
///
/// # Errors
/// Fails if the pattern of the job cannot be read.
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
        // Times whose messages could no longer be visible in time count as missed.
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

/// Returns the delay with which a message that is due at `tick` is sent now.
pub fn delay(
    message: &OutgoingMessage,
    tick: Timestamp,
    now: Timestamp,
    reach: SendLimits,
) -> Duration {
    tick.since(now).min(reach.longest_delay_of(message))
}

/// Returns when a job is due after its queue accepted only the first of its messages.
pub(crate) fn next_after(planned: &DueJob, sent: usize) -> Option<Timestamp> {
    planned.ticks.get(sent).copied().or(planned.next)
}

/// Returns the time until the next look: the interval, or less if a held job is ready sooner.
pub fn wait(now: Timestamp, interval: Duration, held: Option<Timestamp>) -> Duration {
    held.map_or(interval, |ready| ready.since(now).min(interval))
}

#[cfg(test)]
mod tests;
