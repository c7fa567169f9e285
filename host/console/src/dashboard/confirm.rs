//! The confirmation form of an action: what the action affects, and how many messages.

use super::LISTED;
use super::actions::{Action, LineEnds};
use super::format::counted;
use super::visit::Visit;
use dispatcher_operate::messages::{Backlog, LookTerms};
use dispatcher_operate::operations::{LiveNumber, QueueView, RouteView, RunningView};
use dispatcher_operate::problem::{CallProblem, StatusCode};
use dispatcher_operate::request::{AtLeastOne, Scan};
use dispatcher_operate::select::Select;
use dispatcher_operate::verbs::scan::ScanRequest;
use dispatcher_operate::verbs::{FieldKind, Form, Target};
use maud::{Markup, html};
use std::time::Duration;

/// Renders the confirmation form of an action, with what the action affects.
///
/// # Errors
/// Returns a problem if the target does not exist, or the caller may not act.
pub(super) async fn confirmation(visit: &Visit, action: Action) -> Result<Markup, CallProblem> {
    if let Some(why_not) = visit.why_not() {
        return Err(CallProblem::new(StatusCode::FORBIDDEN, why_not));
    }
    let action = action.form;
    let target = visit.parameters.get("target");
    let part = visit.parameters.get("part");
    let (consequence, values) = consequence(visit, action, (target, part)).await?;
    let links = visit.links();
    let button = if action.is_destructive {
        "danger"
    } else {
        "primary"
    };
    Ok(html! {
        // The answer to a look is a page with the messages that it found.
        form #confirm.confirm method="post" action=(links.to(&format!("/ui/act/{}", action.name), &[]))
            data-answer=[(action.name == "look").then_some("page")] {
            h1 { (action.title) }
            @if !target.is_empty() { p.id { (target) } }
            @if !part.is_empty() { p.id { (part) } }
            (consequence)
            input type="hidden" name="target" value=(target);
            input type="hidden" name="back" value=(visit.from);
            input type="hidden" name="part" value=(part);
            @for (at, field) in action.fields.iter().enumerate() {
                @let value = values.get(at).map_or("", String::as_str);
                @let help = format!("{}-help", field.name);
                label for=(field.name) { (field.label) }
                @if field.kind == FieldKind::Body {
                    textarea id=(field.name) name=(field.name) rows="12" spellcheck="false" aria-describedby=(help) { "\n" (value) }
                } @else {
                    input id=(field.name) name=(field.name) autocomplete="off" value=(value) aria-describedby=(help)
                        inputmode=[matches!(field.kind, FieldKind::Limit | FieldKind::Number).then_some("decimal")]
                        required[field.kind == FieldKind::Text];
                }
                p.muted.small id=(help) { (field.help) }
            }
            div.actions {
                button.(button) type="submit" { (action.button) }
                // Enter must not delete anything. If there is a field, the field has the focus.
                " " a.button.plain href=(visit.from) data-close autofocus[action.is_destructive && action.fields.is_empty()] { "Keep as it is" }
            }
        }
    })
}

type Consequence = (Markup, Vec<String>);

