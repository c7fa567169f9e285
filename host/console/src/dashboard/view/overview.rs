//! The overview: the work of all queues together, alerts, and a row for each queue.

use super::super::history::{LastMinute, Span};
use super::super::links::Links;
use super::super::looks::{DepthCost, ListPart, ViewParts};
use super::super::sampler::{KnownDepth, QueuePage};
use super::super::scene::Scene;
use super::letters::letters_link;
use super::{
    Visit, action, alert, chart, figure, filter_form, format, nothing, outcomes, pages,
    pause_or_resume, reading_only, table,
};
use dispatcher_operate::operations::{
    DepthView, ProcessView, QueueRates, QueueView, RecentWork, RouteView, UnreadLook,
};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The maximum number of paused queues, and of queues without a route, that alerts name.
const NAMED: usize = 5;
/// The number of last outcomes on the overview.
const OUTCOMES: usize = 8;

/// Renders the page.
pub(in super::super) async fn page(
    visit: &Visit,
    filter: &str,
    after: usize,
    span: Span,
) -> Markup {
    let scene = visit.scene();
    let sampler = visit.sampler();
    let shown = sampler.shown(scene.operations, filter, after).await;
    let routes = scene.routes();
    let links = visit.links();
    html! {
        h1.sr { "Overview" }
        (alerts(&scene))
        (figures(&scene, &shown, &routes))
        @if !routes.is_empty() { (chart::charts(visit, None, span)) }
        section aria-labelledby="queues-title" {
            div.heading {
                h2 #queues-title { "Queues " (queue_count(&shown)) }
                (filter_form(links, "/ui", filter))
            }
            (queue_list(links, &shown, &rows(&scene, &shown), (filter, after)))
            (cost(scene.dashboard.sampler.cost()))
        }
        @if routes.is_empty() {
            p.hint { "This process has no routes: it serves queues and handles no message." }
        } @else {
        section aria-labelledby="routes-title" {
            div.heading { h2 #routes-title { "Routes" } }
            (reading_only(visit))
            (route_table(&scene, &routes))
        }
        section aria-labelledby="recent-title" {
            div.heading { h2 #recent-title { "Recent failures" } }
            (recent(&scene))
        }
        }
    }
}

/// Renders the parts of the page that change.
pub(in super::super) async fn parts(scene: &Scene<'_>, filter: &str, after: usize) -> ViewParts {
    let sampler = &scene.dashboard.sampler;
    let shown = sampler.shown(scene.operations, filter, after).await;
    let routes = scene.routes();
    let single = [
        alerts(scene),
        figures(scene, &shown, &routes),
        queue_count(&shown),
        cost(sampler.cost()),
        recent(scene),
        route_table(scene, &routes),
    ];
    let mut shape: Vec<String> = shown.queues.iter().map(|one| one.queue.clone()).collect();
    shape.push(format!("{:?} {:?}", shown.next, shown.trouble));
    let rows = rows(scene, &shown);
    ViewParts {
        single: single.map(|part| part.into_string()).into(),
        list: Some(ListPart {
            shape,
            whole: queue_list(scene.links(), &shown, &rows, (filter, after)).into_string(),
            rows: rows.into_iter().map(|row| row.into_string()).collect(),
        }),
    }
}

fn rows(scene: &Scene<'_>, shown: &QueuePage) -> Vec<Markup> {
    shown.queues.iter().map(|queue| row(scene, queue)).collect()
}

fn queue_count(shown: &QueuePage) -> Markup {
    html! { span #queue-count.muted { (format::count(shown.all as u64)) } }
}

/// Renders the queues of the page and the links to other pages.
fn queue_list(
    links: &Links,
    shown: &QueuePage,
    rows: &[Markup],
    (filter, after): (&str, usize),
) -> Markup {
    html! {
        div #queue-list {
            @if shown.queues.is_empty() {
                (no_queues(shown, filter))
            } @else {
                (table("Queues", HEADS, &html! { @for row in rows { (row) } }))
            }
            (pages(links, "/ui", filter, after, shown.next))
        }
    }
}

/// Says why a page has no queues.
pub(super) fn no_queues(shown: &QueuePage, filter: &str) -> Markup {
    match &shown.trouble {
        Some(trouble) => html! {
            ul.alerts { (alert("bad", &html! { strong { "The queues cannot be listed now. " } (trouble) })) }
        },
        None if shown.all == 0 => {
            nothing("There are no queues yet. Those that are created appear here.")
        }
        None if filter.is_empty() => nothing("No queues are on this page any more."),
        None => nothing(&format!("No queue or route has “{filter}” in its name.")),
    }
}

fn recent(scene: &Scene<'_>) -> Markup {
    let found = scene.outcomes(None, OUTCOMES);
    html! { div #recent { (outcomes(scene.links(), &found, true)) } }
}

/// Renders the alerts, worst first.
fn alerts(scene: &Scene<'_>) -> Markup {
    let ProcessView {
        state, not_ready, ..
    } = scene.operations.process();
    // Includes queues that are not on this page.
    let (paused, all_paused) = scene.operations.paused(NAMED);
    let others = scene.dashboard.sampler.unread();
    html! {
        ul #alerts.alerts aria-label="Attention" {
            @if state == "draining" {
                (alert("warn", &html! { strong { "Draining." } " This process receives nothing more and ends when its attempts have." }))
            }
            @for one in &not_ready {
                (alert("bad", &html! { strong { (one.what) } ": " (one.reason) }))
            }
            @if let [one] = &paused[..] {
                (alert("warn", &unread_alert(scene, one)))
            } @else if !paused.is_empty() {
                (alert("warn", &html! {
                    strong { (format::count(all_paused as u64)) " queues are paused: this process does not receive from them. " }
                    @for queue in &paused {
                        a href=(scene.links().queue(&queue.queue)) { (queue.queue) } " "
                    }
                    @if all_paused > paused.len() { "…" }
                }))
            }
            (unread_alerts(&others))
        }
    }
}

/// Renders alerts about queues with messages that no route reads.
fn unread_alerts(look: &UnreadLook) -> Markup {
    html! {
        @for one in look.queues.iter().take(NAMED) {
            (alert("warn", &html! {
                @if one.knows_all_receivers {
                    strong { "No process receives from " (one.queue) ". " }
                    "No route reads it, and "
                } @else {
                    strong { "No route of this process reads " (one.queue) ". " }
                    "Whether another process receives from it is not known; "
                }
                (format::counted(one.waiting, "message waits.", "messages wait."))
            }))
        }
        @if let Some(why) = &look.incomplete {
            (alert("info", &html! { "Not all queues were checked for messages that no process receives: " (why) "." }))
        }
    }
}

/// Says which processes do not receive from a paused queue.
pub(super) fn unread_alert(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let by_route = queue.paused_by.as_deref() == Some("route");
    html! {
        strong {
            @if queue.shared && !by_route { "No process receives from " } @else { "This process does not receive from " }
            a href=(scene.links().queue(&queue.queue)) { (queue.queue) } "."
        }
        @if by_route {
            " Its route " (queue.route) " is paused."
        } @else if queue.shared {
            " It is paused for all processes that read it."
        } @else {
            " It is paused on this machine only; other machines may receive from it."
        }
        @if let Some(waiting) = scene.waiting(&queue.queue) {
            @if waiting > 0 { " " (format::counted(waiting, "message waits.", "messages wait.")) }
        }
    }
}

fn figures(scene: &Scene<'_>, shown: &QueuePage, routes: &[RouteView]) -> Markup {
    let sampler = &scene.dashboard.sampler;
    let minute = sampler.last_minute();
    let rates = minute.as_ref().map(LastMinute::rates);
    let work = scene.dashboard.recent();
    let totals = DepthTotals::of(shown.queues.iter().filter_map(|queue| {
        Some(ListedDepth {
            known: sampler.depth(&queue.queue)?,
            done: queue.per_second.as_ref().map(|rates| rates.done),
            dead_letter_queue: queue.dead_letter_queue.as_deref(),
        })
    }));
    let in_flight: u64 = routes.iter().map(|route| route.in_flight.0).sum();
    let (attempts, limit) = routes.iter().fold((0, 0), |(attempts, limit), route| {
        (
            attempts + route.attempts.0,
            limit + route.concurrency.value.map_or(0, |value| value.0),
        )
    });
    let all = shown.all;
    let partial = (totals.queues < all && totals.queues > 0).then(|| {
        format!(
            "of {} of {} queues",
            totals.queues,
            format::count(all as u64)
        )
    });
    let handles = !routes.is_empty();
    html! {
        dl #figures.figures.few[!handles] {
            @if handles {
                (rate_figure(rates.as_ref()))
                (time_figure(work.as_ref()))
            }
            (figure("Backlog", &format::count_or_dash(totals.waiting), &html! {
                @if let Some(partial) = &partial { (partial) }
                @else if totals.waiting == Some(1) { "message waits" }
                @else { "messages wait" }
            }))
            (figure("Oldest", &format::time_or_dash(totals.oldest_s), &html! { "not in flight" }))
            @if handles {
                (drain_figure(totals.waiting, totals.done))
                (figure("Running", &format::count(attempts), &html! {
                    "of " (format::count(limit)) " · " (format::count(in_flight)) " held"
                }))
            }
            (figure("Dead letters", &format::count_or_dash(totals.dead), &html! {
                @if let Some(partial) = &partial { (partial) } @else { "in all DLQs" }
            }))
            @if handles { (calls_figure(work.as_ref())) }
        }
    }
}

/// A queue whose depth is known.
struct ListedDepth<'a> {
    known: KnownDepth,
    /// The number of its messages that are done per second.
    done: Option<f64>,
    dead_letter_queue: Option<&'a str>,
}

