//! The state and operations of the running program for the admin API: the port that `app`
//! implements, and its objects, which are those of the API. Knows no HTTP.

use super::problem::{CallProblem, FieldProblem};
use crate::answers;
use crate::fleet::FleetView;
use crate::schema::{Count, Word};
use crate::site::Site;
use dispatcher_core::queue::Depth;
use serde_json::Value;

answers! {
    /// This process.
    pub struct ProcessView {
        /// Its id and machine.
        id: String,
        /// The version of the program.
        version: String,
        /// When it started.
        started_at: String,
        /// The time since its start, in seconds.
        uptime_s: f64,
        /// `running`, or `draining` once it stops.
        state: String,
        /// Whether it can do its work, as `/readyz` says. A pause does not change it.
        ready: bool,
        /// The reasons why it is not ready.
        not_ready: Vec<NotReady>,
    }

    /// A reason why the process is not ready.
    pub struct NotReady {
        /// The subject: a queue, a file or a server.
        what: String,
        /// Why.
        reason: String,
    }

    /// A route.
    pub struct RouteView {
        /// Its name.
        route: String,
        /// Its plugin.
        plugin: String,
        /// How many queues it has.
        queues: Count,
        /// Maximum messages of one attempt.
        batch_size: Count,
        /// Whether an operator has paused the whole route.
        paused: bool,
        /// Maximum concurrent attempts, now.
        concurrency: LiveNumber,
        /// Maximum messages held beyond those that run, now.
        prefetch: LiveNumber,
        /// The weights that operators have set on its tenants.
        weights: Vec<LiveWeight>,
        /// Attempts under way.
        attempts: Count,
        /// Maximum concurrent attempts that its downstream accepts, now.
        attempts_limit: Count,
        /// Messages held, started or not.
        in_flight: Count,
        /// Maximum messages held.
        in_flight_limit: Count,
        /// Receives under way.
        receives: Count,
        /// The duration of an attempt, in seconds: the median of the last 63.
        median_attempt_s: Option<f64>,
        /// Maximum messages that run in all processes together, by its limits without keys; nothing
        /// if they do not limit that.
        fleet_concurrency: Option<Count>,
        /// Maximum messages that start per second in all processes together, by its limits without
        /// keys; nothing if they do not limit that.
        fleet_rate: Option<f64>,
        /// Maximum messages that start per second in all processes together by both, if attempts
        /// take as long as here; nothing if that is not limited or not known.
        fleet_per_second: Option<f64>,
    }

    /// A whole number that operators can change while the program runs.
    pub struct LiveNumber {
        /// The limit in force; nothing if there is no limit.
        value: Option<Count>,
        /// The configured limit.
        configured: Option<Count>,
        /// Whether an operator has set it.
        live: bool,
    }

    /// A weight that operators have set on a tenant while the program runs.
    pub struct LiveWeight {
        /// The tenant.
        tenant: String,
        /// The weight in force.
        value: Count,
        /// The configured weight; 1 if none is configured.
        configured: Count,
    }

    /// A rate that operators can change while the program runs.
    pub struct LiveRate {
        /// The limit in force, in messages a second; nothing if there is no limit.
        value: Option<f64>,
        /// The configured limit.
        configured: Option<f64>,
        /// Whether an operator has set it.
        live: bool,
    }

    /// A queue that this process receives from.
    pub struct QueueView {
        /// The queue, as the configuration names it.
        queue: String,
        /// Its route.
        route: String,
        /// Whether it is paused: this process receives nothing from it.
        paused: bool,
        /// Who paused it: `queue` or `route`.
        paused_by: Option<String>,
        /// Whether a pause and limits of the queue apply to all processes that read it, because its
        /// store or that of the fleet keeps them; otherwise they apply to this machine or process.
        shared: bool,
        /// Maximum concurrent attempts at its messages, besides the route's limit.
        concurrency: LiveNumber,
        /// Maximum messages of it started per second.
        rate: LiveRate,
        /// Maximum messages that its route holds beyond those that run, as set on this queue.
        prefetch: LiveNumber,
        /// Messages of it in attempts of this process now.
        in_flight: Count,
        /// Since the start of this process.
        totals: QueueTotals,
        /// Over the last minute in this process; nothing in its first seconds.
        per_second: Option<QueueRates>,
        /// Attempts and calls of the last minute.
        recent: Option<RecentWork>,
        /// The queue that dead letters go to, if it is known.
        dead_letter_queue: Option<String>,
        /// How much it holds, if that was requested.
        depth: Option<DepthView>,
        /// How much its dead-letter queue holds, if that was requested and is possible.
        dead_letter_depth: Option<DepthView>,
        /// The busiest of the tenants that share it, at most 10; empty if none do.
        tenants: Vec<TenantView>,
    }

    /// A tenant of a queue: what this process has of it and, where one queue or depths were
    /// requested, what waits in the queue.
    pub struct TenantView {
        /// Its name; empty for messages that belong to none.
        tenant: String,
        /// How many times the share of another it gets.
        weight: Count,
        /// Messages of it in attempts.
        running: Count,
        /// Messages of it that are held and have not started.
        held: Count,
        /// Messages of it that are held and wait for a limit.
        limited: Count,
        /// Messages of it that started in the last second.
        started: Count,
        /// Its part of the messages that started in the last second, from 0 to 1.
        share: f64,
        /// Whether so many of its messages wait for a limit that no more are received.
        parked: bool,
        /// Messages of it that can be received, counted up to 10,000; nothing if the queue does not
        /// know its tenants.
        waiting: Option<Count>,
        /// How long the first of these has waited, in seconds.
        oldest_s: Option<f64>,
    }

    /// Messages of a queue since the start of the process.
    pub struct QueueTotals {
        /// Received, redeliveries included.
        received: Count,
        /// Handled and deleted.
        done: Count,
        /// Whose attempt failed.
        failed: Count,
        /// Dead-lettered.
        dead_lettered: Count,
    }

    /// Messages of a queue in a second.
    pub struct QueueRates {
        /// Received, redeliveries included.
        received: f64,
        /// Handled and deleted.
        done: f64,
        /// Whose attempt failed.
        failed: f64,
    }

    /// Attempts, and calls to queues, of the last minute.
    pub struct RecentWork {
        /// The median duration of attempts, in seconds; nothing without attempts.
        attempt_p50_s: Option<f64>,
        /// The 99th percentile of the duration of attempts, in seconds.
        attempt_p99_s: Option<f64>,
        /// Calls to receive, settle and extend, in a second.
        calls_per_second: f64,
        /// The cost of as many calls in a day, in US dollars at the price of `call-price`; nothing where
        /// calls are not billed.
        dollars_per_day: Option<f64>,
    }

    /// How much a queue holds.
    pub struct DepthView {
        /// Messages that could be received.
        waiting: Option<Count>,
        /// Messages in flight, of all processes.
        in_flight: Option<Count>,
        /// Delayed messages.
        delayed: Option<Count>,
        /// The age of the oldest message that is not in flight, if the backend reports it, in
        /// seconds.
        oldest_s: Option<f64>,
        /// How long ago that was asked, in seconds: answers are kept for 5 seconds, and for 15 where
        /// calls are billed.
        asked_s_ago: f64,
        /// Why it is not known.
        error: Option<String>,
    }

    /// An attempt under way.
    pub struct RunningView {
        /// Its id, unique in this process.
        id: String,
        /// Its route.
        route: String,
        /// Its queue.
        queue: String,
        /// The time since its start, in seconds.
        age_s: f64,
        /// How long it may still run, in seconds.
        time_left_s: f64,
        /// The version of the plugin that it began with.
        version: Option<String>,
        /// Why it is stuck, if it is: it has run for 5 seconds and for ten times the median of its
        /// route (of half of its time limit where no median is known), or it should have ended a
        /// second ago.
        stuck: Option<Word>,
        /// Its messages.
        messages: Vec<RunningMessage>,
    }

    /// A message of an attempt under way.
    pub struct RunningMessage {
        /// Its id.
        id: String,
        /// How often it was received.
        receive_count: Count,
        /// The number of this attempt, as max-attempts counts it.
        attempt: Count,
        /// How long its lease lasts unless it is extended, in seconds; nothing once it is lost.
        lease_left_s: Option<f64>,
        /// Whether it was cancelled or its lease was lost: the handler's answer does not count.
        cancelled: bool,
        /// Its content, if `admin-bodies` permits it and one attempt is requested.
        content: Option<ContentView>,
    }

    /// The content of a message, without what the recording rules of its plugin redact.
    pub struct ContentView {
        /// Its body.
        body: String,
        /// Its group.
        group: Option<String>,
        /// Its attributes.
        attributes: Vec<AttributeView>,
        /// Whether long values were cut, as they are in lists.
        cut: bool,
    }

    /// An attribute of a message.
    pub struct AttributeView {
        /// Its name.
        name: String,
        /// Its value, as text or in base64.
        value: String,
        /// Whether it is base64 of a binary value.
        binary: bool,
    }

    /// The outcome of a delivery, or of several together.
    pub struct OutcomeView {
        /// Its number, which grows with each outcome.
        sequence: Count,
        /// The time of the outcome.
        at: String,
        /// The queue.
        queue: String,
        /// How it ended: the values of the metric label `event`.
        event: Word,
        /// Why: the values of the metric label `reason`.
        reason_kind: Option<Word>,
        /// Why, in words.
        reason: Option<String>,
        /// How many messages.
        messages: Count,
        /// The ids of the first ten of them.
        ids: Vec<String>,
        /// How often the message was received, if it is one message.
        receive_count: Option<Count>,
        /// The number of the attempt that failed, if it is one message.
        attempt: Option<Count>,
        /// How long the last attempt took, in seconds, if there was one.
        took_s: Option<f64>,
        /// The dead-letter queue that it went to.
        to: Option<String>,
    }

    /// How often deliveries of all queues had this outcome since the start of the process.
    pub struct OutcomeCount {
        /// How they ended.
        event: Word,
        /// Why; empty where the event has no reason.
        reason_kind: Word,
        /// How many messages.
        messages: Count,
    }

    /// The versions of a route's plugin.
    pub struct PluginView {
        /// The route.
        route: String,
        /// The plugin with its versions, instances, canary and shadow, as `GET /plugins` has it.
        plugin: Value,
    }

    /// A scheduled message.
    pub struct ScheduleView {
        /// Its id, as `dispatcher schedule cancel` takes it.
        id: String,
        /// The queue that it goes to.
        queue: String,
        /// When it is due.
        due: String,
        /// When it repeats, if it does.
        every: Option<String>,
    }

    /// A scheduled message that was made due or cancelled.
    pub struct ScheduleResult {
        /// Its id.
        schedule: String,
        /// The queue that it goes to.
        queue: String,
    }

    /// A process that receives from one of the queues' servers.
    pub struct WorkerView {
        /// Its process and machine.
        id: String,
        /// The backend that lists it; nothing for this process if no backend does.
        backend: Option<String>,
        /// Its queues.
        queues: Vec<WorkerQueue>,
    }

    /// A queue that a process receives from.
    pub struct WorkerQueue {
        /// The queue.
        queue: String,
        /// Its messages in flight there.
        in_flight: Count,
    }

    /// Something that `dispatcher doctor` finds.
    pub struct FindingView {
        /// `ok`, `warn` or `bad`.
        level: Word,
        /// The subject of the finding.
        about: String,
        /// The finding, in a sentence.
        message: String,
    }

    /// The result of a pause or of a change of limits.
    pub struct ControlResult {
        /// The queue or route.
        target: String,
        /// Where it applies: in `all-processes` that read the queue or are of the fleet, in those of
        /// `this-machine` with the same data folder, or in `this-process`.
        affects: Word,
        /// This process.
        process: String,
        /// How long it applies: until it is `changed`, also over restarts, or until `process-ends`.
        until: Word,
        /// Within how many seconds it applies in all of them.
        within_s: Count,
        /// Whether it is paused now.
        paused: bool,
        /// The queues whose limits changed in this process.
        queues: Vec<String>,
    }

    /// The numbers of cancelled messages.
    pub struct CancelResult {
        /// Messages that waited in their queue, and were removed.
        waiting: Count,
        /// Messages in attempts, which were stopped; they are deleted once these have ended.
        running: Count,
    }
}

