//! Interprets the endings of one attempt for the downstream, for the order of groups and for
//! retries. Pure.

use crate::backoff;
use crate::clock::BootInstant;
use crate::job::{Job, JobEnding};
use crate::message::{FailureReason, Outcome, Verdict};
use crate::scheduler::ready::WaitingJob as _;
use crate::scheduler::{EndedJob, MessageFate, Pause};
use crate::throttle::control::Signal;
use std::time::Duration;

/// The first and the maximum pause before a message whose downstream was busy is retried. A success
/// of another attempt ends the pause early.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(20));

/// The maximum wait that a downstream can ask for. If it asks for more, the message is retried
/// after this time.
const LONGEST_ADVICE: Duration = Duration::from_secs(300);

/// The first and the maximum pause of a message that found its downstream closed. The pause is
/// longer than the time until the next probe, so that another message is tried next: one message
/// alone must not keep a route closed.
const TURN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(120));

/// Returns what an ending means for the order of the message's group.
pub(super) fn fate(ending: &JobEnding) -> MessageFate {
    match ending {
        JobEnding::Verdict(Verdict::Done)
        | JobEnding::AlreadyDone
        | JobEnding::Shed
        | JobEnding::Filtered
        | JobEnding::Cancelled => MessageFate::Done,
        JobEnding::Verdict(Verdict::Busy { .. } | Verdict::Closed(_)) => MessageFate::Kept,
        _ => MessageFate::Failed,
    }
}

/// Adjusts the endings of an attempt to the order of groups and to the end of the process, and
/// counts the tries.
pub(super) fn interpret(ended: &mut [(Job, JobEnding)], in_order: bool, is_halted: bool) {
    if in_order {
        in_group_order(ended);
    }
    if is_halted {
        let_go(ended);
    }
    count_tries(ended);
}

/// Counts the attempts that began and were not interrupted by the end of the process. A message
/// that is returned because an earlier one of its group failed has had no attempt that counts.
fn count_tries(ended: &mut [(Job, JobEnding)]) {
    for (job, ending) in ended {
        if matches!(
            ending,
            JobEnding::Verdict(Verdict::Retry { .. } | Verdict::Reject(_))
                | JobEnding::Abandoned(_)
                | JobEnding::Lost
        ) {
            job.hold.tries = job.hold.tries.saturating_add(1);
        }
    }
}

/// Returns what happens to each message of an attempt whose groups are in order. `preview` returns
/// the outcome that settlement will choose, if groups must wait for it.
pub(super) fn fates(
    ended: &[(Job, JobEnding)],
    preview: impl Fn(&Job, &JobEnding) -> Option<Outcome>,
) -> Vec<MessageFate> {
    let mut failed: Vec<&str> = Vec::new();
    let mut list = Vec::with_capacity(ended.len());
    for (job, ending) in ended {
        let Some(group) = job.message.group.as_deref() else {
            list.push(fate(ending));
            continue;
        };
        list.push(match ending {
            JobEnding::Returned if failed.contains(&group) => MessageFate::Behind {
                last_chance: !job.may_be_given_back(),
            },
            JobEnding::Verdict(Verdict::Retry { .. } | Verdict::Reject(_)) => {
                match preview(job, ending) {
                    Some(Outcome::Release(pause)) => MessageFate::Again(pause),
                    Some(Outcome::DeadLetter(_)) => MessageFate::DeadLettered,
                    Some(Outcome::Delete) | None => MessageFate::Failed,
                }
            }
            other => fate(other),
        });
        let is_failure = matches!(
            ending,
            JobEnding::Verdict(Verdict::Retry { .. } | Verdict::Reject(_))
        );
        if is_failure {
            failed.push(group);
        }
    }
    list
}

/// Returns what the attempt shows about the downstream: the signal of its worst verdict.
pub(super) fn worst_signal<'a>(endings: impl Iterator<Item = &'a JobEnding>) -> Signal {
    endings
        .map(signal)
        .max_by_key(|showed: &Signal| match showed {
            Signal::Nothing => 0,
            Signal::Open => 1,
            Signal::Busy => 2,
            Signal::Closed => 3,
        })
        .unwrap_or(Signal::Nothing)
}

