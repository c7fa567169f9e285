//! Reads all meters once a second, asks for depths only while somebody looks, and renders each view
//! that is followed once for all who follow it.

use super::format;
use super::history::{History, LastMinute, Point, Reading, Span, Tally};
use super::looks::{
    AskedQueue, BILLED_DEPTHS_EVERY, DEPTHS_EVERY, DepthBill, DepthCost, DepthPurpose, Frame,
    Looks, SeenView, View, ViewParts,
};
use crate::admin::messages::Backlog;
use crate::admin::operations::{DepthView, Operations, Page, QueueAndRoute, QueueView, UnreadLook};
use crate::config::prices::Prices;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::histogram::Samples;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How often meters are read.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// How many queues have a separate history: the first. All together have one in any case.
pub(super) const HISTORIES: usize = 50;
/// How often it is asked which queues nobody receives from, while somebody looks at the overview.
const UNREAD_EVERY: Duration = Duration::from_secs(30);
/// How old a depth may be that is shown.
const STALE: Duration = Duration::from_secs(40);
/// How many queues a page shows.
pub(super) const QUEUES_SHOWN: usize = 100;
/// How many queues are asked for their depth in a second; the others follow, those that were asked
/// longest ago first.
const ASKED_TOGETHER: usize = 200;

/// What the dashboard knows of the past, and who looks at it.
pub(super) struct Sampler {
    meters: Arc<Meters>,
    /// What a call for each of their queues costs, in nanodollars.
    prices: Vec<u64>,
    all_prices: Prices,
    past: Mutex<Past>,
    looks: Mutex<Looks>,
    depths: Mutex<Depths>,
    unread: Mutex<UnreadQueues>,
    names: Mutex<NameList>,
    /// Somebody looks at something new.
    looked: Notify,
    /// Depths have come.
    came: watch::Sender<()>,
}

struct Past {
    all: History,
    queues: HashMap<Arc<str>, History>,
}

#[derive(Default)]
struct Depths {
    by_queue: HashMap<String, KnownDepth>,
    /// Of queues whose messages somebody looks at.
    backlogs: HashMap<String, KnownBacklog>,
    bill: DepthBill,
}

/// How much a queue held whose messages somebody looks at, as it was asked last.
#[derive(Debug, Clone, Copy)]
struct KnownBacklog {
    at: BootInstant,
    backlog: Option<Backlog>,
}

/// All queues, as they were listed last: once a second, however many filters choose of them.
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

/// All queues, or why they cannot be listed.
type ListedNames = Result<Arc<[ListedName]>, String>;

/// The queues of a page.
#[derive(Default)]
pub(super) struct QueuePage {
    pub queues: Vec<QueueView>,
    /// Where the next page begins.
    pub next: Option<usize>,
    /// How many queues there are on all pages together, without a filter.
    pub all: usize,
    /// Why they cannot be listed.
    pub trouble: Option<String>,
}

/// A queue.
struct ListedName {
    queue: String,
    route: String,
    /// Both in lower case, in lines.
    lower: String,
}

/// The queues that nobody receives from, as it was asked last.
#[derive(Default)]
struct UnreadQueues {
    asked: Option<BootInstant>,
    found: UnreadLook,
}

/// How much a queue and its dead-letter queue held, as it was asked last.
#[derive(Debug, Clone)]
pub(super) struct KnownDepth {
    pub at: BootInstant,
    pub depth: Option<DepthView>,
    pub dead_letters: Option<DepthView>,
}

