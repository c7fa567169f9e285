//! The pages of dead letters: the dead-letter queues, the messages of a queue by reason, one
//! message, and the jobs that move or remove messages.

use super::super::links::Links;
use super::super::sampler::{QueuePage, Sampler};
use super::super::scene::Scene;
use super::overview::{cost, no_queues};
use super::{
    Visit, action, action_on, alert, date, filter_form, format, nothing, pages, reading_only, table,
};
use dispatcher_operate::messages::{JobView, MessageList, MessageView};
use dispatcher_operate::operations::{Page, QueueView};
use dispatcher_operate::redrive::{End, JobReport, OTHERS, ReasonView};
use dispatcher_operate::schema::Count;
use maud::{Markup, html};

const HIDDEN: &str =
    "Bodies and attributes are hidden. Start the program with --admin-bodies to show them.";
/// The number of jobs shown.
const JOBS: usize = 20;

/// Renders the page of the dead-letter queues.
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

/// Renders the parts of that page that change.
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
    let with: Vec<(&QueueView, &str)> = shown
        .queues
        .iter()
        .filter_map(|queue| Some((queue, queue.dead_letter_queue.as_deref()?)))
        .collect();
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
                (nothing("None of these queues has a known dead-letter queue."))
            }
        }
    }
}

fn dead_count(sampler: &Sampler, queue: &QueueView) -> Markup {
    let known = sampler
        .depth(&queue.queue)
        .and_then(|known| known.dead_letters);
    match known.and_then(|depth| depth.waiting) {
        Some(count) => html! { span.bad[count.0 > 0] { (format::count(count.0)) } },
        None => html! { "–" },
    }
}

/// Returns the address of the messages of a queue with this reason.
pub(in super::super) fn letters_link(links: &Links, queue: &str, reason: &str) -> String {
    match reason {
        "" => links.to("/ui/dead-letters", &[("queue", queue)]),
        reason => links.to("/ui/dead-letters", &[("queue", queue), ("reason", reason)]),
    }
}

/// Renders the messages of a queue, by reason. `reason` is the selected reason, if one was
/// selected.
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
                    a href=(next_link(links, found, reason, &[("after", next), ("look", "longer")])) { "Look further" }
                } @else {
                    a href=(next_link(links, found, reason, &[("after", next)])) { "Next" }
                }
            }
        }
        (cost(visit.sampler().cost()))
        (job_section(&visit.scene()))
    }
}

/// Renders the current number of waiting messages. The lists are as old as the page.
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

/// Says why no message is listed.
fn none_found(found: &MessageList, reason: &str) -> &'static str {
    match (reason, found.next.is_some()) {
        (_, true) => "None is among the messages that were inspected. There are more.",
        ("", false) => "No message waits here.",
        (_, false) => "No message with this reason waits here.",
    }
}

fn next_link(links: &Links, found: &MessageList, reason: &str, more: &[(&str, &str)]) -> String {
    let chosen = [("queue", found.queue.as_str()), ("reason", reason)];
    links.to("/ui/dead-letters", &[&chosen[..], more].concat())
}

