//! Runs jobs on the guest pool: a free worker pulls the most urgent jobs, attempts them together,
//! and passes them on. Knows no other stage and no plugin by name.

pub mod attempt;
mod conclude;
pub mod downstream;
mod hand_over;
pub mod opening;
pub mod pool;
pub mod running;

use crate::clock;
use crate::clock::BootInstant;
use crate::handler::{Handler, TimeLimit};
use crate::job::{Finished, Job, JobEnding, Outbox, hand_on};
use crate::message::{Message, Outcome, Verdict};
use crate::scheduler::shared::SharedScheduler;
use crate::scheduler::{After, FinishedAttempt, MessageFate, Scheduler, Start};
use crate::spans::QueueSpans;
use crate::telemetry::counters::Counters;
use crate::telemetry::events::ReasonKind;
use crate::telemetry::metrics::meter::Meter;
use crate::telemetry::trace;
use attempt::{AttemptLimits, attempt, still_ours};
use conclude::Pause;
use downstream::{Downstream, DownstreamState};
use hand_over::HandOver;
use pool::Spawner;
use running::RunningAttempts;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// The executor of one route.
pub struct Executor {
    /// The route's scheduler.
    pub scheduler: Arc<SharedScheduler<Job>>,
    /// What handles its messages.
    pub handler: Arc<dyn Handler>,
    /// The longest that one attempt may take.
    pub timeout: TimeLimit,
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
    /// What becomes of messages whose attempts fail.
    pub preview: Arc<dyn OutcomePreview>,
    /// The attempts under way.
    pub running: Arc<RunningAttempts>,
    /// Makes the spans of attempts; of each queue, in the route's order.
    pub spans: Vec<QueueSpans>,
}

/// What the stage after this one makes of failed attempts, as far as what waits behind them in their
/// groups depends on it.
pub trait OutcomePreview: Send + Sync {
    /// Returns what will happen to a message of the queue `lane` whose attempt ended so. `None` if
    /// releasing the messages behind it costs nothing but a receive, because nobody counts
    /// receives.
    fn preview(&self, lane: usize, job: &Job, ending: &JobEnding) -> Option<Outcome>;
    /// A message whose attempt ended so is attempted again in the same delivery, after a pause.
    fn tries_again(&self, lane: usize, job: &Job, ending: &JobEnding, pause: Duration);
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
    pub fn start_workers(self: &Arc<Self>) {
        let now = clock::now();
        let (expired, overtaking, hired) = {
            let mut scheduler = self.scheduler.lock();
            // After the halt a worker starts nothing; its end would only ask for another.
            let hired = match self.halt.is_cancelled() {
                true => 0,
                false => scheduler.reserve_workers(now),
            };
            (scheduler.expired(now), scheduler.overtaking(), hired)
        };
        self.shed(expired);
        self.release(overtaking, now);
        for _ in 0..hired {
            self.workers.run(self.clone().work(), || {
                // The pool is closed only once nothing runs or waits any more.
                self.scheduler.lock().release_worker();
            });
        }
    }

    /// Releases what has not begun or is held.
    pub fn give_back(&self) {
        let now = clock::now();
        let released = {
            let mut scheduler = self.scheduler.lock();
            let mut released = scheduler.stop(|_, _| true, now);
            released.extend(scheduler.overtaking());
            released
        };
        self.release(released, now);
    }

    fn release(&self, released: Vec<(usize, Job)>, now: BootInstant) {
        for (lane, job) in released {
            let ending = job.given_back(now);
            hand_on(&self.outbox, lane, job.finish(ending));
        }
    }

    fn shed(&self, expired: Vec<(usize, Job)>) {
        for (lane, job) in expired {
            hand_on(&self.outbox, lane, job.finish(JobEnding::Shed));
        }
    }

    async fn work(self: Arc<Self>) {
        let mut hire = WorkerGuard {
            scheduler: self.scheduler.clone(),
            ended: false,
            changed_nothing: false,
        };
        let mut hand_over = HandOver::new(&self.outbox);
        let mut worked = false;
        // What waits at the halt is released by whoever set it.
        while !self.halt.is_cancelled() {
            let now = clock::now();
            let (expired, next, others) = {
                let mut scheduler = self.scheduler.lock();
                let (expired, next) = (scheduler.expired(now), scheduler.next_jobs(now));
                (expired, next, scheduler.has_workers())
            };
            self.shed(expired);
            let Some(start) = next else {
                hire.ended = true;
                hire.changed_nothing = !worked && others;
                return;
            };
            worked = true;
            if start.replan {
                self.scheduler.replan.notify_one();
            }
            hand_over.before_an_attempt(now);
            if self.run(start, &mut hand_over).await {
                self.start_workers();
            }
        }
    }

