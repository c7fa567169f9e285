//! The operation `send`: messages that an application enqueues. Contains its request, its answer,
//! and the meaning of each message.

use super::{
    ActionEntry, FieldKind, Form, FormField, Operation, OperationDeclaration, Target, VerbCall,
    VerbResult,
};
use crate::problem::{CallProblem, FieldProblem, MOST_PROBLEMS};
use crate::request::{Flag, Request, RequestField, UnreadFields};
use crate::schema::{Components, Count, Schema};
use crate::{answers, requests};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, AttributeValue, OutgoingMessage};
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::when;
use dispatcher_core::tasks;
use serde_json::{Value, json};
use std::time::Duration;

/// The maximum number of messages in one request.
pub const MOST_MESSAGES: usize = 1_000;

requests! {
    /// Messages to be sent to a queue.
    pub struct SendMessages {
        /// The messages; each gets its own result.
        messages: MessagesToSend,
    }

    /// A message to be sent. `delay`, `at` and `cron` exclude each other; without them it is sent at
    /// once.
    pub struct MessageToSend {
        /// Its body; it must be there.
        body: BodyText,
        /// Its attributes by name: a text, a whole number, `{"number": "1.10"}` for any other number,
        /// or `{"base64": "…"}` for bytes.
        attributes: Attributes,
        /// Its group; messages of a group are handled in order.
        group: String,
        /// The id by which a queue that deduplicates recognises it; not with `delay`, `at` or `cron`.
        deduplication_id: String,
        /// How long before it may be received: `90s`, `36h`, or a number of seconds.
        delay: Delay,
        /// When it is to be delivered: `2026-12-24T18:00:00+01:00`.
        at: String,
        /// A cron expression by which it is delivered again and again: `0 9 * * MON-FRI`.
        cron: String,
        /// The time zone of `cron`: UTC unless it says otherwise.
        tz: String,
    }
}

answers! {
    /// The results of sending messages.
    pub struct SendReport {
        /// The queue.
        queue: String,
        /// How many were sent or scheduled.
        sent: Count,
        /// How many were not.
        failed: Count,
        /// Whether this request can be repeated with its `Idempotency-Key`: the queue drops a message
        /// whose deduplication id it has seen in the last five minutes, and none was scheduled.
        deduplicates: bool,
        /// Each message, in the order of the request.
        items: Vec<SentView>,
    }

    /// The result of sending one message.
    pub struct SentView {
        /// Its id: of the message, or of a scheduled one as the list of schedules has it.
        id: Option<String>,
        /// When a scheduled message is due, or due first.
        due: Option<String>,
        /// Why it was not sent.
        error: Option<String>,
        /// Whether the request may succeed later. The message may have been sent nevertheless.
        retryable: bool,
    }
}

/// The operation `send`.
pub struct SendVerb;

#[async_trait::async_trait]
impl Operation for SendVerb {
    type Request = SendMessages;
    type Answer = SendReport;

    const DECLARED: OperationDeclaration = OperationDeclaration {
        is_for_producers: true,
        carries_bodies: true,
        forms: &[Form {
            fields: &[
                FormField {
                    name: "body",
                    label: "Body",
                    help: "The body of the message.",
                    kind: FieldKind::Body,
                },
                FormField {
                    name: "group",
                    label: "Group",
                    help: "Its group; messages of a group are handled in order. Empty: none.",
                    kind: FieldKind::Optional,
                },
                FormField {
                    name: "delay",
                    label: "Delay",
                    help: "How long before it may be received, as in 90s or 36h. Empty: at once.",
                    kind: FieldKind::Optional,
                },
            ],
            request: |_, typed| {
                let messages = vec![Value::Object(typed)];
                [("messages".to_owned(), messages.into())]
                    .into_iter()
                    .collect()
            },
            ..Form::new(
                "send",
                Target::Queue,
                "Send a message to this queue",
                "Send",
            )
        }],
        ..OperationDeclaration::new(
            "/api/v1/queues/{queue}/messages",
            "Sends messages to a queue; each gets its own result.",
        )
    };

