//! One queue: what it holds and does, what operators set on it, and its last failures.

use super::super::history::Span;
use super::super::sampler::{HISTORIES, KnownDepth};
use super::super::scene::Scene;
use super::letters::letters_link;
use super::overview::{
    calls_figure, cost, drain_figure, in_flight, rate_figure, time_figure, unread_alert,
};
use super::{
    Visit, action, alert, attempts, chart, figure, format, outcomes, pause_or_resume, reading_only,
};
use crate::admin::operations::{LiveNumber, QueueView};
use maud::{Markup, html};

/// How many of the last outcomes the page shows.
const OUTCOMES: usize = 20;

/// The page.
pub(in super::super) fn page(visit: &Visit, queue: &QueueView, span: Span) -> Markup {
    let scene = visit.scene();
    let has_history = visit.sampler().points(Some(&queue.queue), span).is_some();
    let handles = !queue.route.is_empty();
    html! {
        (heading(&scene, queue))
        (reading_only(visit))
        (alerts(&scene, queue))
        (figures(&scene, queue))
        @if has_history {
            (chart::charts(visit, Some(&queue.queue), span))
        } @else if handles {
            p.hint { "The first " (HISTORIES) " queues of a process have charts; this one has totals alone." }
        }
        (state(&scene, queue))
        @if handles {
            section aria-labelledby="running-title" {
                div.heading { h2 #running-title { "Running" } }
                (running(&scene, &queue.queue))
            }
            section aria-labelledby="recent-title" {
                div.heading { h2 #recent-title { "Recent failures" } }
                (recent(&scene, &queue.queue))
            }
        } @else {
            p.hint { "This process has no routes: it serves the queue and handles none of its messages." }
        }
        (cost(scene.dashboard.sampler.cost()))
    }
}

/// The parts of it that change.
pub(in super::super) async fn parts(scene: &Scene<'_>, name: &str) -> Vec<String> {
    let Some(queue) = scene.operations.queue(name).await else {
        let gone = html! {
            ul #alerts.alerts aria-label="Attention" {
                (alert("bad", &html! { strong { "This queue cannot be read any more. " } "It was deleted, or does not answer; these are its last numbers." }))
            }
        };
        return vec![gone.into_string()];
    };
    let parts = [
        heading(scene, &queue),
        alerts(scene, &queue),
        figures(scene, &queue),
        state(scene, &queue),
        running(scene, name),
        recent(scene, name),
        cost(scene.dashboard.sampler.cost()),
    ];
    parts.map(|part| part.into_string()).into()
}

fn heading(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let is_paused = queue.paused_by.as_deref() == Some("queue");
    html! {
        div #queue-heading.heading {
            h1 { (queue.queue) }
            div.actions {
                (pause_or_resume(scene, "queue", &queue.queue, is_paused))
                " " (action(scene, "limit-queue", &queue.queue, "Limits", "plain"))
                " " a.button.plain href=(letters_link(scene.links(), &queue.queue, "")) { "Messages" }
                " " (action(scene, "cancel-message", &queue.queue, "Cancel a message", "plain"))
            }
        }
    }
}

fn alerts(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let not_ready = scene.operations.process().not_ready;
    let depth = scene.dashboard.sampler.depth(&queue.queue);
    let errors = depth.iter().flat_map(|known| {
        [&known.depth, &known.dead_letters]
            .into_iter()
            .flatten()
            .filter_map(|depth| depth.error.clone())
    });
    let errors: Vec<String> = errors.collect();
    html! {
        ul #alerts.alerts aria-label="Attention" {
            @for one in not_ready.iter().filter(|one| one.what == queue.queue) {
                (alert("bad", &html! { strong { "Nobody receives from this queue. " } (one.reason) }))
            }
            @if queue.paused { (alert("warn", &unread_alert(scene, queue))) }
            @for error in &errors {
                (alert("warn", &html! { strong { "How much it holds is not known. " } (error) }))
            }
        }
    }
}