/// Returns a description of the effect of an action, and the current values of its fields.
async fn consequence(
    visit: &Visit,
    action: &Form,
    (target, part): (&str, &str),
) -> Result<Consequence, CallProblem> {
    match action.target {
        Target::Queue => {
            let queue = visit.operations.queue(target).await.ok_or_else(|| {
                CallProblem::not_found(format!("This process has no queue `{target}`."))
            })?;
            // Cancelling affects one message, which the form names.
            let backlog = if action.name == "cancel-message" {
                None
            } else {
                visit.operations.messages().backlog(target).await.ok()
            };
            let text = of_queue(action, &queue, backlog);
            Ok((text, queue_values(action, &queue)))
        }
        Target::Route => {
            let routes = visit.scene().routes();
            let found = routes.iter().find(|route| route.route == target);
            let route = found.ok_or_else(|| {
                CallProblem::not_found(format!("This process has no route `{target}`."))
            })?;
            let values = [&route.concurrency, &route.prefetch].map(live).to_vec();
            let waiting = if action.name == "resume-route" {
                waiting_of_route(visit, route).await
            } else {
                None
            };
            Ok((of_route(action, route, waiting), values))
        }
        Target::Attempt => {
            let attempt = visit.operations.attempt(target).ok_or_else(|| {
                CallProblem::not_found(format!(
                    "No attempt `{target}` runs here: it may have ended."
                ))
            })?;
            Ok((of_attempt(&attempt), Vec::new()))
        }
        Target::Messages => of_messages(visit, action, target, part).await,
        Target::Job => {
            let job =
                visit.operations.messages().job(target).ok_or_else(|| {
                    CallProblem::not_found(format!("There is no job `{target}`."))
                })?;
            let (verb, handled) = match job.report.removed {
                Some(removed) => ("removed", removed),
                None => ("moved", job.report.moved),
            };
            let left = if action.is_destructive {
                html! { "It stops after its current batch; what is " (verb) " stays so." }
            } else {
                let backlog = visit.operations.messages().backlog(&job.queue).await?;
                html! { "It continues with the rest: " (waits(&backlog, "about ")) " there now." }
            };
            let text = html! {
                p { b { (messages(handled)) } " of " span.id { (job.queue) } " " (verb) " so far. " (left) }
            };
            Ok((text, Vec::new()))
        }
        Target::Schedule => {
            let text = html! {
                p { (scheduled(visit, part).await?)
                    @if action.is_destructive { " is removed and does not come again. This cannot be undone." }
                    @else { " is sent to its queue now. One that repeats keeps its times." } }
            };
            Ok((text, Vec::new()))
        }
        Target::Program => Ok((of_program(visit, action), Vec::new())),
    }
}

async fn of_messages(
    visit: &Visit,
    action: &Form,
    queue: &str,
    part: &str,
) -> Result<Consequence, CallProblem> {
    let one = match action.name {
        "redrive" | "purge" | "look" => html! {},
        _ => one_of(visit, queue, part).await?,
    };
    let text = match action.name {
        "redrive" => html! {
            p {
                @if part.is_empty() { (all_that_wait(visit, queue).await?) }
                @else { (number_with(visit, queue, part).await?) }
                " sent to the queue that each came from, unless another is named, and deleted here once that is confirmed." }
        },
        "purge" => {
            let backlog = visit.operations.messages().backlog(queue).await?;
            html! {
                p {
                    (estimated(&backlog, backlog.purged())) " removed"
                    @if backlog.purges_in_flight && backlog.in_flight > 0 {
                        ", with " b { (messages(backlog.in_flight)) } " in flight among them"
                    }
                    ". This cannot be undone."
                }
            }
        }
        "resend-message" => {
            html! { p { (one) " is sent to the queue that it came from, and deleted here once that is confirmed." } }
        }
        "delete-message" => html! { p { (one) " is deleted. This cannot be undone." } },
        "look" => {
            html! { p { "Up to " b { "1,000 messages" } " are received and given back at once. The receive count of each is then one higher, "
            "and each call is billed. A message whose next receive would be its last is skipped." } }
        }
        _ => {
            let found = visit.operations.messages().message(queue, part).await?;
            let body = found
                .content
                .map(|content| content.body)
                .unwrap_or_default();
            let ends = LineEnds::of(&body);
            let text = html! {
                p { (one) " is sent with this body to the queue that it came from; the original is deleted once that is confirmed." }
                @if ends == LineEnds::Mixed {
                    p { "This body has line endings that a browser does not keep: all lines will end with LF." }
                }
                input type="hidden" name="ends" value=(ends.name());
            };
            return Ok((text, vec![body]));
        }
    };
    Ok((text, Vec::new()))
}

/// Describes one message of a queue, as the subject of a sentence.
async fn one_of(visit: &Visit, queue: &str, id: &str) -> Result<Markup, CallProblem> {
    match visit.operations.messages().message(queue, id).await {
        Ok(_) => Ok(html! { b { "1 message" } }),
        // This queue cannot find a message by its id.
        Err(problem) if problem.status == StatusCode::CONFLICT => {
            Ok(html! { "If it is still there, " b { "1 message" } })
        }
        Err(problem) => Err(problem),
    }
}

/// Describes a scheduled message, as the subject of a sentence.
async fn scheduled(visit: &Visit, id: &str) -> Result<Markup, CallProblem> {
    let (queue, _) = id.rsplit_once('/').ok_or_else(|| not_scheduled(id))?;
    let first = visit.operations.schedules(queue, LISTED).await?;
    if first.iter().any(|one| one.id == id) {
        return Ok(html! { b { "1 message" } " for " span.id { (queue) } });
    }
    if first.len() < LISTED {
        return Err(not_scheduled(id));
    }
    Ok(html! { "If it still waits, " b { "1 message" } " for " span.id { (queue) } })
}