/// The known depths of queues together.
#[derive(Debug, Default, PartialEq)]
struct DepthTotals {
    /// The number of queues whose depth is known.
    queues: usize,
    waiting: Option<u64>,
    oldest_s: Option<f64>,
    /// The number of messages of these queues that this process completes per second.
    done: Option<f64>,
    /// The number of dead letters; a shared dead-letter queue counts once.
    dead: Option<u64>,
}

impl DepthTotals {
    fn of<'a>(queues: impl Iterator<Item = ListedDepth<'a>>) -> Self {
        let mut all = Self::default();
        let mut dead_letters = BTreeMap::new();
        for one in queues {
            let dead = one.known.dead_letters.as_ref().and_then(backlog);
            if let (Some(name), Some(dead)) = (one.dead_letter_queue, dead) {
                dead_letters.insert(name, dead);
            }
            let Some(depth) = &one.known.depth else {
                continue;
            };
            let Some(waits) = backlog(depth) else {
                continue;
            };
            all = Self {
                queues: all.queues + 1,
                waiting: both(all.waiting, Some(waits), u64::saturating_add),
                oldest_s: both(all.oldest_s, depth.oldest_s, f64::max),
                done: both(all.done, one.done, |all, one| all + one),
                dead: None,
            };
        }
        all.dead = dead_letters.into_values().reduce(u64::saturating_add);
        all
    }
}