    async fn run(request: SendMessages, call: &VerbCall<'_>) -> VerbResult<SendReport> {
        let key = call.key.map(str::to_owned);
        // Detecting that a cron pattern never fires takes a while.
        let reading = tasks::blocking(move || request.orders(key.as_deref()));
        let orders = reading.finished().await.map_err(CallProblem::fields)?;
        let report = call.site.messages().send(call.target, orders).await?;
        let sent = report.sent.0;
        Ok((report, ActionEntry::new(call.target, sent)))
    }
}

/// The time at which a message is sent, if not at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendTime {
    /// After this delay.
    After(Duration),
    /// Once, at this date.
    At(Timestamp),
    /// Repeatedly.
    Every(Periodic),
}

/// A parsed message of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageOrder {
    /// The message, without a delay.
    pub message: OutgoingMessage,
    /// The time at which it is sent; at once if `None`.
    pub time: Option<SendTime>,
}

impl SendMessages {
    /// Parses the messages. `key` is the idempotency key of the request: a message without a
    /// deduplication id gets one from the key and its index.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn orders(self, key: Option<&str>) -> Result<Vec<MessageOrder>, Vec<FieldProblem>> {
        let Some(MessagesToSend(messages)) = self.messages else {
            let wanted = MessagesToSend::WANTED;
            return Err(vec![FieldProblem::new("messages", "it is missing", wanted)]);
        };
        let mut problems = Vec::new();
        let mut orders = Vec::with_capacity(messages.len());
        for (number, message) in messages.into_iter().enumerate() {
            // Detecting that a cron pattern never fires takes a while.
            if problems.len() >= MOST_PROBLEMS {
                break;
            }
            match message.order() {
                Ok(mut order) => {
                    let own = order.message.deduplication.take();
                    order.message.deduplication =
                        own.or_else(|| key.map(|key| format!("{key}.{number}")));
                    orders.push(order);
                }
                Err(wrong) => {
                    let at = format!("messages[{number}]");
                    problems.extend(wrong.into_iter().map(|problem| problem.within(&at)));
                }
            }
        }
        if problems.is_empty() {
            Ok(orders)
        } else {
            Err(problems)
        }
    }
}

impl MessageToSend {
    fn order(self) -> Result<MessageOrder, Vec<FieldProblem>> {
        let mut problems = Vec::new();
        if self.body.is_none() {
            problems.push(FieldProblem::new("body", "it is missing", BodyText::WANTED));
        }
        let times = [self.delay.is_some(), self.at.is_some(), self.cron.is_some()];
        if times.iter().filter(|given| **given).count() > 1 {
            let found = "more than one of delay, at and cron is given";
            problems.push(FieldProblem::new("delay", found, "one of them"));
        }
        if self.deduplication_id.is_some() && times.contains(&true) {
            let found = "it has no effect with delay, at or cron";
            problems.push(FieldProblem::new("deduplication_id", found, "one of them"));
        }
        if let (Some(zone), None) = (&self.tz, &self.cron) {
            let found = format!("`{zone}` without `cron`");
            problems.push(FieldProblem::new("tz", &found, "`cron` as well"));
        }
        let time = match (self.delay, &self.at, &self.cron) {
            (Some(Delay(delay)), ..) => Some(SendTime::After(delay)),
            (_, Some(at), _) => when::read(at)
                .map_err(|found| {
                    let wanted = "a date with its offset, as in 2026-12-24T18:00:00+01:00";
                    problems.push(FieldProblem::new("at", &found, wanted));
                })
                .ok()
                .map(SendTime::At),
            (.., Some(pattern)) => periodic(pattern, self.tz.as_deref())
                .map_err(|problem| problems.push(problem))
                .ok()
                .map(SendTime::Every),
            _ => None,
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(MessageOrder {
            message: OutgoingMessage {
                body: self.body.map(|body| body.0).unwrap_or_default(),
                attributes: self
                    .attributes
                    .map(|attributes| attributes.0)
                    .unwrap_or_default(),
                group: self.group,
                deduplication: self.deduplication_id,
                ..OutgoingMessage::default()
            },
            time,
        })
    }
}

/// Parses the pattern and the time zone of a repeated message.
fn periodic(pattern: &str, zone: Option<&str>) -> Result<Periodic, FieldProblem> {
    if let Some(zone) = zone
        && let Err(found) = Periodic::new("* * * * *", zone)
    {
        return Err(FieldProblem::new("tz", &found, "a time zone"));
    }
    Periodic::new(pattern, zone.unwrap_or("UTC")).map_err(|found| {
        let wanted = "a cron expression, as in 0 9 * * MON-FRI";
        FieldProblem::new("cron", &found, wanted)
    })
}

/// Messages, each with its own fields.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagesToSend(pub Vec<MessageToSend>);

impl RequestField for MessagesToSend {
    const IS_REQUIRED: bool = true;
    const WANTED: &'static str = "a list of 1 to 1000 messages";
    const FLAG: Flag = Flag::None;

