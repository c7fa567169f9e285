//! The actions of operators on pages. Each is an operation of the API. A page first shows what the
//! action affects and how many messages; its form then requests it.

use super::format::{count, counted};
use super::visit::{Parameters, Visit};
use crate::api;
use axum::response::{IntoResponse, Response};
use dispatcher_operate::problem::CallProblem;
use dispatcher_operate::request::UnreadFields;
use dispatcher_operate::verbs::{FieldKind, Form, FormField, Target, VERBS, Verb, VerbCall};
use serde_json::{Map, Value, json};

/// A form, and the operation that it requests.
#[derive(Clone, Copy)]
pub(super) struct Action {
    pub form: &'static Form,
    verb: &'static Verb,
}

/// Finds the action of this name.
///
/// # Errors
/// Returns a problem if there is no such action.
pub(super) fn find(name: &str) -> Result<Action, CallProblem> {
    let forms = VERBS.iter().flat_map(|verb| {
        let declared = verb.declared.forms.iter();
        declared.map(move |form| Action { form, verb })
    });
    let found = forms.into_iter().find(|action| action.form.name == name);
    found.ok_or_else(|| CallProblem::not_found(format!("There is no action `{name}`.")))
}

/// Runs the action of a form, and returns to the page that the form came from.
///
/// # Errors
/// Returns the reason why nothing was done.
pub(super) async fn act(
    visit: &Visit,
    action: Action,
    form: &Parameters,
) -> Result<Response, CallProblem> {
    let Action {
        form: declared,
        verb,
    } = action;
    let target = form.get("target");
    let ends = LineEnds::read(form.get("ends"));
    let typed = declared.fields.iter().filter_map(|field| {
        let value = value(field, form.get(field.name), ends)?;
        Some((field.name.to_owned(), value))
    });
    let request = (declared.request)(form.get("part"), typed.collect());
    let by = visit.asked.requester(&visit.caller);
    let call = VerbCall {
        site: &*visit.operations,
        target,
        by: &by,
        key: None,
    };
    let done = api::done(verb, &visit.state, UnreadFields::new(request), call).await;
    let (result, extensions) = done.map_err(|problem| CallProblem {
        detail: format!("{}{}", problem.detail, refused_plugins(&problem.more)),
        ..problem
    })?;
    // A cancelled attempt or a moved message no longer has a page.
    let links = visit.links();
    let back = match (declared.target, result["id"].as_str()) {
        (Target::Attempt, _) => links.to("/ui/running", &[]),
        (Target::Messages | Target::Job, Some(job)) => links.to("/ui/job", &[("id", job)]),
        (Target::Messages, None) => links.to("/ui/dead-letters", &[("queue", target)]),
        _ => form.get("back").to_owned(),
    };
    let mut answer = visit
        .go(&back, &notice(declared, target, &result))
        .into_response();
    // The extensions are for the log.
    *answer.extensions_mut() = extensions;
    Ok(answer)
}

/// The line ends of a body. A browser sends all of them as CR and LF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnds {
    Lf,
    CrLf,
    /// Both kinds, or others. They become LF.
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

    /// Returns its value in the form.
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

    /// Restores the line ends of the body in the text that a browser sent.
    fn keep(self, sent: &str) -> String {
        let plain = sent.replace("\r\n", "\n");
        if self == Self::CrLf {
            plain.replace('\n', "\r\n")
        } else {
            plain
        }
    }
}

