//! The answers and requests of the API that are made of what the program shows.

use crate::admin::operations::{
    FindingView, OutcomeCount, OutcomeView, PluginView, ProcessView, QueueView, RouteView,
    RunningView, ScheduleView, WorkerView,
};
use crate::admin::schema::{AtLeastOne, Count, answers, requests};
use serde_json::Value;

answers! {
    /// The process at a glance.
    pub(super) struct Overview {
        /// This process.
        process: ProcessView,
        /// How many routes it has.
        routes: Count,
        /// How many queues it receives from.
        queues: Count,
        /// The first 100 paused queues.
        paused: Vec<String>,
        /// Attempts under way.
        running: Count,
        /// Messages whose leases it holds.
        leases: Count,
        /// Messages since its start.
        messages: MessageTotals,
        /// Clients that follow `/api/v1/events`.
        streams: Count,
    }

    /// Messages since the start of the process.
    pub(super) struct MessageTotals {
        /// Received, redeliveries included.
        received: Count,
        /// Handled and deleted.
        done: Count,
        /// Released to come back.
        retried: Count,
        /// Dead-lettered.
        dead_lettered: Count,
        /// Too old to be started.
        shed: Count,
        /// Cancelled.
        cancelled: Count,
        /// Whose lease was lost.
        lost: Count,
        /// Given back without a completed attempt.
        released: Count,
        /// Whose outcome the queue did not accept.
        not_settled: Count,
    }

    /// Routes.
    pub(super) struct Routes {
        /// Some of them.
        items: Vec<RouteView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
    }

    /// Queues.
    pub(super) struct Queues {
        /// Some of them.
        items: Vec<QueueView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
        /// How many calls to queues this answer took: on SQS each is billed.
        calls: Count,
    }

    /// One queue.
    pub(super) struct OneQueue {
        /// The queue.
        queue: QueueView,
        /// How many calls to queues this answer took: on SQS each is billed.
        calls: Count,
    }

    /// Attempts under way.
    pub(super) struct RunningList {
        /// Some of them.
        items: Vec<RunningView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
    }

    /// Recent ends of deliveries.
    pub(super) struct Outcomes {
        /// Some of them, the newest first.
        items: Vec<OutcomeView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
        /// All ends since the start of the process, by reason.
        counts: Vec<OutcomeCount>,
    }

    /// Plugins.
    pub(super) struct Plugins {
        /// Some of them.
        items: Vec<PluginView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
    }

    /// Scheduled messages.
    pub(super) struct Schedules {
        /// The first of them.
        items: Vec<ScheduleView>,
    }

    /// Processes.
    pub(super) struct Processes {
        /// The first of them.
        items: Vec<WorkerView>,
    }

    /// Findings.
    pub(super) struct Findings {
        /// All of them.
        items: Vec<FindingView>,
        /// How long ago they were looked for, in seconds.
        looked_s_ago: f64,
    }

    /// What became of the plugins' files.
    pub(super) struct Reloaded {
        /// For each route what was replaced and what was refused.
        plugins: Vec<Value>,
    }

    /// The stop.
    pub(super) struct Draining {
        /// It begins now; otherwise it had begun before.
        started: bool,
    }
}

requests! {
    /// A request without fields; the body may be empty.
    pub(super) struct NoFields {}

    /// Limits of a queue.
    pub(super) struct QueueLimits {
        /// The most attempts at its messages at once, in each process that it affects.
        concurrency: Option<AtLeastOne>,
        /// The most messages of it that are started in a second, in each process that it affects.
        rate: Option<f64>,
        /// The most messages that its route holds beyond what runs, in each process that it affects.
        prefetch: Option<usize>,
    }

    /// Limits of a route.
    pub(super) struct RouteLimits {
        /// The most attempts at once: at most what the process was started with.
        concurrency: Option<AtLeastOne>,
        /// The most messages held beyond what runs.
        prefetch: Option<usize>,
    }

    /// A message to be cancelled.
    pub(super) struct CancelMessage {
        /// Its id.
        message: String,
    }
}
