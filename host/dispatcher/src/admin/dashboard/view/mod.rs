//! What pages look like: the frame around all of them, and what several have in common. Text of others
//! is always escaped. Each page is a file.

pub(super) mod attempts;
pub(super) mod chart;
pub(super) mod letters;
pub(super) mod lists;
pub(super) mod overview;
pub(super) mod queue;
pub(super) mod sign_in;

use super::format;
use super::links::Links;
use super::scene::Scene;
use super::{assets, visit::Visit};
use crate::admin::operations::{OutcomeView, ProcessView};
use maud::{DOCTYPE, Markup, html};

/// The pages in the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Running,
    DeadLetters,
    Schedules,
    Plugins,
    Processes,
    Doctor,
}

impl Section {
    const ALL: [Self; 7] = [
        Self::Overview,
        Self::Running,
        Self::DeadLetters,
        Self::Schedules,
        Self::Plugins,
        Self::Processes,
        Self::Doctor,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Running => "Running",
            Self::DeadLetters => "Dead letters",
            Self::Schedules => "Schedules",
            Self::Plugins => "Plugins",
            Self::Processes => "Processes",
            Self::Doctor => "Doctor",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Overview => "/ui",
            Self::Running => "/ui/running",
            Self::DeadLetters => "/ui/dead-letters",
            Self::Schedules => "/ui/schedules",
            Self::Plugins => "/ui/plugins",
            Self::Processes => "/ui/processes",
            Self::Doctor => "/ui/doctor",
        }
    }
}

/// A page that belongs to a section of the menu.
pub(super) struct Page<'a> {
    pub section: Option<Section>,
    pub title: &'a str,
    /// The address of the stream that keeps it current.
    pub live: Option<String>,
    pub content: Markup,
}

/// The whole page.
pub(super) fn page(visit: &Visit, page: Page<'_>) -> Markup {
    let links = visit.links();
    let process = visit.operations.process();
    let content = html! {
        a.skip href="#main" { "Skip to content" }
        header.top {
            a.brand href=(links.to("/ui", &[])) { (icon(links)) span { "dispatcher" } }
            (environment(visit.environment()))
            span.process title="This process" { (process.id) }
            (state(&process))
            div.tools {
                button.theme type="button" data-theme-switch hidden { "Theme" }
                @if visit.can_sign_out() {
                    span.who { (visit.caller.name()) " · " (visit.caller.role_name().unwrap_or("read")) }
                    form method="post" action=(links.to("/ui/sign-out", &[])) {
                        button.quiet type="submit" { "Sign out" }
                    }
                }
            }
        }
        div.frame {
            nav.menu aria-label="Pages" {
                ul {
                    @for section in Section::ALL {
                        li {
                            a href=(links.to(section.path(), &[]))
                                aria-current=[(page.section == Some(section)).then_some("page")] {
                                (section.title())
                            }
                        }
                    }
                }
                p.version { "Version " (process.version) br; "up " (format::time(process.uptime_s.floor())) }
            }
            main #main tabindex="-1" data-live=[page.live.as_deref()] {
                div #connection role="status" {}
                @if let Some(notice) = &visit.notice {
                    p.notice role="status" { (notice) }
                }
                noscript { p.hint { "Without JavaScript this page does not update by itself. "
                    a href=(visit.here()) { "Reload" } } }
                (page.content)
            }
        }
        dialog #dialog aria-label="Confirm" {}
    };
    document(links, page.title, true, &content)
}

/// A whole document, without the menu.
pub(super) fn bare(links: &Links, title: &str, content: &Markup) -> Markup {
    let content = html! {
        main.bare #main {
            p.brand { (icon(links)) span { "dispatcher" } }
            (content)
        }
    };
    document(links, title, false, &content)
}

/// What is wrong, and what to do about it.
pub(super) fn problem(links: &Links, status: u16, what: &Markup) -> Markup {
    let title = match status {
        401 | 403 => "Not permitted",
        404 => "Not found",
        405 => "No page",
        503 => "Not available now",
        _ => "That did not work",
    };
    let content = html! {
        h1 { (title) }
        (what)
        p.muted { "HTTP status " (status) "." }
        p { a.button href=(links.to("/ui", &[])) { "To the overview" } }
    };
    bare(links, title, &content)
}

