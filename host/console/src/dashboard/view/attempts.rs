//! The pages of the running attempts with their leases, and of one attempt with its messages.

use super::super::links::Links;
use super::super::scene::Scene;
use super::{Visit, action, format, nothing, reading_only, table};
use dispatcher_operate::operations::{ContentView, Page, RunningMessage, RunningView};
use maud::{Markup, html};

/// The number of attempts on a page.
const SHOWN: usize = 100;
/// The remaining time below which a lease is marked, in seconds.
const SHORT_LEASE_S: f64 = 5.0;

/// Returns the attempts of a page, of one queue or of all queues, and the start of the next page.
fn first(
    scene: &Scene<'_>,
    queue: Option<&str>,
    after: Option<&str>,
) -> (Vec<RunningView>, Option<String>) {
    let page = Page {
        limit: SHOWN,
        after: after.map(str::to_owned),
    };
    scene.operations.running(queue, &page).unwrap_or_default()
}

/// Renders the page of all attempts.
pub(in super::super) fn page(visit: &Visit, after: Option<&str>) -> Markup {
    html! {
        div.heading { h1 { "Running" } }
        p.muted { "Attempts under way in this process, the oldest of each route first. "
            "A lease is extended long before it ends; one that ends soon is marked." }
        (body(&visit.scene(), after))
    }
}

/// Renders the parts of the page that change.
pub(in super::super) fn parts(scene: &Scene<'_>, after: Option<&str>) -> Vec<String> {
    vec![body(scene, after).into_string()]
}

fn body(scene: &Scene<'_>, after: Option<&str>) -> Markup {
    let (attempts, next) = first(scene, None, after);
    html! {
        div #attempts {
            (list(scene.links(), &attempts, "No attempt is running."))
            @if after.is_some() || next.is_some() {
                p.pages {
                    @if after.is_some() { a href=(scene.links().to("/ui/running", &[])) { "First" } " " }
                    @if let Some(next) = next {
                        a href=(scene.links().to("/ui/running", &[("after", &next)])) { "Next" }
                    }
                }
            }
        }
    }
}

/// Renders the attempts of a queue, for the page of the queue.
pub(super) fn of_queue(scene: &Scene<'_>, queue: &str) -> Markup {
    let (attempts, next) = first(scene, Some(queue), None);
    html! {
        (list(scene.links(), &attempts, "No attempt of this queue is running here."))
        @if next.is_some() { p.muted.small { "These are the first " (SHOWN) "." } }
    }
}

/// Renders a table of attempts.
fn list(links: &Links, attempts: &[RunningView], none: &str) -> Markup {
    if attempts.is_empty() {
        return nothing(none);
    }
    let heads = [
        ("Attempt", ""),
        ("Queue", ""),
        ("Message", ""),
        ("Try", "number"),
        ("Runs for", "number"),
        ("Time left", "number"),
        ("Lease left", "number"),
        ("Version", ""),
    ];
    let rows = html! {
        @for attempt in attempts {
            tr id=(format!("attempt-{}", attempt.id)) {
                th scope="row" {
                    a href=(links.attempt(&attempt.id)) { (attempt.id) }
                    @if let Some(why) = &attempt.stuck { " " span.badge.bad title=(why) { "Stuck" } }
                }
                td { a href=(links.queue(&attempt.queue)) { (attempt.queue) } }
                td.id {
                    (attempt.messages.first().map_or("", |message| &message.id))
                    @if attempt.messages.len() > 1 {
                        " and " (attempt.messages.len() - 1) " more"
                    }
                }
                td.number { (attempt.messages.iter().map(|message| message.attempt.0).max().unwrap_or(1)) }
                td.number.nowrap { (format::time(attempt.age_s)) }
                td.number.nowrap { (format::time(attempt.time_left_s)) }
                td.number.nowrap { (lease(&attempt.messages)) }
                td.id title=[attempt.version.as_deref()] {
                    (attempt.version.as_deref().map_or(String::new(), short_version))
                }
            }
        }
    };
    table("Attempts under way", &heads, &rows)
}

