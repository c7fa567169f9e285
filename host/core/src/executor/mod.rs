//! Runs jobs on the guest pool: a free worker takes the most urgent jobs, attempts them together,
//! and passes them on. Does not depend on any other stage or plugin.

pub mod attempt;
mod conclude;
pub mod downstream;
mod hand_over;
pub mod opening;
pub mod pool;
pub mod relay;
pub mod running;

use crate::clock;
use crate::clock::BootInstant;
use crate::handler::{Handler, TimeLimit};
use crate::job::{FinishedJob, Job, JobEnding, Outbox, hand_on};
use crate::message::{Message, Outcome, Verdict};
use crate::queue::last_first;
use crate::scheduler::shared::SharedScheduler;
use crate::scheduler::{Conclusion, EndedJob, FinishedAttempt, LimitEffects, MessageFate, Start};
use crate::spans::QueueSpans;
use crate::telemetry::counters::Counters;
use crate::telemetry::events::ReasonKind;
use crate::telemetry::metrics::meter::Meter;
use crate::telemetry::trace;
use attempt::{AttemptLimits, attempt, still_ours};
use downstream::{Downstream, DownstreamState};
use hand_over::HandOver;
use pool::Spawner;
use running::RunningAttempts;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A job whose attempt has ended, with its ending and the fate of its message.
type EndedAttempt = EndedJob<Job, JobEnding>;

/// The executor of one route.
pub struct Executor {
    /// The route's scheduler.
    pub scheduler: Arc<SharedScheduler<Job>>,
    /// The handler of the route's messages.
    pub handler: Arc<dyn Handler>,
    /// The time limit of one attempt.
    pub timeout: TimeLimit,
    /// The channels that finished jobs are sent to.
    pub outbox: Outbox,
    /// The pool that runs the workers.
    pub workers: Workers,
    /// The runtime whose timers end attempts.
    pub control: Handle,
    /// Set when running attempts must end.
    pub halt: CancellationToken,
    /// The counters of attempts and held messages.
    pub counters: Arc<Counters>,
    /// The meters of the queues, in the route's order.
    pub meters: Vec<Arc<Meter>>,
    /// The log of the downstream's state: busy, closed or open.
    pub downstream: Downstream,
    /// The preview of what happens to messages whose attempts fail.
    pub preview: Arc<dyn OutcomePreview>,
    /// The attempts under way.
    pub running: Arc<RunningAttempts>,
    /// The makers of attempts' spans, one per queue, in the route's order.
    pub spans: Vec<QueueSpans>,
}

/// A preview of what the next stage does with failed attempts, as far as the messages behind them
/// in their groups depend on it.
pub trait OutcomePreview: Send + Sync {
    /// Returns what will happen to a message of the queue `lane` whose attempt ended in this way.
    /// Returns `None` if receives are not counted, so that releasing the messages behind it costs
    /// only a receive.
    fn preview(&self, lane: usize, job: &Job, ending: &JobEnding) -> Option<Outcome>;
    /// Records that a message whose attempt ended in this way is attempted again in the same
    /// delivery, after a pause.
    fn tries_again(&self, lane: usize, job: &Job, ending: &JobEnding, pause: Duration);
}

/// A worker: a future that must be polled to its end.
pub type Worker = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The threads that poll an executor's workers.
#[derive(Clone)]
pub enum Workers {
    /// The guest threads.
    Pool(Spawner),
    /// A function that has a future polled to its end, or dropped with the whole process: a
    /// simulation, which runs everything in one thread.
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
    /// Sheds messages that are too old by now, and starts as many workers as there is work for.
    /// Call it whenever jobs arrived or may start, or a queue turned out to be empty.
    pub fn start_workers(self: &Arc<Self>) {
        let now = clock::now();
        let (expired, overtaking, effects, hired) = {
            let mut scheduler = self.scheduler.lock();
            let expired = scheduler.expired(now);
            // After the halt a worker would start nothing, and its end would only request another.
            let hired = if self.halt.is_cancelled() {
                0
            } else {
                scheduler.reserve_workers(now)
            };
            let overtaking = scheduler.overtaking();
            (expired, overtaking, scheduler.limit_effects(), hired)
        };
        self.shed(expired);
        self.defer(effects);
        self.release(overtaking, now);
        for _ in 0..hired {
            self.workers.run(self.clone().work(), || {
                // The pool is closed only once nothing runs or waits any more.
                self.scheduler.lock().release_worker();
            });
        }
    }