/// What is wrong with what somebody has sent.
pub(super) fn what_is_wrong(detail: &str, errors: &[String]) -> Markup {
    html! {
        @if errors.is_empty() {
            p { (detail) }
        } @else {
            p { "Nothing was done." }
            ul.problems { @for error in errors { li { (error) } } }
        }
    }
}

/// Why an action was refused, for its form.
pub(super) fn refusal(what: &Markup) -> Markup {
    html! { div #refusal.alert.bad role="alert" { (what) } }
}

fn document(links: &Links, title: &str, is_live: bool, content: &Markup) -> Markup {
    let asset = |stem, extension| {
        links.to(
            &format!("/ui/assets/{}", assets::name(stem, extension)),
            &[],
        )
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · dispatcher" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=r#"{"history":false,"includeIndicatorCSS":false}"#;
                link rel="icon" href=(asset("icon", "svg")) type="image/svg+xml";
                @if is_live { link rel="stylesheet" href=(asset("uplot", "css")); }
                link rel="stylesheet" href=(asset("dashboard", "css"));
                @if is_live {
                    script src=(asset("htmx", "js")) defer {}
                    script src=(asset("uplot", "js")) defer {}
                }
                script src=(asset("dashboard", "js")) defer {}
            }
            body { (content) }
        }
    }
}

fn icon(links: &Links) -> Markup {
    let file = format!("/ui/assets/{}", assets::name("icon", "svg"));
    html! { img src=(links.to(&file, &[])) alt="" width="20" height="20"; }
}

/// Which environment this is, so that nobody pauses the wrong one.
fn environment(name: Option<&str>) -> Markup {
    let Some(name) = name else {
        return html! {};
    };
    let lower = name.to_lowercase();
    let kind = if lower.starts_with("prod") || lower == "live" {
        "bad"
    } else if lower.starts_with("stag") || lower.starts_with("test") || lower.starts_with("qa") {
        "warn"
    } else {
        "info"
    };
    html! { strong.badge.(kind) { (name) } }
}

