//! What operators do from pages: each action is one of the API's, asked for by a form after a page
//! that says what it touches and how much.

use super::format::{count, counted};
use super::visit::{Parameters, Visit};
use crate::admin::api;
use crate::admin::problem::CallProblem;
use axum::response::{IntoResponse, Response};
use dispatcher_core::redrive::pattern_of_counted;
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};

/// What an action is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Queue,
    Route,
    Attempt,
    /// Messages that lie in a queue: all, those with a reason, or one by its id.
    Messages,
    Job,
    /// A message that waits for its time.
    Schedule,
    Program,
}

impl Target {
    /// The parameter of the endpoint's path that names it.
    const fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Queue | Self::Messages => Some("queue"),
            Self::Route => Some("route"),
            Self::Attempt | Self::Job => Some("id"),
            Self::Schedule | Self::Program => None,
        }
    }
}

/// A field of a form.
pub(super) struct Field {
    pub name: &'static str,
    pub label: &'static str,
    pub help: &'static str,
    pub kind: FieldKind,
}

/// What is typed into a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// A number; nothing is the configured one.
    Limit,
    /// A number, or nothing.
    Number,
    /// A text that must be there.
    Text,
    /// A text, or nothing.
    Optional,
    /// The body of a message.
    Body,
}

/// An action.
pub(super) struct Action {
    /// As in the address of its form.
    pub name: &'static str,
    /// The endpoint of the API that does it.
    endpoint: &'static str,
    pub target: Target,
    pub title: &'static str,
    /// What the button says.
    pub verb: &'static str,
    pub is_destructive: bool,
    pub fields: &'static [Field],
    /// What the request has besides them, of the part of the target that is meant.
    fixed: fn(&str) -> Vec<(&'static str, Value)>,
}

const CONCURRENCY: Field = Field {
    name: "concurrency",
    label: "Concurrency",
    help: "The most attempts at once. Empty: as configured.",
    kind: FieldKind::Limit,
};
const RATE: Field = Field {
    name: "rate",
    label: "Rate",
    help: "The most messages that are started in a second. Empty: as configured.",
    kind: FieldKind::Limit,
};
const PREFETCH: Field = Field {
    name: "prefetch",
    label: "Prefetch",
    help: "The most messages that are held beyond what runs. Empty: as configured.",
    kind: FieldKind::Limit,
};
const MESSAGE: Field = Field {
    name: "message",
    label: "Message id",
    help: "As in the log and in the list of running attempts.",
    kind: FieldKind::Text,
};

const TO: Field = Field {
    name: "to",
    label: "To",
    help: "The queue that all of them go to. Empty: each goes to where it came from.",
    kind: FieldKind::Optional,
};
const MOVE_RATE: Field = Field {
    name: "rate",
    label: "Rate",
    help: "The most messages that are moved in a second. Empty: as fast as it goes.",
    kind: FieldKind::Number,
};
const FIRST: Field = Field {
    name: "first",
    label: "First",
    help: "How many are moved at most. Empty: all.",
    kind: FieldKind::Number,
};
const BODY: Field = Field {
    name: "body",
    label: "Body",
    help: "What is sent in place of the body that it has.",
    kind: FieldKind::Body,
};

const fn action(
    name: &'static str,
    endpoint: &'static str,
    target: Target,
    title: &'static str,
    verb: &'static str,
) -> Action {
    Action {
        name,
        endpoint,
        target,
        title,
        verb,
        is_destructive: false,
        fields: &[],
        fixed: |_| Vec::new(),
    }
}

static ACTIONS: &[Action] = &[
    action(
        "pause-queue",
        "/api/v1/queues/{queue}/pause",
        Target::Queue,
        "Pause this queue?",
        "Pause",
    ),
    action(
        "resume-queue",
        "/api/v1/queues/{queue}/resume",
        Target::Queue,
        "Resume this queue?",
        "Resume",
    ),
    Action {
        fields: &[CONCURRENCY, RATE, PREFETCH],
        ..action(
            "limit-queue",
            "/api/v1/queues/{queue}/limits",
            Target::Queue,
            "Change limits of this queue",
            "Change",
        )
    },
    Action {
        fields: &[MESSAGE],
        is_destructive: true,
        ..action(
            "cancel-message",
            "/api/v1/queues/{queue}/cancel",
            Target::Queue,
            "Cancel a message of this queue?",
            "Cancel the message",
        )
    },
    action(
        "pause-route",
        "/api/v1/routes/{route}/pause",
        Target::Route,
        "Pause this route?",
        "Pause",
    ),
    action(
        "resume-route",
        "/api/v1/routes/{route}/resume",
        Target::Route,
        "Resume this route?",
        "Resume",
    ),
    Action {
        fields: &[CONCURRENCY, PREFETCH],
        ..action(
            "limit-route",
            "/api/v1/routes/{route}/limits",
            Target::Route,
            "Change limits of this route",
            "Change",
        )
    },
    Action {
        is_destructive: true,
        ..action(
            "cancel-attempt",
            "/api/v1/running/{id}/cancel",
            Target::Attempt,
            "Cancel this attempt?",
            "Cancel the attempt",
        )
    },
    Action {
        fields: &[TO, MOVE_RATE, FIRST],
        fixed: |reason| {
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            let reason = reason.map(|reason| ("reason", json!(pattern_of_counted(reason))));
            reason.into_iter().chain([("apply", json!(true))]).collect()
        },
        ..action(
            "redrive",
            "/api/v1/queues/{queue}/redrive",
            Target::Messages,
            "Redrive these messages?",
            "Redrive",
        )
    },
    Action {
        is_destructive: true,
        fixed: |_| vec![("apply", json!(true))],
        ..action(
            "purge",
            "/api/v1/queues/{queue}/purge",
            Target::Messages,
            "Purge this queue?",
            "Purge",
        )
    },
    Action {
        fixed: |id| vec![("message", json!(id))],
        ..action(
            "resend-message",
            "/api/v1/queues/{queue}/resend",
            Target::Messages,
            "Redrive this message?",
            "Redrive",
        )
    },
    Action {
        fields: &[BODY],
        fixed: |id| vec![("message", json!(id))],
        ..action(
            "edit-message",
            "/api/v1/queues/{queue}/resend",
            Target::Messages,
            "Edit and redrive this message",
            "Redrive",
        )
    },
    Action {
        is_destructive: true,
        fixed: |id| vec![("message", json!(id))],
        ..action(
            "delete-message",
            "/api/v1/queues/{queue}/delete",
            Target::Messages,
            "Delete this message?",
            "Delete",
        )
    },
    action(
        "look",
        "/api/v1/queues/{queue}/scan",
        Target::Messages,
        "Look at the messages?",
        "Look",
    ),
    Action {
        is_destructive: true,
        ..action(
            "cancel-job",
            "/api/v1/jobs/{id}/cancel",
            Target::Job,
            "Stop this job?",
            "Stop",
        )
    },
    action(
        "restart-job",
        "/api/v1/jobs/{id}/restart",
        Target::Job,
        "Start this job again?",
        "Start",
    ),
    Action {
        fixed: |id| vec![("schedule", json!(id))],
        ..action(
            "run-schedule",
            "/api/v1/schedules/run",
            Target::Schedule,
            "Run this scheduled message now?",
            "Run now",
        )
    },
    Action {
        is_destructive: true,
        fixed: |id| vec![("schedule", json!(id))],
        ..action(
            "cancel-schedule",
            "/api/v1/schedules/cancel",
            Target::Schedule,
            "Cancel this scheduled message?",
            "Cancel it",
        )
    },
    action(
        "reload-plugins",
        "/api/v1/plugins/reload",
        Target::Program,
        "Load new versions of plugins?",
        "Load",
    ),
    Action {
        is_destructive: true,
        ..action(
            "roll-back",
            "/api/v1/routes/{route}/rollback",
            Target::Route,
            "Roll the canary back?",
            "Roll back",
        )
    },
    Action {
        is_destructive: true,
        ..action(
            "drain",
            "/api/v1/process/drain",
            Target::Program,
            "Stop this process?",
            "Stop the process",
        )
    },
];

/// The action of this name.
///
/// # Errors
/// There is none.
pub(super) fn find(name: &str) -> Result<&'static Action, CallProblem> {
    let found = ACTIONS.iter().find(|action| action.name == name);
    found.ok_or_else(|| CallProblem::not_found(format!("There is no action `{name}`.")))
}

