//! Moves due jobs from a store to their queues, round by round: read, claim, send, end. Decides
//! nothing itself.
//!
//! A mover claims a job before sending it and ends the claim afterwards. If the process dies in
//! between, the claim expires and another process sends the job. Ending needs the claim's token,
//! because by then the job may have run and its producer may have added it again under the same id.

mod aside;
mod end;
mod learn;
mod report;
mod ship;

use super::decide::{self, DueJob, SendLimits};
use super::{ErrorKind, JobOutcome, ScheduleStore, ScheduledJob, StoreError};
use crate::clock;
use crate::clock::{BootInstant, Timestamp};
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use crate::telemetry::log_throttle::LogThrottle;
use learn::{KnownQueues, PendingQueues};
use ship::Load;
pub use ship::{NotSent, Outlet, TracedOutlet};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The number of jobs that are claimed together.
const CHUNK: usize = 100;

/// The result of one round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MoverRound {
    /// The messages that their queues accepted.
    pub sent: usize,
    /// The jobs that another dispatcher claimed first.
    pub lost: usize,
    /// The messages that their queues did not accept; their jobs stay.
    pub failed: usize,
    /// The unreadable jobs that were set aside.
    pub dead: usize,
    /// The time at which the first held job is ready, or fires next.
    pub held: Option<Timestamp>,
    /// The first error of the store.
    pub error: Option<StoreError>,
}

impl MoverRound {
    fn hold(&mut self, ready: Timestamp) {
        self.held = Some(self.held.map_or(ready, |held| held.min(ready)));
    }
}

/// A mover of the jobs of one store.
pub struct Mover {
    store: Arc<dyn ScheduleStore>,
    outlet: Arc<dyn Outlet>,
    interval: Duration,
    /// The jobs that were sent but whose claims could not be ended, and those that this process may
    /// have claimed although the call failed.
    unended: Vec<JobOutcome>,
    /// The queues that have not answered yet.
    asked: PendingQueues,
    said: LogThrottle,
    counters: Arc<Counters>,
    /// Whether the store has answered once.
    known: bool,
    /// Whether the store counts as existing even if it has not answered.
    certain: bool,
}

/// A job to send now, and the limits of its queue.
type Ready = (DueJob, SendLimits);

impl Mover {
    /// Makes a mover that looks every `interval`.
    pub fn new(store: Arc<dyn ScheduleStore>, outlet: Arc<dyn Outlet>, interval: Duration) -> Self {
        Self {
            store,
            outlet,
            interval,
            unended: Vec::new(),
            asked: PendingQueues::default(),
            said: LogThrottle::default(),
            counters: Arc::default(),
            known: false,
            certain: false,
        }
    }

    /// Sets the counters for unreadable jobs.
    pub fn counting(mut self, counters: Arc<Counters>) -> Self {
        self.counters = counters;
        self
    }

    /// Marks a store that exists, or may exist at any moment, even if it does not answer, and that
    /// is cheap to poll: after a failure it is polled again soon.
    pub fn certain(mut self) -> Self {
        self.certain = true;
        self
    }