/// A queue with messages but without a known receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadQueue {
    /// The name of the queue in a configuration.
    pub queue: String,
    /// The number of messages that could be received.
    pub waiting: u64,
    /// Whether its backend lists the receivers of all processes; otherwise only those of this
    /// process are known.
    pub knows_all_receivers: bool,
}

/// The result of a search for such queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnreadLook {
    /// The queues with the most messages, in descending order.
    pub queues: Vec<UnreadQueue>,
    /// The reason why not all queues were searched, if so.
    pub incomplete: Option<String>,
}

/// The names of a queue and its route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueAndRoute {
    /// The name of the queue in the configuration.
    pub queue: String,
    /// The name of the route; empty if there are no routes.
    pub route: String,
}

/// One page of a list, and the start of the next page.
pub type ListPage<T> = (Vec<T>, Option<String>);

/// The requests to queues for an answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct AskedDepths {
    /// The number of calls for this answer.
    pub calls: usize,
}

impl DepthView {
    /// Converts the answer of a queue from `asked_s_ago` seconds ago.
    pub fn of(answer: Result<&Depth, String>, asked_s_ago: f64) -> Self {
        let (depth, error) = match answer {
            Ok(depth) => (Some(depth), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            waiting: depth.map(|depth| depth.waiting.into()),
            in_flight: depth.map(|depth| depth.in_flight.into()),
            delayed: depth.map(|depth| depth.delayed.into()),
            oldest_s: depth.and_then(|depth| Some(depth.oldest?.as_secs_f64())),
            asked_s_ago,
            error,
        }
    }
}

/// A page of a list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The maximum number of items.
    pub limit: usize,
    /// The end of the previous page.
    pub after: Option<String>,
}