impl Sampler {
    pub(super) fn new(meters: &Arc<Meters>, all_prices: &Prices) -> Self {
        let now = clock::now();
        let prices = meters.iter();
        let prices: Vec<u64> = prices
            .map(|(name, _)| nanodollars(all_prices, name))
            .collect();
        let queues = meters.iter().zip(&prices).take(HISTORIES);
        let queues = queues.map(|((name, meter), price)| {
            let reading = Reading {
                tally: Tally::of(meter, *price),
                ..Reading::default()
            };
            (name.clone(), History::new(now, reading))
        });
        let past = Past {
            queues: queues.collect(),
            all: History::new(now, read_all(meters, &prices, None)),
        };
        Self {
            prices,
            all_prices: all_prices.clone(),
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

    /// Takes a reading of all meters.
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
        let all = read_all(&self.meters, &self.prices, Some(past.all.last()));
        // A sum of some would follow what somebody looks at.
        let known = self.meters.iter().map(|(name, _)| waiting.get(&**name));
        let known = known.collect::<Option<Vec<&u64>>>();
        let known = known.filter(|known| !known.is_empty());
        past.all.record(
            now,
            Reading {
                waiting: known.map(|known| known.into_iter().sum()),
                ..all
            },
        );
        for ((name, meter), price) in self.meters.iter().zip(&self.prices).take(HISTORIES) {
            let Some(history) = past.queues.get_mut(name) else {
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

    /// The views that somebody follows.
    pub(super) fn followed(&self) -> Vec<SeenView> {
        self.looks().followed()
    }

    /// Sends what a view shows now to all who follow it.
    pub(super) fn publish(&self, view: &SeenView, parts: ViewParts) {
        let point = view.view.charted().and_then(|queue| self.newest(queue));
        let frame = Frame {
            parts: parts.single.into(),
            list: parts.list.map(Arc::new),
            point: point.map(Into::into),
        };
        self.looks().publish(view, frame);
    }

    /// Returns when somebody looks at something new, and after a second.
    pub(super) async fn looked(&self) {
        tokio::select! {
            () = self.looked.notified() => {}
            () = clock::sleep_until(Some(clock::now() + EVERY)) => {}
        }
    }

    /// Asks for the depths that somebody looks at and that are due: once each, however many look.
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
        let names: BTreeSet<&str> = names.collect();
        let names = names.into_iter().map(|name| (DepthPurpose::List, name));
        let of_letters = backlogs
            .iter()
            .map(|(queue, _)| (DepthPurpose::Messages, &**queue));
        let billed = names
            .chain(of_letters)
            .filter_map(|(purpose, name)| Some(((purpose, name.to_owned()), self.price(name)?)));
        let billed: Vec<(AskedQueue, f64)> = billed.collect();
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

    /// Asks which queues nobody receives from, where somebody looks at the overview and it is due.
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

    /// The queues that nobody receives from, as far as that was asked lately.
    pub(super) fn unread(&self) -> UnreadLook {
        self.unread_queues().found.clone()
    }

    fn unread_queues(&self) -> MutexGuard<'_, UnreadQueues> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queues whose depth is due, each once.
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

    /// The queues whose messages somebody looks at and that are due.
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

    /// Whether a queue that was asked then is asked again.
    fn is_due(&self, queue: &str, asked: BootInstant, now: BootInstant) -> bool {
        let every = match self.price(queue) {
            Some(_) => BILLED_DEPTHS_EVERY,
            None => DEPTHS_EVERY,
        };
        now.since(asked) >= every
    }

    /// How much a queue holds whose messages somebody looks at, if that is known.
    pub(super) fn backlog(&self, queue: &str) -> Option<Backlog> {
        self.depths().backlogs.get(queue)?.backlog
    }

    /// The queues that a view shows.
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

    /// The queues of a page of the overview.
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

    /// The queues of a route.
    pub(super) async fn queues_of_route(
        &self,
        operations: &dyn Operations,
        route: &str,
    ) -> Vec<String> {
        let names = self.names(operations).await.unwrap_or_default();
        let of_route = names.iter().filter(|one| one.route == route);
        of_route.map(|one| one.queue.clone()).collect()
    }

    /// All queues, as they were a second ago or less.
    async fn names(&self, operations: &dyn Operations) -> ListedNames {
        let now = clock::now();
        {
            let list = self.name_list();
            if list.at.is_some_and(|at| now.since(at) < EVERY) {
                return list.names.clone();
            }
        }
        let listed = |one: QueueAndRoute| ListedName {
            lower: format!("{}\n{}", one.queue, one.route).to_lowercase(),
            queue: one.queue,
            route: one.route,
        };
        let names = operations.queue_names().await;
        let names: ListedNames = names
            .map(|names| names.into_iter().map(listed).collect())
            .map_err(|problem| problem.detail);
        *self.name_list() = NameList {
            at: Some(now),
            names: names.clone(),
        };
        names
    }

    fn name_list(&self) -> MutexGuard<'_, NameList> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody asks for a page of a view: waits for depths that nobody looked at before, for some
    /// time.
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

    /// Follows a view; nothing if too many are followed.
    pub(super) fn follow(&self, view: &SeenView) -> Option<watch::Receiver<Frame>> {
        let followed = self.looks().follow(view, clock::now());
        self.looked.notify_one();
        followed
    }

    /// What a million calls for a queue cost in US dollars, where they are billed.
    pub(super) fn price(&self, queue: &str) -> Option<f64> {
        self.all_prices.dollars_per_million_calls(queue)
    }

    /// Whether calls for any of the queues are billed.
    pub(super) fn is_billed(&self) -> bool {
        self.prices.iter().any(|price| *price > 0)
    }

    /// How much a queue holds, if that was asked for lately.
    pub(super) fn depth(&self, queue: &str) -> Option<KnownDepth> {
        self.depths().by_queue.get(queue).cloned()
    }

    /// What asking has cost.
    pub(super) fn cost(&self) -> DepthCost {
        self.depths().bill.cost(clock::now())
    }

    /// What came in the last minute, of all queues together.
    pub(super) fn last_minute(&self) -> Option<LastMinute> {
        self.past().all.last_minute(clock::now())
    }

    /// The points of a span, each with how many seconds ago it ended. Nothing for a queue without a
    /// history.
    pub(super) fn points(&self, queue: Option<&str>, span: Span) -> Option<Vec<(u64, Point)>> {
        let past = self.past();
        Some(past.of(queue)?.points(clock::now(), span))
    }

    /// The newest point as JSON.
    fn newest(&self, queue: Option<&str>) -> Option<String> {
        let past = self.past();
        let point = *past.of(queue)?.newest()?;
        let at = clock::wall_clock_now().0 / 1_000;
        Some(serde_json::json!(columns(&[(at, point)])).to_string())
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn depths(&self) -> MutexGuard<'_, Depths> {
        self.depths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Past {
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
    /// Whether no attempt ended in between: then their durations are the same.
    fn same_attempts(self, other: Self) -> bool {
        (self.done, self.failed, self.received) == (other.done, other.failed, other.received)
    }
}

/// A reading of all queues together. Durations are added up only if an attempt has ended.
fn read_all(meters: &Meters, prices: &[u64], last: Option<&Reading>) -> Reading {
    let mut tally = Tally::default();
    for ((_, meter), price) in meters.iter().zip(prices) {
        tally = tally.plus(Tally::of(meter, *price));
    }
    let durations = match last {
        Some(last) if last.tally.same_attempts(tally) => last.durations.clone(),
        _ => {
            let mut sum = Samples::default();
            meters
                .iter()
                .for_each(|(_, meter)| meter.add_durations(&mut sum));
            sum
        }
    };
    Reading {
        tally,
        durations,
        waiting: None,
    }
}

/// Those of all queues that a page shows, and where the next page begins.
fn chosen(names: &[ListedName], filter: &str, after: usize) -> (Vec<String>, Option<usize>) {
    let filter = filter.to_lowercase();
    let mut matching = names
        .iter()
        .filter(|one| one.lower.contains(&filter))
        .skip(after);
    let page = matching.by_ref().take(QUEUES_SHOWN);
    let page: Vec<String> = page.map(|one| one.queue.clone()).collect();
    let next = matching.next().map(|_| after.saturating_add(QUEUES_SHOWN));
    (page, next)
}

/// What a call for a queue costs.
fn nanodollars(prices: &Prices, queue: &str) -> u64 {
    let price = prices.dollars_per_million_calls(queue);
    price.map_or(0, |dollars| format::rounded(dollars * 1_000.0))
}

/// Points as charts take them: a list of times and one for each line.
pub(super) fn columns(points: &[(u64, Point)]) -> [Vec<Option<f64>>; 7] {
    // More digits than a chart shows would only make the answer longer; whole numbers keep theirs.
    let short = |value: f64| (value * 1e6).round() / 1e6;
    let whole = |value: f64| value;
    let column = |value: fn(&Point) -> Option<f64>, digits: fn(f64) -> f64| {
        let values = points.iter().map(|(_, point)| value(point).map(digits));
        values.collect::<Vec<_>>()
    };
    [
        points.iter().map(|(at, _)| Some(*at as f64)).collect(),
        column(|point| Some(point.done.into()), short),
        column(|point| Some(point.failed.into()), short),
        column(|point| Some(point.received.into()), short),
        column(Point::median_s, short),
        column(Point::p99_s, short),
        column(Point::waiting, whole),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<ListedName> {
        let one = |number: usize| ListedName {
            queue: format!("local:Q{number}"),
            route: "orders".to_owned(),
            lower: format!("local:q{number}\norders"),
        };
        (0..count).map(one).collect()
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
        let backlog = |second: u64, known: &[(&str, u64)]| {
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
            sampler.past().all.newest().and_then(Point::waiting)
        };
        assert_eq!(backlog(1, &[]), None);
        assert_eq!(backlog(2, &[("a", 3)]), None, "b is not known");
        assert_eq!(backlog(3, &[("b", 4)]), Some(7.0));
        assert_eq!(backlog(60, &[("a", 3)]), None, "b is not known any more");
    }
}
