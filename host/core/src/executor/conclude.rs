//! Interprets the endings of one attempt: for the downstream, for the order of groups, for retries.
//! Pure.

use crate::backoff;
use crate::clock::BootInstant;
use crate::job::{Job, JobEnding};
use crate::message::{FailureReason, Outcome, Verdict};
use crate::scheduler::MessageFate;
use crate::scheduler::ready::Waiting as _;
use crate::throttle::control::Signal;
use std::time::Duration;

/// The first and the longest pause before what was begun without success is retried. A success of
/// another attempt cuts it short.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(20));

/// The longest that a downstream's wish is respected: what it wishes for longer is asked once more.
const LONGEST_ADVICE: Duration = Duration::from_secs(300);

/// The first and the longest pause of what found its downstream closed: longer than until the next
/// probe, so that another message is the next to try. One alone must not keep a route closed.
const TURN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(120));

/// How long something is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    /// The downstream's own wish.
    pub not_before: BootInstant,
    /// When it is retried in any case.
    pub until: BootInstant,
}

/// What became of a message, as its group's order is concerned.
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

/// Counts the attempts that began and were not cut short by the end of the process. What shares the
/// lot of one before it in its group has had none that counts.
pub(super) fn count_tries(ended: &mut [(Job, JobEnding)]) {
    for (job, ending) in ended {
        if matches!(
            ending,
            JobEnding::Verdict(Verdict::Retry { .. } | Verdict::Reject(_))
                | JobEnding::Stopped(_)
                | JobEnding::Lost
        ) {
            job.tries = job.tries.saturating_add(1);
        }
    }
}

/// Returns what happens to each message of an attempt whose groups are in order. `preview` is the
/// outcome that settlement will choose, as far as groups must wait for it.
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

/// Returns the signal of the attempt about the downstream: its worst verdict.
pub(super) fn worst_signal<'a>(endings: impl Iterator<Item = &'a JobEnding>) -> Signal {
    let one = |ending: &JobEnding| match ending {
        JobEnding::Verdict(Verdict::Closed(_)) => Signal::Closed,
        JobEnding::Verdict(Verdict::Busy { .. }) => Signal::Busy,
        // A guest that was cut short, or never ran, has nothing to tell.
        JobEnding::Verdict(Verdict::Retry {
            why: FailureReason::TimedOut(_) | FailureReason::Host(_) | FailureReason::OutOfMemory(_),
            ..
        })
        | JobEnding::Returned
        | JobEnding::Stopped(_)
        | JobEnding::Behind(_)
        | JobEnding::AlreadyDone
        | JobEnding::Exhausted(_)
        | JobEnding::Unreadable(_)
        | JobEnding::Shed
        | JobEnding::Filtered
        | JobEnding::Cancelled
        | JobEnding::Lost => Signal::Nothing,
        JobEnding::Verdict(_) => Signal::Open,
    };
    let rank = |showed: &Signal| match showed {
        Signal::Nothing => 0,
        Signal::Open => 1,
        Signal::Busy => 2,
        Signal::Closed => 3,
    };
    endings.map(one).max_by_key(rank).unwrap_or(Signal::Nothing)
}

/// From the first message of a group on that is not done, all later ones of the group share its
/// lot: they are released after a failure and held with what is held.
pub(super) fn in_group_order(ended: &mut [(Job, JobEnding)]) {
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
        let shares = |other: &JobEnding| !matches!(other, JobEnding::Lost | JobEnding::Cancelled);
        for (_, other) in of_group.filter(|(_, other)| shares(other)) {
            *other = match fate {
                MessageFate::Kept => ending.clone(),
                _ => JobEnding::Returned,
            };
        }
    }
}

/// Nothing is held any longer: what would have been is released.
pub(super) fn let_go(ended: &mut [(Job, JobEnding)]) {
    for (_, ending) in ended {
        if fate(ending) == MessageFate::Kept {
            *ending = JobEnding::Returned;
        }
    }
}

/// Why these are held, in the words of the first.
pub(super) fn why(held: &[(Job, JobEnding)]) -> Option<String> {
    held.iter().find_map(|(_, ending)| match ending {
        JobEnding::Verdict(Verdict::Busy { why, .. } | Verdict::Closed(why)) => Some(why.clone()),
        _ => None,
    })
}

/// How long these are held together: as advised, and longer from time to time. What is closed is
/// tried when the route is.
pub(super) fn pause(held: &[(Job, JobEnding)], now: BootInstant, random: u64) -> Option<Pause> {
    let pauses = held.iter().filter_map(|(job, ending)| match ending {
        JobEnding::Verdict(Verdict::Busy { after, .. }) => {
            let tries = job.holds.saturating_add(1);
            // Half of it is certain, so that nothing busy is hammered.
            let half = backoff::ceiling(PAUSE.0, PAUSE.1, tries) / 2;
            let own = half + backoff::full_jitter(PAUSE.0 / 2, PAUSE.1 / 2, tries, random);
            let advised = after.unwrap_or_default().min(LONGEST_ADVICE);
            Some((now + advised, now + own.max(advised)))
        }
        JobEnding::Verdict(Verdict::Closed(_)) => {
            let tries = job.holds.saturating_add(1);
            Some((now, now + backoff::ceiling(TURN.0, TURN.1, tries)))
        }
        _ => None,
    });
    pauses
        .reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))
        .map(|(not_before, until)| Pause { not_before, until })
}

#[cfg(test)]
#[path = "conclude_tests.rs"]
mod tests;