    /// Starts workers whenever the keeper of the fleet's permits has some for this route.
    pub async fn watch_limits(executor: Weak<Self>, mut granted: watch::Receiver<u64>) {
        while granted.changed().await.is_ok() {
            let Some(executor) = executor.upgrade() else {
                return;
            };
            executor.scheduler.lock().limits_changed();
            executor.start_workers();
        }
    }

    /// Releases all jobs that have not begun or are held.
    pub fn give_back(&self) {
        let now = clock::now();
        let (released, deferred) = {
            let mut scheduler = self.scheduler.lock();
            let mut stopped = scheduler.stop(|_, _| true, now);
            stopped.extend(scheduler.overtaking());
            (stopped, scheduler.limit_effects())
        };
        self.defer(deferred);
        self.release(released, now);
    }

    fn release(&self, released: Vec<(usize, Job)>, now: BootInstant) {
        for (lane, job) in last_first(released, |(_, job): &(usize, Job)| {
            job.message.group.is_some()
        }) {
            let ending = job.given_back(now);
            hand_on(&self.outbox, lane, job.finish(ending));
        }
    }

    fn shed(&self, expired: Vec<(usize, Job)>) {
        for (lane, job) in expired {
            hand_on(&self.outbox, lane, job.finish(JobEnding::Shed));
        }
    }

