//! The parameters of a query: endpoints declare them, and reading reports every problem at once.

use axum::http::StatusCode;
use dispatcher_operate::operations::{MOST_ITEMS, Page};
use dispatcher_operate::problem::{CallProblem, FieldProblem};
use dispatcher_operate::redrive::{MOST_SCANNED, SCANNED};
use dispatcher_operate::scale::{LONGEST_DRAIN, USUAL_DRAIN};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The default number of items on a page.
const USUAL: usize = 100;

/// A parameter of a query.
pub(super) struct Parameter {
    pub name: &'static str,
    pub help: &'static str,
    kind: Kind,
    pub is_required: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Limit,
    Scan,
    Switch,
    Text,
    Drain,
}

const LIMIT: Parameter = Parameter {
    name: "limit",
    help: "Maximum items in the answer, 1 to 500.",
    kind: Kind::Limit,
    is_required: false,
};
const CURSOR: Parameter = Parameter {
    name: "cursor",
    help: "The `next` of the previous page.",
    kind: Kind::Text,
    is_required: false,
};

const fn text(name: &'static str, help: &'static str) -> Parameter {
    Parameter {
        name,
        help,
        kind: Kind::Text,
        is_required: false,
    }
}

/// The parameters of a list without pages.
pub(super) const LIMITED: &[Parameter] = &[LIMIT];
/// The parameters of a list with pages.
pub(super) const PAGED: &[Parameter] = &[LIMIT, CURSOR];
/// The parameters of the list of queues.
pub(super) const QUEUES: &[Parameter] = &[
    LIMIT,
    CURSOR,
    Parameter {
        name: "depth",
        help: "Whether to include the depths of queues: on SQS each costs a billed call.",
        kind: Kind::Switch,
        is_required: false,
    },
];
/// The parameters of the list of running attempts.
pub(super) const RUNNING: &[Parameter] = &[LIMIT, CURSOR, text("queue", "Only of this queue.")];
/// The parameters of the list of outcomes.
pub(super) const OUTCOMES: &[Parameter] = &[
    LIMIT,
    CURSOR,
    text("queue", "Only of this queue."),
    text("event", "Only these outcomes, as in `event`."),
    text("reason", "Only for this reason, as in `reason_kind`."),
];
/// The parameters of the list of messages.
pub(super) const MESSAGES: &[Parameter] = &[
    LIMIT,
    CURSOR,
    text(
        "reason",
        "Only dead letters whose reason matches this regular expression.",
    ),
    text(
        "reason_is",
        "Only dead letters with exactly this reason, as `reasons` shows it.",
    ),
    text(
        "where",
        "Only messages whose body is JSON with this value, as in `/order/country=CH`.",
    ),
    text(
        "older",
        "Only messages that were sent at least this long ago, as in `36h`.",
    ),
    Parameter {
        name: "scan",
        help: "Maximum messages to inspect; `reasons` counts these.",
        kind: Kind::Scan,
        is_required: false,
    },
];
/// The parameters of the event stream.
pub(super) const EVENTS: &[Parameter] = &[text(
    "queue",
    "Only deliveries of this queue, but states of all queues.",
)];
/// The parameters of the list of schedules.
pub(super) const SCHEDULES: &[Parameter] = &[
    LIMIT,
    Parameter {
        name: "queue",
        help: "The queue that the messages go to.",
        kind: Kind::Text,
        is_required: true,
    },
];

/// The parameters of the desired number of replicas.
pub(super) const SCALE: &[Parameter] = &[
    text(
        "route",
        "Only of this route; without it, the most that any route needs.",
    ),
    Parameter {
        name: "drain",
        help: "The time in seconds in which to handle the backlog.",
        kind: Kind::Drain,
        is_required: false,
    },
];

impl Parameter {
    /// Returns its JSON schema.
    pub(super) fn schema(&self) -> Value {
        match self.kind {
            Kind::Limit => {
                json!({"type": "integer", "minimum": 1, "maximum": MOST_ITEMS, "default": USUAL})
            }
            Kind::Scan => {
                json!({"type": "integer", "minimum": 1, "maximum": MOST_SCANNED, "default": SCANNED})
            }
            Kind::Switch => json!({"type": "boolean", "default": false}),
            Kind::Text => json!({"type": "string"}),
            Kind::Drain => {
                let (usual, longest) = (USUAL_DRAIN.as_secs(), LONGEST_DRAIN.as_secs());
                json!({"type": "integer", "minimum": 1, "maximum": longest, "default": usual})
            }
        }
    }

