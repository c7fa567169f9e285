//! The sampler: reads all meters once a second, requests depths only while a page is open, and
//! publishes each followed view once for all its followers.

use super::format;
use super::history::{History, LastMinute, Point, Reading, Span, Tally};
use super::looks::{
    AskedQueue, BILLED_DEPTHS_EVERY, DEPTHS_EVERY, DepthBill, DepthCost, DepthPurpose, Frame,
    Looks, SeenView, View, ViewParts,
};
use dispatcher_config::prices::Prices;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::metrics::histogram::Samples;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_core::telemetry::metrics::{Meters, NamedMeter};
use dispatcher_operate::messages::Backlog;
use dispatcher_operate::operations::{
    DepthView, Operations, Page, QueueAndRoute, QueueView, UnreadLook,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The interval between readings of the meters.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// The maximum number of queues with a separate history: the first ones. There is always one for
/// all queues together.
pub(super) const HISTORIES: usize = 50;
/// The interval between searches for queues without a receiver while the overview is open.
const UNREAD_EVERY: Duration = Duration::from_secs(30);
/// The maximum age of a depth that is shown.
const STALE: Duration = Duration::from_secs(40);
/// The maximum number of queues on a page.
pub(super) const QUEUES_SHOWN: usize = 100;
/// The maximum number of queues whose depth is requested per second. The others follow, beginning
/// with the one that was asked longest ago.
const ASKED_TOGETHER: usize = 200;

/// The history of the meters, and the views that are looked at.
pub(super) struct Sampler {
    meters: Arc<Meters>,
    prices: Prices,
    past: Mutex<Past>,
    looks: Mutex<Looks>,
    depths: Mutex<Depths>,
    unread: Mutex<UnreadQueues>,
    names: Mutex<NameList>,
    /// Notified when a new view is looked at.
    looked: Notify,
    /// Signals that depths have arrived.
    came: watch::Sender<()>,
}

struct Past {
    all: History,
    queues: HashMap<Arc<str>, History>,
    known: KnownMeters,
}

/// The meters that were there at the last reading.
#[derive(Default)]
struct KnownMeters {
    /// The changes of the list of meters until then.
    changes: Option<u64>,
    /// The meters, each with the price of a call in nanodollars.
    meters: Vec<(NamedMeter, u64)>,
    /// The counts and durations of queues that were removed.
    removed: (Tally, Samples),
}

#[derive(Default)]
struct Depths {
    by_queue: HashMap<String, KnownDepth>,
    /// The backlogs of queues whose messages are in view.
    backlogs: HashMap<String, KnownBacklog>,
    bill: DepthBill,
}

/// The last known backlog of a queue whose messages are in view.
#[derive(Debug, Clone, Copy)]
struct KnownBacklog {
    at: BootInstant,
    backlog: Option<Backlog>,
}

/// The last list of all queues. It is requested at most once a second, for all filters together.
struct NameList {
    at: Option<BootInstant>,
    names: ListedNames,
}

impl Default for NameList {
    fn default() -> Self {
        Self {
            at: None,
            names: Ok(Arc::default()),
        }
    }
}

/// All queues, or the reason why they cannot be listed.
type ListedNames = Result<Arc<[ListedName]>, String>;

/// The queues of a page.
#[derive(Default)]
pub(super) struct QueuePage {
    pub queues: Vec<QueueView>,
    /// The start of the next page.
    pub next: Option<usize>,
    /// The number of queues on all pages together, without a filter.
    pub all: usize,
    /// The reason why the queues cannot be listed.
    pub trouble: Option<String>,
}

/// A queue with its route.
struct ListedName {
    queue: String,
    route: String,
    /// Both names in lower case, on separate lines.
    lower: String,
}

/// The queues without a receiver, as last found.
#[derive(Default)]
struct UnreadQueues {
    asked: Option<BootInstant>,
    found: UnreadLook,
}

/// The last known depths of a queue and its dead-letter queue.
#[derive(Debug, Clone)]
pub(super) struct KnownDepth {
    pub at: BootInstant,
    pub depth: Option<DepthView>,
    pub dead_letters: Option<DepthView>,
}

impl Sampler {
    pub(super) fn new(meters: &Arc<Meters>, prices: &Prices) -> Self {
        let now = clock::now();
        let mut known = KnownMeters::default();
        known.refresh(meters, prices);
        let mut past = Past {
            queues: HashMap::new(),
            all: History::new(now, known.read_all(None)),
            known,
        };
        past.follow_queues(now);
        Self {
            prices: prices.clone(),
            meters: meters.clone(),
            past: Mutex::new(past),
            looks: Mutex::default(),
            depths: Mutex::default(),
            unread: Mutex::default(),
            names: Mutex::default(),
            looked: Notify::new(),
            came: watch::Sender::default(),
        }
    }

    /// Reads all meters.
    pub(super) fn sample(&self, now: BootInstant) {
        let waiting: HashMap<String, u64> = {
            let depths = self.depths();
            let fresh = depths
                .by_queue
                .iter()
                .filter(|(_, known)| known.is_fresh(now));
            let waiting = fresh
                .filter_map(|(name, known)| Some((name.clone(), known.depth.as_ref()?.waiting?.0)));
            waiting.collect()
        };
        let mut past = self.past();
        if past.known.refresh(&self.meters, &self.prices) {
            past.follow_queues(now);
        }
        let Past {
            all: of_all,
            queues,
            known,
        } = &mut *past;
        let all = known.read_all(Some(of_all.last()));
        // The sum of only some queues would change with what users look at.
        let every = known
            .meters
            .iter()
            .map(|((name, _), _)| waiting.get(&**name))
            .collect::<Option<Vec<&u64>>>()
            .filter(|every| !every.is_empty());
        of_all.record(
            now,
            Reading {
                waiting: every.map(|every| every.into_iter().sum()),
                ..all
            },
        );
        for ((name, meter), price) in &known.meters {
            let Some(history) = queues.get_mut(name) else {
                continue;
            };
            let tally = Tally::of(meter, *price);
            let durations = if tally.same_attempts(history.last().tally) {
                history.last().durations.clone()
            } else {
                let mut sum = Samples::default();
                meter.add_durations(&mut sum);
                sum
            };
            history.record(
                now,
                Reading {
                    tally,
                    durations,
                    waiting: waiting.get(&**name).copied(),
                },
            );
        }
    }

    /// Returns the views that are followed now.
    pub(super) fn followed(&self) -> Vec<SeenView> {
        self.looks().followed()
    }

    /// Sends the current content of a view to all its followers.
    pub(super) fn publish(&self, view: &SeenView, parts: ViewParts) {
        let point = view.view.charted().and_then(|queue| self.newest(queue));
        let frame = Frame {
            parts: parts.single.into(),
            list: parts.list.map(Arc::new),
            point: point.map(Into::into),
        };
        self.looks().publish(view, frame);
    }

    /// Waits until a new view is looked at, at most a second.
    pub(super) async fn looked(&self) {
        tokio::select! {
            () = self.looked.notified() => {}
            () = clock::sleep_until(Some(clock::now() + EVERY)) => {}
        }
    }

    /// Requests the depths that are in view and due, each once for all viewers.
    pub(super) async fn ask(&self, operations: &dyn Operations, now: BootInstant) {
        self.ask_unread(operations, now).await;
        let names = self.wanted(operations, now).await;
        let mut views = operations.queues_named(&names).await;
        let letters = self.wanted_backlogs(now);
        if views.is_empty() && letters.is_empty() {
            return;
        }
        let mut calls = letters.len();
        if !views.is_empty() {
            calls += operations.add_depths(&mut views).await.calls;
        }
        let mut backlogs = Vec::with_capacity(letters.len());
        for queue in letters {
            let backlog = operations.messages().backlog(&queue).await.ok();
            backlogs.push((queue, KnownBacklog { at: now, backlog }));
        }
        let names = views.iter().flat_map(|view| {
            let dead = view.dead_letter_queue.as_deref();
            std::iter::once(&*view.queue).chain(dead)
        });
        // Queues may share a dead-letter queue, which is asked once.
        let listed: BTreeSet<&str> = names.collect();
        let of_list = listed.into_iter().map(|name| (DepthPurpose::List, name));
        let of_letters = backlogs
            .iter()
            .map(|(queue, _)| (DepthPurpose::Messages, &**queue));
        let billed: Vec<(AskedQueue, f64)> = of_list
            .chain(of_letters)
            .filter_map(|(purpose, name)| Some(((purpose, name.to_owned()), self.price(name)?)))
            .collect();
        let mut depths = self.depths();
        depths.bill.add(calls, billed, now);
        depths.backlogs.extend(backlogs);
        for view in views {
            depths.by_queue.insert(
                view.queue,
                KnownDepth {
                    at: now,
                    depth: view.depth,
                    dead_letters: view.dead_letter_depth,
                },
            );
        }
        drop(depths);
        self.came.send_replace(());
    }

    /// Searches for queues without a receiver, if the overview is in view and the search is due.
    async fn ask_unread(&self, operations: &dyn Operations, now: BootInstant) {
        let views = self.looks().views(now);
        let is_seen = views
            .iter()
            .any(|seen| matches!(seen.view, View::Overview { .. }));
        let asked = self.unread_queues().asked;
        if is_seen && asked.is_none_or(|asked| now.since(asked) >= UNREAD_EVERY) {
            let found = operations.unread().await;
            *self.unread_queues() = UnreadQueues {
                asked: Some(now),
                found,
            };
        }
    }

    /// Returns the queues without a receiver, as last found.
    pub(super) fn unread(&self) -> UnreadLook {
        self.unread_queues().found.clone()
    }

    fn unread_queues(&self) -> MutexGuard<'_, UnreadQueues> {
        self.unread.lock()
    }

    /// Returns the queues whose depth is due, each once.
    async fn wanted(&self, operations: &dyn Operations, now: BootInstant) -> Vec<String> {
        let views = self.looks().views(now);
        let mut names: Vec<String> = Vec::new();
        for seen in &views {
            names.extend(self.queues_of(operations, &seen.view).await);
        }
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        let mut depths = self.depths();
        depths.by_queue.retain(|_, known| known.is_fresh(now));
        names.retain(|name| {
            let known = depths.by_queue.get(name);
            known.is_none_or(|known| self.is_due(name, known.at, now))
        });
        names.sort_by_key(|name| depths.by_queue.get(name).map(|known| known.at));
        names.truncate(ASKED_TOGETHER);
        names
    }

    /// Returns the queues whose messages are in view and whose backlog is due.
    fn wanted_backlogs(&self, now: BootInstant) -> Vec<String> {
        let views = self.looks().views(now);
        let queues: BTreeSet<String> = views
            .into_iter()
            .filter_map(|seen| match seen.view {
                View::Letters(queue) => Some(queue),
                _ => None,
            })
            .collect();
        let mut depths = self.depths();
        let backlogs = &mut depths.backlogs;
        backlogs.retain(|_, known| now.since(known.at) < STALE);
        let due = queues.into_iter().filter(|queue| {
            let known = backlogs.get(queue);
            known.is_none_or(|known| self.is_due(queue, known.at, now))
        });
        due.collect()
    }

    /// Returns whether a queue that was last asked at `asked` must be asked again.
    fn is_due(&self, queue: &str, asked: BootInstant, now: BootInstant) -> bool {
        let every = match self.price(queue) {
            Some(_) => BILLED_DEPTHS_EVERY,
            None => DEPTHS_EVERY,
        };
        now.since(asked) >= every
    }

    /// Returns the backlog of a queue whose messages are in view, if it is known.
    pub(super) fn backlog(&self, queue: &str) -> Option<Backlog> {
        self.depths().backlogs.get(queue)?.backlog
    }

    /// Returns the queues that a view shows.
    async fn queues_of(&self, operations: &dyn Operations, view: &View) -> Vec<String> {
        match view {
            View::Overview { filter, after } | View::DeadLetters { filter, after } => {
                let names = self.names(operations).await.unwrap_or_default();
                chosen(&names, filter, *after).0
            }
            View::Queue(queue) => vec![queue.clone()],
            _ => Vec::new(),
        }
    }

    /// Returns the queues of a page of the overview.
    pub(super) async fn shown(
        &self,
        operations: &dyn Operations,
        filter: &str,
        after: usize,
    ) -> QueuePage {
        let names = match self.names(operations).await {
            Ok(names) => names,
            Err(trouble) => {
                return QueuePage {
                    trouble: Some(trouble),
                    ..QueuePage::default()
                };
            }
        };
        let shown = QueuePage {
            all: names.len(),
            ..QueuePage::default()
        };
        if !filter.is_empty() {
            let (chosen, next) = chosen(&names, filter, after);
            let queues = operations.queues_named(&chosen).await;
            return QueuePage {
                queues,
                next,
                ..shown
            };
        }
        let page = Page {
            limit: QUEUES_SHOWN,
            after: (after > 0).then(|| after.to_string()),
        };
        match operations.queues(&page).await {
            Ok((queues, next)) => QueuePage {
                queues,
                next: next.and_then(|next| next.parse().ok()),
                ..shown
            },
            Err(problem) => QueuePage {
                trouble: Some(problem.detail),
                ..shown
            },
        }
    }

    /// Returns the queues of a route.
    pub(super) async fn queues_of_route(
        &self,
        operations: &dyn Operations,
        route: &str,
    ) -> Vec<String> {
        let names = self.names(operations).await.unwrap_or_default();
        let of_route = names.iter().filter(|one| one.route == route);
        of_route.map(|one| one.queue.clone()).collect()
    }

    /// Returns all queues, from a list that is at most a second old.
    async fn names(&self, operations: &dyn Operations) -> ListedNames {
        let now = clock::now();
        {
            let list = self.name_list();
            if list.at.is_some_and(|at| now.since(at) < EVERY) {
                return list.names.clone();
            }
        }
        let names: ListedNames = operations
            .queue_names()
            .await
            .map(|names| {
                names
                    .into_iter()
                    .map(|one: QueueAndRoute| ListedName {
                        lower: format!("{}\n{}", one.queue, one.route).to_lowercase(),
                        queue: one.queue,
                        route: one.route,
                    })
                    .collect()
            })
            .map_err(|problem| problem.detail);
        *self.name_list() = NameList {
            at: Some(now),
            names: names.clone(),
        };
        names
    }

    fn name_list(&self) -> MutexGuard<'_, NameList> {
        self.names.lock()
    }

    /// Records that a page of a view was requested. For a new view, waits up to `patience` for its
    /// depths.
    pub(super) async fn glance(&self, view: &SeenView, patience: Duration) {
        let mut came = self.came.subscribe();
        if !self.looks().glance(view, clock::now()) {
            return;
        }
        self.looked.notify_one();
        if view.view.has_depths() {
            tokio::select! {
                _ = came.changed() => {}
                () = clock::sleep_until(Some(clock::now() + patience)) => {}
            }
        }
    }

    /// Follows a view, or returns `None` if too many views are followed.
    pub(super) fn follow(&self, view: &SeenView) -> Option<watch::Receiver<Frame>> {
        let followed = self.looks().follow(view, clock::now());
        self.looked.notify_one();
        followed
    }

    /// Returns the price of a million calls for a queue in US dollars, if they are billed.
    pub(super) fn price(&self, queue: &str) -> Option<f64> {
        self.prices.dollars_per_million_calls(queue)
    }

    /// Returns whether calls for any of the queues are billed.
    pub(super) fn is_billed(&self) -> bool {
        let past = self.past();
        past.known.meters.iter().any(|(_, price)| *price > 0)
    }

    /// Returns the depth of a queue, if it was requested recently.
    pub(super) fn depth(&self, queue: &str) -> Option<KnownDepth> {
        self.depths().by_queue.get(queue).cloned()
    }

    /// Returns the cost of the requests for depths.
    pub(super) fn cost(&self) -> DepthCost {
        self.depths().bill.cost(clock::now())
    }

    /// Returns the numbers of all queues together in the last minute.
    pub(super) fn last_minute(&self) -> Option<LastMinute> {
        self.past().all.last_minute(clock::now())
    }

    /// Returns the points of a span, each with how many seconds ago it ended, or `None` for a queue
    /// without a history.
    pub(super) fn points(&self, queue: Option<&str>, span: Span) -> Option<Vec<(u64, Point)>> {
        let past = self.past();
        Some(past.of(queue)?.points(clock::now(), span))
    }

    /// Returns the newest point as JSON.
    fn newest(&self, queue: Option<&str>) -> Option<String> {
        let past = self.past();
        let point = *past.of(queue)?.newest()?;
        let at = clock::wall_clock_now().0 / 1_000;
        Some(serde_json::json!(columns(&[(at, point)])).to_string())
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock()
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock()
    }

    fn depths(&self) -> MutexGuard<'_, Depths> {
        self.depths.lock()
    }
}

