//! Runs jobs on the guest pool: a worker asks for the most urgent jobs when it is free, attempts
//! them together, and hands them on. Knows no other stage and no plugin by name.

pub mod attempt;
mod conclude;
pub mod downstream;
pub mod pool;

use crate::clock::{self, Moment};
use crate::job::{Ending, Job, Outbox, hand_on};
use crate::message::{Message, Verdict};
use crate::plugin::Handler;
use crate::scheduler::board::Board;
use crate::scheduler::{After, Ended, Fate, Start};
use crate::telemetry::counters::Counters;
use crate::telemetry::metrics::meter::Meter;
use attempt::{Limits, attempt, still_ours};
use conclude::Pause;
use downstream::{Downstream, State};
use pool::Spawner;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// The executor of one route.
pub struct Executor {
    /// The route's scheduler.
    pub board: Arc<Board<Job>>,
    /// What handles its messages.
    pub handler: Arc<dyn Handler>,
    /// The longest that one attempt may take.
    pub timeout: Duration,
    /// Where finished jobs go.
    pub outbox: Outbox,
    /// Who runs its workers.
    pub workers: Workers,
    /// The runtime whose timers end attempts.
    pub control: Handle,
    /// Set when running attempts must end.
    pub halt: CancellationToken,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// What is measured of each queue, in the route's order.
    pub meters: Vec<Arc<Meter>>,
    /// Says when what the handler needs is busy or closed.
    pub downstream: Downstream,
}

/// One worker, to be polled to its end.
pub type Worker = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who polls an executor's workers.
#[derive(Clone)]
pub enum Workers {
    /// The guest threads.
    Pool(Spawner),
    /// Somebody who polls a future to its end, or drops it with the whole process: a simulation,
    /// which runs everything in one thread.
    Elsewhere(Arc<dyn Fn(Worker) + Send + Sync>),
}

impl Workers {
    fn run(&self, worker: impl Future<Output = ()> + Send + 'static, refused: impl FnOnce()) {
        match self {
            Self::Pool(spawner) => match spawner.spawn(worker) {
                Ok(()) => {}
                Err(_) => refused(),
            },
            Self::Elsewhere(spawn) => spawn(Box::pin(worker)),
        }
    }
}

impl Executor {
    /// Sheds what is too old by now, and starts as many workers as there is work for. To be called
    /// whenever jobs arrived or may start, or a queue turned out to be empty.
    pub fn hire(self: &Arc<Self>) {
        let now = clock::now();
        let (expired, hired) = {
            let mut scheduler = self.board.lock();
            // After the halt a worker starts nothing; its end would only ask for another.
            let hired = match self.halt.is_cancelled() {
                true => 0,
                false => scheduler.hire(now),
            };
            (scheduler.expired(now), hired)
        };
        self.shed(expired);
        for _ in 0..hired {
            self.workers.run(self.clone().work(), || {
                // The pool is closed only once nothing runs or waits any more.
                self.board.lock().dismiss();
            });
        }
    }

    /// Gives back what has not begun or is held.
    pub fn give_back(&self) {
        let released = self.board.lock().stop(|_, _| true, clock::now());
        let last = released.iter().filter(|(_, job)| job.last_chance).count();
        if last > 0 {
            tracing::warn!(
                messages = last,
                "given back although the next receive may dead-letter them: they could not be attempted within the grace"
            );
        }
        for (lane, job) in released {
            hand_on(&self.outbox, lane, job, Ending::Returned);
        }
    }

    fn shed(&self, expired: Vec<(usize, Job)>) {
        for (lane, job) in expired {
            hand_on(&self.outbox, lane, job, Ending::Shed);
        }
    }

    async fn work(self: Arc<Self>) {
        let mut hire = Hire {
            board: self.board.clone(),
            ended: false,
        };
        // What waits at the halt is given back by whoever set it.
        while !self.halt.is_cancelled() {
            let now = clock::now();
            let (expired, next) = {
                let mut scheduler = self.board.lock();
                (scheduler.expired(now), scheduler.next_jobs(now))
            };
            self.shed(expired);
            let Some(Start { lane, jobs, replan }) = next else {
                hire.ended = true;
                return;
            };
            if replan {
                self.board.replan.notify_one();
            }
            if self.run(lane, jobs).await {
                self.hire();
            }
        }
    }

