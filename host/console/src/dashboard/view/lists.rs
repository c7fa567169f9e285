//! The pages with a list: schedules, plugins, processes and findings.

use super::super::LISTED;
use super::super::scene::Scene;
use super::{Visit, action, action_on, date, format, nothing, reading_only, table};
use dispatcher_operate::operations::{FindingView, ScheduleView, WorkerView};
use dispatcher_telemetry::plugins::{Canary, Figures, Shadow, Version};
use maud::{Markup, html};

/// The scheduled messages of a queue.
pub(in super::super) struct ShownSchedules {
    pub items: Vec<ScheduleView>,
    pub is_of_own_queue: bool,
}

/// Renders the page of the schedules, with those of the chosen queue.
pub(in super::super) fn schedules(
    visit: &Visit,
    queues: &[String],
    chosen: &str,
    shown: Option<&ShownSchedules>,
) -> Markup {
    html! {
        div.heading { h1 { "Schedules" } }
        p.muted { "Scheduled messages by the queue that they go to, the next due first." }
        form.filter method="get" action=(visit.links().to("/ui/schedules", &[])) {
            label for="queue" { "Queue" }
            input #queue name="queue" list="queues" value=(chosen) required autocomplete="off";
            datalist #queues { @for queue in queues { option value=(queue) {} } }
            button type="submit" { "Show" }
        }
        @if shown.is_some_and(|shown| !shown.is_of_own_queue) {
            p.hint { "This process has no queue “" (chosen) "”: it knows only what others have scheduled for it." }
        }
        @match shown.map(|shown| &shown.items[..]) {
            None => (nothing("Choose a queue.")),
            Some([]) => (nothing(&format!("No message is scheduled for “{chosen}”."))),
            Some(items) => {
                (table("Scheduled messages", &[("Due (UTC)", ""), ("Repeats", ""), ("Id", ""), ("", "actions")], &html! {
                    @for item in items {
                        tr {
                            td.nowrap { time datetime=(item.due) { (date(&item.due)) } }
                            td { (item.every.as_deref().unwrap_or("no")) }
                            td.id { (item.id) }
                            td.actions {
                                (action_on(&visit.scene(), "run-schedule", ("", &item.id), "Run now", "plain")) " "
                                (action_on(&visit.scene(), "cancel-schedule", ("", &item.id), "Cancel", "danger"))
                            }
                        }
                    }
                }))
                @if items.len() >= LISTED { p.muted.small { "These are the first " (LISTED) "." } }
            }
        }
    }
}

/// Renders the page of the versions of all plugins.
pub(in super::super) fn plugins(visit: &Visit) -> Markup {
    html! {
        (plugin_heading(&visit.scene()))
        (reading_only(visit))
        (plugin_list(&visit.scene()))
    }
}

fn plugin_heading(scene: &Scene<'_>) -> Markup {
    let plugins = scene.metrics.plugins.figures().into_iter();
    let canaries: Vec<String> = plugins
        .filter(|(_, figures)| {
            let canary = figures.canary.as_ref();
            canary.is_some_and(|canary| canary.share > 0.0)
        })
        .map(|(route, _)| route)
        .collect();
    html! {
        div #plugin-heading.heading {
            h1 { "Plugins" }
            @if scene.has_routes() {
                div.actions {
                    (action(scene, "reload-plugins", "", "Load new versions", "plain"))
                    @for route in &canaries {
                        " " span id=(format!("roll-back-{route}")) {
                            (action(scene, "roll-back", route, &format!("Roll the canary of {route} back"), "danger"))
                        }
                    }
                }
            }
        }
    }
}

/// Renders the parts of that page that change.
pub(in super::super) fn plugin_parts(scene: &Scene<'_>) -> Vec<String> {
    let parts = [plugin_heading(scene), plugin_list(scene)];
    parts.map(|part| part.into_string()).into()
}

fn plugin_list(scene: &Scene<'_>) -> Markup {
    let all = scene.metrics.plugins.figures();
    html! {
        div #plugins {
            @if all.is_empty() && scene.has_routes() { (nothing("No route has a plugin: messages are forwarded.")) }
            @else if all.is_empty() { (nothing("This process has no routes: it serves queues and runs no plugin.")) }
            @for (route, figures) in &all { (plugin(route, figures)) }
        }
    }
}

fn plugin(route: &str, figures: &Figures) -> Markup {
    let Figures {
        plugin,
        current,
        replaced,
        refused,
        instances,
        canary,
        shadow,
        recorded,
    } = figures;
    html! {
        section.plugin {
            h2 { (plugin) " " span.muted { "on route " (route) } }
            div.versions {
                div.version { h3 { "Current" } (version(current)) dl.pairs {
                    dt { "Replaced" } dd { (format::counted(*replaced, "time", "times")) }
                    dt { "Refused" } dd { (format::counted(*refused, "version", "versions")) }
                    dt { "Instances" } dd {
                        (format::count(instances.running as u64)) " running · " (format::count(instances.idle as u64)) " idle · "
                        (format::bytes((instances.running_memory_bytes + instances.idle_memory_bytes) as u64))
                    }
                    @if let Some(recorded) = recorded {
                        dt { "Recorded" } dd { (format::count(recorded.kept)) " · " (format::count(recorded.left_out)) " left out" }
                    }
                } }
                @if let Some(canary) = canary { (canary_card(canary)) }
                @if let Some(shadow) = shadow { (shadow_card(shadow)) }
            }
        }
    }
}