impl Past {
    /// Keeps the histories of the first queues, and no others.
    fn follow_queues(&mut self, now: BootInstant) {
        let mut before = std::mem::take(&mut self.queues);
        for ((name, meter), price) in self.known.meters.iter().take(HISTORIES) {
            let history = before.remove(name).unwrap_or_else(|| {
                let reading = Reading {
                    tally: Tally::of(meter, *price),
                    ..Reading::default()
                };
                History::new(now, reading)
            });
            self.queues.insert(name.clone(), history);
        }
    }

    fn of(&self, queue: Option<&str>) -> Option<&History> {
        match queue {
            None => Some(&self.all),
            Some(queue) => self.queues.get(queue),
        }
    }
}

impl KnownDepth {
    fn is_fresh(&self, now: BootInstant) -> bool {
        now.since(self.at) < STALE
    }
}

impl Tally {
    /// Returns whether no attempt ended in between, so that the durations are unchanged.
    fn same_attempts(self, other: Self) -> bool {
        (self.done, self.failed, self.received) == (other.done, other.failed, other.received)
    }
}

impl KnownMeters {
    /// Notes the queues that were added or removed. Returns whether there are any.
    fn refresh(&mut self, meters: &Meters, prices: &Prices) -> bool {
        let changes = Some(meters.changes());
        if self.changes == changes {
            return false;
        }
        self.changes = changes;
        let all = meters.all().into_iter().map(|named| {
            let price = nanodollars(prices, &named.0);
            (named, price)
        });
        let before = std::mem::replace(&mut self.meters, all.collect());
        let stay: HashSet<*const Meter> = self
            .meters
            .iter()
            .map(|((_, meter), _)| Arc::as_ptr(meter))
            .collect();
        let (tally, durations) = &mut self.removed;
        for ((_, meter), price) in before {
            if !stay.contains(&Arc::as_ptr(&meter)) {
                *tally = tally.plus(Tally::of(&meter, price));
                meter.add_durations(durations);
            }
        }
        true
    }