/// Does what a form asks for, and goes back to where it came from.
///
/// # Errors
/// Why nothing was done.
pub(super) async fn act(
    visit: &Visit,
    action: &Action,
    form: &Parameters,
) -> Result<Response, CallProblem> {
    let target = form.get("target");
    let parameter = action.target.parameter();
    let named: Vec<(&str, &str)> = parameter.map(|name| (name, target)).into_iter().collect();
    let typed = action.fields.iter().filter_map(|field| {
        let value = value(
            field,
            form.get(field.name),
            LineEnds::read(form.get("ends")),
        )?;
        Some((field.name, value))
    });
    let fixed = (action.fixed)(form.get("part"));
    let request: Map<String, Value> = typed
        .chain(fixed)
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let request = Value::Object(request);
    let (state, by) = (
        visit.state.clone(),
        (visit.caller.clone(), visit.asked.clone()),
    );
    let answer = api::act(state, by, action.endpoint, &named, &request).await?;
    let (parts, body) = answer.into_parts();
    let body = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let result: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !parts.status.is_success() {
        let detail = result["detail"].as_str().unwrap_or("It was refused.");
        return Err(CallProblem::new(
            parts.status,
            format!("{detail}{}", refused_plugins(&result)),
        ));
    }
    // What was cancelled or moved has no page any more.
    let links = visit.links();
    let back = match (action.target, result["id"].as_str()) {
        (Target::Attempt, _) => links.to("/ui/running", &[]),
        (Target::Messages | Target::Job, Some(job)) => links.to("/ui/job", &[("id", job)]),
        (Target::Messages, None) => links.to("/ui/dead-letters", &[("queue", target)]),
        _ => form.get("back").to_owned(),
    };
    let mut answer = visit
        .go(&back, &notice(action, target, &result))
        .into_response();
    // For the log.
    *answer.extensions_mut() = parts.extensions;
    Ok(answer)
}

