//! Dead letters: where there are some, those of a queue by reason, one message, and the jobs that move
//! or remove messages.

use super::super::links::Links;
use super::super::sampler::{QueuePage, Sampler};
use super::super::scene::Scene;
use super::overview::{cost, no_queues};
use super::{
    Visit, action, action_on, alert, date, filter_form, format, nothing, pages, reading_only, table,
};
use crate::admin::messages::{JobReport, JobView, MessageList, MessageView, ReasonView};
use crate::admin::operations::{Page, QueueView};
use dispatcher_core::redrive::{OTHERS, pattern_of_counted};
use maud::{Markup, html};

const HIDDEN: &str =
    "Bodies and attributes are hidden. Start the program with --admin-bodies to show them.";
/// How many jobs are shown.
const JOBS: usize = 20;

/// The page of the dead-letter queues.
pub(in super::super) async fn queues(visit: &Visit, filter: &str, after: usize) -> Markup {
    let scene = visit.scene();
    let sampler = visit.sampler();
    let shown = sampler.shown(scene.operations, filter, after).await;
    let links = visit.links();
    html! {
        div.heading {
            h1 { "Dead letters" }
            (filter_form(links, "/ui/dead-letters", filter))
        }
        (queue_table(&scene, &shown, filter))
        (pages(links, "/ui/dead-letters", filter, after, shown.next))
        (cost(scene.dashboard.sampler.cost()))
        (job_section(&scene))
    }
}

/// The parts of it that change.
pub(in super::super) async fn queue_parts(
    scene: &Scene<'_>,
    filter: &str,
    after: usize,
) -> Vec<String> {
    let sampler = &scene.dashboard.sampler;
    let shown = sampler.shown(scene.operations, filter, after).await;
    let parts = [
        queue_table(scene, &shown, filter),
        cost(scene.dashboard.sampler.cost()),
        jobs(scene),
    ];
    parts.map(|part| part.into_string()).into()
}

fn queue_table(scene: &Scene<'_>, shown: &QueuePage, filter: &str) -> Markup {
    let links = scene.links();
    let with = shown
        .queues
        .iter()
        .filter_map(|queue| Some((queue, queue.dead_letter_queue.as_deref()?)));
    let with: Vec<(&QueueView, &str)> = with.collect();
    let rows = html! {
        @for (queue, dead) in &with {
            tr {
                th scope="row" { a href=(letters_link(links, dead, "")) { (dead) } }
                td { a href=(links.queue(&queue.queue)) { (queue.queue) } }
                td.number { (dead_count(&scene.dashboard.sampler, queue)) }
                td.number { (format::count(queue.totals.dead_lettered.0)) }
            }
        }
    };
    html! {
        div #dead-letter-queues {
            @if !with.is_empty() {
                (table("Dead-letter queues", &[
                    ("Dead-letter queue", ""), ("Of", ""), ("Dead letters", "number"), ("Dead-lettered since the start", "number"),
                ], &rows))
            } @else if shown.queues.is_empty() {
                (no_queues(shown, filter))
            } @else {
                (nothing("None of these queues has a dead-letter queue that is known."))
            }
        }
    }
}

fn dead_count(sampler: &Sampler, queue: &QueueView) -> Markup {
    let known = sampler.depth(&queue.queue);
    let known = known.and_then(|known| known.dead_letters);
    match known.and_then(|depth| depth.waiting) {
        Some(count) => html! { span.bad[count.0 > 0] { (format::count(count.0)) } },
        None => html! { "–" },
    }
}

/// The messages of a queue with this reason.
pub(in super::super) fn letters_link(links: &Links, queue: &str, reason: &str) -> String {
    match reason {
        "" => links.to("/ui/dead-letters", &[("queue", queue)]),
        reason => links.to("/ui/dead-letters", &[("queue", queue), ("reason", reason)]),
    }
}