/// Converts the value of a field for the API, or returns `None` if it is left out. A value that is
/// not a number is passed on unchanged; the API refuses it and says what it expects.
fn value(field: &FormField, text: &str, ends: LineEnds) -> Option<Value> {
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

fn refused_plugins(members: &Map<String, Value>) -> String {
    let plugins = members
        .get("plugins")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
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

/// Describes the result in one sentence.
fn notice(form: &Form, target: &str, result: &Value) -> String {
    let within = result["within_s"].as_u64().unwrap_or_default();
    let of_all = match result["affects"].as_str() {
        Some("all-processes") => format!(" in all processes, within {within} s"),
        Some("this-machine") => format!(" on this machine only, within {within} s"),
        _ => " in this process".to_owned(),
    };
    let until = match result["until"].as_str() {
        Some("changed") => " This outlives restarts, until it is changed.",
        _ => " This ends with the process.",
    };
    match form.name {
        "pause-queue" | "pause-route" => format!("{target} is paused{of_all}.{until}"),
        "resume-queue" | "resume-route" => format!("{target} is resumed{of_all}."),
        "limit-queue" | "limit-route" => format!("The limits of {target} apply{of_all}.{until}"),
        "weigh-tenant" => format!("The weight applies{of_all}.{until}"),
        "reload-plugins" => {
            let plugins = result["plugins"].as_array().into_iter().flatten();
            let replaced: usize = plugins
                .map(|plugin| plugin["replaced"].as_array().map_or(0, Vec::len))
                .sum();
            match replaced {
                0 => "No file has changed; every plugin stays as it is.".to_owned(),
                more => format!("{} replaced.", counted(more as u64, "version", "versions")),
            }
        }
        "roll-back" => {
            let version = result["version"].as_str().unwrap_or("The canary");
            format!("{version} no longer takes messages.")
        }
        "drain" => "The process stops.".to_owned(),
        "log-level" => "The log level is changed.".to_owned(),
        "cancel-anywhere" => {
            let items = result["items"].as_array().into_iter().flatten();
            let cancelled = items.filter(|item| item["cancelled"] == true).count();
            format!(
                "{} cancelled.",
                counted(cancelled as u64, "attempt", "attempts")
            )
        }
        "send" => match &result["items"][0]["error"] {
            Value::String(error) => format!("Nothing was sent: {error}."),
            _ => format!("1 message sent to {target}."),
        },
        "delete-message" => "1 message deleted.".to_owned(),
        "run-schedule" => "1 scheduled message is due now.".to_owned(),
        "cancel-schedule" => "1 scheduled message cancelled.".to_owned(),
        _ if result["report"].is_object() => job_notice(result),
        _ => {
            let (waiting, running) = (number(result, "waiting"), number(result, "running"));
            format!(
                "{} cancelled: {} waited, {} ran.",
                counted(waiting + running, "message", "messages"),
                count(waiting),
                count(running)
            )
        }
    }
}

/// Describes the progress of a job.
fn job_notice(job: &Value) -> String {
    let report = &job["report"];
    let handled = number(report, "moved") + number(report, "removed");
    let messages = counted(handled, "message", "messages");
    let removed = &report["removed"];
    match job["state"].as_str() {
        Some("done") if job["kind"] == "purge" && job["applied"] == true && removed.is_null() => {
            let all = job["waiting"].as_u64();
            let about = all
                .map(|all| format!(", about {}", counted(all, "message", "messages")))
                .unwrap_or_default();
            let queue = job["queue"].as_str().unwrap_or("The queue");
            format!("{queue} is emptied within a minute{about}, those in flight included.")
        }
        Some("running") => format!("The job runs: {messages} so far."),
        Some("done") => format!("Done: {messages}, {} stay.", count(number(report, "left"))),
        _ => {
            let why = job["error"].as_str().unwrap_or("It was stopped.");
            format!("The job has ended after {messages}. {why}")
        }
    }
}

/// Returns a whole number of a JSON object, or 0.
fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_numbers_nothing_or_what_was_typed() {
        for (kind, text, wanted) in [
            (FieldKind::Limit, " 2.5 ", Some(json!(2.5))),
            (FieldKind::Limit, "3", Some(json!(3))),
            (FieldKind::Limit, "", Some(Value::Null)),
            (FieldKind::Number, " ", None),
            (FieldKind::Optional, "", None),
            (FieldKind::Limit, "many", Some(json!("many"))),
            (FieldKind::Text, "7", Some(json!("7"))),
            (FieldKind::Body, " a\r\nb", Some(json!(" a\nb"))),
        ] {
            let field = FormField {
                name: "",
                label: "",
                help: "",
                kind,
            };
            assert_eq!(value(&field, text, LineEnds::Lf), wanted, "{text}");
        }
        assert!(find("none").is_err());
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
        let all = "sqs:a is emptied within a minute, about 5 messages, those in flight included.";
        let exact = "Done: 3 messages, 0 stay.";
        for (removed, notice) in [(Value::Null, all), (json!(3), exact)] {
            let report = json!({"moved": 0, "removed": removed, "left": 0});
            let job = json!({"kind": "purge", "applied": true, "state": "done", "queue": "sqs:a",
                "waiting": 5, "report": report});
            assert_eq!(job_notice(&job), notice);
        }
    }

    #[test]
    fn a_notice_names_what_was_touched_and_how_many() {
        let cancelled = json!({"waiting": 0, "running": 1});
        let cancel = find("cancel-attempt").expect("there is one");
        assert_eq!(
            notice(cancel.form, "0-1", &cancelled),
            "1 message cancelled: 0 waited, 1 ran."
        );
        let all = json!({"affects": "all-processes", "until": "changed", "within_s": 2});
        let pause = find("pause-queue").expect("there is one");
        assert_eq!(
            notice(pause.form, "local:a", &all),
            "local:a is paused in all processes, within 2 s. This outlives restarts, until it is changed."
        );
    }
}