    /// Runs rounds until the stop. Jobs that are claimed by then are still sent and ended. The
    /// first round begins at a random time within the interval, so that dispatchers that start
    /// together do not all ask for the same jobs.
    pub async fn run(mut self, stop: CancellationToken) {
        let phase = self.interval.mul_f64(fastrand::f64()).min(FIRST);
        let mut wait = phase;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep_until(Some(clock::now() + wait)) => {}
            }
            let round = self.round(&stop).await;
            self.report(&round);
            let next = decide::wait(clock::wall_clock_now(), self.interval, round.held);
            let rest = round.error.map(|error| self.failed_look(&error));
            // A held job must be sent in time even if something else failed.
            wait = match (rest, round.held) {
                (Some(rest), None) => rest,
                (_, _) => next,
            };
        }
    }

    /// Moves all due jobs once. Reports failures at the end and still moves the rest.
    pub async fn round(&mut self, stop: &CancellationToken) -> MoverRound {
        let mut round = MoverRound::default();
        // Without the permission to remove sent jobs, the mover would send them again and again.
        if let Err(error) = self.end_the_rest().await {
            round.error = Some(error);
            return round;
        }
        let mut known = KnownQueues::default();
        let mut after = None;
        loop {
            let until = clock::wall_clock_now() + decide::AHEAD;
            let due = tokio::select! {
                due = self.store.due(until, after.as_deref()) => due,
                () = stop.cancelled() => return round,
            };
            let page = match due {
                Ok(page) => page,
                Err(error) => {
                    round.error.get_or_insert(error);
                    return round;
                }
            };
            self.known = true;
            self.set_aside(&page.unreadable, &mut round).await;
            for chunk in chunks(&page.jobs, fastrand::usize(..)) {
                if stop.is_cancelled() {
                    return round;
                }
                self.learn(&chunk, &mut known).await;
                if self.chunk(chunk, &mut known, &mut round).await.is_break() {
                    return round;
                }
            }
            after = page.next;
            if after.is_none() {
                return round;
            }
        }
    }

    /// Plans which of these jobs to send now, and how.
    fn plan(
        &mut self,
        jobs: Vec<ScheduledJob>,
        known: &mut KnownQueues,
        now: Timestamp,
        round: &mut MoverRound,
    ) -> Vec<Ready> {
        let mut planned = Vec::new();
        for job in jobs {
            // This job was sent or released before; only the store still has to learn of it.
            let mut unended = self.unended.iter();
            let same = unended.find(|one| one.job.id == job.id && one.job.due == job.due);
            if let Some(unended) = same {
                if end::is_given_back(unended) {
                    known.stop(&job);
                }
                continue;
            }
            let Some(reach) = known.reach_of(&job) else {
                known.stop(&job);
                round.failed += 1;
                continue;
            };
            if known.is_stopped(&job) {
                continue;
            }
            match decide::plan(&job, reach, self.interval, now) {
                Ok(Some(one)) => planned.push((one, reach)),
                Ok(None) if decide::is_claimed(&job, now) => {}
                Ok(None) => round.hold(decide::ready_at(&job, reach, self.interval)),
                Err(why) => self.refused(&job.queue, &job.id, &why),
            }
        }
        planned
    }

    /// Claims, sends and ends a chunk of jobs. Breaks if the rest of the round would fail as well,
    /// or must not run.
    async fn chunk(
        &mut self,
        jobs: Vec<ScheduledJob>,
        known: &mut KnownQueues,
        round: &mut MoverRound,
    ) -> ControlFlow<()> {
        let (started, now) = (clock::now(), clock::wall_clock_now());
        let planned = self.plan(jobs, known, now, round);
        if planned.is_empty() {
            return ControlFlow::Continue(());
        }
        let token = uuid::Uuid::new_v4().to_string();
        let claim = decide::claim(token.clone(), now);
        let wanted: Vec<ScheduledJob> = planned.iter().map(|(one, _)| one.job.clone()).collect();
        let answers = self.store.claim(&wanted, &claim, now).await;
        let away = answers.iter().all(|answer: &Result<bool, StoreError>| matches!(answer, Err(error) if error.kind == ErrorKind::Unreachable));
        let (mut ours, mut behind) = (Vec::new(), Vec::new());
        for (one, answer) in planned.into_iter().zip(answers) {
            match answer {
                Ok(true) if known.is_stopped(&one.0.job) => behind.push(one),
                Ok(true) => ours.push(one),
                Ok(false) => round.lost += 1,
                Err(why) => {
                    if why.kind != ErrorKind::Invalid {
                        known.stop(&one.0.job);
                    }
                    self.unclaimed(one.0.job, why, &token, round);
                }
            }
        }
        let mut sent = self.send(&ours, started, known, round).await;
        // Jobs behind one that could not be claimed are released.
        ours.append(&mut behind);
        sent.resize(ours.len(), 0);
        if let Err(denied) = self.end(ours, &sent, &token).await {
            round.error = Some(denied);
            return ControlFlow::Break(());
        }
        if away {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Sends claimed jobs to all their queues concurrently. Returns how many messages of each job
    /// were accepted.
    async fn send(
        &mut self,
        ours: &[Ready],
        started: BootInstant,
        known: &mut KnownQueues,
        round: &mut MoverRound,
    ) -> Vec<usize> {
        let mut loads: HashMap<&str, Load> = HashMap::new();
        for (place, (one, reach)) in ours.iter().enumerate() {
            let load = loads.entry(&one.job.queue).or_default();
            load.add(place, one, *reach);
        }
        let mut sending = Group::new();
        for (queue, load) in loads {
            let (outlet, queue) = (self.outlet.clone(), queue.to_owned());
            sending.spawn(load.send(outlet, queue, started));
        }
        let mut sent = vec![0; ours.len()];
        while !sending.is_empty() {
            for (place, answer) in sending.next().await {
                match answer {
                    Ok(()) => {
                        round.sent += 1;
                        sent[place] += 1;
                    }
                    Err(not_sent) => {
                        round.failed += 1;
                        let job = &ours[place].0.job;
                        let why = match not_sent {
                            NotSent::Refused(why) => why,
                            NotSent::Transient(why) => {
                                known.stop(job);
                                why
                            }
                        };
                        self.refused(&job.queue, &job.id, &why);
                    }
                }
            }
        }
        // A periodic job may fire again before the next look, so its time is kept. A failed job
        // waits for the next look.
        for ((one, reach), sent) in ours.iter().zip(&sent) {
            let whole = *sent == one.ticks.len();
            if whole && let Some(due) = one.next {
                let job = one.job.clone();
                let next = ScheduledJob { due, ..job };
                round.hold(decide::ready_at(&next, *reach, self.interval));
            }
        }
        sent
    }
}

/// The longest wait of a run before its first look.
const FIRST: Duration = Duration::from_secs(5);

/// Splits the jobs of a page into chunks. The chunks are rotated by `start`, so that dispatchers
/// that look at the same time do not claim the same jobs; they stay in order if any job has a
/// group.
fn chunks(jobs: &[ScheduledJob], start: usize) -> Vec<Vec<ScheduledJob>> {
    let mut chunks: Vec<Vec<ScheduledJob>> =
        jobs.chunks(CHUNK).map(<[ScheduledJob]>::to_vec).collect();
    let ordered = jobs.iter().any(|job| job.message.group.is_some());
    if !ordered && !chunks.is_empty() {
        let at = start % chunks.len();
        chunks.rotate_left(at);
    }
    chunks
}

#[cfg(test)]
mod tests;