    fn schema() -> Value {
        let mut components = Components::new();
        let _reference = MessageToSend::schema(&mut components);
        let message = components.remove("MessageToSend");
        json!({
            "type": "array",
            "items": message,
            "minItems": 1,
            "maxItems": MOST_MESSAGES,
        })
    }

    fn of(_: &Value) -> Option<Self> {
        None
    }

    fn json(&self) -> Value {
        self.0.iter().map(Request::json).collect()
    }

    fn read(value: &Value, at: &str, problems: &mut Vec<FieldProblem>) -> Option<Self> {
        let list = value.as_array();
        let Some(list) = list.filter(|list| (1..=MOST_MESSAGES).contains(&list.len())) else {
            let found = match list {
                Some(list) => format!("it has {} messages", list.len()),
                None => "it is not a list".to_owned(),
            };
            problems.push(FieldProblem::new(at, &found, Self::WANTED));
            return None;
        };
        let mut messages = Vec::with_capacity(list.len());
        for (number, message) in list.iter().enumerate() {
            if problems.len() >= MOST_PROBLEMS {
                break;
            }
            let at = format!("{at}[{number}]");
            let Value::Object(fields) = message else {
                let wanted = "an object with a body";
                problems.push(FieldProblem::new(&at, "it is not an object", wanted));
                continue;
            };
            // Many serializers write a missing value as `null`.
            let there = fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), value.clone()));
            let mut given = UnreadFields::new(there.collect());
            messages.push(MessageToSend::read(&mut given));
            let wrong = given.problems().into_iter();
            problems.extend(wrong.map(|problem| problem.within(&at)));
        }
        Some(Self(messages))
    }
}

/// A body, which may be empty if the queue permits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyText(pub String);

impl RequestField for BodyText {
    const IS_REQUIRED: bool = true;
    const WANTED: &'static str = "a text; write an object as JSON";
    const FLAG: Flag = Flag::Text("TEXT");

    fn schema() -> Value {
        json!({"type": "string"})
    }

    fn of(value: &Value) -> Option<Self> {
        value.as_str().map(|text| Self(text.to_owned()))
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    /// The problem does not show the value, which may be secret.
    fn read(value: &Value, at: &str, problems: &mut Vec<FieldProblem>) -> Option<Self> {
        let read = Self::of(value);
        if read.is_none() {
            problems.push(FieldProblem::new(at, "it is not a text", Self::WANTED));
        }
        read
    }
}

/// A delay, which may exceed the maximum of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay(pub Duration);

impl RequestField for Delay {
    const WANTED: &'static str = "a duration as in 90s or 36h, or a number of seconds";
    const FLAG: Flag = Flag::Time;

    fn schema() -> Value {
        json!({"type": ["string", "number"]})
    }

    fn of(value: &Value) -> Option<Self> {
        let delay = match value {
            Value::String(text) => humantime::parse_duration(text).ok()?,
            _ => Duration::try_from_secs_f64(value.as_f64()?).ok()?,
        };
        Some(Self(delay))
    }

    fn json(&self) -> Value {
        json!(humantime::format_duration(self.0).to_string())
    }
}

/// The sender's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes(pub Vec<Attribute>);

impl RequestField for Attributes {
    const WANTED: &'static str = "an object of texts, whole numbers, and objects with `number` or \
         `base64`, whose names are not empty";
    const FLAG: Flag = Flag::None;