fn version(version: &Version) -> Markup {
    html! {
        p.file { (version.file) }
        p.id title=(version.sha256) { (version.sha256.get(..16).unwrap_or(&version.sha256)) }
    }
}

fn canary_card(canary: &Canary) -> Markup {
    html! {
        div.version {
            h3 { "Canary " @if canary.share > 0.0 {
                span.badge.info { (format!("{:.0} %", canary.share * 100.0)) " of messages" }
            } @else { span.badge.bad { "Rolled back" } } }
            (version(&canary.version))
            dl.pairs {
                dt { "Attempts" } dd { (format::count(canary.attempts)) }
                dt { "Failed" } dd { (share(canary.failed, canary.attempts)) " " span.muted { (format::count(canary.failed)) } }
                dt { "Current meanwhile" } dd { (share(canary.current_failed, canary.current_attempts)) " "
                    span.muted { (format::count(canary.current_failed)) " of " (format::count(canary.current_attempts)) } }
            }
        }
    }
}

/// Returns the failed share of all attempts.
fn share(failed: u64, all: u64) -> String {
    match all {
        0 => "–".to_owned(),
        _ => format!("{:.1} %", failed as f64 / all as f64 * 100.0),
    }
}

fn shadow_card(shadow: &Shadow) -> Markup {
    html! {
        div.version {
            h3 { "Shadow " span.badge.(if shadow.different > 0 { "warn" } else { "ok" }) {
                (format::counted(shadow.different, "difference", "differences"))
            } }
            (version(&shadow.version))
            dl.pairs {
                dt { "Same" } dd { (format::count(shadow.same)) }
                dt { "Different" } dd { (format::count(shadow.different)) }
                dt { "Needed something that a shadow may not use" } dd { (format::count(shadow.closed)) }
                dt { "Skipped" } dd { (format::count(shadow.skipped)) }
            }
        }
    }
}

/// Renders the page of the processes that receive from the same servers.
pub(in super::super) fn processes(visit: &Visit, workers: &[WorkerView]) -> Markup {
    let own = visit.operations.process().id;
    let rows = html! {
        @for worker in workers {
            tr {
                th scope="row" { (worker.id) @if worker.id == own { " " span.badge.info { "This process" } } }
                td { (worker.backend.as_deref().unwrap_or("–")) }
                td.wide {
                    @for queue in &worker.queues { span.pair { (queue.queue) " " b { (format::count(queue.in_flight.0)) } } }
                }
            }
        }
    };
    html! {
        div.heading {
            h1 { "Processes" }
            div.actions { (action(&visit.scene(), "drain", "", "Stop this process", "danger")) }
        }
        (reading_only(visit))
        p.muted { "Processes that receive from the servers of this process's queues, as far as a backend lists them, "
            "with their messages in flight." }
        @if workers.is_empty() { (nothing("No process is known to receive.")) }
        @else { (table("Processes", &[("Process", ""), ("Listed by", ""), ("Messages in flight", "wide")], &rows)) }
        @if workers.len() >= LISTED { p.muted.small { "These are the first " (LISTED) "." } }
    }
}

/// Renders the page of doctor's findings.
pub(in super::super) fn doctor(
    findings: &[FindingView],
    looked_s_ago: f64,
    has_routes: bool,
) -> Markup {
    if !has_routes {
        return html! {
            div.heading { h1 { "Doctor" } }
            (nothing("This process has no routes, so there is nothing to check here. `dispatcher doctor` checks a configuration."))
        };
    }
    let mut sorted: Vec<&FindingView> = findings.iter().collect();
    sorted.sort_by_key(|finding: &&FindingView| match &*finding.level {
        "bad" => 0,
        "warn" => 1,
        _ => 2,
    });
    let bad = sorted
        .iter()
        .filter(|finding| finding.level != "ok")
        .count();
    html! {
        div.heading { h1 { "Doctor" } }
        p.muted {
            @if bad == 0 { "Nothing is wrong. " } @else { (format::counted(bad as u64, "finding needs", "findings need")) " attention. " }
            "Looked " (format::time(looked_s_ago.floor())) " ago; findings are kept for a minute."
        }
        (table("Findings", &[("Level", ""), ("About", ""), ("Finding", "wide")], &html! {
            @for finding in sorted {
                tr {
                    td { span.badge.(finding.level) { (finding.level) } }
                    th scope="row" { (finding.about) }
                    td.wide { (finding.message) }
                }
            }
        }))
    }
}