fn figures(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let sampler = &scene.dashboard.sampler;
    let (rates, work) = (queue.per_second.as_ref(), queue.recent.as_ref());
    let known: Option<KnownDepth> = sampler.depth(&queue.queue);
    let depth = known.as_ref().and_then(|known| known.depth.as_ref());
    let dead = known.as_ref().and_then(|known| known.dead_letters.as_ref());
    let waiting = depth.and_then(|depth| depth.waiting).map(|count| count.0);
    let number = |value: Option<u64>| value.map_or("–".to_owned(), format::count);
    let delayed = depth.and_then(|depth| depth.delayed).map(|count| count.0);
    let elsewhere = depth.and_then(|depth| depth.in_flight).map(|count| count.0);
    let handles = !queue.route.is_empty();
    html! {
        dl #figures.figures.few[!handles] {
            @if handles {
                (rate_figure(rates))
                (time_figure(work))
            }
            (figure("Waiting", &number(waiting), &html! { (number(delayed)) " delayed" }))
            (figure("Oldest", &depth.and_then(|depth| depth.oldest_s).map_or("–".to_owned(), format::time), &html! { "not in flight" }))
            @if handles { (drain_figure(waiting, rates.map(|rates| rates.done))) }
            (figure("In flight", &in_flight(queue, depth), &html! {
                @if handles { (number(elsewhere)) " " } "in all processes"
            }))
            (figure("Dead letters", &number(dead.and_then(|dead| dead.waiting).map(|count| count.0)), &html! {
                @if let Some(dead) = &queue.dead_letter_queue { a.id href=(letters_link(scene.links(), dead, "")) { (dead) } } @else { "no dead-letter queue" }
            }))
            @if handles { (calls_figure(work)) }
        }
    }
}

/// What operators have set on it, and totals.
fn state(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let number = |number: &LiveNumber| {
        html! {
            (number.value.map_or("no limit".to_owned(), |value| format::count(value.0)))
            @if number.live {
                " " span.badge.info { "live" } " "
                span.muted { "configured: " (number.configured.map_or("no limit".to_owned(), |value| format::count(value.0))) }
            }
        }
    };
    let rate = |rate: Option<f64>| {
        rate.map_or("no limit".to_owned(), |rate| {
            format!("{} per second", format::rate(rate))
        })
    };
    let handles = !queue.route.is_empty();
    html! {
        div #state-of-queue.columns {
            section {
                h2 { "Limits" }
                dl.pairs {
                    @if handles { dt { "Route" } dd { (queue.route) } }
                    dt { "Concurrency" } dd { (number(&queue.concurrency)) }
                    dt { "Rate" } dd {
                        (rate(queue.rate.value))
                        @if queue.rate.live { " " span.badge.info { "live" } " " span.muted { "configured: " (rate(queue.rate.configured)) } }
                    }
                    dt { "Prefetch" } dd { (number(&queue.prefetch)) }
                    dt { "Changes hold for" } dd {
                        @if queue.shared { "all processes that read it" } @else { "this process" }
                    }
                }
            }
            @if handles {
                section {
                    h2 { "Since the start" }
                    dl.pairs {
                        dt { "Received" } dd { (format::count(queue.totals.received.0)) }
                        dt { "Done" } dd { (format::count(queue.totals.done.0)) }
                        dt { "Failed attempts" } dd { (format::count(queue.totals.failed.0)) }
                        dt { "Dead-lettered" } dd { (format::count(queue.totals.dead_lettered.0)) }
                        dt { "Calls to the queue" } dd { (calls(scene, queue)) }
                    }
                }
            }
        }
    }
}

fn calls(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let calls = scene
        .metrics
        .meters
        .of(&queue.queue)
        .map_or(0, |meter| meter.calls.get());
    let each = calls as f64 / queue.totals.received.0.max(1) as f64;
    let price = scene.dashboard.sampler.price(&queue.queue);
    html! {
        (format::count(calls)) " "
        span.muted {
            "· " (format::rate(each)) " per message received"
            @if let Some(price) = price { " · " (format::dollars(calls as f64 * price / 1e6)) " at the price of call-price" }
        }
    }
}

fn running(scene: &Scene<'_>, queue: &str) -> Markup {
    html! { div #running { (attempts::of_queue(scene, queue)) } }
}

fn recent(scene: &Scene<'_>, queue: &str) -> Markup {
    let found = scene.outcomes(Some(queue), OUTCOMES);
    html! { div #recent { (outcomes(scene.links(), &found, false)) } }
}