    fn schema() -> Value {
        let [bytes, number] = ["base64", "number"].map(|name| {
            json!({
                "type": "object",
                "required": [name],
                "additionalProperties": false,
                "properties": {name: {"type": "string"}},
            })
        });
        json!({
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": ["string", "integer"]}, bytes, number],
            },
        })
    }

    fn of(value: &Value) -> Option<Self> {
        let attributes = value.as_object()?.iter().map(|(name, value)| {
            let (data_type, value) = match value {
                Value::String(text) => ("String", AttributeValue::Text(text.clone())),
                // Any other number would lose digits.
                Value::Number(number) if number.is_i64() || number.is_u64() => {
                    ("Number", AttributeValue::Text(number.to_string()))
                }
                Value::Object(object) if object.len() == 1 => {
                    if let Some(number) = object.get("number") {
                        let text = number.as_str().filter(|text| is_number(text))?;
                        ("Number", AttributeValue::Text(text.to_owned()))
                    } else {
                        let bytes = STANDARD.decode(object.get("base64")?.as_str()?);
                        ("Binary", AttributeValue::Binary(bytes.ok()?))
                    }
                }
                _ => return None,
            };
            (!name.is_empty()).then(|| Attribute {
                name: name.clone(),
                data_type: data_type.to_owned(),
                value,
            })
        });
        attributes.collect::<Option<Vec<_>>>().map(Self)
    }

    fn json(&self) -> Value {
        let values = self.0.iter().map(|one| {
            let value = match (&one.value, one.data_type.as_str()) {
                (AttributeValue::Binary(bytes), _) => json!({"base64": STANDARD.encode(bytes)}),
                (AttributeValue::Text(text), "Number") => json!({ "number": text }),
                (AttributeValue::Text(text), _) => json!(text),
            };
            (one.name.clone(), value)
        });
        Value::Object(values.collect())
    }
}