/// The messages of a queue, by reason. `reason` is that of all of them, if one was chosen.
pub(in super::super) fn letters(visit: &Visit, found: &MessageList, reason: &str) -> Markup {
    let links = visit.links();
    html! {
        (heading(visit, &found.queue, !found.items.is_empty()))
        (reading_only(visit))
        (scanned(found))
        (waiting(&visit.scene(), &found.queue))
        section aria-labelledby="reasons-title" {
            div.heading { h2 #reasons-title { "By reason" }
                @if !reason.is_empty() { a href=(letters_link(links, &found.queue, "")) { "All reasons" } } }
            @if found.reasons.is_empty() { (nothing(none_found(found, reason))) }
            @else { (reasons(visit, &found.queue, &found.reasons)) }
        }
        @if !found.items.is_empty() {
            section aria-labelledby="letters-title" {
                div.heading { h2 #letters-title { "Messages" } @if !reason.is_empty() { span.muted { (reason) } } }
                div #letters { @if found.received.0 > 0 { (received(found)) } @else { (list(links, found)) } }
            }
        }
        @if let Some(next) = &found.next {
            p.pages {
                @if found.items.is_empty() {
                    a href=(next_link(links, found, reason, &[("after", next), ("look", "longer")])) { "Look on" }
                } @else {
                    a href=(next_link(links, found, reason, &[("after", next)])) { "Next" }
                }
            }
        }
        (cost(visit.sampler().cost()))
        (job_section(&visit.scene()))
    }
}

/// How many messages wait now: the lists are those of when the page was made.
fn waiting(scene: &Scene<'_>, queue: &str) -> Markup {
    html! {
        p #waiting {
            @if let Some(backlog) = scene.dashboard.sampler.backlog(queue) {
                @if !backlog.is_exact { "About " }
                b { (format::counted(backlog.waiting, "message", "messages")) }
                @if backlog.waiting == 1 { " waits here now. " } @else { " wait here now. " }
                a href=(letters_link(scene.links(), queue, "")) { "Show them" }
            }
        }
    }
}

/// What to say where no message is found.
fn none_found(found: &MessageList, reason: &str) -> &'static str {
    match (reason, found.next.is_some()) {
        (_, true) => "None is among those that were looked at. More follow.",
        ("", false) => "No message waits here.",
        (_, false) => "No message with this reason waits here.",
    }
}

fn next_link(links: &Links, found: &MessageList, reason: &str, more: &[(&str, &str)]) -> String {
    let chosen = [("queue", found.queue.as_str()), ("reason", reason)];
    links.to("/ui/dead-letters", &[&chosen[..], more].concat())
}

/// The page of a queue whose messages cannot be listed: they must be received to be seen.
pub(in super::super) fn unlisted(visit: &Visit, queue: &str) -> Markup {
    html! {
        (heading(visit, queue, true))
        (reading_only(visit))
        p.hint { "This queue hands out messages only by receiving them. A look receives up to 1,000 and gives them back "
            "at once: each then has one receive more, and each call is billed. A message whose next receive would be "
            "its last is not looked at." }
        (waiting(&visit.scene(), queue))
        p { (action(&visit.scene(), "look", queue, "Look at the messages", "primary")) }
        (cost(visit.sampler().cost()))
        (job_section(&visit.scene()))
    }
}

fn heading(visit: &Visit, queue: &str, has_some: bool) -> Markup {
    html! {
        div.heading {
            h1 { "Messages in " (queue) }
            @if has_some {
                div.actions {
                    (action(&visit.scene(), "redrive", queue, "Redrive all", "plain")) " "
                    (action(&visit.scene(), "purge", queue, "Purge", "danger"))
                }
            }
        }
    }
}

fn scanned(found: &MessageList) -> Markup {
    html! {
        p.muted {
            (format::counted(found.selected.0, "message", "messages")) " of " (format::count(found.scanned.0)) " looked at"
            @if !found.complete { "; there are more" @if let Some(why) = &found.stopped { " (" (why) ")" } }
            @if found.received.0 > 0 {
                ". " (format::counted(found.received.0, "message was", "messages were")) " received and given back by "
                (format::counted(found.receive_calls.0, "call", "calls"))
            }
            "."
        }
        @if found.not_released.0 > 0 {
            ul.alerts { (alert("warn", &html! { (format::counted(found.not_released.0, "message", "messages"))
                " could not be given back, and stay invisible for ten minutes." })) }
        }
    }
}

fn reasons(visit: &Visit, queue: &str, reasons: &[ReasonView]) -> Markup {
    let links = visit.links();
    let rows = html! {
        @for one in reasons {
            tr {
                td.number { b { (format::count(one.messages.0)) } }
                td.wide {
                    @match one.reason.as_deref() {
                        Some(OTHERS) => span.muted { "other reasons, each with few messages" },
                        Some(reason) => a.text href=(letters_link(links, queue, &pattern_of_counted(reason))) title=(reason) { (reason) },
                        None => span.muted { "no reason: dead-lettered by the queue's own policy, or not a dead letter" },
                    }
                }
                td.id { (one.samples.first().map_or("", String::as_str)) }
                td.actions {
                    @if let Some(reason) = one.reason.as_deref().filter(|reason| *reason != OTHERS) {
                        (action_on(&visit.scene(), "redrive", (queue, reason), "Redrive these", "plain"))
                    }
                }
            }
        }
    };
    table(
        "Reasons",
        &[
            ("Messages", "number"),
            ("Reason", "wide"),
            ("For example", ""),
            ("", "actions"),
        ],
        &rows,
    )
}