/// What the process does, for the head of the page.
pub(super) fn state(process: &ProcessView) -> Markup {
    let (kind, word) = match (process.state.as_str(), process.ready) {
        ("running", true) => ("ok", "Running"),
        ("running", false) => ("bad", "Not ready"),
        _ => ("warn", "Draining"),
    };
    html! { span #state.badge.(kind) { (word) } }
}

/// A number with its name.
pub(super) fn figure(name: &str, value: &str, more: &Markup) -> Markup {
    html! {
        div.figure {
            dt { (name) }
            dd { span.value { (value) } span.more { (more) } }
        }
    }
}

/// A table that can be scrolled by itself on a narrow screen.
pub(super) fn table(label: &str, heads: &[(&str, &str)], rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for (head, class) in heads { th scope="col" class=(class) { (head) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// Chooses queues by their names or routes.
pub(super) fn filter_form(links: &Links, path: &str, filter: &str) -> Markup {
    html! {
        form.filter method="get" action=(links.to(path, &[])) role="search" {
            label.sr for="filter" { "Filter queues by name or route" }
            input #filter type="search" name="q" value=(filter) placeholder="Filter" autocomplete="off";
            button type="submit" { "Filter" }
        }
    }
}

/// Leads to the first and to the next page of a list of queues.
pub(super) fn pages(
    links: &Links,
    path: &str,
    filter: &str,
    after: usize,
    next: Option<usize>,
) -> Markup {
    html! {
        @if after > 0 || next.is_some() {
            p.pages {
                @if after > 0 { a href=(links.to(path, &[("q", filter)])) { "First" } " " }
                @if let Some(next) = next {
                    a href=(links.to(path, &[("q", filter), ("after", &next.to_string())])) { "Next" }
                }
            }
        }
    }
}

/// Something that needs attention.
pub(super) fn alert(kind: &str, content: &Markup) -> Markup {
    html! { li.alert.(kind) { (content) } }
}

/// Where nothing is.
pub(super) fn nothing(what: &str) -> Markup {
    html! { p.nothing { (what) } }
}

/// A link to the confirmation of an action: a dialog with JavaScript, a page without.
pub(super) fn action(
    scene: &Scene<'_>,
    name: &str,
    target: &str,
    label: &str,
    kind: &str,
) -> Markup {
    action_on(scene, name, (target, ""), label, kind)
}

/// The same on a part of the target: a message of a queue, or those with a reason.
pub(super) fn action_on(
    scene: &Scene<'_>,
    name: &str,
    (target, part): (&str, &str),
    label: &str,
    kind: &str,
) -> Markup {
    let links = scene.links();
    let mut parameters = vec![("target", target)];
    if !part.is_empty() {
        parameters.push(("part", part));
    }
    let href = links.to(&format!("/ui/confirm/{name}"), &parameters);
    html! {
        @if let Some(why_not) = scene.why_not {
            span.button.off title=(why_not) { (label) }
        } @else {
            a.button.(kind) href=(href) data-hx-get=(href) data-hx-target="#dialog"
                data-hx-select="#confirm" data-hx-swap="innerHTML" { (label) }
        }
    }
}

/// A link to pause or to resume. The two are never made one of the other, so that what the script of
/// the page knows of one does not stay with the other.
pub(super) fn pause_or_resume(
    scene: &Scene<'_>,
    what: &str,
    target: &str,
    is_paused: bool,
) -> Markup {
    let (verb, label) = if is_paused {
        ("resume", "Resume")
    } else {
        ("pause", "Pause")
    };
    let name = format!("{verb}-{what}");
    html! { span id=(format!("{name}-{target}")) { (action(scene, &name, target, label, "plain")) } }
}

/// Why nobody who sees this page may act, where that is so.
pub(super) fn reading_only(visit: &Visit) -> Markup {
    html! {
        @if let Some(why_not) = visit.why_not() { p.hint { (why_not) } }
    }
}

/// The last deliveries that ended otherwise than done.
pub(super) fn outcomes(links: &Links, outcomes: &[OutcomeView], with_queue: bool) -> Markup {
    if outcomes.is_empty() {
        return nothing(if with_queue {
            "No delivery has ended otherwise than done since the start of this process."
        } else {
            "None of the last 1,000 deliveries of this process that ended otherwise than done was of this queue."
        });
    }
    let rows = html! {
        @for outcome in outcomes {
            tr {
                td.nowrap { time datetime=(outcome.at) { (clock_time(&outcome.at)) } }
                @if with_queue {
                    td { a href=(links.queue(&outcome.queue)) { (outcome.queue) } }
                }
                td { span.badge.(kind_of(outcome.event)) { (outcome.event) } }
                td.wide {
                    @if let Some(reason) = outcome.reason.as_deref().or(outcome.reason_kind) {
                        span.text title=(reason) { (reason) }
                    }
                    @if let Some(to) = &outcome.to { " → " span.id { (to) } }
                }
                td.number { (format::count(outcome.messages.0)) }
                td.id title=[outcome.ids.first()] { (outcome.ids.first().map_or("", String::as_str)) }
            }
        }
    };
    let mut heads = vec![
        ("Time (UTC)", ""),
        ("Event", ""),
        ("Reason", "wide"),
        ("Messages", "number"),
        ("Message id", ""),
    ];
    if with_queue {
        heads.insert(1, ("Queue", ""));
    }
    table("Recent failures", &heads, &rows)
}

fn kind_of(event: &str) -> &'static str {
    match event {
        "dead-lettered" | "dead-lettered-by-redrive-policy" | "lost" | "not-settled" => "bad",
        "retried" | "shed" => "warn",
        _ => "info",
    }
}

/// A date and time to the second.
pub(super) fn date(at: &str) -> String {
    at.get(..19).unwrap_or(at).replace('T', " ")
}

/// The time of a date and time.
fn clock_time(at: &str) -> &str {
    at.get(11..19).unwrap_or(at)
}
