//! What the running program shows and does for the admin API: the port that `app` implements, and the
//! objects that go through it, which are those of the API. Knows no HTTP.

use super::messages::MessageOperations;
use super::problem::{CallProblem, FieldProblem};
use super::schema::{Count, answers};
use dispatcher_core::control::ControlChange;
use dispatcher_core::queue::Depth;
use dispatcher_core::scheduler::live::RouteControl;
use serde_json::Value;

answers! {
    /// This process.
    pub(crate) struct ProcessView {
        /// Its id and machine.
        id: String,
        /// The version of the program.
        version: String,
        /// When it started.
        started_at: String,
        /// For how long it has run, in seconds.
        uptime_s: f64,
        /// `running`, or `draining` once it stops.
        state: String,
        /// Whether it can do its work, as `/readyz` says. A pause does not change it.
        ready: bool,
        /// What keeps it from that.
        not_ready: Vec<NotReady>,
    }

    /// Something that keeps the process from being ready.
    pub(crate) struct NotReady {
        /// What it is about.
        what: String,
        /// Why.
        reason: String,
    }

    /// A route.
    pub(crate) struct RouteView {
        /// Its name.
        route: String,
        /// Its plugin.
        plugin: String,
        /// How many queues it has.
        queues: Count,
        /// The most messages of one attempt.
        batch_size: Count,
        /// An operator has paused the whole route, in this process.
        paused: bool,
        /// The most attempts at once that hold now.
        concurrency: LiveNumber,
        /// The most messages held beyond what runs that hold now.
        prefetch: LiveNumber,
        /// Attempts under way.
        attempts: Count,
        /// The most attempts at once that its downstream takes now.
        attempts_limit: Count,
        /// Messages held, started or not.
        in_flight: Count,
        /// The most of them.
        in_flight_limit: Count,
        /// Receives under way.
        receives: Count,
        /// What an attempt takes, in seconds: the median of the last 63.
        median_attempt_s: Option<f64>,
    }

    /// A whole number that operators can change while the program runs.
    pub(crate) struct LiveNumber {
        /// What holds now; nothing where there is no limit.
        value: Option<Count>,
        /// What the configuration says.
        configured: Option<Count>,
        /// An operator has set it.
        live: bool,
    }

    /// A rate that operators can change while the program runs.
    pub(crate) struct LiveRate {
        /// What holds now, in messages a second; nothing where there is no limit.
        value: Option<f64>,
        /// What the configuration says.
        configured: Option<f64>,
        /// An operator has set it.
        live: bool,
    }

    /// A queue that this process receives from.
    pub(crate) struct QueueView {
        /// As the configuration names it.
        queue: String,
        /// Its route.
        route: String,
        /// Nothing is received from it.
        paused: bool,
        /// Who paused it: `queue` or `route`.
        paused_by: Option<String>,
        /// Whether a pause and limits of the queue hold for all processes that read it, by way of its
        /// store; otherwise for this one.
        shared: bool,
        /// The most attempts at its messages at once, besides the route's.
        concurrency: LiveNumber,
        /// The most messages of it that are started in a second.
        rate: LiveRate,
        /// The most messages that its route holds beyond what runs, as set on this queue.
        prefetch: LiveNumber,
        /// Messages of it in attempts of this process now.
        in_flight: Count,
        /// Since the start of this process.
        totals: QueueTotals,
        /// Over the last minute in this process; nothing in its first seconds.
        per_second: Option<QueueRates>,
        /// The same of attempts and calls.
        recent: Option<RecentWork>,
        /// The queue that dead letters go to, where it is known.
        dead_letter_queue: Option<String>,
        /// How much it holds, where that was asked for.
        depth: Option<DepthView>,
        /// How much its dead-letter queue holds, where that was asked for and can be.
        dead_letter_depth: Option<DepthView>,
    }

    /// Messages of a queue since the start of the process.
    pub(crate) struct QueueTotals {
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
    pub(crate) struct QueueRates {
        /// Received, redeliveries included.
        received: f64,
        /// Handled and deleted.
        done: f64,
        /// Whose attempt failed.
        failed: f64,
    }

    /// Attempts, and calls to queues, of the last minute.
    pub(crate) struct RecentWork {
        /// What half of the attempts took at most, in seconds; nothing without attempts.
        attempt_p50_s: Option<f64>,
        /// What 99 of 100 attempts took at most, in seconds.
        attempt_p99_s: Option<f64>,
        /// Calls to receive, settle and extend, in a second.
        calls_per_second: f64,
        /// What as many calls cost in a day, in US dollars at the price of `call-price`; nothing where
        /// calls are not billed.
        dollars_per_day: Option<f64>,
    }

    /// How much a queue holds.
    pub(crate) struct DepthView {
        /// Messages that could be received.
        waiting: Option<Count>,
        /// Messages in flight, of all processes.
        in_flight: Option<Count>,
        /// Messages that wait for their time.
        delayed: Option<Count>,
        /// The age of the oldest message that is not in flight, where the backend tells, in seconds.
        oldest_s: Option<f64>,
        /// How long ago that was asked, in seconds: answers are kept for 5 seconds, and for 15 where
        /// calls are billed.
        asked_s_ago: f64,
        /// Why it is not known.
        error: Option<String>,
    }

    /// An attempt under way.
    pub(crate) struct RunningView {
        /// Tells it from all others of this process.
        id: String,
        /// Its route.
        route: String,
        /// Its queue.
        queue: String,
        /// For how long it has run, in seconds.
        age_s: f64,
        /// How long it may still run, in seconds.
        time_left_s: f64,
        /// The version of the plugin that it began with.
        version: Option<String>,
        /// Why it is stuck, if it is: it has run for 5 seconds and for ten times the median of its
        /// route (of half of its time limit where no median is known), or it was told to end a
        /// second ago and has not.
        stuck: Option<&'static str>,
        /// Its messages.
        messages: Vec<RunningMessage>,
    }

    /// A message of an attempt under way.
    pub(crate) struct RunningMessage {
        /// Its id.
        id: String,
        /// How often it was received.
        receive_count: Count,
        /// Which attempt at it this is: as max-attempts counts them.
        attempt: Count,
        /// How long its lease lasts unless it is extended, in seconds; nothing once it is lost.
        lease_left_s: Option<f64>,
        /// It was cancelled, or its lease was lost: what the handler answers does not count.
        cancelled: bool,
        /// What it says, where `admin-bodies` permits it and one attempt is asked for.
        content: Option<ContentView>,
    }

    /// The content of a message, without what the recording rules of its plugin redact.
    pub(crate) struct ContentView {
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
    pub(crate) struct AttributeView {
        /// Its name.
        name: String,
        /// Its value, as text or in base64.
        value: String,
        /// Whether it is base64 of a binary value.
        binary: bool,
    }

    /// How a delivery ended, or several together.
    pub(crate) struct OutcomeView {
        /// Grows from end to end.
        sequence: Count,
        /// When it was.
        at: String,
        /// The queue.
        queue: String,
        /// How it ended: the values of the metric label `event`.
        event: &'static str,
        /// Why: the values of the metric label `reason`.
        reason_kind: Option<&'static str>,
        /// Why, in words.
        reason: Option<String>,
        /// How many messages.
        messages: Count,
        /// The ids of the first ten of them.
        ids: Vec<String>,
        /// How often the message was received, where it is one.
        receive_count: Option<Count>,
        /// Which attempt at the message failed, where it is one.
        attempt: Option<Count>,
        /// How long the last attempt took, in seconds, if one was made.
        took_s: Option<f64>,
        /// The dead-letter queue that it went to.
        to: Option<String>,
    }

    /// How often deliveries of all queues ended so since the start of the process.
    pub(crate) struct OutcomeCount {
        /// How they ended.
        event: &'static str,
        /// Why; empty where the event has no reason.
        reason_kind: &'static str,
        /// How many messages.
        messages: Count,
    }

    /// The versions of a route's plugin.
    pub(crate) struct PluginView {
        /// The route.
        route: String,
        /// The plugin with its versions, instances, canary and shadow, as `GET /plugins` has it.
        plugin: Value,
    }

    /// A message that waits for its time.
    pub(crate) struct ScheduleView {
        /// Its id, as `dispatcher schedule cancel` takes it.
        id: String,
        /// The queue that it goes to.
        queue: String,
        /// When it is due.
        due: String,
        /// When it comes again, if it does.
        every: Option<String>,
    }

    /// What was done to a scheduled message.
    pub(crate) struct ScheduleResult {
        /// Its id.
        schedule: String,
        /// The queue that it goes to.
        queue: String,
    }

    /// A process that receives from one of the queues' servers.
    pub(crate) struct WorkerView {
        /// Its process and machine.
        id: String,
        /// The backend that knows it; nothing for this process where no backend lists it.
        backend: Option<String>,
        /// Its queues.
        queues: Vec<WorkerQueue>,
    }

    /// What a process has of a queue.
    pub(crate) struct WorkerQueue {
        /// The queue.
        queue: String,
        /// Its messages in flight there.
        in_flight: Count,
    }

    /// Something that `dispatcher doctor` finds.
    pub(crate) struct FindingView {
        /// `ok`, `warn` or `bad`.
        level: &'static str,
        /// What it is about.
        about: String,
        /// What was found.
        message: String,
    }

    /// What a change of a pause or of limits came to.
    pub(crate) struct ControlResult {
        /// The queue or route.
        target: String,
        /// Who obeys: `all-processes` that read the queue, or `this-process`.
        affects: &'static str,
        /// This process.
        process: String,
        /// How long it holds: until it is `changed`, whichever processes end meanwhile, or until
        /// `process-ends`.
        until: &'static str,
        /// Within how many seconds all of them obey.
        within_s: Count,
        /// Whether it is paused now.
        paused: bool,
        /// The queues whose limits are other than before in this process.
        queues: Vec<String>,
    }

    /// What was cancelled.
    pub(crate) struct CancelResult {
        /// Messages that waited in their queue, and were removed.
        waiting: Count,
        /// Messages in attempts, which were stopped; they are deleted once these have ended.
        running: Count,
    }
}

/// A queue that holds messages and that nobody is known to receive from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadQueue {
    /// As a configuration would name it.
    pub queue: String,
    /// Messages that could be received.
    pub waiting: u64,
    /// Whether its backend lists the receivers of all processes; otherwise only those here are known.
    pub knows_all_receivers: bool,
}

/// What a look for such queues has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnreadLook {
    /// Those with most messages, the most first.
    pub queues: Vec<UnreadQueue>,
    /// Why not all queues were looked at, where that is so.
    pub incomplete: Option<String>,
}