    /// Reads all queues together, those that were removed included. Durations are only added up if
    /// an attempt has ended.
    fn read_all(&self, last: Option<&Reading>) -> Reading {
        let (mut tally, removed) = (self.removed.0, &self.removed.1);
        for ((_, meter), price) in &self.meters {
            tally = tally.plus(Tally::of(meter, *price));
        }
        let durations = match last {
            Some(last) if last.tally.same_attempts(tally) => last.durations.clone(),
            _ => {
                let mut sum = removed.clone();
                for ((_, meter), _) in &self.meters {
                    meter.add_durations(&mut sum);
                }
                sum
            }
        };
        Reading {
            tally,
            durations,
            waiting: None,
        }
    }
}

/// Returns the matching queues of a page, and the start of the next page.
fn chosen(names: &[ListedName], filter: &str, after: usize) -> (Vec<String>, Option<usize>) {
    let filter = filter.to_lowercase();
    let mut matching = names
        .iter()
        .filter(|one| one.lower.contains(&filter))
        .skip(after);
    let shown = matching.by_ref().take(QUEUES_SHOWN);
    let page: Vec<String> = shown.map(|one| one.queue.clone()).collect();
    let next = matching.next().map(|_| after.saturating_add(QUEUES_SHOWN));
    (page, next)
}