impl Page {
    /// Returns the page that has everything.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            limit: usize::MAX,
            after: None,
        }
    }
}

/// The running program: its state, besides its operations. All calls may run concurrently; those
/// that are not `async` answer from memory.
#[async_trait::async_trait]
pub trait Operations: Site {
    /// Returns this process.
    fn process(&self) -> ProcessView;

    /// Returns the routes.
    fn routes(&self, page: &Page) -> Result<ListPage<RouteView>, CallProblem>;

    /// Returns the queues of all routes, in the routes' order.
    async fn queues(&self, page: &Page) -> Result<ListPage<QueueView>, CallProblem>;

    /// Returns the names of all its queues with their routes, in the order of `queues`.
    async fn queue_names(&self) -> Result<Vec<QueueAndRoute>, CallProblem>;

    /// Returns the existing queues among these.
    async fn queues_named(&self, names: &[String]) -> Vec<QueueView> {
        let mut views = Vec::with_capacity(names.len());
        for name in names {
            views.extend(self.queue(name).await);
        }
        views
    }

    /// Returns the first of its queues that are paused, directly or with their route, and the
    /// number of all paused queues.
    fn paused(&self, _most: usize) -> (Vec<QueueView>, usize) {
        (Vec::new(), 0)
    }

    /// Returns one queue.
    async fn queue(&self, queue: &str) -> Option<QueueView>;

