//! Decides which messages a route handles. The patterns are those of the `FilterCriteria` of
//! Lambda's event source mappings, and match as in AWS's engine. Pure; settlement decides what
//! happens to the other messages.

mod address;
mod choice;
mod event;
mod pattern;
mod rule;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use crate::json::{Json, Unreadable};
use crate::message::Message;
use event::Plan;
pub use pattern::PatternError;
use pattern::Reader;

/// The parts of a message that a pattern may name, by Lambda's names.
const PARTS: [&str; 5] = [
    "body",
    "messageId",
    "attributes",
    "messageAttributes",
    "eventSourceARN",
];

/// One pattern and its text.
#[derive(Debug, Clone)]
pub struct Filter {
    text: String,
    plan: Plan,
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Filter {}

impl std::fmt::Display for Filter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

impl Filter {
    /// Reads a pattern such as `{"body": {"kind": ["order", "return"]}}`.
    ///
    /// # Errors
    /// Returns all problems of the pattern.
    pub fn read(text: &str) -> Result<Self, Vec<PatternError>> {
        let pattern = Json::read(text).map_err(|error| {
            let found = match error {
                Unreadable::NotJson(error) => format!("not JSON: {error}"),
                Unreadable::TooDeep => "more than 128 levels".to_owned(),
            };
            vec![PatternError::new("", found, WANTED)]
        })?;
        let mut reader = Reader::default();
        let combinations = reader.pattern(&pattern);
        if reader.errors.is_empty() {
            let text = text.trim().to_owned();
            let plan = Plan::new(combinations);
            return Ok(Self { text, plan });
        }
        Err(reader.errors)
    }
}

const WANTED: &str = "a pattern such as {\"body\": {\"kind\": [\"order\"]}}";
const PART: &str = "body, messageId, attributes, messageAttributes or eventSourceARN; a field of the \
                    body is written {\"body\": {\"FIELD\": [VALUE]}}";

/// Returns whether any of the filters matches a message, or there are no filters.
pub fn accepts(filters: &[Filter], message: &Message) -> bool {
    if filters.is_empty() {
        return true;
    }
    filters.iter().any(|filter| filter.plan.matches(message))
}