/// A queue and its route, by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueAndRoute {
    /// As the configuration names it.
    pub queue: String,
    /// Empty where there are no routes.
    pub route: String,
}

/// One page of a list, and where the next begins.
pub(crate) type Listed<T> = (Vec<T>, Option<String>);

/// What was asked about queues beyond what this process knows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AskedDepths {
    /// How many calls were made for this answer.
    pub calls: usize,
}

impl DepthView {
    /// What a queue answered so many seconds ago.
    pub(crate) fn of(answer: Result<&Depth, String>, asked_s_ago: f64) -> Self {
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

/// Which part of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// At most so many.
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<String>,
}

/// The running program. All calls may run at once; those that are not `async` answer from memory.
#[async_trait::async_trait]
pub(crate) trait Operations: Send + Sync + 'static {
    /// This process.
    fn process(&self) -> ProcessView;

    /// The messages of its queues.
    fn messages(&self) -> &dyn MessageOperations;

    /// The routes.
    fn routes(&self, page: &Page) -> Result<Listed<RouteView>, CallProblem>;

    /// The queues of all routes, in the routes' order.
    async fn queues(&self, page: &Page) -> Result<Listed<QueueView>, CallProblem>;

    /// The names of all its queues and of their routes, in the order of `queues`.
    async fn queue_names(&self) -> Result<Vec<QueueAndRoute>, CallProblem>;