    /// Adds the depths of the queues and their dead-letter queues. Only requests those that were
    /// not requested in the last seconds.
    async fn add_depths(&self, queues: &mut [QueueView]) -> AskedDepths;

    /// Adds what waits in the queues to their tenants.
    async fn add_backlogs(&self, _queues: &mut [QueueView]) {}

    /// Returns how many messages of a queue this process has released for a later attempt that is
    /// not due yet. The queue counts them as in flight.
    fn released(&self, _queue: &str) -> u64 {
        0
    }

    /// Returns other queues with messages but without a known receiver, for backends that list
    /// their queues for free.
    async fn unread(&self) -> UnreadLook {
        UnreadLook::default()
    }

    /// Returns the running attempts of one queue or of all queues, by route, oldest first.
    fn running(
        &self,
        queue: Option<&str>,
        page: &Page,
    ) -> Result<ListPage<RunningView>, CallProblem>;

    /// Returns one attempt, with the content of its messages if that may be shown.
    fn attempt(&self, id: &str) -> Option<RunningView>;

    /// Returns the first scheduled messages for a queue.
    async fn schedules(&self, queue: &str, limit: usize) -> Result<Vec<ScheduleView>, CallProblem>;

    /// Returns the processes that receive from the servers of this process's queues.
    async fn workers(&self, limit: usize) -> Result<Vec<WorkerView>, CallProblem>;

    /// Returns all processes of the fleet.
    async fn fleet(&self) -> Result<FleetView, CallProblem> {
        Err(CallProblem::not_found(
            "This process is of no fleet: it runs no route.",
        ))
    }

    /// Returns the findings of `dispatcher doctor`, and how many seconds old they are.
    async fn findings(&self) -> Result<(Vec<FindingView>, f64), CallProblem>;
}

/// The maximum number of items on a page.
pub const MOST_ITEMS: usize = 500;

impl Page {
    /// Returns this page of an unchanging list of `all` items by their indexes.
    ///
    /// # Errors
    /// Fails if the cursor is not from a page.
    pub fn of<T>(
        &self,
        all: usize,
        item: impl Fn(usize) -> Option<T>,
    ) -> Result<ListPage<T>, CallProblem> {
        let first: usize = match &self.after {
            None => 0,
            Some(cursor) => cursor.parse().map_err(|_| self.bad_cursor())?,
        };
        let end = all.min(first.saturating_add(self.limit));
        let items = (first..end).filter_map(item).collect();
        Ok((items, (end < all).then(|| end.to_string())))
    }

    /// Returns the problem of a cursor that is not from a page.
    pub fn bad_cursor(&self) -> CallProblem {
        CallProblem {
            status: crate::problem::StatusCode::BAD_REQUEST,
            ..CallProblem::fields(vec![FieldProblem::new(
                "cursor",
                "it is not a cursor of this list",
                "the `next` of the previous page",
            )])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_list_hold_each_item_once() {
        let mut page = Page {
            limit: 4,
            after: None,
        };
        let mut seen = Vec::new();
        loop {
            let (items, next) = page.of(10, Some).expect("a good cursor");
            assert!(items.len() <= 4);
            seen.extend(items);
            if next.is_none() {
                break;
            }
            page.after = next;
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        page.after = Some("x".to_owned());
        assert!(page.of(10, Some).is_err());
    }
}