/// Returns the price of a call for a queue.
fn nanodollars(prices: &Prices, queue: &str) -> u64 {
    let price = prices.dollars_per_million_calls(queue);
    price.map_or(0, |dollars| format::rounded(dollars * 1_000.0))
}

/// Converts points for charts: a list of times, and one list for each line.
pub(super) fn columns(points: &[(u64, Point)]) -> [Vec<Option<f64>>; 7] {
    [
        points.iter().map(|(at, _)| Some(*at as f64)).collect(),
        column(points, |point| Some(short(point.done.into()))),
        column(points, |point| Some(short(point.failed.into()))),
        column(points, |point| Some(short(point.received.into()))),
        column(points, |point| point.median_s().map(short)),
        column(points, |point| point.p99_s().map(short)),
        // Whole numbers keep all digits.
        column(points, Point::waiting),
    ]
}

fn column(points: &[(u64, Point)], value: impl Fn(&Point) -> Option<f64>) -> Vec<Option<f64>> {
    points.iter().map(|(_, point)| value(point)).collect()
}

/// Rounds a value: digits beyond the precision of a chart would only make the answer longer.
fn short(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<ListedName> {
        (0..count)
            .map(|number| ListedName {
                queue: format!("local:Q{number}"),
                route: "orders".to_owned(),
                lower: format!("local:q{number}\norders"),
            })
            .collect()
    }

    #[test]
    fn a_filter_chooses_by_the_names_of_queues_and_routes_in_pages() {
        let all = names(250);
        let (first, next) = chosen(&all, "ORDERS", 0);
        assert_eq!((first.len(), next), (QUEUES_SHOWN, Some(QUEUES_SHOWN)));
        let (last, next) = chosen(&all, "orders", 200);
        assert_eq!((last.len(), next), (50, None));
        assert_eq!(
            chosen(&all, "q249", 0),
            (vec!["local:Q249".to_owned()], None)
        );
        assert_eq!(chosen(&all, "none", 0), (Vec::new(), None));
    }

    #[test]
    fn the_backlog_of_all_queues_is_known_only_where_that_of_each_is() {
        let meters = Arc::new(Meters::new(["a", "b"]));
        let sampler = Sampler::new(&meters, &Prices::default());
        let start = clock::now();
        for (second, known, backlog, why) in [
            (1, &[][..], None, "nothing is known"),
            (2, &[("a", 3_u64)], None, "b is not known"),
            (3, &[("b", 4_u64)], Some(7.0), "both are known"),
            (60, &[("a", 3)], None, "b is not known any more"),
        ] {
            let now = start + Duration::from_secs(second);
            for (queue, waiting) in known {
                let depth = DepthView {
                    waiting: Some((*waiting).into()),
                    in_flight: None,
                    delayed: None,
                    oldest_s: None,
                    asked_s_ago: 0.0,
                    error: None,
                };
                let known = KnownDepth {
                    at: now,
                    depth: Some(depth),
                    dead_letters: None,
                };
                sampler.depths().by_queue.insert((*queue).to_owned(), known);
            }
            sampler.sample(now);
            let found = sampler.past().all.newest().and_then(Point::waiting);
            assert_eq!(found, backlog, "{why}");
        }
    }

    #[test]
    fn what_removed_queues_did_stays_part_of_the_whole() {
        let meters = Arc::new(Meters::new(["a"]));
        let sampler = Sampler::new(&meters, &Prices::default());
        let start = clock::now();
        let b = meters.add("b");
        sampler.sample(start + EVERY);
        b.done.many(5);
        meters.remove("b");
        meters.add("c").done.many(2);
        sampler.sample(start + 2 * EVERY);
        sampler.sample(start + 3 * EVERY);
        let past = sampler.past();
        assert_eq!(past.all.last().tally.done, 7);
        let mut followed: Vec<&str> = past.queues.keys().map(|name| &**name).collect();
        followed.sort_unstable();
        assert_eq!(followed, ["a", "c"]);
    }
}