    fn wanted(&self) -> String {
        match self.kind {
            Kind::Limit => format!("a whole number from 1 to {MOST_ITEMS}"),
            Kind::Scan => format!("a whole number from 1 to {MOST_SCANNED}"),
            Kind::Switch => "true or false".to_owned(),
            Kind::Text => "a text that is not empty".to_owned(),
            Kind::Drain => format!("a whole number from 1 to {}", LONGEST_DRAIN.as_secs()),
        }
    }

    fn takes(&self, value: &str) -> bool {
        match self.kind {
            Kind::Limit => value
                .parse()
                .is_ok_and(|limit: usize| (1..=MOST_ITEMS).contains(&limit)),
            Kind::Scan => value
                .parse()
                .is_ok_and(|scan: u64| (1..=MOST_SCANNED).contains(&scan)),
            Kind::Switch => matches!(value, "true" | "false"),
            Kind::Text => !value.is_empty(),
            Kind::Drain => value
                .parse()
                .is_ok_and(|drain: u64| (1..=LONGEST_DRAIN.as_secs()).contains(&drain)),
        }
    }
}

/// The parameters of one request.
#[derive(Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// Parses the parameters of a query.
    ///
    /// # Errors
    /// Returns all problems with the parameters.
    pub(super) fn read(text: &str, declared: &[Parameter]) -> Result<Self, CallProblem> {
        let mut problems = Vec::new();
        let mut given = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let Some(parameter) = declared.iter().find(|one| one.name == name) else {
                let known: Vec<&str> = declared.iter().map(|one| one.name).collect();
                problems.push(FieldProblem::unknown(&name, &known));
                continue;
            };
            if !parameter.takes(&value) {
                let found = format!("`{value}` cannot be used");
                problems.push(FieldProblem::new(&name, &found, &parameter.wanted()));
            }
            if given.insert(name.to_string(), value.to_string()).is_some() {
                problems.push(FieldProblem::new(&name, "it is given twice", "one value"));
            }
        }
        let missing = declared.iter().filter(|one| one.is_required);
        for one in missing.filter(|one| !given.contains_key(one.name)) {
            problems.push(FieldProblem::new(one.name, "it is missing", &one.wanted()));
        }
        if problems.is_empty() {
            return Ok(Self(given));
        }
        Err(CallProblem {
            status: StatusCode::BAD_REQUEST,
            ..CallProblem::fields(problems)
        })
    }

    /// Returns the value of a text parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns whether a switch is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// Returns the maximum number of items in the answer.
    pub(super) fn limit(&self) -> usize {
        let limit = self.text("limit").and_then(|limit| limit.parse().ok());
        limit.unwrap_or(USUAL)
    }

    /// Returns the time within which a backlog must be processed.
    pub(super) fn drain(&self) -> Duration {
        let drain = self.number("drain").map(Duration::from_secs);
        drain.unwrap_or(USUAL_DRAIN)
    }

    /// Returns the value of a number parameter.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Returns the requested page of a list.
    pub(super) fn page(&self) -> Page {
        Page {
            limit: self.limit(),
            after: self.text("cursor").map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_defaults_and_its_values_are_decoded() {
        let query = Query::read("", QUEUES).expect("nothing is asked for");
        assert_eq!((query.limit(), query.is_on("depth")), (USUAL, false));
        let query = Query::read("limit=7&depth=true&cursor=a%3A1", QUEUES).expect("good");
        assert_eq!((query.limit(), query.is_on("depth")), (7, true));
        assert_eq!(query.page().after.as_deref(), Some("a:1"));
    }

    #[test]
    fn every_problem_of_a_query_is_named_at_once() {
        let problem = Query::read("limit=501&lmit=1&cursor=", SCHEDULES).expect_err("bad");
        assert_eq!(problem.status, StatusCode::BAD_REQUEST);
        let found: Vec<String> = problem.errors.iter().map(ToString::to_string).collect();
        let wanted = [
            "limit: `501` cannot be used; wanted a whole number from 1 to 500",
            "lmit: unknown field; wanted limit, queue; did you mean `limit`?",
            "cursor: unknown field; wanted limit, queue",
            "queue: it is missing; wanted a text that is not empty",
        ];
        assert_eq!(found, wanted);
        let twice = Query::read("limit=1&limit=2", PAGED).expect_err("twice");
        assert_eq!(twice.errors.len(), 1);
    }
}
