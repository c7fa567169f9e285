//! The selection of messages: its form in requests, and its meaning. Pure; the caller passes `now`.

use crate::problem::FieldProblem;
use crate::request::{Age, Flag, MessageIds, RequestField, texts, texts_schema};
use crate::requests;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::json::{self, Token, Tokens};
use dispatcher_core::message::Message;
use dispatcher_core::queue::DEAD_LETTER_REASON;
use dispatcher_core::queue::origin::{has_had_id, text_of};
use dispatcher_trials::recording::redact;
use dispatcher_trials::recording::redact::Rule;
use regex_lite::{Regex, RegexBuilder};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The maximum number of characters of a reason by which messages are distinguished.
pub(crate) const REASON: usize = 200;

requests! {
    /// Which messages to select. All given conditions must hold.
    pub struct Select {
        /// Only dead letters whose reason matches this regular expression.
        reason: ReasonPattern,
        /// Only dead letters with exactly this reason, as reports and lists show it.
        reason_is: String,
        /// Only messages whose body is JSON with these values, as in `/order/country=CH`.
        r#where: Conditions,
        /// Only messages that were sent at least this long ago, as in `90s` or `36h`.
        older: Age,
        /// Only messages that have one of these ids, or had it before they were copied, for example
        /// to a dead-letter queue of SQS or by a redrive.
        messages: MessageIds,
    }
}

impl Select {
    /// Selects the messages with one of these ids.
    pub fn of_ids(ids: Vec<String>) -> Self {
        Self {
            messages: Some(MessageIds(ids)),
            ..Self::default()
        }
    }

    /// Returns the selection. Conditions cannot see what `redact` covers.
    pub fn selection(&self, redact: Vec<Rule>) -> Selection {
        let ids = self.messages.as_ref();
        let conditions = self.r#where.as_ref();
        Selection {
            reason: self.reason.clone(),
            reason_is: self.reason_is.clone(),
            conditions: conditions.map(|all| all.0.clone()).unwrap_or_default(),
            older: self.older.map(|Age(age)| age),
            ids: ids.map(|ids| ids.0.iter().cloned().collect()),
            redact,
        }
    }
}

/// Conditions that must all hold; without any, every message is selected.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The dead letter has a reason that matches.
    pub reason: Option<ReasonPattern>,
    /// The dead letter has this reason.
    pub reason_is: Option<String>,
    /// The body is JSON and contains these values.
    pub conditions: Vec<Condition>,
    /// The message was sent at least this long ago.
    pub older: Option<Duration>,
    /// The message has one of these ids, or had it before it was copied.
    pub ids: Option<BTreeSet<String>>,
    /// The rules of values that conditions cannot see: a user without access to a value could
    /// otherwise guess it with conditions.
    pub redact: Vec<Rule>,
}

/// A regular expression that is searched for in reasons.
#[derive(Debug, Clone)]
pub struct ReasonPattern(Regex);

/// The maximum length of an expression, in bytes.
const LONGEST_PATTERN: usize = 4_096;
/// The maximum memory of a compiled expression, in bytes.
const MOST_COMPILED: usize = 1 << 20;

impl ReasonPattern {
    /// Parses an expression. The error describes the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST_PATTERN {
            let bytes = text.len();
            return Err(format!(
                "{bytes} bytes are too long for a regular expression; at most {LONGEST_PATTERN}"
            ));
        }
        let read = RegexBuilder::new(text).size_limit(MOST_COMPILED).build();
        read.map(Self)
            .map_err(|error| format!("`{text}` is not a regular expression: {error}"))
    }
}

impl PartialEq for ReasonPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl RequestField for ReasonPattern {
    const WANTED: &'static str = "a regular expression as in `time.?out`";
    const FLAG: Flag = Flag::Text("REGEX");

    fn schema() -> Value {
        <String as RequestField>::schema()
    }

    fn of(value: &Value) -> Option<Self> {
        Self::parse(&String::of(value)?).ok()
    }

    fn json(&self) -> Value {
        json!(self.0.as_str())
    }