/// How the lines of a body end: a browser sends all of them with CR and LF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnds {
    Lf,
    CrLf,
    /// Of both kinds, or of others. They become LF.
    Mixed,
}

impl LineEnds {
    pub(super) fn of(body: &str) -> Self {
        let with_cr = body.matches("\r\n").count();
        let (all, cr) = (body.matches('\n').count(), body.matches('\r').count());
        match with_cr {
            0 if cr == 0 => Self::Lf,
            ends if (ends, ends) == (all, cr) => Self::CrLf,
            _ => Self::Mixed,
        }
    }

    /// As the form has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lf => "lf",
            Self::CrLf => "crlf",
            Self::Mixed => "mixed",
        }
    }

    fn read(name: &str) -> Self {
        if name == Self::CrLf.name() {
            Self::CrLf
        } else {
            Self::Lf
        }
    }

    /// What a browser sent, with the ends that the body had.
    fn keep(self, sent: &str) -> String {
        let plain = sent.replace("\r\n", "\n");
        if self == Self::CrLf {
            plain.replace('\n', "\r\n")
        } else {
            plain
        }
    }
}

/// The value of a field as the API takes it; nothing where it is left out. What is no number goes
/// there as it is, and is refused with what is wanted.
fn value(field: &Field, text: &str, ends: LineEnds) -> Option<Value> {
    let trimmed = text.trim();
    match field.kind {
        FieldKind::Body => Some(json!(ends.keep(text))),
        FieldKind::Text => Some(json!(trimmed)),
        FieldKind::Limit if trimmed.is_empty() => Some(Value::Null),
        FieldKind::Number | FieldKind::Optional if trimmed.is_empty() => None,
        FieldKind::Optional => Some(json!(trimmed)),
        FieldKind::Limit | FieldKind::Number => {
            let whole = trimmed.parse::<u64>().map(|number| json!(number));
            let number = whole.or_else(|_| trimmed.parse::<f64>().map(|number| json!(number)));
            Some(number.unwrap_or_else(|_| json!(trimmed)))
        }
    }
}

fn refused_plugins(result: &Value) -> String {
    let plugins = result["plugins"].as_array().into_iter().flatten();
    let refused = plugins.flat_map(|plugin| plugin["refused"].as_array().into_iter().flatten());
    refused
        .map(|one| {
            format!(
                " {}",
                one.as_str().map_or_else(|| one.to_string(), str::to_owned)
            )
        })
        .collect()
}

/// What came of it, in a sentence.
fn notice(action: &Action, target: &str, result: &Value) -> String {
    let of_all = if result["affects"] == "all-processes" {
        let within = result["within_s"].as_u64().unwrap_or_default();
        format!(" in all processes, within {within} s")
    } else {
        " in this process".to_owned()
    };
    let until = match result["until"].as_str() {
        Some("changed") => " This outlives every process, until it is changed.",
        _ => " This ends with the process.",
    };
    match action.name {
        "pause-queue" | "pause-route" => format!("{target} is paused{of_all}.{until}"),
        "resume-queue" | "resume-route" => format!("{target} is resumed{of_all}."),
        "limit-queue" | "limit-route" => format!("The limits of {target} hold{of_all}.{until}"),
        "reload-plugins" => {
            let plugins = result["plugins"].as_array().into_iter().flatten();
            let replaced: usize = plugins
                .map(|plugin| plugin["replaced"].as_array().map_or(0, Vec::len))
                .sum();
            match replaced {
                0 => "No file is new; every plugin is as it was.".to_owned(),
                more => format!("{} replaced.", counted(more as u64, "version", "versions")),
            }
        }
        "roll-back" => {
            let version = result["version"].as_str().unwrap_or("The canary");
            format!("{version} takes no messages any more.")
        }
        "drain" => "The process stops.".to_owned(),
        "delete-message" => "1 message deleted.".to_owned(),
        "run-schedule" => "1 scheduled message is due now.".to_owned(),
        "cancel-schedule" => "1 scheduled message cancelled.".to_owned(),
        _ if result["report"].is_object() => job_notice(result),
        _ => {
            let number = |name: &str| result[name].as_u64().unwrap_or_default();
            let (waiting, running) = (number("waiting"), number("running"));
            format!(
                "{} cancelled: {} waited, {} ran.",
                counted(waiting + running, "message", "messages"),
                count(waiting),
                count(running)
            )
        }
    }
}

