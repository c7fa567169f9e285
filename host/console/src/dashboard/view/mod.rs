//! The frame around all pages and the elements that several pages share. Text from outside is
//! always escaped. Each page is a file.

pub(super) mod attempts;
pub(super) mod chart;
pub(super) mod fleet;
pub(super) mod letters;
pub(super) mod lists;
pub(super) mod overview;
pub(super) mod queue;
pub(super) mod sign_in;

use super::format;
use super::links::Links;
use super::scene::Scene;
use super::{assets, visit::Visit};
use dispatcher_operate::operations::{OutcomeView, ProcessView};
use maud::{DOCTYPE, Markup, html};

/// The pages in the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Fleet,
    Running,
    DeadLetters,
    Schedules,
    Plugins,
    Processes,
    Doctor,
}

impl Section {
    const ALL: [Self; 8] = [
        Self::Overview,
        Self::Fleet,
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
            Self::Fleet => "Fleet",
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
            Self::Fleet => "/ui/fleet",
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

/// Renders the whole page.
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

/// Renders a whole document without the menu.
pub(super) fn bare(links: &Links, title: &str, content: &Markup) -> Markup {
    let content = html! {
        main.bare #main {
            p.brand { (icon(links)) span { "dispatcher" } }
            (content)
        }
    };
    document(links, title, false, &content)
}

/// Renders a problem and advice for it.
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

/// Renders the problems of a request.
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

/// Renders the reason why an action was refused, for its form.
pub(super) fn refusal(what: &Markup) -> Markup {
    html! { div #refusal.alert.bad role="alert" { (what) } }
}

fn document(links: &Links, title: &str, is_live: bool, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · dispatcher" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=r#"{"history":false,"includeIndicatorCSS":false}"#;
                link rel="icon" href=(asset(links, "icon", "svg")) type="image/svg+xml";
                @if is_live { link rel="stylesheet" href=(asset(links, "uplot", "css")); }
                link rel="stylesheet" href=(asset(links, "dashboard", "css"));
                @if is_live {
                    script src=(asset(links, "htmx", "js")) defer {}
                    script src=(asset(links, "uplot", "js")) defer {}
                }
                script src=(asset(links, "dashboard", "js")) defer {}
            }
            body { (content) }
        }
    }
}

fn asset(links: &Links, stem: &str, extension: &str) -> String {
    let file = format!("/ui/assets/{}", assets::name(stem, extension));
    links.to(&file, &[])
}

fn icon(links: &Links) -> Markup {
    html! { img src=(asset(links, "icon", "svg")) alt="" width="20" height="20"; }
}

/// Renders the name of the environment, so that an operator does not pause the wrong one.
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

/// Renders the state of the process, for the head of the page.
pub(super) fn state(process: &ProcessView) -> Markup {
    let (kind, word) = match (process.state.as_str(), process.ready) {
        ("running", true) => ("ok", "Running"),
        ("running", false) => ("bad", "Not ready"),
        _ => ("warn", "Draining"),
    };
    html! { span #state.badge.(kind) { (word) } }
}

/// Renders a number with its name.
pub(super) fn figure(name: &str, value: &str, more: &Markup) -> Markup {
    html! {
        div.figure {
            dt { (name) }
            dd { span.value { (value) } span.more { (more) } }
        }
    }
}

/// Renders a table that scrolls separately on a narrow screen.
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

/// Renders a form that filters queues by name or route.
pub(super) fn filter_form(links: &Links, path: &str, filter: &str) -> Markup {
    html! {
        form.filter method="get" action=(links.to(path, &[])) role="search" {
            label.sr for="filter" { "Filter queues by name or route" }
            input #filter type="search" name="q" value=(filter) placeholder="Filter" autocomplete="off";
            button type="submit" { "Filter" }
        }
    }
}

/// Renders the links to the first and the next page of a list of queues.
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

/// Renders an alert.
pub(super) fn alert(kind: &str, content: &Markup) -> Markup {
    html! { li.alert.(kind) { (content) } }
}

/// Renders the note of an empty list.
pub(super) fn nothing(what: &str) -> Markup {
    html! { p.nothing { (what) } }
}

/// Renders a link to the confirmation of an action: a dialog with JavaScript, a page without.
pub(super) fn action(
    scene: &Scene<'_>,
    name: &str,
    target: &str,
    label: &str,
    kind: &str,
) -> Markup {
    action_on(scene, name, (target, ""), label, kind)
}

/// Renders a link to an action on a part of the target: a message of a queue, or the messages with
/// a reason.
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

/// Renders a link to pause or to resume. The two are separate elements that are never transformed
/// into each other, so that the page's script does not keep the state of one for the other.
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

/// Renders the reason why the viewer may not act, if there is one.
pub(super) fn reading_only(visit: &Visit) -> Markup {
    html! {
        @if let Some(why_not) = visit.why_not() { p.hint { (why_not) } }
    }
}

/// Renders the last outcomes other than done.
pub(super) fn outcomes(links: &Links, outcomes: &[OutcomeView], with_queue: bool) -> Markup {
    if outcomes.is_empty() {
        return nothing(if with_queue {
            "Every delivery since the start of this process has succeeded."
        } else {
            "None of the last 1,000 deliveries of this process that did not succeed was of this queue."
        });
    }
    let rows = html! {
        @for outcome in outcomes {
            tr {
                td.nowrap { time datetime=(outcome.at) { (clock_time(&outcome.at)) } }
                @if with_queue {
                    td { a href=(links.queue(&outcome.queue)) { (outcome.queue) } }
                }
                td { span.badge.(kind_of(&outcome.event)) { (outcome.event) } }
                td.wide {
                    @if let Some(reason) = outcome.reason.as_deref().or(outcome.reason_kind.as_deref()) {
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
        "retried" | "shed" | "abandoned" => "warn",
        _ => "info",
    }
}

/// Formats a date and time to the second.
pub(super) fn date(at: &str) -> String {
    at.get(..19).unwrap_or(at).replace('T', " ")
}

/// Returns the time of a date and time.
fn clock_time(at: &str) -> &str {
    at.get(11..19).unwrap_or(at)
}
