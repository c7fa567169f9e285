//! Takes what is due from a store to its queue, round by round: read, claim, send, end. Decides
//! nothing itself.
//!
//! A job is claimed before it is sent and ended after: whoever dies in between leaves a claim that
//! expires, and the job is sent by another. The end is bound to the claim, since by then the job may
//! have run, and its producer written it anew under the same id.

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

/// This many jobs are claimed together.
const CHUNK: usize = 100;

/// What one round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MoverRound {
    /// Messages that their queues took.
    pub sent: usize,
    /// Jobs that another dispatcher claimed first.
    pub lost: usize,
    /// Messages that their queues did not take; their jobs stay.
    pub failed: usize,
    /// Jobs that could not be read and were set aside.
    pub dead: usize,
    /// When the first job that is held back is ready, or fires next.
    pub held: Option<Timestamp>,
    /// What went wrong with the store; the first of it.
    pub error: Option<StoreError>,
}

impl MoverRound {
    fn hold(&mut self, ready: Timestamp) {
        self.held = Some(self.held.map_or(ready, |held| held.min(ready)));
    }
}

/// Moves the jobs of one store.
pub struct Mover {
    store: Arc<dyn ScheduleStore>,
    outlet: Arc<dyn Outlet>,
    interval: Duration,
    /// What was sent and could not be ended, and what may be claimed by us without our knowledge.
    unended: Vec<JobOutcome>,
    /// Queues that have not answered yet.
    asked: PendingQueues,
    said: LogThrottle,
    counters: Arc<Counters>,
    /// Whether the store has answered once.
    known: bool,
    /// Whether it is there even if it has not.
    certain: bool,
}

/// A job that is to be sent now, and what its queue takes.
type Ready = (DueJob, SendLimits);

impl Mover {
    /// Looks every `interval`.
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

    /// Counts here what cannot be read.
    pub fn counting(mut self, counters: Arc<Counters>) -> Self {
        self.counters = counters;
        self
    }

    /// For a store that exists, or may exist at any moment, even if it does not answer, and is
    /// cheap to poll: it is polled again soon.
    pub fn certain(mut self) -> Self {
        self.certain = true;
        self
    }

    /// Round after round until the stop; what is claimed by then is still sent and ended. The first
    /// begins at a random time within the interval, so that dispatchers that start together do not
    /// all ask for the same jobs.
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
            // What is held is ready in time, whatever else failed.
            wait = match (rest, round.held) {
                (Some(rest), None) => rest,
                (_, _) => next,
            };
        }
    }

    /// Moves everything that is due, once. Failures are reported at the end, and the rest is done
    /// all the same.
    pub async fn round(&mut self, stop: &CancellationToken) -> MoverRound {
        let mut round = MoverRound::default();
        // Whoever may not strike out what it sends would send it again and again.
        if let Err(error) = self.end_the_rest().await {
            round.error = Some(error);
            return round;
        }
        let mut known = KnownQueues::default();
        let mut after = None;
        loop {
            let until = clock::wall_clock_now() + decide::AHEAD;
            let page = tokio::select! {
                page = self.store.due(until, after.as_deref()) => page,
                () = stop.cancelled() => return round,
            };
            let page = match page {
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

    /// Plans which of these jobs are sent now, and how.
    fn plan(
        &mut self,
        jobs: Vec<ScheduledJob>,
        known: &mut KnownQueues,
        now: Timestamp,
        round: &mut MoverRound,
    ) -> Vec<Ready> {
        let mut planned = Vec::new();
        for job in jobs {
            // It was sent, or not; what is left is to tell its store.
            let is_it = |one: &JobOutcome| (&one.job.id, one.job.due) == (&job.id, job.due);
            if let Some(unended) = self.unended.iter().find(|one| is_it(one)) {
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

    /// Breaks where the rest of the round would fail as well, or must not be.
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
        let is_away = |answer: &Result<bool, StoreError>| matches!(answer, Err(error) if error.kind == ErrorKind::Unreachable);
        let away = answers.iter().all(is_away);
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
        // What is behind one that could not be claimed is released.
        ours.append(&mut behind);
        sent.resize(ours.len(), 0);
        if let Err(denied) = self.end(ours, &sent, &token).await {
            round.error = Some(denied);
            return ControlFlow::Break(());
        }
        match away {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Sends claimed jobs, to all their queues concurrently. Returns how many messages of each job
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
        // What fires again is not forgotten until the next look; what failed waits for that.
        for ((one, reach), sent) in ours.iter().zip(&sent) {
            let whole = *sent == one.ticks.len();
            if let Some(due) = one.next.filter(|_| whole) {
                let job = one.job.clone();
                let next = ScheduledJob { due, ..job };
                round.hold(decide::ready_at(&next, *reach, self.interval));
            }
        }
        sent
    }
}

/// The longest that a run waits before its first look.
const FIRST: Duration = Duration::from_secs(5);

/// The jobs of a page in parts, beginning somewhere, so that dispatchers that look at once do not
/// claim the same ones; in order where groups are.
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
