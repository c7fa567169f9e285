//! The page of the fleet: all processes, what differs between them, queues and limits.

use super::super::scene::Scene;
use super::{Visit, action, alert, date, format, nothing, reading_only, table};
use dispatcher_operate::fleet::{FleetLimit, FleetProcess, FleetQueue, FleetView};
use dispatcher_operate::problem::CallProblem;
use maud::{Markup, html};

/// Renders the page.
pub(in super::super) async fn fleet(visit: &Visit) -> Result<Markup, CallProblem> {
    let scene = visit.scene();
    Ok(html! {
        div.heading {
            h1 { "Fleet" }
            div.actions {
                (action(&scene, "cancel-anywhere", "", "Cancel a running message", "danger")) " "
                (action(&scene, "log-level", "", "Change the log level", "plain"))
            }
        }
        (reading_only(visit))
        (content(&scene, &scene.operations.fleet().await?))
    })
}

/// Renders the parts of the page that change.
pub(in super::super) async fn parts(scene: &Scene<'_>) -> Vec<String> {
    let shown = scene.operations.fleet().await;
    let parts = shown.map(|fleet| content(scene, &fleet).into_string());
    parts.into_iter().collect()
}

fn content(scene: &Scene<'_>, fleet: &FleetView) -> Markup {
    html! {
        div #fleet {
            ul.alerts {
                @if let (Some(since), Some(why)) = (&fleet.old_since, &fleet.error) {
                    (alert("bad", &html! { "This is old since " time datetime=(since) { (date(since)) } " UTC: " (why) "." }))
                }
                @for difference in &fleet.differences { (alert("warn", &html! { (difference.line()) })) }
                @if let Some(level) = &fleet.log_level {
                    (alert("info", &html! { "The log level of all processes is " b { (level) } "." }))
                }
            }
            p.muted { (fleet.scope_line()) "." }
            @if fleet.processes.is_empty() { (nothing("No process has published its state yet.")) }
            @else { (processes(fleet)) (queues(scene, &fleet.queues)) }
            @if !fleet.limits.is_empty() { (limits(&fleet.limits)) }
            @if fleet.left_out.0 > 0 {
                p.muted.small { (format::count(fleet.left_out.0)) " of their routes, queues and limits are not shown: the least busy." }
            }
        }
    }
}

fn processes(fleet: &FleetView) -> Markup {
    let heads = [
        ("Process", ""),
        ("Version", ""),
        ("Configuration", ""),
        ("Started (UTC)", ""),
        ("Running", "number"),
        ("Waiting", "number"),
        ("Done/s", "number"),
        ("Failed/s", "number"),
    ];
    let rows = html! { @for one in &fleet.processes { (process(one, &fleet.process)) } };
    table("Processes of the fleet", &heads, &rows)
}

fn process(process: &FleetProcess, own: &str) -> Markup {
    html! {
        tr {
            th scope="row" { (process.id) @if process.id == own { " " span.badge.info { "This process" } } }
            td { (process.version) }
            td.id { (process.configuration) }
            td.nowrap { (date(&process.started_at)) }
            td.number { (format::count(process.running.0)) }
            td.number { (format::count(process.waiting.0)) }
            td.number { (format::rate(process.done)) }
            td.number { (format::rate(process.failed)) }
        }
    }
}

fn queues(scene: &Scene<'_>, queues: &[FleetQueue]) -> Markup {
    let heads = [
        ("Queue", ""),
        ("Processes", "number"),
        ("Running", "number"),
        ("Started/s", "number"),
        ("Done/s", "number"),
        ("Failed/s", "number"),
    ];
    let rows = html! {
        @for queue in queues {
            tr {
                th scope="row" {
                    a href=(scene.links().queue(&queue.queue)) { (queue.queue) }
                    @if queue.paused.0 > 0 { " " span.badge.warn { "Paused in " (queue.paused) " of " (queue.processes) } }
                }
                td.number { (format::count(queue.processes.0)) }
                td.number { (format::count(queue.running.0)) }
                td.number { (format::rate(queue.started)) }
                td.number { (format::rate(queue.done)) }
                td.number { (format::rate(queue.failed)) }
            }
        }
    };
    html! { h2 { "Queues" } (table("Queues of the fleet", &heads, &rows)) }
}

fn limits(limits: &[FleetLimit]) -> Markup {
    let heads = [
        ("Limit", ""),
        ("Used", "number"),
        ("Of", "number"),
        ("Rate/s", "number"),
        ("Waiting", "number"),
        ("Holders", "number"),
        ("Keys that wait", "wide"),
    ];
    let rows = html! {
        @for limit in limits {
            tr {
                th scope="row" { (limit.limit) @if limit.live { " " span.badge.info { "live" } } }
                td.number { (format::count(limit.used.0)) }
                td.number { (format::count_or_dash(limit.concurrency.map(|most| most.0))) }
                td.number { @if let Some(rate) = limit.rate { (format::rate(rate)) } @else { "–" } }
                td.number { (format::count(limit.waiting.0)) }
                td.number { (format::count(limit.holders.0)) }
                td.wide { @for key in &limit.keys { span.pair { (key.key) " " b { (format::count(key.waiting.0)) } } } }
            }
        }
    };
    html! { h2 { "Limits" } (table("Limits of the fleet", &heads, &rows)) }
}