fn not_scheduled(id: &str) -> CallProblem {
    CallProblem::not_found(format!(
        "There is no scheduled message `{id}`: it was sent, was cancelled, or never existed."
    ))
}

/// The maximum number of queues of a route whose backlogs are requested.
const COUNTED_QUEUES: usize = 20;

/// Returns how many messages wait in the queues of a route, if that can be determined.
async fn waiting_of_route(visit: &Visit, route: &RouteView) -> Option<Backlog> {
    let sampler = visit.sampler();
    let queues = sampler
        .queues_of_route(&*visit.operations, &route.route)
        .await;
    if queues.len() > COUNTED_QUEUES {
        return None;
    }
    let mut all = Backlog {
        is_exact: true,
        ..Backlog::default()
    };
    for queue in &queues {
        let one = visit.operations.messages().backlog(queue).await.ok()?;
        all.waiting = all.waiting.saturating_add(one.waiting);
        all.is_exact = all.is_exact && one.is_exact;
    }
    Some(all)
}

/// The time limit for counting messages by their reason.
const COUNTING: Duration = Duration::from_secs(1);

/// Counts the messages of a queue with a given reason, as the subject of a sentence.
async fn number_with(visit: &Visit, queue: &str, reason: &str) -> Result<Markup, CallProblem> {
    let request = ScanRequest {
        select: Select {
            reason_is: Some(reason.to_owned()),
            ..Select::default()
        },
        limit: Some(AtLeastOne(1)),
        scan: Some(Scan(u64::MAX)),
    };
    let terms = LookTerms {
        within: Some(COUNTING),
        ..LookTerms::default()
    };
    let site = visit.operations.messages();
    match site.look(queue, &request, &terms).await {
        Ok(found) => Ok(html! {
            @if !found.complete { "At least " }
            b { (messages(found.selected.0)) } " with this reason"
            @if found.selected.0 == 1 { " is" } @else { " are" }
        }),
        Err(problem) if problem.status == StatusCode::CONFLICT => {
            let backlog = visit.operations.messages().backlog(queue).await?;
            Ok(
                html! { "Of about " b { (messages(backlog.waiting)) } ", those with this reason are" },
            )
        }
        Err(problem) => Err(problem),
    }
}

/// Counts all messages that wait in a queue, as the subject of a sentence.
async fn all_that_wait(visit: &Visit, queue: &str) -> Result<Markup, CallProblem> {
    let backlog = visit.operations.messages().backlog(queue).await?;
    Ok(estimated(&backlog, backlog.waiting))
}

/// Describes a number of messages of a backlog, as the subject of a sentence.
fn estimated(backlog: &Backlog, number: u64) -> Markup {
    if backlog.is_exact {
        subject(number)
    } else {
        html! { "About " b { (messages(number)) } " are" }
    }
}

fn subject(number: u64) -> Markup {
    html! { b { (messages(number)) } @if number == 1 { " is" } @else { " are" } }
}

fn messages(number: u64) -> String {
    counted(number, "message", "messages")
}

/// Says how many messages wait; `about` precedes an estimate.
fn waits(backlog: &Backlog, about: &str) -> Markup {
    html! {
        @if !backlog.is_exact { (about) }
        b { (messages(backlog.waiting)) } @if backlog.waiting == 1 { " waits" } @else { " wait" }
    }
}

fn queue_values(action: &Form, queue: &QueueView) -> Vec<String> {
    if action.name != "limit-queue" {
        return Vec::new();
    }
    let rate = if queue.rate.live {
        queue.rate.value
    } else {
        None
    };
    vec![
        live(&queue.concurrency),
        rate.map(|rate| rate.to_string()).unwrap_or_default(),
        live(&queue.prefetch),
    ]
}

/// Returns the value that an operator set, or an empty string if the configured value applies.
fn live(number: &LiveNumber) -> String {
    let set = if number.live { number.value } else { None };
    set.map(|value| value.0.to_string()).unwrap_or_default()
}