/// Returns how many messages wait, if it is known.
fn backlog(depth: &DepthView) -> Option<u64> {
    Some(depth.waiting?.0)
}

/// Joins two values if both are known, otherwise returns the known one.
fn both<T>(one: Option<T>, other: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(join(one, other)),
        (one, other) => one.or(other),
    }
}

pub(super) fn rate_figure(rates: Option<&QueueRates>) -> Markup {
    match rates {
        None => figure("Rate", "–", &html! { "in the last minute" }),
        Some(rates) => figure(
            "Rate",
            &format!("{}/s", format::rate(rates.done)),
            &html! {
                "failed " span.bad[rates.failed > 0.0] { (format::rate(rates.failed)) "/s" }
            },
        ),
    }
}

pub(super) fn time_figure(work: Option<&RecentWork>) -> Markup {
    let (median, p99) = work.map_or((None, None), |work| {
        (work.attempt_p50_s, work.attempt_p99_s)
    });
    figure(
        "Attempt p50",
        &format::time_or_dash(median),
        &html! { "p99 " (format::time_or_dash(p99)) },
    )
}

pub(super) fn drain_figure(waiting: Option<u64>, done: Option<f64>) -> Markup {
    figure(
        "Time to drain",
        &drain_time(waiting, done),
        &html! { "at this process's rate" },
    )
}

/// Returns how long the waiting messages take at a rate of `done` per second.
fn drain_time(waiting: Option<u64>, done: Option<f64>) -> String {
    match (waiting, done) {
        (Some(0), _) => "0 s".to_owned(),
        (Some(waiting), Some(done)) if done > 0.0 => format::time(waiting as f64 / done),
        (Some(_), Some(_)) => "never".to_owned(),
        _ => "–".to_owned(),
    }
}