    /// One attempt: start, verdicts, hand-over. Whether there may be work for more workers.
    async fn run(&self, lane: usize, jobs: Vec<Job>) -> bool {
        let began = clock::now();
        let ordered = self.board.lock().orders_groups(lane);
        let (ours, gone) = still_ours(jobs, ordered);
        let mut ended = match ours.is_empty() {
            true => Vec::new(),
            false => self.attempt(lane, ours).await,
        };
        if ordered {
            conclude::in_group_order(&mut ended);
        }
        if self.halt.is_cancelled() {
            conclude::let_go(&mut ended);
        }
        ended.extend(gone);
        let (over, after) = self.conclude(lane, began, ended);
        let returned = after.overtaking.into_iter();
        let returned = returned.map(|job| (job, Ending::Returned));
        for (job, ending) in over.into_iter().chain(returned) {
            hand_on(&self.outbox, lane, job, ending);
        }
        after.hire
    }

    async fn attempt(&self, lane: usize, jobs: Vec<Job>) -> Vec<(Job, Ending)> {
        for job in &jobs {
            let Message {
                queue,
                id,
                receive_count,
                ..
            } = &job.message;
            tracing::debug!(queue, message_id = id, receive_count, "an attempt begins");
        }
        self.counters.attempts.one();
        let _running = self.counters.running.hold();
        let _in_flight = self.meters[lane].hold(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
        let limits = Limits {
            timeout: self.timeout,
            halt: &self.halt,
            control: &self.control,
        };
        attempt(&*self.handler, jobs, limits).await
    }

    fn measure(&self, lane: usize, took: Duration, ended: &[(Job, Ending)]) {
        let meter = &self.meters[lane];
        for (_, ending) in ended {
            match ending {
                Ending::Verdict(Verdict::Done) => {}
                Ending::Verdict(Verdict::Retry { .. } | Verdict::Reject(_)) => meter.failed.one(),
                Ending::Verdict(Verdict::Busy { .. } | Verdict::Closed(_)) => {
                    meter.throttled.one();
                    continue;
                }
                Ending::Returned
                | Ending::Stopped(_)
                | Ending::Behind(_)
                | Ending::AlreadyDone
                | Ending::Exhausted(_)
                | Ending::Shed
                | Ending::Lost => continue,
            }
            meter.took(took);
        }
    }

    /// Tells the scheduler what the attempt has shown, and gives it back what is to be held.
    fn conclude(
        &self,
        lane: usize,
        began: Moment,
        ended: Vec<(Job, Ending)>,
    ) -> (Vec<(Job, Ending)>, After<Job>) {
        let now = clock::now();
        self.measure(lane, now.since(began), &ended);
        let showed = conclude::showed(ended.iter().map(|(_, ending)| ending));
        let mut scheduler = self.board.lock();
        for (job, ending) in &ended {
            scheduler.fared(lane, job, conclude::fate(ending), now);
        }
        let fates = ended
            .iter()
            .map(|(job, ending)| (job.message.group.as_deref(), conclude::fate(ending)));
        let attempted = Ended {
            lane,
            began,
            showed,
        };
        let after = scheduler.ended(attempted, fates, now);
        let (held, over): (Vec<_>, Vec<_>) = ended
            .into_iter()
            .partition(|(_, ending)| conclude::fate(ending) == Fate::Kept);
        let why = conclude::why(&held);
        if let Some(Pause { not_before, until }) = conclude::pause(&held, now, fastrand::u64(..)) {
            self.counters.held.many(held.len());
            let again = held.into_iter().map(|(job, _)| Job {
                holds: job.holds.saturating_add(1),
                ..job
            });
            scheduler.hold(lane, again.collect(), not_before, until);
        }
        let state = State {
            limit: scheduler.attempts_limit(),
            lowered: scheduler.is_lowered(),
            closed: scheduler.is_closed(),
        };
        drop(scheduler);
        self.downstream.note(showed, why.as_deref(), state, now);
        (over, after)
    }
}

/// One worker's hire. However its future ends, the scheduler hears of it.
struct Hire {
    board: Arc<Board<Job>>,
    /// The scheduler ended it.
    ended: bool,
}

impl Drop for Hire {
    fn drop(&mut self) {
        if !self.ended {
            self.board.lock().dismiss();
        }
        self.board.replan.notify_one();
        self.board.retired.notify_one();
    }
}