fn signal(ending: &JobEnding) -> Signal {
    match ending {
        JobEnding::Verdict(Verdict::Closed(_)) => Signal::Closed,
        JobEnding::Verdict(Verdict::Busy { .. }) => Signal::Busy,
        // A guest that was cut short or never ran shows nothing about the downstream.
        JobEnding::Verdict(Verdict::Retry {
            why: FailureReason::TimedOut(_) | FailureReason::Host(_) | FailureReason::OutOfMemory(_),
            ..
        })
        | JobEnding::Returned
        | JobEnding::Interrupted
        | JobEnding::Abandoned(_)
        | JobEnding::Behind(_)
        | JobEnding::Deferred(_)
        | JobEnding::AlreadyDone
        | JobEnding::Exhausted(_)
        | JobEnding::Unreadable(_)
        | JobEnding::Shed
        | JobEnding::Filtered
        | JobEnding::Cancelled
        | JobEnding::Lost => Signal::Nothing,
        JobEnding::Verdict(_) => Signal::Open,
    }
}

/// Applies the fate of the first message of a group that is not done to all later ones of the
/// group: they are released if it failed, and held if it is held.
fn in_group_order(ended: &mut [(Job, JobEnding)]) {
    for at in 0..ended.len() {
        let (earlier, later) = ended.split_at_mut(at + 1);
        let Some((job, ending)) = earlier.last() else {
            continue;
        };
        let (fate, Some(group)) = (fate(ending), job.message.group.as_deref()) else {
            continue;
        };
        if fate == MessageFate::Done {
            continue;
        }
        let of_group = later
            .iter_mut()
            .filter(|(job, _)| job.message.group.as_deref() == Some(group));
        for (_, other) in of_group {
            // One request carried them all, so it is unknown whether each was handled.
            if matches!(
                other,
                JobEnding::Lost
                    | JobEnding::Cancelled
                    | JobEnding::Interrupted
                    | JobEnding::Abandoned(_)
            ) {
                continue;
            }
            *other = match fate {
                MessageFate::Kept => ending.clone(),
                _ => JobEnding::Returned,
            };
        }
    }
}

/// Releases all messages that would have been held.
fn let_go(ended: &mut [(Job, JobEnding)]) {
    for (_, ending) in ended {
        if fate(ending) == MessageFate::Kept {
            *ending = JobEnding::Returned;
        }
    }
}

/// Returns why these messages are held: the reason of the first one.
pub(super) fn why<'a>(mut held: impl Iterator<Item = &'a JobEnding>) -> Option<String> {
    held.find_map(|ending| match ending {
        JobEnding::Verdict(Verdict::Busy { why, .. } | Verdict::Closed(why)) => Some(why.clone()),
        _ => None,
    })
}

/// Returns how long these messages are held together: at least as long as advised, and longer with
/// each pause. A message whose downstream is closed may be tried as soon as the route is probed.
pub(super) fn pause<'a>(
    held: impl Iterator<Item = &'a EndedJob<Job, JobEnding>>,
    now: BootInstant,
    random: u64,
) -> Option<Pause> {
    let pauses = held.filter_map(|EndedJob { job, ending, .. }| match ending {
        JobEnding::Verdict(Verdict::Busy { after, .. }) => {
            let tries = job.hold.pauses.saturating_add(1);
            // Half of the pause is fixed, so that a busy downstream is not flooded.
            let half = backoff::ceiling(PAUSE.0, PAUSE.1, tries) / 2;
            let own = half + backoff::full_jitter(PAUSE.0 / 2, PAUSE.1 / 2, tries, random);
            let advised = after.unwrap_or_default().min(LONGEST_ADVICE);
            Some((now + advised, now + own.max(advised)))
        }
        JobEnding::Verdict(Verdict::Closed(_)) => {
            let tries = job.hold.pauses.saturating_add(1);
            Some((now, now + backoff::ceiling(TURN.0, TURN.1, tries)))
        }
        _ => None,
    });
    pauses
        .reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))
        .map(|(not_before, until)| Pause { not_before, until })
}

#[cfg(test)]
mod tests;