    fn read(value: &Value, at: &str, problems: &mut Vec<FieldProblem>) -> Option<Self> {
        let text = String::read(value, at, problems)?;
        let read = Self::parse(&text);
        read.map_err(|found| problems.push(FieldProblem::new(at, &found, Self::WANTED)))
            .ok()
    }
}

/// Returns whether a message with this reason is counted under `counted`. A long reason is counted by
/// its beginning.
fn is_counted_under(counted: &str, reason: &str) -> bool {
    let is_beginning = counted.chars().count() >= REASON;
    reason == counted || is_beginning && reason.starts_with(counted)
}

/// A value in a JSON body, by its JSON pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pointer: String,
    /// The value, if it is a text.
    text: String,
    /// Whether it may also be another JSON value.
    is_json: bool,
}

impl Condition {
    /// Parses a condition such as `/order/country=CH`. The value is JSON or, if it does not parse,
    /// a text. The error describes what was found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((pointer, value)) = text.split_once('=') else {
            return Err(format!("`{text}` has no `=`"));
        };
        if !pointer.starts_with('/') && !pointer.is_empty() {
            return Err(format!("`{pointer}` does not begin with `/`"));
        }
        let is_exact =
            |token| !matches!(token, Ok(Token::Number(number)) if !json::is_exact(number));
        if !Tokens::new(value).all(is_exact) {
            return Err(format!("`{value}` has an exponent of more than 37 digits"));
        }
        Ok(Self {
            pointer: pointer.to_owned(),
            text: value.to_owned(),
            is_json: json::is_valid(value),
        })
    }

    fn holds(&self, body: &str) -> bool {
        let Some(found) = json::find(body, &self.pointer) else {
            return false;
        };
        match Tokens::new(found).next() {
            Some(Ok(Token::Text(text))) if text.is(&self.text) => true,
            _ => self.is_json && json::is_same(found, &self.text),
        }
    }
}

/// Conditions that must all hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions(pub Vec<Condition>);

impl RequestField for Conditions {
    const WANTED: &'static str = "a list of 1 to 1000 texts that are not empty";
    const FLAG: Flag = Flag::Texts("/POINTER=VALUE");

    fn schema() -> Value {
        texts_schema()
    }

    fn of(value: &Value) -> Option<Self> {
        let texts = texts(value)?;
        let read = texts.iter().map(|text| Condition::parse(text).ok());
        read.collect::<Option<Vec<_>>>().map(Self)
    }

    fn json(&self) -> Value {
        let texts = self.0.iter();
        texts
            .map(|one| json!(format!("{}={}", one.pointer, one.text)))
            .collect()
    }

    fn read(value: &Value, at: &str, problems: &mut Vec<FieldProblem>) -> Option<Self> {
        let Some(texts) = texts(value) else {
            let found = "it cannot be used";
            problems.push(FieldProblem::new(at, found, Self::WANTED));
            return None;
        };
        let mut conditions = Vec::new();
        for text in texts {
            match Condition::parse(&text) {
                Ok(condition) => conditions.push(condition),
                Err(found) => {
                    let wanted = "a JSON pointer and a value, as in /order/country=CH";
                    problems.push(FieldProblem::new(at, &found, wanted));
                }
            }
        }
        Some(Self(conditions))
    }
}

impl Selection {
    /// Returns whether every message is selected.
    pub fn is_everything(&self) -> bool {
        self.reason.is_none()
            && self.reason_is.is_none()
            && self.conditions.is_empty()
            && self.older.is_none()
            && self.ids.is_none()
    }

    /// Returns whether this message is selected.
    pub fn matches(&self, message: &Message, now: Timestamp) -> bool {
        if let Some(ids) = &self.ids
            && !ids.iter().any(|id| has_had_id(message, id))
        {
            return false;
        }
        if let Some(age) = self.older
            && message.sent_at.is_none_or(|sent| now.since(sent) < age)
        {
            return false;
        }
        if let Some(wanted) = &self.reason
            && !reason_of(message).is_some_and(|reason| wanted.0.is_match(reason))
        {
            return false;
        }
        if let Some(counted) = &self.reason_is
            && !reason_of(message).is_some_and(|reason| is_counted_under(counted, reason))
        {
            return false;
        }
        if self.conditions.is_empty() {
            return true;
        }
        let body = redact::body(&self.redact, &message.body);
        self.conditions.iter().all(|one| one.holds(&body))
    }
}

