//! The answers and requests of the API that are made of what the program shows.

use crate::admin::messages::JobView;
use crate::admin::operations::{
    FindingView, OutcomeCount, OutcomeView, PluginView, ProcessView, QueueView, RecentWork,
    RouteView, RunningView, ScheduleView, WorkerView,
};
use crate::admin::schema::{AtLeastOne, Bodies, Count, Scan, Share, Texts, answers, requests};
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
        /// What all queues together did over the last minute; nothing in the first second.
        recent: Option<RecentWork>,
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

    /// How many replicas are wanted.
    pub(super) struct Scale {
        /// The most that any of these routes wants.
        replicas: Count,
        /// In how many seconds backlogs are to be gone.
        drain_s: Count,
        /// The routes.
        items: Vec<RouteScale>,
        /// How many calls to queues this answer took: on SQS each is billed.
        calls: Count,
    }

    /// How many replicas a route wants.
    pub(super) struct RouteScale {
        /// The route.
        route: String,
        /// So many; 0 if nothing waits or is in flight.
        replicas: Count,
        /// What decided: `backlog`, `in-flight`, `unknown-duration` or `idle`.
        reason: &'static str,
        /// Messages that wait in its queues, without those that are paused.
        backlog: Count,
        /// Messages in flight, of all processes, without those of `released`.
        in_flight: Count,
        /// Messages that this process has released for a later attempt, which is not due yet, and that
        /// SQS counts as in flight.
        released: Count,
        /// Those in flight that this process holds and has not started: they count as backlog.
        held: Count,
        /// Messages that one replica handles at once.
        at_once: Count,
        /// What an attempt takes, in seconds: the median of the last 63 in this process.
        median_attempt_s: Option<f64>,
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

    /// Redrives, moves and purges.
    pub(super) struct Jobs {
        /// Some of them.
        items: Vec<JobView>,
        /// The cursor of the next page; nothing on the last.
        next: Option<String>,
    }

    /// What became of the plugins' files.
    pub(super) struct Reloaded {
        /// For each route what was replaced and what was refused.
        plugins: Vec<Value>,
    }

    /// A canary that takes no messages any more.
    pub(super) struct RolledBack {
        /// Its route.
        route: String,
        /// Its file and the beginning of its SHA-256.
        version: String,
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

    /// A look at the messages of a queue.
    pub(super) struct ScanRequest {
        /// A regular expression that the reason of a dead letter matches.
        reason: String,
        /// Values in bodies that are JSON, as in `/order/country=CH`: all must hold.
        r#where: Texts,
        /// Only messages that were sent at least so long ago, as in `36h`.
        older: String,
        /// How many messages are shown: 100 unless it says otherwise.
        limit: AtLeastOne,
        /// How many messages are looked at at most: 10,000 unless it says otherwise.
        scan: Scan,
    }

    /// Dead letters to be moved back. Conditions that are given must all hold.
    pub(super) struct RedriveMessages {
        /// The queue that all of them go to; otherwise each goes to where it came from.
        to: String,
        /// A regular expression that the reason matches.
        reason: String,
        /// Values in bodies that are JSON, as in `/order/country=CH`: all must hold.
        r#where: Texts,
        /// Only messages that were sent at least so long ago, as in `36h`.
        older: String,
        /// Only messages with these ids.
        messages: Texts,
        /// The first so many of them.
        first: AtLeastOne,
        /// So many a second at most.
        rate: f64,
        /// How many are looked at at most, where the queue cannot be listed: 10,000 unless it says
        /// otherwise.
        scan: Scan,
        /// Stops when more redriven messages failed again than this share of what was moved: 0.5 unless
        /// it says otherwise.
        stop_at: Share,
        /// Bodies to send in the place of those of some messages, by their ids; with `messages`.
        edits: Bodies,
        /// A plugin of this process. Each message is run through it first, without any grant; what it
        /// is not done with stays.
        r#try: String,
        /// Whether to move them; otherwise they are only counted.
        apply: bool,
    }

    /// Messages to be moved as they are.
    pub(super) struct MoveMessages {
        /// The queue that they go to.
        to: String,
        /// The first so many of them.
        first: AtLeastOne,
        /// So many a second at most.
        rate: f64,
        /// Whether to move them; otherwise they are only counted.
        apply: bool,
    }

    /// A queue to be emptied.
    pub(super) struct PurgeQueue {
        /// Whether to remove its messages; otherwise they are only counted.
        apply: bool,
    }

    /// A message to be deleted.
    pub(super) struct DeleteMessage {
        /// Its id.
        message: String,
    }

    /// A message to be sent again.
    pub(super) struct ResendMessage {
        /// Its id.
        message: String,
        /// The body to send; its own without it.
        body: String,
        /// The queue that it goes to; otherwise to where it came from.
        to: String,
        /// How many messages are looked at to find it, where the queue cannot be listed: 10,000 unless
        /// it says otherwise.
        scan: Scan,
    }

    /// A scheduled message.
    pub(super) struct OneSchedule {
        /// Its id, as the list of schedules has it.
        schedule: String,
    }

    /// A message to be cancelled.
    pub(super) struct CancelMessage {
        /// Its id.
        message: String,
    }
}