fn list(links: &Links, found: &MessageList) -> Markup {
    let rows = html! {
        @for one in &found.items {
            tr {
                td.id { a href=(links.to("/ui/message", &[("queue", &found.queue), ("id", &one.id)])) { (one.id) } }
                td.wide { span.text { (one.reason.as_deref().unwrap_or("–")) } }
                td { (one.source.as_deref().unwrap_or("–")) }
                td.nowrap { (one.sent_at.as_deref().map_or("–".to_owned(), date)) }
                td.number { (format::count(one.redriven.0)) }
                td.number { (format::bytes(one.bytes.0)) }
            }
        }
    };
    table(
        "Messages",
        &[
            ("Message id", ""),
            ("Reason", "wide"),
            ("Came from", ""),
            ("Sent (UTC)", ""),
            ("Redriven", "number"),
            ("Size", "number"),
        ],
        &rows,
    )
}

/// The messages that a look has received: they cannot be found again by their ids, so what it found is
/// here.
fn received(found: &MessageList) -> Markup {
    html! {
        @for one in &found.items {
            details.card {
                summary { span.id { (one.id) } " " (one.reason.as_deref().unwrap_or("–")) }
                dl.pairs {
                    dt { "Came from" } dd { (one.source.as_deref().unwrap_or("not known")) }
                    dt { "Sent (UTC)" } dd { (one.sent_at.as_deref().map_or("not known".to_owned(), date)) }
                    dt { "Received here" } dd { (format::counted(one.receive_count.0, "time", "times")) }
                    dt { "Redriven" } dd { (format::counted(one.redriven.0, "time", "times")) }
                    dt { "Size" } dd { (format::bytes(one.bytes.0)) }
                    @if let Some(why) = &one.unreadable { dt { "It cannot be read" } dd { (why) } }
                }
                @match &one.content {
                    Some(content) => (super::attempts::content(content)),
                    None => p.muted.small { (HIDDEN) },
                }
            }
        }
    }
}

/// One message.
pub(in super::super) fn message(visit: &Visit, queue: &str, found: &MessageView) -> Markup {
    let on = (queue, found.id.as_str());
    html! {
        div.heading {
            h1 { "Message " span.id { (found.id) } }
            div.actions {
                (action_on(&visit.scene(), "resend-message", on, "Redrive", "plain")) " "
                @if found.content.is_some() { (action_on(&visit.scene(), "edit-message", on, "Edit and redrive", "plain")) " " }
                (action_on(&visit.scene(), "delete-message", on, "Delete", "danger"))
            }
        }
        (reading_only(visit))
        dl.pairs {
            dt { "Queue" } dd { a href=(letters_link(visit.links(), queue, "")) { (queue) } }
            dt { "Reason" } dd { (found.reason.as_deref().unwrap_or("none")) }
            dt { "Came from" } dd { (found.source.as_deref().unwrap_or("not known")) }
            dt { "Sent (UTC)" } dd { (found.sent_at.as_deref().map_or("not known".to_owned(), date)) }
            dt { "Received here" } dd { (format::counted(found.receive_count.0, "time", "times")) }
            dt { "Redriven" } dd { (format::counted(found.redriven.0, "time", "times")) }
            dt { "Size" } dd { (format::bytes(found.bytes.0)) }
        }
        @if let Some(why) = &found.unreadable { ul.alerts { (alert("bad", &html! { "It cannot be read: " (why) })) } }
        @match &found.content {
            Some(content) => section.message { (super::attempts::content(content)) },
            None => p.hint { (HIDDEN) },
        }
    }
}

/// The last jobs, where there are some.
fn job_section(scene: &Scene<'_>) -> Markup {
    html! {
        section aria-labelledby="jobs-title" {
            div.heading { h2 #jobs-title { "Redrives, moves and purges" } }
            (jobs(scene))
        }
    }
}

/// The parts of a page of dead letters that change.
pub(in super::super) fn parts(scene: &Scene<'_>, queue: &str) -> Vec<String> {
    let parts = [
        waiting(scene, queue),
        cost(scene.dashboard.sampler.cost()),
        jobs(scene),
    ];
    parts.map(|part| part.into_string()).into()
}

fn jobs(scene: &Scene<'_>) -> Markup {
    let page = Page {
        limit: JOBS,
        after: None,
    };
    let (jobs, _) = scene.operations.messages().jobs(&page).unwrap_or_default();
    let rows = html! {
        @for job in &jobs {
            tr {
                th scope="row" { a href=(scene.links().to("/ui/job", &[("id", &job.id)])) { (job.kind) " " (job.id) } }
                td { (job.queue) @if let Some(to) = &job.to { " → " (to) } }
                td { (state(job)) }
                td.number { (handled(job)) }
                td { (job.user) }
                td.nowrap { (date(&job.started_at)) }
            }
        }
    };
    html! {
        div #jobs {
            @if jobs.is_empty() { (nothing("None was started.")) }
            @else {
                (table("Jobs", &[
                    ("Job", ""), ("Queue", ""), ("State", ""), ("Messages", "number"), ("Started by", ""), ("Started (UTC)", ""),
                ], &rows))
            }
        }
    }
}

