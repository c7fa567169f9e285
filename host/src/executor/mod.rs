//! Runs jobs on the guest pool: a worker asks for the most urgent jobs when it is free, attempts
//! them together, and hands them on. Knows no other stage and no plugin by name.

pub mod attempt;
pub mod pool;

use crate::clock;
use crate::job::{Ending, Job, Outbox};
use crate::message::{Message, Verdict};
use crate::plugin::Handler;
use crate::scheduler::Start;
use crate::scheduler::board::Board;
use crate::telemetry::counters::Counters;
use attempt::{Limits, attempt};
use pool::Spawner;
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
    /// The guest threads.
    pub spawner: Spawner,
    /// The runtime whose timers end attempts.
    pub control: Handle,
    /// Set when running attempts must end.
    pub halt: CancellationToken,
    /// What is counted.
    pub counters: Arc<Counters>,
}

impl Executor {
    /// Starts as many workers as there is work for. To be called whenever jobs arrived or a queue
    /// turned out to be empty.
    pub fn hire(self: &Arc<Self>) {
        let hired = self.board.lock().hire();
        for _ in 0..hired {
            if self.spawner.spawn(self.clone().work()).is_err() {
                // The pool is closed only once nothing runs or waits any more.
                self.board.lock().dismiss();
            }
        }
    }

    async fn work(self: Arc<Self>) {
        let mut hire = Hire {
            board: self.board.clone(),
            ended: false,
        };
        loop {
            let next = self.board.lock().next_jobs();
            let Some(Start { lane, jobs, replan }) = next else {
                break;
            };
            if replan {
                self.board.replan.notify_one();
            }
            self.run(lane, jobs).await;
        }
        hire.ended = true;
    }

    /// One attempt: start, verdicts, hand-over.
    async fn run(&self, lane: usize, jobs: Vec<Job>) {
        let started = clock::now();
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
        let running = self.counters.running.hold();
        let limits = Limits {
            timeout: self.timeout,
            halt: &self.halt,
            control: &self.control,
        };
        let ended = attempt(&*self.handler, jobs, limits).await;
        drop(running);
        let took = clock::now().since(started);
        let groups = ended
            .iter()
            .map(|(job, ending)| (job.message.group.as_deref(), !is_done(ending)));
        let overtaking = self.board.lock().ended(lane, groups, took);
        let returned = overtaking.into_iter().map(|job| (job, Ending::Returned));
        for (job, ending) in ended.into_iter().chain(returned) {
            // See `Outbox`: without a receiver the lease's drop lets the message go.
            let _ = self.outbox[lane].send(job.finish(ending));
        }
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

fn is_done(ending: &Ending) -> bool {
    matches!(ending, Ending::Verdict(Verdict::Done))
}
