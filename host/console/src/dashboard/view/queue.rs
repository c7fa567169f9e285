//! The page of a queue: its depth and work, the settings that operators changed, and its last
//! failures.

use super::super::history::Span;
use super::super::sampler::{HISTORIES, KnownDepth};
use super::super::scene::Scene;
use super::letters::letters_link;
use super::overview::{
    calls_figure, cost, drain_figure, in_flight, rate_figure, time_figure, unread_alert,
};
use super::{
    Visit, action, alert, attempts, chart, figure, format, outcomes, pause_or_resume, reading_only,
    table,
};
use dispatcher_operate::operations::{LiveNumber, QueueView, TenantView};
use dispatcher_operate::schema::Count;
use maud::{Markup, html};

/// The number of last outcomes on the page.
const OUTCOMES: usize = 20;

/// Renders the page.
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
            p.hint { "The first " (HISTORIES) " queues of a process have charts; this one only has totals." }
        }
        (state(&scene, queue))
        (tenants(&scene, queue))
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

/// Renders the parts of the page that change.
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
        tenants(scene, &queue),
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
                " " (action(scene, "send", &queue.queue, "Send a message", "plain"))
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
    let errors: Vec<String> = depth
        .iter()
        .flat_map(|known| {
            [&known.depth, &known.dead_letters]
                .into_iter()
                .flatten()
                .filter_map(|depth| depth.error.clone())
        })
        .collect();
    html! {
        ul #alerts.alerts aria-label="Attention" {
            @for one in not_ready.iter().filter(|one| one.what == queue.queue) {
                (alert("bad", &html! { strong { "This process cannot receive from this queue. " } (one.reason) }))
            }
            @if queue.paused { (alert("warn", &unread_alert(scene, queue))) }
            @for error in &errors {
                (alert("warn", &html! { strong { "Its depth is not known. " } (error) }))
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
    let letters = dead.and_then(|dead| dead.waiting).map(|count| count.0);
    let waiting = depth.and_then(|depth| depth.waiting).map(|count| count.0);
    let delayed = depth.and_then(|depth| depth.delayed).map(|count| count.0);
    let elsewhere = depth.and_then(|depth| depth.in_flight).map(|count| count.0);
    let handles = !queue.route.is_empty();
    html! {
        dl #figures.figures.few[!handles] {
            @if handles {
                (rate_figure(rates))
                (time_figure(work))
            }
            (figure("Waiting", &format::count_or_dash(waiting), &html! { (format::count_or_dash(delayed)) " delayed" }))
            (figure("Oldest", &format::time_or_dash(depth.and_then(|depth| depth.oldest_s)), &html! { "not in flight" }))
            @if handles { (drain_figure(waiting, rates.map(|rates| rates.done))) }
            (figure("In flight", &in_flight(queue, depth), &html! {
                @if handles { (format::count_or_dash(elsewhere)) " " } "in all processes"
            }))
            (figure("Dead letters", &format::count_or_dash(letters), &html! {
                @if let Some(dead) = &queue.dead_letter_queue { a.id href=(letters_link(scene.links(), dead, "")) { (dead) } } @else { "no dead-letter queue" }
            }))
            @if handles { (calls_figure(work)) }
        }
    }
}

/// Renders the settings that operators changed, and totals.
fn state(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let routes = scene.routes();
    let route = routes.iter().find(|route| route.route == queue.route);
    let handles = !queue.route.is_empty();
    html! {
        div #state-of-queue.columns {
            section {
                h2 { "Limits" }
                dl.pairs {
                    @if handles { dt { "Route" } dd { (queue.route) } }
                    dt { "Concurrency" } dd { (limit(&queue.concurrency, route.map(|route| &route.concurrency))) }
                    dt { "Rate" } dd {
                        (rate_limit(queue.rate.value))
                        @if queue.rate.live { " " span.badge.info { "live" } " " span.muted { "configured: " (rate_limit(queue.rate.configured)) } }
                    }
                    dt { "Prefetch" } dd { (limit(&queue.prefetch, route.map(|route| &route.prefetch))) }
                    @for one in route.iter().flat_map(|route| &route.weights) {
                        dt { "Weight of " span.id { (one.tenant) } } dd {
                            (one.value) " " span.badge.info { "live" } " " span.muted { "configured: " (one.configured) }
                        }
                    }
                    dt { "Changes hold for" } dd {
                        @if queue.shared { "all processes that read it" } @else { "this machine only" }
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

/// Renders the busiest tenants that share a queue.
fn tenants(scene: &Scene<'_>, queue: &QueueView) -> Markup {
    let heads = [
        ("Tenant", ""),
        ("Waiting", "number"),
        ("Oldest", "number"),
        ("Held", "number"),
        ("Running", "number"),
        ("Started in 1 s", "number"),
        ("Share", "number"),
        ("Weight", "number"),
        ("State", ""),
    ];
    let rows = html! { @for tenant in &queue.tenants { (tenant_row(tenant)) } };
    html! {
        section #tenants {
            @if !queue.tenants.is_empty() {
                div.heading {
                    h2 { "Tenants" }
                    (action(scene, "weigh-tenant", &queue.route, "Change a weight", "plain"))
                }
                (table("Tenants of the queue", &heads, &rows))
            }
        }
    }
}

fn tenant_row(tenant: &TenantView) -> Markup {
    html! {
        tr {
            td.id { @if tenant.tenant.is_empty() { span.muted { "(no tenant)" } } @else { (tenant.tenant) } }
            td.number { (format::count_or_dash(tenant.waiting.map(|count| count.0))) }
            td.number { (format::time_or_dash(tenant.oldest_s)) }
            td.number { (format::count(tenant.held.0 + tenant.limited.0)) }
            td.number { (format::count(tenant.running.0)) }
            td.number { (format::count(tenant.started.0)) }
            td.number { (format!("{:.0} %", tenant.share * 100.0)) }
            td.number { (format::count(tenant.weight.0)) }
            td {
                @if tenant.parked { span.badge.warn { "parked" } }
                @else if tenant.limited.0 > 0 { span.badge.info { "waits for a limit" } }
            }
        }
    }
}

/// Renders a limit of a queue. A queue without one has the limit of its route.
fn limit(own: &LiveNumber, of_route: Option<&LiveNumber>) -> Markup {
    html! {
        (limit_in_words(own.value, of_route.and_then(|of_route| of_route.value)))
        @if own.live {
            " " span.badge.info { "live" } " "
            span.muted { "configured: " (limit_in_words(own.configured, of_route.and_then(|of_route| of_route.configured))) }
        }
    }
}

fn limit_in_words(own: Option<Count>, of_route: Option<Count>) -> String {
    match (own, of_route) {
        (Some(own), _) => format::count(own.0),
        (None, Some(most)) => format!("{}, that of the route", format::count(most.0)),
        (None, None) => "no limit".to_owned(),
    }
}

fn rate_limit(rate: Option<f64>) -> String {
    rate.map_or("no limit".to_owned(), |rate| {
        format!("{} per second", format::rate(rate))
    })
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
