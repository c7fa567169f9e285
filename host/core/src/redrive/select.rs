//! Which messages are meant. Pure; told `now`.

use super::tally::REASON;
use crate::clock::Timestamp;
use crate::message::{AttributeValue, Message};
use crate::queue::DEAD_LETTER_REASON;
use crate::recording::redact;
use crate::recording::redact::Rule;
use regex_lite::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Conditions that all must hold; without any, every message is meant.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The reason of the dead letter matches; one without a reason does not.
    pub reason: Option<ReasonPattern>,
    /// Values within bodies that are JSON.
    pub conditions: Vec<Condition>,
    /// The message was sent at least so long ago.
    pub older: Option<Duration>,
    /// The message has one of these ids.
    pub ids: Option<BTreeSet<String>>,
    /// What conditions cannot see: whoever may not see a value could guess it by them.
    pub redact: Vec<Rule>,
}

/// A regular expression that is searched for in reasons.
#[derive(Debug, Clone)]
pub struct ReasonPattern(Regex);

impl ReasonPattern {
    /// Reads one. The error is what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read = Regex::new(text).map(Self);
        read.map_err(|error| format!("`{text}` is not a regular expression: {error}"))
    }
}

/// A regular expression that selects the messages which were counted under this reason. A long reason
/// is counted by its beginning.
pub fn pattern_of_counted(reason: &str) -> String {
    let escaped = regex_lite::escape(reason);
    if reason.chars().count() < REASON {
        format!("^{escaped}$")
    } else {
        format!("^{escaped}")
    }
}

/// A value within a body that is JSON, by its JSON pointer (RFC 6901).
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pointer: String,
    text: String,
    value: Option<Value>,
}

impl Condition {
    /// Reads `/order/country=CH`. The value is JSON, or else a text. The error is what was found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((pointer, value)) = text.split_once('=') else {
            return Err(format!("`{text}` has no `=`"));
        };
        if !pointer.starts_with('/') && !pointer.is_empty() {
            return Err(format!("`{pointer}` does not begin with `/`"));
        }
        Ok(Self {
            pointer: pointer.to_owned(),
            text: value.to_owned(),
            value: serde_json::from_str(value).ok(),
        })
    }

    fn holds(&self, body: &Value) -> bool {
        let Some(found) = body.pointer(&self.pointer) else {
            return false;
        };
        found.as_str() == Some(self.text.as_str()) || self.value.as_ref() == Some(found)
    }
}

impl Selection {
    /// Whether every message is meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.reason.is_none()
            && self.conditions.is_empty()
            && self.older.is_none()
            && self.ids.is_none()
    }

    /// Whether this message is meant.
    pub fn matches(&self, message: &Message, now: Timestamp) -> bool {
        if let Some(ids) = &self.ids
            && !ids.contains(&message.id)
        {
            return false;
        }
        let is_old = |age: Duration| {
            let sent = message.sent_at;
            sent.is_some_and(|sent| now.since(sent) >= age)
        };
        if self.older.is_some_and(|age| !is_old(age)) {
            return false;
        }
        if let Some(wanted) = &self.reason
            && !reason_of(message).is_some_and(|reason| wanted.0.is_match(reason))
        {
            return false;
        }
        if self.conditions.is_empty() {
            return true;
        }
        let body = redact::body(&self.redact, &message.body);
        let body: Option<Value> = serde_json::from_str(&body).ok();
        body.is_some_and(|body| self.conditions.iter().all(|one| one.holds(&body)))
    }
}

/// Why a message was dead-lettered, where Dispatcher did it.
pub fn reason_of(message: &Message) -> Option<&str> {
    text_of(message, DEAD_LETTER_REASON)
}

/// A text attribute.
pub(super) fn text_of<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let found = message.attributes.iter().find(|one| one.name == name)?;
    match &found.value {
        AttributeValue::Text(text) => Some(text),
        AttributeValue::Binary(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Attribute;
    use crate::message::samples::message;

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
            let wanted = selection(Some(&pattern_of_counted(&counted)), &[]);
            let matches = |reason| wanted.matches(&letter("", Some(reason)), Timestamp(2_000));
            assert!(matches(reason), "{reason}");
            assert!(!matches(other), "{other}");
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
    fn conditions_do_not_see_what_is_redacted() {
        let wanted = |condition: &str| Selection {
            redact: vec!["/card".parse().unwrap()],
            ..selection(None, &[condition])
        };
        let letter = letter(r#"{"card":"4111","n":1}"#, None);
        assert!(wanted("/n=1").matches(&letter, Timestamp(0)));
        assert!(!wanted("/card=4111").matches(&letter, Timestamp(0)));
    }

    #[test]
    fn ids_select_the_messages_that_have_them() {
        let of = |ids: &[&str]| Selection {
            ids: Some(ids.iter().map(|id| (*id).to_owned()).collect()),
            ..Selection::default()
        };
        assert!(!of(&["m"]).is_everything());
        assert!(of(&["l", "m"]).matches(&letter("", None), Timestamp(0)));
        assert!(!of(&["l"]).matches(&letter("", None), Timestamp(0)));
    }

    #[test]
    fn a_condition_without_a_pointer_is_refused() {
        assert_eq!(Condition::parse("a"), Err("`a` has no `=`".to_owned()));
        assert_eq!(
            Condition::parse("a=1"),
            Err("`a` does not begin with `/`".to_owned())
        );
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