fn of_queue(action: &Form, queue: &QueueView, backlog: Option<Backlog>) -> Markup {
    let place = if queue.shared {
        "in all processes that read it, within 2 s"
    } else {
        "on this machine only"
    };
    let now = html! {
        @if let Some(backlog) = &backlog { (waits(backlog, "About ")) " in it now." }
        @else { "How many messages wait in it is not known." }
    };
    match action.name {
        "pause-queue" => html! {
            p {
                @if queue.shared { "Nothing more is received from it " (place) ". " }
                @else { "Nothing more is received from it " (place) "; other machines that read it go on. " }
                b { (messages(queue.in_flight.0)) } " in attempts here are finished; messages held but not started are given back. " (now) }
        },
        "resume-queue" => html! {
            p { "It is received from again " (place) ". " (now) }
            @if queue.paused_by.as_deref() == Some("route") { p { "Its route is paused as well, and stays so." } }
        },
        "limit-queue" => html! {
            p { "The limits apply " (place) ", besides those of the route. "
                b { (messages(queue.in_flight.0)) } " in attempts here are finished. " (now) }
        },
        "send" => html! {
            p { b { "1 message" } " is sent to it, and handled as any other. " (now) }
        },
        _ => html! {
            p { b { "1 message" } " is deleted and is not handled. If an attempt at it runs, it is stopped. This cannot be undone." }
        },
    }
}

fn of_route(action: &Form, route: &RouteView, waiting: Option<Backlog>) -> Markup {
    let held = messages(route.in_flight.0);
    let queues = counted(route.queues.0, "queue", "queues");
    match action.name {
        "pause-route" => html! {
            p { "The processes of the fleet receive nothing more from its " b { (queues) } ". Here, "
                b { (counted(route.attempts.0, "attempt", "attempts")) } " under way are finished; "
                "of " b { (held) } " held, those not started are given back." }
        },
        "resume-route" => html! {
            p { "Its " b { (queues) } @if route.queues.0 == 1 { " is" } @else { " are" } " received from again. "
                @if let Some(waiting) = &waiting { (waits(waiting, "About ")) " there now. " }
                @else { "How many messages wait there is not known. " }
                "Queues that are paused themselves stay so." }
        },
        "roll-back" => html! {
            p { "The current version of " b { (route.plugin) } " takes all messages again, in this process and until the "
                "canary's file or share changes. " b { (counted(route.attempts.0, "attempt", "attempts")) }
                " under way are finished on the version that they began with; of " b { (held) } " held, those not " "started run on the current version." }
        },
        "weigh-tenant" => html! {
            p { "A tenant of weight 2 gets twice the share of one of weight 1 while both have messages. "
                "It applies to messages that start from now on." }
        },
        _ => html! {
            p { "The limits apply in all processes of the fleet. Here, " b { (counted(route.attempts.0, "attempt", "attempts")) }
                " under way are finished; of " b { (held) } " held, those beyond the limits are given back." }
        },
    }
}

fn of_attempt(attempt: &RunningView) -> Markup {
    let messages = counted(attempt.messages.len() as u64, "message", "messages");
    html! {
        p { "Its handler is stopped, and its " b { (messages) } " of " span.id { (attempt.queue) }
            " are deleted. They are not handled again. This cannot be undone." }
    }
}

fn of_program(visit: &Visit, action: &Form) -> Markup {
    let routes = visit.scene().routes();
    let attempts = routes.iter().map(|route| route.attempts.0).sum();
    let held = routes.iter().map(|route| route.in_flight.0).sum();
    if action.name == "reload-plugins" {
        return html! {
            p { "The files of the plugins of " b { (counted(routes.len() as u64, "route", "routes")) }
                " are read again. " b { (counted(attempts, "attempt", "attempts")) } " under way are finished on their "
                "version; of " b { (messages(held)) } " held, those not started run on the new version." }
        };
    }
    if action.name == "cancel-anywhere" {
        return html! {
            p { b { "1 message" } " is looked for in all processes of the fleet. If one runs it, its attempt is stopped "
                "and the message is deleted. This cannot be undone." }
        };
    }
    if action.name == "log-level" {
        return html! { p { "It applies in all processes of the fleet within 2 s, also in those that start later." } };
    }
    html! {
        p { "As at SIGTERM: this process receives nothing more, "
            b { (counted(attempts, "attempt", "attempts")) } " under way are finished within the grace time, and of "
            b { (messages(held)) } " held, those not started are given back. Then the process ends." }
    }
}