    /// Releases messages for a while, because too many wait for limits of the fleet, and receives
    /// others in the place of those that wait.
    fn defer(&self, effects: LimitEffects<Job>) {
        if effects.replan {
            self.scheduler.replan.notify_one();
        }
        for (lane, job, after) in effects.deferred {
            self.meters[lane].deferred.one();
            hand_on(&self.outbox, lane, job.finish(JobEnding::Deferred(after)));
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
        // The code that sets the halt also releases the jobs that wait then.
        while !self.halt.is_cancelled() {
            let now = clock::now();
            let (expired, next, effects, others) = {
                let mut scheduler = self.scheduler.lock();
                let (expired, next) = (scheduler.expired(now), scheduler.next_jobs(now));
                (
                    expired,
                    next,
                    scheduler.limit_effects(),
                    scheduler.has_workers(),
                )
            };
            self.shed(expired);
            self.defer(effects);
            let Some(start) = next else {
                hire.ended = true;
                hire.changed_nothing = !worked && others;
                return;
            };
            worked = true;
            self.meters[start.lane].hastened.many(start.hastened);
            if start.replan {
                self.scheduler.replan.notify_one();
            }
            if start.hire {
                self.start_workers();
            }
            hand_over.before_an_attempt(now);
            if self.run(start, &mut hand_over).await {
                self.start_workers();
            }
        }
    }

    /// Runs one attempt: start, verdicts, hand-over. Returns whether there may be work for more
    /// workers.
    async fn run(&self, start: Start<Job>, hand_over: &mut HandOver<'_>) -> bool {
        let Start {
            lane,
            jobs,
            ordered,
            ..
        } = start;
        let began = clock::now();
        let (ours, gone) = still_ours(jobs, ordered);
        let mut ended = self.attempt(lane, ours, hand_over).await;
        let is_halted = self.halt.is_cancelled();
        conclude::interpret(&mut ended, ordered, is_halted);
        ended.extend(gone);
        let ended = self.with_fates(lane, ended, ordered && !is_halted);
        self.measure(lane, clock::now().since(began), &ended);
        let conclusion = self.conclude(lane, began, ended);
        let hire = conclusion.hire;
        Self::pass_on(lane, ordered, conclusion, hand_over);
        hand_over.after_an_attempt();
        hire
    }

    /// Runs the handler on the jobs, if there are any.
    async fn attempt(
        &self,
        lane: usize,
        jobs: Vec<Job>,
        hand_over: &mut HandOver<'_>,
    ) -> Vec<(Job, JobEnding)> {
        if jobs.is_empty() {
            return Vec::new();
        }
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
            let poll = trace::within(&mut span, || attempting.as_mut().poll(cx));
            // The attempt takes longer: the jobs that have ended do not wait for it.
            if poll.is_pending() {
                hand_over.now();
            }
            poll
        });
        let mut ended = polled.await;
        self.spans[lane].end_process(span, began, &mut ended);
        ended
    }

    /// Adds the fate of each message. If groups are in order, settlement's preview decides the fate
    /// after failed attempts.
    fn with_fates(
        &self,
        lane: usize,
        ended: Vec<(Job, JobEnding)>,
        in_order: bool,
    ) -> Vec<EndedAttempt> {
        let fates: Vec<MessageFate> = if in_order {
            conclude::fates(&ended, |job: &Job, ending: &JobEnding| {
                self.preview.preview(lane, job, ending)
            })
        } else {
            ended
                .iter()
                .map(|(_, ending)| conclude::fate(ending))
                .collect()
        };
        let ended = ended.into_iter().zip(fates);
        ended
            .map(|((job, ending), fate)| EndedJob { job, ending, fate })
            .collect()
    }

    /// Passes on the jobs that are over. Those of ordered groups that go back to the queue come
    /// last to first.
    fn pass_on(
        lane: usize,
        ordered: bool,
        conclusion: Conclusion<Job, JobEnding>,
        hand_over: &mut HandOver<'_>,
    ) {
        let returned = conclusion
            .returned
            .into_iter()
            .map(|job| (job, JobEnding::Returned));
        let ended: Vec<_> = conclusion.over.into_iter().chain(returned).collect();
        let mut over = last_first(ended, |(job, ending): &(Job, JobEnding)| {
            let is_grouped = ordered && job.message.group.is_some();
            is_grouped && conclude::fate(ending) != MessageFate::Done
        })
        .peekable();
        while let Some((job, ending)) = over.next() {
            let finished = FinishedJob {
                is_awaited: conclusion.awaits_settling && over.peek().is_none(),
                ..job.finish(ending)
            };
            hand_over.add(lane, finished, ordered);
        }
    }

    fn measure(&self, lane: usize, took: Duration, ended: &[EndedAttempt]) {
        let meter = &self.meters[lane];
        for EndedJob { job, ending, .. } in ended {
            let error = match ending {
                JobEnding::Verdict(Verdict::Done) => None,
                JobEnding::Verdict(Verdict::Retry { why, .. }) => Some(why.kind().label()),
                JobEnding::Verdict(Verdict::Reject(_)) => Some(ReasonKind::Rejected.label()),
                JobEnding::Verdict(Verdict::Busy { .. } | Verdict::Closed(_)) => {
                    meter.throttled.one();
                    continue;
                }
                JobEnding::Returned
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
                | JobEnding::Lost => continue,
            };
            if error.is_some() {
                meter.failed.one();
            }
            let traced = meter.keeps_exemplars().then(|| job.sampled_trace());
            meter.took(took, error, traced.flatten());
        }
    }

    /// Reports to the scheduler how the attempt ended, and to the downstream's log what it showed.
    fn conclude(
        &self,
        lane: usize,
        began: BootInstant,
        ended: Vec<EndedAttempt>,
    ) -> Conclusion<Job, JobEnding> {
        let now = clock::now();
        let showed = conclude::worst_signal(ended.iter().map(|one| &one.ending));
        let kept = ended.iter().filter(|one| one.fate == MessageFate::Kept);
        let held: Vec<&EndedAttempt> = kept.collect();
        let why = conclude::why(held.iter().map(|one| &one.ending));
        let pause = conclude::pause(held.iter().copied(), now, fastrand::u64(..));
        if pause.is_some() {
            self.counters.held.many(held.len());
        }
        let attempt = FinishedAttempt {
            lane,
            began,
            showed,
        };
        let (conclusion, state) = {
            let mut scheduler = self.scheduler.lock();
            let conclusion = scheduler.conclude(
                attempt,
                ended,
                pause,
                |job: &Job, ending: &JobEnding, pause| {
                    self.preview.tries_again(lane, job, ending, pause);
                },
                now,
            );
            let state = DownstreamState {
                limit: scheduler.attempts_limit(),
                lowered: scheduler.is_lowered(),
                closed: scheduler.is_closed(),
            };
            (conclusion, state)
        };
        if conclusion.replan {
            self.scheduler.replan.notify_one();
        }
        self.downstream.note(showed, why.as_deref(), state, now);
        conclusion
    }
}

/// A reserved worker. The scheduler gets it back however its future ends.
struct WorkerGuard {
    scheduler: Arc<SharedScheduler<Job>>,
    /// Whether the scheduler has ended the worker.
    ended: bool,
    /// Whether other workers did what this one was reserved for, and some are still at work. Then
    /// nothing has changed for the intake and the drain, and waking them for each such worker would
    /// take longer than an attempt.
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