/// Renders the page of a queue whose messages cannot be listed and must be received to be seen.
pub(in super::super) fn unlisted(visit: &Visit, queue: &str) -> Markup {
    html! {
        (heading(visit, queue, true))
        (reading_only(visit))
        p.hint { "This queue hands out messages only by receiving them. Looking receives up to 1,000 and gives them back "
            "at once: the receive count of each is then one higher, and each call is billed. A message whose next receive would be "
            "its last is skipped." }
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
            (format::counted(found.selected.0, "message", "messages")) " of " (format::count(found.scanned.0)) " inspected"
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
                td.number { b { (format::count(one.messages)) } }
                td.wide {
                    @match one.reason.as_deref() {
                        Some(OTHERS) => span.muted { "other reasons, each with few messages" },
                        Some(reason) => a.text href=(letters_link(links, queue, reason)) title=(reason) { (reason) },
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

/// Renders the messages that a look received. They cannot be found again by their ids, so their
/// content is included.
fn received(found: &MessageList) -> Markup {
    html! {
        @for one in &found.items {
            details.card {
                summary { span.id { (one.id) } @if let Some(first) = &one.first_id { " (first " span.id { (first) } ")" } " " (one.reason.as_deref().unwrap_or("–")) }
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

/// Renders the page of one message.
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
            @if let Some(first) = &found.first_id { dt { "First id" } dd.id { (first) } }
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

/// Renders the section of the last jobs.
fn job_section(scene: &Scene<'_>) -> Markup {
    html! {
        section aria-labelledby="jobs-title" {
            div.heading { h2 #jobs-title { "Redrives, moves and purges" } }
            (jobs(scene))
        }
    }
}

/// Renders the parts of a page of dead letters that change.
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
                td.number { (handled(job)) @for (what, count) in rest_of(job) { br; span.muted { (format::count(count)) " " (what) } } }
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

/// Returns how many messages a job has moved or removed, and the total.
fn handled(job: &JobView) -> String {
    let JobReport { moved, removed, .. } = &job.report;
    let all = job.waiting.map(|waiting| format::count(waiting.0));
    if job.empties_at_once() {
        return all.map_or("–".to_owned(), |all| format!("about {all}"));
    }
    let handled = format::count(moved + removed.unwrap_or_default());
    all.map_or(handled.clone(), |all| format!("{handled} of {all}"))
}

/// Returns what happened to the messages that a finished job did not move or remove.
fn rest(state: &str, waiting: Option<Count>, report: &JobReport) -> Vec<(&'static str, u64)> {
    let JobReport {
        scanned,
        selected,
        moved,
        removed,
        left,
        blocked,
        end,
        ..
    } = report;
    let (Some(waiting), true) = (waiting, state != "running") else {
        return Vec::new();
    };
    let done = moved + removed.unwrap_or_default();
    let unselected = scanned.saturating_sub(*selected);
    let known = [done, *left, *blocked, unselected];
    let unseen = known.into_iter().fold(waiting.0, u64::saturating_sub);
    let saw_all = matches!(end, Some(End::Complete | End::OnlyNew));
    let unseen_is = if saw_all || end.is_none() && state == "done" {
        "taken by others"
    } else {
        "not inspected"
    };
    let rest = [
        ("stay", *left),
        ("wait behind one of their group", *blocked),
        ("not selected", unselected),
        (unseen_is, unseen),
    ];
    rest.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn rest_of(job: &JobView) -> Vec<(&'static str, u64)> {
    if !job.applied || job.empties_at_once() {
        return Vec::new();
    }
    rest(&job.state, job.waiting, &job.report)
}

fn rest_in_words(job: &JobView) -> String {
    let rest = rest_of(job).into_iter();
    let each = rest.map(|(what, count)| format!("{} {what}", format::count(count)));
    each.collect::<Vec<_>>().join(", ")
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

/// Renders the page of one job.
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

/// Renders the parts of its page that change.
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
        ("Selected", *selected),
        ("Moved", *moved),
        ("Stay", *left),
        ("Wait behind one of their group", *blocked),
        ("Redriven, now or before, and failed again", *returned),
        ("Sent and not deleted: in both queues", *not_deleted),
        ("Asked for and not found", *missing),
        ("Without a clear answer: may be in both queues", *uncertain),
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
                @if let Some(removed) = removed { dt { "Removed" } dd { (format::count(*removed)) } }
                @else if job.empties_at_once() { dt { "Removed" } dd { "all within a minute, those in flight included" } }
                @if !rest_of(job).is_empty() { dt { "The rest" } dd { (rest_in_words(job)) } }
                @if let Some(end) = end { dt { "It ended because" } dd { (end.words()) } }
            }
            @if !failures.is_empty() {
                h2 { "Why messages stay" }
                (table("Why messages stay", &[("Messages", "number"), ("Why", "wide"), ("For example", "")], &html! {
                    @for failure in failures {
                        tr {
                            td.number { (format::count(failure.messages)) }
                            td.wide { (failure.error) }
                            td.id { (failure.samples.first().map_or("", String::as_str)) }
                        }
                    }
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A redrive of 408 letters that moved 220.
    fn ended(
        state: &str,
        end: End,
        change: impl FnOnce(&mut JobReport),
    ) -> Vec<(&'static str, u64)> {
        let mut report = JobReport {
            scanned: 220,
            selected: 220,
            moved: 220,
            end: Some(end),
            ..JobReport::default()
        };
        change(&mut report);
        rest(state, Some(Count(408)), &report)
    }

    #[test]
    fn a_job_that_ended_says_what_became_of_the_rest() {
        for (state, end, rest) in [
            ("done", End::Complete, &[("taken by others", 188)][..]),
            ("done", End::First, &[("not inspected", 188)]),
            ("cancelled", End::Cancelled, &[("not inspected", 188)]),
            ("running", End::Complete, &[]),
        ] {
            assert_eq!(ended(state, end, |_| {}), rest);
        }
        let mixed = ended("done", End::Complete, |report| {
            report.scanned = 408;
            report.selected = 400;
            report.left = 30;
            report.blocked = 50;
        });
        let wanted = [
            ("stay", 30),
            ("wait behind one of their group", 50),
            ("not selected", 8),
            ("taken by others", 100),
        ];
        assert_eq!(mixed, wanted);
        let none = ended("done", End::Complete, |report| report.moved = 408);
        assert_eq!(none, []);
    }
}