    /// One attempt: start, verdicts, hand-over. Whether there may be work for more workers.
    async fn run(&self, start: Start<Job>, hand_over: &mut HandOver<'_>) -> bool {
        let Start {
            lane,
            jobs,
            ordered,
            ..
        } = start;
        let began = clock::now();
        let (ours, gone) = still_ours(jobs, ordered);
        let mut ended = match ours.is_empty() {
            true => Vec::new(),
            false => self.attempt(lane, ours, hand_over).await,
        };
        if ordered {
            conclude::in_group_order(&mut ended);
        }
        let halted = self.halt.is_cancelled();
        if halted {
            conclude::let_go(&mut ended);
        }
        conclude::count_tries(&mut ended);
        ended.extend(gone);
        let preview = |job: &Job, ending: &JobEnding| self.preview.preview(lane, job, ending);
        let fates = match ordered && !halted {
            true => conclude::fates(&ended, preview),
            false => ended
                .iter()
                .map(|(_, ending)| conclude::fate(ending))
                .collect(),
        };
        let (over, after) = self.conclude(lane, began, ended, fates);
        let returned = after.overtaking.into_iter();
        let returned = returned.map(|job| (job, JobEnding::Returned));
        let mut over = over.into_iter().chain(returned).peekable();
        while let Some((job, ending)) = over.next() {
            let finished = Finished {
                is_awaited: after.awaits_settling && over.peek().is_none(),
                ..job.finish(ending)
            };
            hand_over.add(lane, finished, ordered);
        }
        hand_over.after_an_attempt();
        after.hire
    }