/// How far a job is.
fn job_notice(job: &Value) -> String {
    let number = |name: &str| job["report"][name].as_u64().unwrap_or_default();
    let handled = number("moved") + number("removed");
    let messages = counted(handled, "message", "messages");
    let removed = &job["report"]["removed"];
    match job["state"].as_str() {
        Some("done") if job["kind"] == "purge" && job["applied"] == true && removed.is_null() => {
            let all = job["waiting"].as_u64();
            let about = all.map(|all| format!(", about {}", counted(all, "message", "messages")));
            let about = about.unwrap_or_default();
            let queue = job["queue"].as_str().unwrap_or("The queue");
            format!("{queue} is emptied within a minute{about}, those in flight included.")
        }
        Some("running") => format!("The job runs: {messages} so far."),
        Some("done") => format!("Done: {messages}, {} stay.", count(number("left"))),
        _ => {
            let why = job["error"].as_str().unwrap_or("It was stopped.");
            format!("The job has ended after {messages}. {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_one_of_the_api() {
        for action in ACTIONS {
            assert!(api::has_action(action.endpoint), "{}", action.endpoint);
            let parameter = action.target.parameter().map(|name| format!("{{{name}}}"));
            assert!(
                parameter.is_none_or(|name| action.endpoint.contains(&name)),
                "{}",
                action.name
            );
            assert!(find(action.name).is_ok());
        }
        assert!(find("none").is_err());
    }

    #[test]
    fn fields_are_numbers_nothing_or_what_was_typed() {
        let value = |field, text| super::value(field, text, LineEnds::Lf);
        assert_eq!(value(&RATE, " 2.5 "), Some(json!(2.5)));
        assert_eq!(value(&CONCURRENCY, "3"), Some(json!(3)));
        assert_eq!(value(&CONCURRENCY, ""), Some(Value::Null));
        assert_eq!((value(&FIRST, " "), value(&TO, "")), (None, None));
        assert_eq!(value(&CONCURRENCY, "many"), Some(json!("many")));
        assert_eq!(value(&MESSAGE, "7"), Some(json!("7")));
        assert_eq!(value(&BODY, " a\r\nb"), Some(json!(" a\nb")));
    }

    #[test]
    fn a_body_keeps_the_ends_of_its_lines() {
        for (body, ends) in [
            ("a", LineEnds::Lf),
            ("a\nb\n", LineEnds::Lf),
            ("a\r\nb\r\n", LineEnds::CrLf),
            ("a\r\nb\n", LineEnds::Mixed),
            ("a\rb", LineEnds::Mixed),
            ("a\r\r\nb", LineEnds::Mixed),
        ] {
            assert_eq!(LineEnds::of(body), ends, "{body:?}");
            if ends != LineEnds::Mixed {
                let sent = body.replace("\r\n", "\n").replace('\n', "\r\n");
                assert_eq!(LineEnds::read(ends.name()).keep(&sent), body);
            }
        }
    }

    #[test]
    fn a_purge_that_counts_nothing_says_about_how_many_it_removes() {
        let job = |removed: Value| {
            let report = json!({"moved": 0, "removed": removed, "left": 0});
            json!({"kind": "purge", "applied": true, "state": "done", "queue": "sqs:a",
                "waiting": 5, "report": report})
        };
        assert_eq!(
            job_notice(&job(Value::Null)),
            "sqs:a is emptied within a minute, about 5 messages, those in flight included."
        );
        assert_eq!(job_notice(&job(json!(3))), "Done: 3 messages, 0 stay.");
    }

    #[test]
    fn a_notice_names_what_was_touched_and_how_many() {
        let cancelled = json!({"waiting": 0, "running": 1});
        let cancel = find("cancel-attempt").expect("there is one");
        assert_eq!(
            notice(cancel, "0-1", &cancelled),
            "1 message cancelled: 0 waited, 1 ran."
        );
        let all = json!({"affects": "all-processes", "until": "changed", "within_s": 5});
        let pause = find("pause-queue").expect("there is one");
        assert_eq!(
            notice(pause, "local:a", &all),
            "local:a is paused in all processes, within 5 s. This outlives every process, until it is \
             changed."
        );
    }
}