/// Returns whether a text is a JSON number.
fn is_number(text: &str) -> bool {
    matches!(serde_json::from_str(text), Ok(Value::Number(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::read_given;

    fn orders(body: &Value, key: Option<&str>) -> Result<Vec<MessageOrder>, Vec<(String, String)>> {
        let given = UnreadFields::of_body(body.to_string().as_bytes());
        let read = given.and_then(|given| read_given(given, |_: &SendMessages| Vec::new()));
        let orders = read.and_then(|request| request.orders(key));
        orders.map_err(|problems| {
            problems
                .into_iter()
                .map(|one| (one.field, one.found))
                .collect()
        })
    }

    #[test]
    fn message_is_read_with_attributes_group_and_time() {
        let body = json!({"messages": [
            {"body": "", "attributes": {"a": "x", "n": {"number": "7.50"}, "b": {"base64": "AAE="}},
             "group": "g", "delay": null},
            {"body": "b", "deduplication_id": "d"},
            {"body": "b", "delay": "36h"},
            {"body": "c", "delay": 1.5},
            {"body": "d", "at": "2026-12-24T18:00:00+01:00"},
            {"body": "e", "cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin"},
        ]});
        let orders = orders(&body, Some("key")).expect("it is right");
        let first = &orders[0].message;
        let values: Vec<_> = first
            .attributes
            .iter()
            .map(|one| (&*one.name, &*one.data_type, &one.value))
            .collect();
        assert_eq!(
            values,
            [
                ("a", "String", &AttributeValue::Text("x".to_owned())),
                ("b", "Binary", &AttributeValue::Binary(vec![0, 1])),
                ("n", "Number", &AttributeValue::Text("7.50".to_owned())),
            ]
        );
        assert_eq!((&*first.body, first.group.as_deref()), ("", Some("g")));
        let ids: Vec<&str> = orders
            .iter()
            .filter_map(|one| one.message.deduplication.as_deref())
            .collect();
        assert_eq!(ids, ["key.0", "d", "key.2", "key.3", "key.4", "key.5"]);
        let times: Vec<_> = orders.into_iter().map(|one| one.time).collect();
        assert_eq!((&times[0], &times[1]), (&None, &None));
        let hours = Duration::from_secs(36 * 3_600);
        assert_eq!(times[2], Some(SendTime::After(hours)));
        let seconds = Duration::from_millis(1_500);
        assert_eq!(times[3], Some(SendTime::After(seconds)));
        let date = Timestamp(1_798_131_600_000);
        assert_eq!(times[4], Some(SendTime::At(date)));
        assert!(matches!(times[5], Some(SendTime::Every(_))));
    }

    #[test]
    fn every_problem_of_every_message_is_named() {
        let body = json!({"messages": [
            {"bdy": "x"},
            7,
            {"body": 7, "group": "", "attributes": {"a": [1]}, "delay": "soon"},
            {"body": "x", "delay": -1},
        ]});
        let problems = orders(&body, None).expect_err("it is wrong");
        let fields: Vec<_> = problems.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "messages[0].bdy",
                "messages[1]",
                "messages[2].body",
                "messages[2].attributes",
                "messages[2].group",
                "messages[2].delay",
                "messages[3].delay",
            ]
        );
        let body = json!({"messages": [
            {},
            {"body": "x", "delay": 1, "at": "tomorrow"},
            {"body": "x", "tz": "UTC"},
            {"body": "x", "cron": "often"},
            {"body": "x", "at": "2026-12-24"},
            {"body": "x", "cron": "@daily", "tz": "Mars"},
            {"body": "x", "delay": 1, "deduplication_id": "d"},
        ]});
        let problems = orders(&body, None).expect_err("it is wrong");
        let fields: Vec<_> = problems.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "messages[0].body",
                "messages[1].delay",
                "messages[2].tz",
                "messages[3].cron",
                "messages[4].at",
                "messages[5].tz",
                "messages[6].deduplication_id",
            ]
        );
        for wrong in [json!({}), json!({"messages": []}), json!({"messages": "x"})] {
            let problems = orders(&wrong, None).expect_err("it is wrong");
            assert_eq!(problems[0].0, "messages", "{wrong}");
        }
    }

    #[test]
    fn problem_of_a_message_does_not_show_its_body() {
        let secret = "s".repeat(10_000);
        let body = json!({"messages": [{"body": {"x": secret}}]});
        let problems = orders(&body, None).expect_err("it is wrong");
        assert_eq!(problems[0].1, "it is not a text");
    }

    #[test]
    fn numbers_that_would_lose_digits_are_refused() {
        for (value, is_taken) in [
            (json!(7), true),
            (json!(-7), true),
            (json!(u64::MAX), true),
            (json!(1.5), false),
            (json!({"number": "1.10"}), true),
            (json!({"number": "12345678901234567890123456789"}), true),
            (json!({"number": "x"}), false),
            (json!({"number": "1", "base64": ""}), false),
        ] {
            let body = json!({"messages": [{"body": "x", "attributes": {"a": value}}]});
            assert_eq!(orders(&body, None).is_ok(), is_taken, "{body}");
        }
    }

    #[test]
    fn answer_to_a_large_wrong_request_is_small() {
        let many = serde_json::Map::from_iter((0..50_000).map(|n| (n.to_string(), json!(0))));
        let long = "x".repeat(1 << 20);
        for body in [
            json!({"messages": [many]}),
            json!({"messages": vec![json!({}); 1_000]}),
            json!({"messages": [{"body": "x", "at": long}]}),
            json!({"messages": [{"body": "x", "cron": long}]}),
            json!({"messages": [{"body": "x", "cron": "@daily", "tz": long}]}),
            json!({"messages": [{"body": "x", (long.as_str()): 1}]}),
            json!({(long.as_str()): 1}),
        ] {
            let given = UnreadFields::of_body(body.to_string().as_bytes());
            let read = given.and_then(|given| read_given(given, |_: &SendMessages| Vec::new()));
            let orders = read.and_then(|request| request.orders(None));
            let problem = CallProblem::fields(orders.expect_err("it is wrong"));
            assert!(problem.errors.len() <= MOST_PROBLEMS);
            assert!(problem.detail.len() < 20_000, "{}", problem.detail.len());
        }
    }
}