/// How many messages a job has moved or removed, of how many.
fn handled(job: &JobView) -> String {
    let JobReport { moved, removed, .. } = &job.report;
    let all = job.waiting.map(|waiting| format::count(waiting.0));
    if job.empties_at_once() {
        return all.map_or("–".to_owned(), |all| format!("about {all}"));
    }
    let handled = format::count(moved.0 + removed.map_or(0, |removed| removed.0));
    all.map_or(handled.clone(), |all| format!("{handled} of {all}"))
}

fn state(job: &JobView) -> Markup {
    let kind = match job.state.as_str() {
        "done" => "ok",
        "failed" | "cut" => "bad",
        "cancelled" => "warn",
        _ => "info",
    };
    html! { span.badge.(kind) { (job.state) } }
}

/// One job.
pub(in super::super) fn job(visit: &Visit, found: &JobView) -> Markup {
    html! {
        (job_heading(&visit.scene(), found))
        (reading_only(visit))
        (job_details(found))
    }
}

fn job_heading(scene: &Scene<'_>, job: &JobView) -> Markup {
    html! {
        div #job-heading.heading {
            h1 { (job.kind) " " (job.id) }
            div.actions {
                @if job.state == "running" {
                    span #cancel-job { (action(scene, "cancel-job", &job.id, "Stop", "danger")) }
                } @else if job.can_restart {
                    span #restart-job { (action(scene, "restart-job", &job.id, "Start again", "plain")) }
                }
            }
        }
    }
}

/// The parts of its page that change.
pub(in super::super) fn job_parts(scene: &Scene<'_>, id: &str) -> Vec<String> {
    let Some(job) = scene.operations.messages().job(id) else {
        return Vec::new();
    };
    let parts = [job_heading(scene, &job), job_details(&job)];
    parts.map(|part| part.into_string()).into()
}

fn job_details(job: &JobView) -> Markup {
    let JobReport {
        selected,
        moved,
        removed,
        left,
        blocked,
        returned,
        not_deleted,
        missing,
        uncertain,
        failures,
        end,
        ..
    } = &job.report;
    let counts = [
        ("Selected", selected.0),
        ("Moved", moved.0),
        ("Stay", left.0),
        ("Wait behind one of their group", blocked.0),
        ("Redriven, now or before, and failed again", returned.0),
        ("Sent and not deleted: in both queues", not_deleted.0),
        ("Asked for and not found", missing.0),
        ("Without a clear answer: may be in both queues", uncertain.0),
    ];
    html! {
        div #job {
            dl.pairs {
                dt { "State" } dd { (state(job)) @if let Some(error) = &job.error { " " (error) } }
                dt { "Queue" } dd { (job.queue) @if let Some(to) = &job.to { " → " (to) } }
                dt { "Started (UTC)" } dd { (date(&job.started_at)) " by " (job.user) }
                @if let Some(at) = &job.ended_at { dt { "Ended (UTC)" } dd { (date(at)) } }
                @if let Some(waiting) = job.waiting { dt { "Waited at the start" } dd { (format::count(waiting.0)) } }
                @for (name, count) in counts { @if count > 0 || name == "Moved" && job.kind != "purge" { dt { (name) } dd { (format::count(count)) } } }
                @if let Some(removed) = removed { dt { "Removed" } dd { (format::count(removed.0)) } }
                @else if job.empties_at_once() { dt { "Removed" } dd { "all within a minute, those in flight included" } }
                @if let Some(end) = end { dt { "It ended because" } dd { (end) } }
            }
            @if !failures.is_empty() {
                h2 { "Why messages stay" }
                (table("Why messages stay", &[("Messages", "number"), ("Why", "wide"), ("For example", "")], &html! {
                    @for failure in failures {
                        tr {
                            td.number { (format::count(failure.messages.0)) }
                            td.wide { (failure.error) }
                            td.id { (failure.samples.first().map_or("", String::as_str)) }
                        }
                    }
                }))
            }
        }
    }
}
