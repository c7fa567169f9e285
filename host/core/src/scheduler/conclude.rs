//! Concludes an attempt: decides which of its jobs go to settlement, which stay with their group,
//! which are held until the downstream is open, and which jobs wait behind them. Pure.

use super::Scheduler;
use super::ready::WaitingJob;
use super::start::{After, FinishedAttempt, MessageFate};
use crate::clock::BootInstant;
use crate::throttle::control::Signal;
use std::collections::HashMap;
use std::time::Duration;

/// A job of an attempt that has ended. The caller defines the type of `ending`.
#[derive(Debug)]
pub struct EndedJob<J, E> {
    /// The job.
    pub job: J,
    /// The ending of the job.
    pub ending: E,
    /// The fate of its message.
    pub fate: MessageFate,
}

/// The pause of jobs that were attempted while the downstream was busy or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// The earliest retry, as the downstream advised.
    pub not_before: BootInstant,
    /// When they are retried in any case.
    pub until: BootInstant,
}

/// The conclusion of an attempt.
#[derive(Debug)]
#[must_use = "jobs that are over must be settled, returned ones released"]
pub struct Conclusion<J, E> {
    /// Jobs that go to settlement, with their endings.
    pub over: Vec<(J, E)>,
    /// Jobs that must be released so that no message overtakes others of its group. None of them
    /// failed.
    pub returned: Vec<J>,
    /// Whether there may be work for more workers.
    pub hire: bool,
    /// Whether the queue keeps groups in order, none of its messages runs and no held message may
    /// start: it delivers no more of these groups before their messages are settled.
    pub awaits_settling: bool,
    /// Whether the intake must plan again: a paused queue gives back permits, or jobs are due before
    /// its timer.
    pub replan: bool,
}

impl<J: WaitingJob> Scheduler<J> {
    /// Concludes an attempt, whose jobs are in the order of their groups. Jobs that are `Kept` are
    /// held for `pause`. Calls `retried` for each job that failed and is attempted again in this
    /// delivery, with the pause before that.
    pub fn conclude<E>(
        &mut self,
        attempt: FinishedAttempt,
        ended: Vec<EndedJob<J, E>>,
        pause: Option<Pause>,
        retried: impl Fn(&J, &E, Duration),
        now: BootInstant,
    ) -> Conclusion<J, E> {
        let lane = attempt.lane;
        let fates: Vec<(Option<String>, MessageFate)> = ended
            .iter()
            .map(|one| (one.job.group().map(str::to_owned), one.fate))
            .collect();
        self.note_tenants(attempt, &ended, now);
        let by_group = fates.iter().map(|(group, fate)| (group.as_deref(), *fate));
        let stays = self.stays(lane, by_group.clone());
        let mut over = Vec::with_capacity(ended.len());
        let (mut held, mut behind) = (Vec::new(), Vec::new());
        let mut kept: HashMap<&str, Vec<J>> = HashMap::new();
        for (one, (group, _)) in ended.into_iter().zip(by_group.clone()) {
            let EndedJob {
                mut job,
                ending,
                fate,
            } = one;
            let is_staying = group.is_some_and(|group| stays.contains_key(group));
            match (fate, is_staying) {
                (MessageFate::Kept, _) => held.push(job),
                (MessageFate::DeadLettered, true) => {
                    self.leaves(lane, &job);
                    over.push((job, ending));
                }
                (MessageFate::Again(pause), true) => {
                    retried(&job, &ending, pause);
                    job.pause_until(now + pause);
                    kept.entry(group.unwrap_or_default()).or_default().push(job);
                }
                (MessageFate::Behind { .. }, true) => {
                    kept.entry(group.unwrap_or_default()).or_default().push(job);
                }
                (MessageFate::Behind { .. }, false) => behind.push(job),
                _ => {
                    self.fared(lane, &job, fate, now);
                    over.push((job, ending));
                }
            }
        }
        let mut returned = self.take_back(lane, behind);
        for job in &returned {
            self.fared(lane, job, MessageFate::Failed, now);
        }
        let of_groups = by_group.map(|(group, fate)| {
            let is_staying = group.is_some_and(|group| stays.contains_key(group));
            match fate {
                MessageFate::Done => (group, fate),
                _ if is_staying => (group, MessageFate::Kept),
                _ => (group, fate),
            }
        });
        let After {
            overtaking,
            hire,
            awaits_settling,
        } = self.ended(attempt, of_groups, now);
        returned.extend(overtaking);
        for (group, first) in &stays {
            let jobs = kept.remove(group.as_str()).unwrap_or_default();
            self.keep(lane, group, jobs, *first, now);
        }
        let gives_back = self.hold_for(lane, held, pause, now);
        Conclusion {
            over,
            returned,
            hire,
            awaits_settling,
            replan: gives_back || self.is_due_sooner(lane, now),
        }
    }

    /// Records how long each tenant's messages were under way. An attempt that found the downstream
    /// busy or closed shows nothing.
    fn note_tenants<E>(
        &mut self,
        attempt: FinishedAttempt,
        ended: &[EndedJob<J, E>],
        now: BootInstant,
    ) {
        let Some(tenants) = &mut self.lanes[attempt.lane].tenants else {
            return;
        };
        let jobs = u32::try_from(ended.len()).unwrap_or(u32::MAX).max(1);
        let took = now.since(attempt.began) / jobs;
        for one in ended {
            match attempt.showed {
                Signal::Open => tenants.took(one.job.tenant(), took),
                // It was cut short, so it takes that long at least.
                Signal::Nothing => tenants.took_more_than(one.job.tenant(), took),
                Signal::Busy | Signal::Closed => {}
            }
            tenants.ends(one.job.tenant());
        }
    }

    /// Holds jobs of one attempt. Returns whether a paused queue gives back permits.
    fn hold_for(
        &mut self,
        lane: usize,
        mut held: Vec<J>,
        pause: Option<Pause>,
        now: BootInstant,
    ) -> bool {
        let Some(Pause { not_before, until }) = pause else {
            return false;
        };
        held.iter_mut().for_each(WaitingJob::note_held);
        self.hold(lane, held, not_before, until);
        self.give_back_paused(lane, now)
    }
}