    /// Those of these queues that there are.
    async fn queues_named(&self, names: &[String]) -> Vec<QueueView> {
        let mut views = Vec::with_capacity(names.len());
        for name in names {
            views.extend(self.queue(name).await);
        }
        views
    }

    /// The first of its queues that are paused, by themselves or with their route, and how many are.
    fn paused(&self, _most: usize) -> (Vec<QueueView>, usize) {
        (Vec::new(), 0)
    }

    /// One queue.
    async fn queue(&self, queue: &str) -> Option<QueueView>;

    /// Adds how much the queues and their dead-letter queues hold. Asks what was not asked in the last
    /// seconds.
    async fn add_depths(&self, queues: &mut [QueueView]) -> AskedDepths;

    /// Messages of a queue that this process has released for a later attempt, which is not due yet, and
    /// that the queue counts as in flight.
    fn released(&self, _queue: &str) -> u64 {
        0
    }

    /// Queues beside its own that hold messages which nobody is known to receive, as far as backends list
    /// queues for nothing.
    async fn unread(&self) -> UnreadLook {
        UnreadLook::default()
    }

    /// The attempts under way, those of each route with the oldest first: of one queue, or of all.
    fn running(&self, queue: Option<&str>, page: &Page)
    -> Result<Listed<RunningView>, CallProblem>;