pub(super) fn calls_figure(work: Option<&RecentWork>) -> Markup {
    let Some(work) = work else {
        return figure("Calls", "–", &html! { "to queues" });
    };
    figure(
        "Calls",
        &format!("{}/s", format::rate(work.calls_per_second)),
        &html! {
            @if let Some(dollars) = work.dollars_per_day {
                span title="At the price of call-price; by default the list price of US East" { (format::dollars(dollars)) " a day" }
            }
            @else { "to queues, free" }
        },
    )
}

/// Renders the cost of showing depths.
pub(super) fn cost(cost: DepthCost) -> Markup {
    html! {
        p #cost.muted.small {
            "Depths are only requested while a page is open: "
            (format::counted(cost.last_calls, "call", "calls")) " the last time, "
            (format::count(cost.calls)) " since the start"
            @if let Some(dollars) = cost.dollars_per_day {
                ". While a page is open that costs " (format::dollars(dollars)) " a day"
            }
            "."
        }
    }
}

const HEADS: &[(&str, &str)] = &[
    ("Queue", ""),
    ("Last minute", ""),
    ("Done/s", "number"),
    ("Failed/s", "number"),
    ("Waiting", "number"),
    ("Oldest", "number"),
    ("Drains in", "number"),
    ("In flight", "number"),
    ("Dead letters", "number"),
];

fn row(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let sampler = &scene.dashboard.sampler;
    let known = sampler.depth(&queue.queue);
    let depth = known.as_ref().and_then(|known| known.depth.as_ref());
    let dead = known.as_ref().and_then(|known| known.dead_letters.as_ref());
    let rates = queue.per_second.as_ref();
    let waiting = depth.and_then(|depth| depth.waiting);
    let drains = drain_time(
        waiting.map(|waiting| waiting.0),
        rates.map(|rates| rates.done),
    );
    let error = depth.and_then(|depth| depth.error.as_deref());
    html! {
        tr id=(row_id(&queue.queue)) {
            th scope="row" {
                a href=(scene.links().queue(&queue.queue)) { (queue.queue) }
                @if queue.paused { " " span.badge.warn { "Paused" } }
                @if let Some(error) = error { " " span.badge.bad title=(error) { "Depth unknown" } }
                span.route { (queue.route) }
            }
            td { (chart::spark(sampler, &queue.queue)) }
            td.number { (rates.map_or("–".to_owned(), |rates| format::rate(rates.done))) }
            td.number.bad[rates.is_some_and(|rates| rates.failed > 0.0)] {
                (rates.map_or("–".to_owned(), |rates| format::rate(rates.failed)))
            }
            td.number { (format::count_or_dash(waiting.map(|waiting| waiting.0))) }
            td.number.nowrap { (format::time_or_dash(depth.and_then(|depth| depth.oldest_s))) }
            td.number.nowrap { (drains) }
            td.number { (in_flight(queue, depth)) }
            td.number {
                @match dead.and_then(|dead| dead.waiting) {
                    Some(count) => a.bad[count.0 > 0] href=(letters_link(scene.links(), queue.dead_letter_queue.as_deref().unwrap_or_default(), "")) { (format::count(count.0)) },
                    None => "–",
                }
            }
        }
    }
}

/// Returns how many messages of a queue are in flight in this process, or in all processes if this
/// one handles none.
pub(super) fn in_flight(queue: &QueueView, depth: Option<&DepthView>) -> String {
    if !queue.route.is_empty() {
        return format::count(queue.in_flight.0);
    }
    let all = depth.and_then(|depth| depth.in_flight);
    format::count_or_dash(all.map(|all| all.0))
}

/// Returns the id of a queue's row. An id may contain any character except blanks.
fn row_id(queue: &str) -> String {
    format!("queue-{queue}")
}

