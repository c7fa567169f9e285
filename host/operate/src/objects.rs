//! The composed answers of the API.

use crate::answers;
use crate::messages::JobView;
use crate::operations::{
    FindingView, OutcomeCount, OutcomeView, PluginView, ProcessView, QueueView, RecentWork,
    RouteView, RunningView, ScheduleView, WorkerView,
};
use crate::schema::{Count, Word};
use serde_json::Value;

answers! {
    /// The process at a glance.
    pub struct Overview {
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
        /// The work of all queues together over the last minute; nothing in the first second.
        recent: Option<RecentWork>,
        /// Clients that stream `/api/v1/events`.
        streams: Count,
    }

    /// Messages since the start of the process.
    pub struct MessageTotals {
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
    pub struct Routes {
        /// Some of them.
        items: Vec<RouteView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
    }

    /// Queues.
    pub struct Queues {
        /// Some of them.
        items: Vec<QueueView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
        /// How many calls to queues this answer took: on SQS each is billed.
        calls: Count,
    }

    /// One queue.
    pub struct OneQueue {
        /// The queue.
        queue: QueueView,
        /// How many calls to queues this answer took: on SQS each is billed.
        calls: Count,
    }

    /// How many replicas are needed.
    pub struct Scale {
        /// The most that any of these routes needs.
        replicas: Count,
        /// The time in which to handle the backlogs, in seconds.
        drain_s: Count,
        /// The routes.
        items: Vec<RouteScale>,
        /// How many calls to queues this answer took: on SQS each is billed.
        calls: Count,
    }

    /// How many replicas a route needs.
    pub struct RouteScale {
        /// The route.
        route: String,
        /// The number of replicas; 0 if nothing waits or is in flight.
        replicas: Count,
        /// The reason: `backlog`, `rate`, `in-flight`, `unknown-duration` or `idle`.
        reason: Word,
        /// Messages that wait in its queues, without those that are paused.
        backlog: Count,
        /// Messages in flight, of all processes, without those of `released`.
        in_flight: Count,
        /// Messages that this process has released for a later attempt, which is not due yet, and that
        /// SQS counts as in flight.
        released: Count,
        /// Messages in flight that this process holds and has not started: they count as backlog.
        held: Count,
        /// Messages that one replica handles at once.
        at_once: Count,
        /// The duration of an attempt, in seconds: the median of the last 63 in this process.
        median_attempt_s: Option<f64>,
    }

    /// Attempts under way.
    pub struct RunningList {
        /// Some of them.
        items: Vec<RunningView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
    }

    /// Recent outcomes of deliveries.
    pub struct Outcomes {
        /// Some of them, the newest first.
        items: Vec<OutcomeView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
        /// All outcomes since the start of the process, by reason.
        counts: Vec<OutcomeCount>,
    }

    /// Plugins.
    pub struct Plugins {
        /// Some of them.
        items: Vec<PluginView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
    }

    /// Scheduled messages.
    pub struct Schedules {
        /// The first of them.
        items: Vec<ScheduleView>,
    }

    /// Processes.
    pub struct Processes {
        /// The first of them.
        items: Vec<WorkerView>,
    }

    /// Findings.
    pub struct Findings {
        /// All of them.
        items: Vec<FindingView>,
        /// The age of these findings, in seconds.
        looked_s_ago: f64,
    }

    /// Redrives, moves and purges.
    pub struct Jobs {
        /// Some of them.
        items: Vec<JobView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
    }

    /// The result of checking the plugins' files for new versions.
    pub struct ReloadResult {
        /// The replaced and the refused versions of each route.
        plugins: Vec<Value>,
    }

    /// A reload of the settings.
    pub struct ReloadedSettings {
        /// The routes that were added.
        added: Vec<String>,
        /// The routes that new versions replace.
        replaced: Vec<ReplacedRoute>,
        /// The routes that were removed.
        removed: Vec<String>,
        /// The changes that apply after a restart.
        needs_restart: Vec<String>,
    }

    /// A route that a new version replaces.
    pub struct ReplacedRoute {
        /// Its name.
        route: String,
        /// The changed settings.
        settings: Vec<String>,
    }

    /// A canary that no longer takes messages.
    pub struct RolledBack {
        /// Its route.
        route: String,
        /// Its file and the beginning of its SHA-256.
        version: String,
    }

    /// The stop.
    pub struct DrainStatus {
        /// It begins now; otherwise it had begun before.
        started: bool,
    }
}