/// Returns why a message was dead-lettered, if Dispatcher did it.
pub fn reason_of(message: &Message) -> Option<&str> {
    text_of(message, DEAD_LETTER_REASON)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{UnreadFields, read_given};
    use dispatcher_core::message::Attribute;
    use dispatcher_core::message::samples::message;
    use dispatcher_core::queue::origin::FIRST_ID;

    fn letter(body: &str, reason: Option<&str>) -> Message {
        Message {
            body: body.to_owned(),
            sent_at: Some(Timestamp(1_000)),
            attributes: reason
                .map(|reason| Attribute::text(DEAD_LETTER_REASON, reason))
                .into_iter()
                .collect(),
            ..message("m")
        }
    }

    fn selection(reason: Option<&str>, conditions: &[&str]) -> Selection {
        let conditions = conditions
            .iter()
            .map(|text| Condition::parse(text).unwrap());
        Selection {
            reason: reason.map(|text| ReasonPattern::parse(text).unwrap()),
            conditions: conditions.collect(),
            ..Selection::default()
        }
    }

    #[test]
    fn no_condition_selects_every_message() {
        assert!(Selection::default().is_everything());
        assert!(Selection::default().matches(&letter("", None), Timestamp(0)));
    }

    #[test]
    fn a_reason_is_searched_for_and_a_letter_without_one_is_not_selected() {
        let wanted = selection(Some("time.?out"), &[]);
        let now = Timestamp(2_000);
        assert!(wanted.matches(&letter("", Some("a timeout of billing")), now));
        assert!(!wanted.matches(&letter("", Some("trap")), now));
        assert!(!wanted.matches(&letter("", None), now));
    }

    #[test]
    fn a_counted_reason_selects_its_messages_and_no_others() {
        let long = "<é>".repeat(REASON);
        for (reason, other) in [
            ("no (price) [a-z]* \\d é", "no price a d é"),
            ("<b>\"#&~-%,;:=@!'` </b>", "<b>"),
            ("two\nlines", "two"),
            ("", "any"),
            ("404", "1404"),
            (&long, "<é>"),
        ] {
            let counted: String = reason.chars().take(REASON).collect();
            let wanted = Selection {
                reason_is: Some(counted),
                ..Selection::default()
            };
            for (reason, matches) in [(reason, true), (other, false)] {
                let letter = letter("", Some(reason));
                let is_match = wanted.matches(&letter, Timestamp(2_000));
                assert_eq!(is_match, matches, "{reason}");
            }
        }
    }

    #[test]
    fn values_are_compared_as_json_and_as_texts() {
        let body = r#"{"a":{"b":[1,"2",true,null]},"":"e","x/y":"CH"}"#;
        for (condition, holds) in [
            ("/a/b/0=1", true),
            ("/a/b/0=1.5", false),
            ("/a/b/1=2", true),
            ("/a/b/1=\"2\"", true),
            ("/a/b/2=true", true),
            ("/a/b/3=null", true),
            ("/x~1y=CH", true),
            ("/=e", true),
            ("/a/b/9=1", false),
            ("/missing=null", false),
        ] {
            let wanted = selection(None, &[condition]);
            assert_eq!(
                wanted.matches(&letter(body, None), Timestamp(0)),
                holds,
                "{condition}"
            );
        }
        assert!(!selection(None, &["/a=1"]).matches(&letter("no JSON", None), Timestamp(0)));
        assert!(!selection(None, &["/x~1y=CH", "/=f"]).matches(&letter(body, None), Timestamp(0)));
    }

    #[test]
    fn numbers_are_compared_by_value_and_odd_json_is_read() {
        let (one, other) = (
            "123456789012345678901234567890",
            "123456789012345678901234567891",
        );
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        for odd in [r#""\ud83d""#, "1e400", other, &deep] {
            let body = format!(r#"{{"x":{odd},"id":{one},"of":{{"id":[{one}],"x":1}}}}"#);
            for (condition, holds) in [
                (format!("/id={one}"), true),
                (format!("/id={one}.0"), true),
                (format!("/id={other}"), false),
                (format!("/of={{\"x\":1e0,\"id\":[{one}]}}"), true),
                (format!("/of={{\"x\":1,\"id\":[{other}]}}"), false),
                (format!("/x={odd}"), true),
                ("/x=1e401".to_owned(), false),
                (r#"/x="\ud83e""#.to_owned(), false),
            ] {
                // Values as deep as this are not compared.
                let holds = holds && condition.len() < 1_000;
                let wanted = selection(None, &[&condition]);
                let matches = wanted.matches(&letter(&body, None), Timestamp(0));
                assert_eq!(matches, holds, "{condition:.60} {odd:.60}");
            }
        }
        let last = selection(None, &["/a=2"]);
        assert!(last.matches(&letter(r#"{"a":1,"a":2}"#, None), Timestamp(0)));
        assert!(!last.matches(&letter(r#"{"a":2,"a":1}"#, None), Timestamp(0)));
    }

    #[test]
    fn expressions_are_bounded_in_length_and_when_compiled() {
        assert!(ReasonPattern::parse(&"\u{10000}".repeat(LONGEST_PATTERN / 4)).is_ok());
        for too_much in [
            "a".repeat(LONGEST_PATTERN + 1),
            "a".repeat(8 << 20),
            "(a{900}){900}".to_owned(),
            "((((a{9}){9}){9}){9}){99}".to_owned(),
        ] {
            assert!(ReasonPattern::parse(&too_much).is_err(), "{too_much:.30}");
        }
        let long = ReasonPattern::parse(&"a".repeat(8 << 20)).expect_err("too long");
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn conditions_do_not_see_what_is_redacted() {
        let letter = letter(r#"{"card":"4111","n":1}"#, None);
        for (condition, holds) in [("/n=1", true), ("/card=4111", false)] {
            let wanted = Selection {
                redact: vec!["/card".parse().unwrap()],
                ..selection(None, &[condition])
            };
            assert_eq!(wanted.matches(&letter, Timestamp(0)), holds, "{condition}");
        }
    }

    fn of_ids(ids: &[&str]) -> Selection {
        Selection {
            ids: Some(ids.iter().map(|id| (*id).to_owned()).collect()),
            ..Selection::default()
        }
    }

    #[test]
    fn ids_select_the_messages_that_have_them() {
        assert!(!of_ids(&["m"]).is_everything());
        assert!(of_ids(&["l", "m"]).matches(&letter("", None), Timestamp(0)));
        assert!(!of_ids(&["l"]).matches(&letter("", None), Timestamp(0)));
        let mut copy = letter("", None);
        copy.attributes.push(Attribute::text(FIRST_ID, "l"));
        assert!(of_ids(&["l"]).matches(&copy, Timestamp(0)));
    }

    #[test]
    fn every_problem_of_a_selection_is_named() {
        let body = json!({"reason": "(", "where": ["a=1", "/a=1", "/b"], "older": "soon"});
        let given = UnreadFields::of_body(body.to_string().as_bytes()).expect("an object");
        let read = read_given(given, |_: &Select| Vec::new());
        let problems = read.expect_err("it is wrong");
        let fields: Vec<&str> = problems.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(fields, ["reason", "where", "where", "older"]);
    }

    #[test]
    fn a_condition_without_a_pointer_is_refused() {
        assert_eq!(Condition::parse("a"), Err("`a` has no `=`".to_owned()));
        assert_eq!(
            Condition::parse("a=1"),
            Err("`a` does not begin with `/`".to_owned())
        );
        assert!(Condition::parse("/a=1e99999999999999999999999999999999999999999").is_err());
    }

    #[test]
    fn a_young_letter_is_not_older_and_one_without_a_date_is_not_either() {
        let wanted = Selection {
            older: Some(Duration::from_secs(1)),
            ..Selection::default()
        };
        assert!(wanted.matches(&letter("", None), Timestamp(2_000)));
        assert!(!wanted.matches(&letter("", None), Timestamp(1_999)));
        let undated = Message {
            sent_at: None,
            ..letter("", None)
        };
        assert!(!wanted.matches(&undated, Timestamp(9_000)));
    }
}