    /// One attempt, with the content of its messages where that may be shown.
    fn attempt(&self, id: &str) -> Option<RunningView>;

    /// The first scheduled messages for a queue.
    async fn schedules(&self, queue: &str, limit: usize) -> Result<Vec<ScheduleView>, CallProblem>;

    /// Makes a scheduled message due at once.
    async fn run_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem>;

    /// Cancels a scheduled message.
    async fn cancel_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem>;

    /// The processes that receive from the servers of this process's queues.
    async fn workers(&self, limit: usize) -> Result<Vec<WorkerView>, CallProblem>;

    /// What `dispatcher doctor` finds, and how many seconds ago it looked.
    async fn findings(&self) -> Result<(Vec<FindingView>, f64), CallProblem>;

    /// Pauses a queue, or changes its limits.
    async fn change_queue(
        &self,
        queue: &str,
        change: &ControlChange,
    ) -> Result<ControlResult, CallProblem>;

    /// Pauses a route, or changes its limits, in this process.
    fn change_route(
        &self,
        route: &str,
        change: &dyn Fn(RouteControl) -> RouteControl,
    ) -> Result<ControlResult, CallProblem>;

    /// Stops an attempt; its messages are deleted.
    fn cancel_attempt(&self, id: &str) -> Result<CancelResult, CallProblem>;

    /// Cancels a message by its id: here where it runs here, and by its queue where that can.
    async fn cancel_message(&self, queue: &str, id: &str) -> Result<CancelResult, CallProblem>;

    /// Begins the stop, as SIGTERM does. False if it had begun.
    fn drain(&self) -> bool;
}

impl Page {
    /// The page of a list that does not change, of `all` items by their places.
    ///
    /// # Errors
    /// No page gave the cursor.
    pub(crate) fn of<T>(
        &self,
        all: usize,
        item: impl Fn(usize) -> Option<T>,
    ) -> Result<Listed<T>, CallProblem> {
        let first: usize = match &self.after {
            None => 0,
            Some(cursor) => cursor.parse().map_err(|_| self.bad_cursor())?,
        };
        let end = all.min(first.saturating_add(self.limit));
        let items = (first..end).filter_map(item).collect();
        Ok((items, (end < all).then(|| end.to_string())))
    }

    /// No page gave the cursor.
    pub(crate) fn bad_cursor(&self) -> CallProblem {
        CallProblem {
            status: axum::http::StatusCode::BAD_REQUEST,
            ..CallProblem::fields(vec![FieldProblem::new(
                "cursor",
                "no page gave it",
                "the `next` of the page before",
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