/// Shortens a version `FILE sha256:DIGEST` to the file name and the beginning of the digest.
fn short_version(version: &str) -> String {
    match version.split_once(" sha256:") {
        Some((file, digest)) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            format!("{name} {}", digest.get(..8).unwrap_or(digest))
        }
        None => version.to_owned(),
    }
}

/// Renders the remaining time of the lease that ends first.
fn lease(messages: &[RunningMessage]) -> Markup {
    if messages.iter().any(|message| message.cancelled) {
        return html! { span.badge.warn { "Cancelled" } };
    }
    let Some(left) = messages
        .iter()
        .map(|message| message.lease_left_s)
        .reduce(least)
    else {
        return html! {};
    };
    match left {
        None => html! { span.badge.bad { "Lost" } },
        Some(left) if left < SHORT_LEASE_S => html! { span.bad { (format::time(left)) } },
        Some(left) => html! { (format::time(left)) },
    }
}

/// Returns the smaller value. A lost lease (`None`) is the smallest.
fn least(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one?.min(other?))
}

/// Renders the page of one attempt.
pub(in super::super) fn attempt(visit: &Visit, attempt: &RunningView) -> Markup {
    let links = visit.links();
    let shows_bodies = attempt
        .messages
        .iter()
        .any(|message| message.content.is_some());
    html! {
        div.heading {
            h1 { "Attempt " (attempt.id) }
            div.actions { (action(&visit.scene(), "cancel-attempt", &attempt.id, "Cancel", "danger")) }
        }
        (reading_only(visit))
        @if let Some(why) = &attempt.stuck { ul.alerts { (super::alert("bad", &html! { strong { "Stuck: " } (why) })) } }
        dl.pairs {
            dt { "Queue" } dd { a href=(links.queue(&attempt.queue)) { (attempt.queue) } }
            dt { "Route" } dd { (attempt.route) }
            dt { "Runs for" } dd { (format::time(attempt.age_s)) }
            dt { "Time left" } dd { (format::time(attempt.time_left_s)) }
            @if let Some(version) = &attempt.version { dt { "Plugin version" } dd.id { (version) } }
        }
        @for message in &attempt.messages {
            (one_message(message))
        }
        @if !shows_bodies {
            p.hint { "Bodies and attributes are hidden. Start the program with --admin-bodies to show them." }
        }
    }
}

fn one_message(message: &RunningMessage) -> Markup {
    html! {
        section.message {
            h2 { "Message " span.id { (message.id) } }
            dl.pairs {
                dt { "Attempt" } dd { (message.attempt.0) }
                dt { "Received" } dd { (format::counted(message.receive_count.0, "time", "times")) }
                dt { "Lease left" } dd { (lease(std::slice::from_ref(message))) }
                @if let Some(group) = message.content.as_ref().and_then(|content| content.group.as_ref()) {
                    dt { "Group" } dd { (group) }
                }
            }
            @if let Some(shown) = &message.content { (content(shown)) }
        }
    }
}

/// Renders the content of a message.
pub(super) fn content(content: &ContentView) -> Markup {
    html! {
        h3 { "Body" }
        pre tabindex="0" { (content.body) }
        @if !content.attributes.is_empty() {
            h3 { "Attributes" }
            dl.pairs {
                @for attribute in &content.attributes {
                    dt { (attribute.name) @if attribute.binary { span.muted { " (base64)" } } }
                    dd { (attribute.value) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_shown_with_the_beginning_of_its_digest() {
        for file in ["a.wasm", "/srv/plugins/a.wasm"] {
            let version = format!("{file} sha256:0123456789");
            assert_eq!(short_version(&version), "a.wasm 01234567");
        }
        assert_eq!(short_version("canary"), "canary");
    }

    #[test]
    fn the_lease_that_is_shown_is_the_one_that_ends_first() {
        assert_eq!(least(Some(2.0), Some(1.0)), Some(1.0));
        assert_eq!(least(Some(2.0), None), None);
    }
}