    async fn attempt(
        &self,
        lane: usize,
        jobs: Vec<Job>,
        hand_over: &mut HandOver<'_>,
    ) -> Vec<(Job, JobEnding)> {
        let began = clock::now();
        let mut span = self.spans[lane].begin_process(&jobs, began);
        trace::within(&mut span, || {
            for job in &jobs {
                let Message {
                    queue,
                    id,
                    receive_count,
                    ..
                } = &job.message;
                tracing::debug!(queue, message_id = id, receive_count, "an attempt begins");
            }
        });
        self.counters.attempts.one();
        let _running = self.counters.running.hold();
        let _in_flight = self.meters[lane].hold(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
        let limits = AttemptLimits {
            timeout: self.timeout,
            halt: &self.halt,
            control: &self.control,
            running: &self.running,
            lane,
        };
        let mut attempting = pin!(attempt(&*self.handler, jobs, limits));
        let polled = poll_fn(|cx| {
            let polled = trace::within(&mut span, || attempting.as_mut().poll(cx));
            // It takes longer: what has ended does not wait for it.
            if polled.is_pending() {
                hand_over.now();
            }
            polled
        });
        let mut ended = polled.await;
        self.spans[lane].end_process(span, began, &mut ended);
        ended
    }

    fn measure(&self, lane: usize, took: Duration, ended: &[(Job, JobEnding)]) {
        let meter = &self.meters[lane];
        for (job, ending) in ended {
            let error = match ending {
                JobEnding::Verdict(Verdict::Done) => None,
                JobEnding::Verdict(Verdict::Retry { why, .. }) => Some(why.kind().label()),
                JobEnding::Verdict(Verdict::Reject(_)) => Some(ReasonKind::Rejected.label()),
                JobEnding::Verdict(Verdict::Busy { .. } | Verdict::Closed(_)) => {
                    meter.throttled.one();
                    continue;
                }
                JobEnding::Returned
                | JobEnding::Stopped(_)
                | JobEnding::Behind(_)
                | JobEnding::AlreadyDone
                | JobEnding::Exhausted(_)
                | JobEnding::Unreadable(_)
                | JobEnding::Shed
                | JobEnding::Filtered
                | JobEnding::Cancelled
                | JobEnding::Lost => continue,
            };
            if error.is_some() {
                meter.failed.one();
            }
            let traced = meter.keeps_exemplars().then(|| job.sampled_trace());
            meter.took(took, error, traced.flatten());
        }
    }

    /// Tells the scheduler what the attempt has shown, and gives it back what is to be held or stays
    /// with its group.
    fn conclude(
        &self,
        lane: usize,
        began: BootInstant,
        ended: Vec<(Job, JobEnding)>,
        fates: Vec<MessageFate>,
    ) -> (Vec<(Job, JobEnding)>, After<Job>) {
        let now = clock::now();
        self.measure(lane, now.since(began), &ended);
        let showed = conclude::worst_signal(ended.iter().map(|(_, ending)| ending));
        let group = |job: &Job| job.message.group.clone();
        let groups: Vec<_> = ended.iter().map(|(job, _)| group(job)).collect();
        let groups = || groups.iter().map(Option::as_deref);
        let mut scheduler = self.scheduler.lock();
        let stays = scheduler.stays(lane, groups().zip(fates.iter().copied()));
        let staying = |group: Option<&str>| group.and_then(|group| stays.get(group)).copied();
        let (mut held, mut over, mut behind) = (Vec::new(), Vec::new(), Vec::new());
        let mut kept: BTreeMap<String, Vec<Job>> = BTreeMap::new();
        for ((job, ending), fate) in ended.into_iter().zip(fates.iter().copied()) {
            let group = job.message.group.clone();
            match (fate, staying(group.as_deref())) {
                (MessageFate::Kept, _) => held.push((job, ending)),
                (MessageFate::DeadLettered, Some(_)) => {
                    scheduler.leaves(lane, &job);
                    over.push((job, ending));
                }
                (MessageFate::Again(pause), Some(_)) => {
                    self.preview.tries_again(lane, &job, &ending, pause);
                    let job = Job {
                        not_before: Some(now + pause),
                        ..job
                    };
                    kept.entry(group.unwrap_or_default()).or_default().push(job);
                }
                (MessageFate::Behind { .. }, Some(_)) => {
                    kept.entry(group.unwrap_or_default()).or_default().push(job);
                }
                (MessageFate::Behind { .. }, None) => behind.push(job),
                (fate, _) => {
                    scheduler.fared(lane, &job, fate, now);
                    over.push((job, ending));
                }
            }
        }
        for job in scheduler.take_back(lane, behind) {
            scheduler.fared(lane, &job, MessageFate::Failed, now);
            over.push((job, JobEnding::Returned));
        }
        let attempted = FinishedAttempt {
            lane,
            began,
            showed,
        };
        let fates = groups().zip(fates).map(|(group, fate)| match fate {
            MessageFate::Done => (group, fate),
            _ if staying(group).is_some() => (group, MessageFate::Kept),
            _ => (group, fate),
        });
        let after = scheduler.ended(attempted, fates, now);
        for (group, first) in &stays {
            let jobs = kept.remove(group).unwrap_or_default();
            scheduler.keep(lane, group, jobs, *first, now);
        }
        let why = self.hold(&mut scheduler, lane, held, now);
        let state = DownstreamState {
            limit: scheduler.attempts_limit(),
            lowered: scheduler.is_lowered(),
            closed: scheduler.is_closed(),
        };
        drop(scheduler);
        self.downstream.note(showed, why.as_deref(), state, now);
        (over, after)
    }

    /// Gives the scheduler what is to be held; why it is.
    fn hold(
        &self,
        scheduler: &mut Scheduler<Job>,
        lane: usize,
        held: Vec<(Job, JobEnding)>,
        now: BootInstant,
    ) -> Option<String> {
        let why = conclude::why(&held);
        if let Some(Pause { not_before, until }) = conclude::pause(&held, now, fastrand::u64(..)) {
            self.counters.held.many(held.len());
            let again = held.into_iter().map(|(job, _)| Job {
                holds: job.holds.saturating_add(1),
                ..job
            });
            scheduler.hold(lane, again.collect(), not_before, until);
            if scheduler.give_back_paused(lane, now) {
                self.scheduler.replan.notify_one();
            }
        }
        why
    }
}

/// One reserved worker. However its future ends, the scheduler gets it back.
struct WorkerGuard {
    scheduler: Arc<SharedScheduler<Job>>,
    /// The scheduler ended it.
    ended: bool,
    /// Others have done what it was hired for, and some are still at work: nothing has changed for
    /// the intake and the drain, and waking them for each such worker would take longer than an
    /// attempt.
    changed_nothing: bool,
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        if !self.ended {
            self.scheduler.lock().release_worker();
        }
        if !self.changed_nothing {
            self.scheduler.replan.notify_one();
            self.scheduler.retired.notify_one();
        }
    }
}