fn route_table(scene: &Scene<'_>, routes: &[RouteView]) -> Markup {
    let heads = [
        ("Route", ""),
        ("Plugin", ""),
        ("Queues", "number"),
        ("Attempts", "number"),
        ("Concurrency", "number"),
        ("Prefetch", "number"),
        ("Median attempt", "number"),
        ("", "actions"),
    ];
    let rows = html! {
        @for route in routes {
            tr {
                th scope="row" { (route.route) @if route.paused { " " span.badge.warn { "Paused" } } }
                td { (route.plugin) }
                td.number { (format::count(route.queues.0)) }
                td.number { (format::count(route.attempts.0)) }
                td.number {
                    (format::count_or_dash(route.concurrency.value.map(|value| value.0)))
                    @if route.concurrency.live { " " span.badge.info title="Set by an operator" { "live" } }
                }
                td.number {
                    (format::count_or_dash(route.prefetch.value.map(|value| value.0)))
                    @if route.prefetch.live { " " span.badge.info title="Set by an operator" { "live" } }
                }
                td.number { (format::time_or_dash(route.median_attempt_s)) }
                td.actions {
                    (pause_or_resume(scene, "route", &route.route, route.paused))
                    " " (action(scene, "limit-route", &route.route, "Limits", "plain"))
                }
            }
        }
    };
    html! { div #routes { (table("Routes", &heads, &rows)) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::clock::BootInstant;
    use dispatcher_operate::operations::UnreadQueue;
    use std::time::Duration;

    /// The alerts about a queue.
    fn alerts_of(knows_all_receivers: bool) -> String {
        let unread = UnreadQueue {
            queue: "q".to_owned(),
            waiting: 2,
            knows_all_receivers,
        };
        let look = UnreadLook {
            queues: vec![unread],
            incomplete: None,
        };
        unread_alerts(&look).into_string()
    }

    #[test]
    fn a_queue_is_unread_by_all_only_where_all_receivers_are_known() {
        assert!(alerts_of(true).contains("No process receives from q."));
        let local = alerts_of(false);
        assert!(
            local.contains("No route of this process reads q."),
            "{local}"
        );
        assert!(!local.contains("No process"), "{local}");
        let mut look = UnreadLook {
            queues: Vec::new(),
            incomplete: None,
        };
        assert_eq!(unread_alerts(&look).into_string(), "");
        look.incomplete = Some("it took longer than 3 s".to_owned());
        let alerts = unread_alerts(&look).into_string();
        assert!(alerts.contains("Not all queues"), "{alerts}");
    }

    fn depth(waiting: Option<u64>) -> DepthView {
        DepthView {
            waiting: waiting.map(Into::into),
            in_flight: None,
            delayed: None,
            oldest_s: None,
            asked_s_ago: 0.0,
            error: None,
        }
    }

    fn listed<'a>(
        waiting: Option<u64>,
        dead: Option<(&'a str, u64)>,
        done: f64,
    ) -> ListedDepth<'a> {
        ListedDepth {
            known: KnownDepth {
                at: BootInstant::from_boot(Duration::ZERO),
                depth: Some(depth(waiting)),
                dead_letters: dead.map(|(_, dead)| depth(Some(dead))),
            },
            done: Some(done),
            dead_letter_queue: dead.map(|(name, _)| name),
        }
    }

    #[test]
    fn the_backlog_and_its_rate_are_those_of_queues_whose_depth_is_known() {
        let known = listed(Some(10), None, 2.0);
        let unknown = listed(None, None, 100.0);
        let totals = DepthTotals::of([known, unknown].into_iter());
        assert_eq!((totals.queues, totals.waiting), (1, Some(10)));
        assert_eq!(totals.done, Some(2.0));
    }

    #[test]
    fn a_dead_letter_queue_that_queues_share_is_counted_once() {
        let shared = Some(("dlq", 4));
        let other = Some(("other", 1));
        let queues = [shared, shared, other].map(|dead| listed(Some(1), dead, 1.0));
        let totals = DepthTotals::of(queues.into_iter());
        assert_eq!((totals.queues, totals.waiting), (3, Some(3)));
        assert_eq!(totals.dead, Some(5));
    }

    #[test]
    fn the_time_to_drain_is_that_of_the_current_rate() {
        assert_eq!(drain_time(Some(100), Some(1.0)), "1 min 40 s");
        assert_eq!(drain_time(Some(100), Some(0.0)), "never");
        assert_eq!(drain_time(Some(0), None), "0 s");
        assert_eq!(drain_time(None, Some(1.0)), "–");
    }
}
