//! Tracks a message across its copies. A copy has its own id, so it carries the first id, date and
//! queue of the message in attributes. Pure.

use crate::message::{Attribute, AttributeValue, Message};

/// The attribute of a copy with the id that the message had before it was first copied.
pub const FIRST_ID: &str = "dispatcher-first-id";
/// The attribute of a copy with the time at which the message was first received (RFC 3339).
pub const FIRST_RECEIVED: &str = "dispatcher-first-received-at";
/// The attribute of a copy with the queue that the message was first dead-lettered from.
pub const FIRST_SOURCE: &str = "dispatcher-first-source";

/// Returns the text of one of a message's attributes.
pub fn text_of<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let found = message.attributes.iter().find(|one| one.name == name)?;
    match &found.value {
        AttributeValue::Text(text) => Some(text),
        AttributeValue::Binary(_) => None,
    }
}

/// Returns whether this is the name of one of these attributes.
pub fn is_origin(name: &str) -> bool {
    [FIRST_ID, FIRST_RECEIVED, FIRST_SOURCE].contains(&name)
}

/// Returns the first id of a message that was copied.
pub fn first_id(message: &Message) -> Option<&str> {
    text_of(message, FIRST_ID)
}

/// Returns whether a message has this id, or had it before it was first copied.
pub fn has_had_id(message: &Message, id: &str) -> bool {
    message.id == id || first_id(message) == Some(id)
}

/// Returns the attributes that tell the origin of a copy. If a message has no room for all of them,
/// the last ones are left out first. `source` is the queue that the message was dead-lettered from,
/// if it was.
pub fn of_copy(message: &Message, source: Option<&str>) -> Vec<Attribute> {
    let known = |name| text_of(message, name).map(str::to_owned);
    let id = known(FIRST_ID).unwrap_or_else(|| message.id.clone());
    let marks = [
        (FIRST_ID, Some(id)),
        (
            FIRST_SOURCE,
            known(FIRST_SOURCE).or_else(|| source.map(str::to_owned)),
        ),
        (
            FIRST_RECEIVED,
            known(FIRST_RECEIVED).or_else(|| message.first_received_at.map(|at| at.to_string())),
        ),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| Attribute::text(name, value)));
    marks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::message::samples::message;

    fn marks<const N: usize>(list: [(&str, &str); N]) -> Vec<Attribute> {
        list.map(|(name, value)| Attribute::text(name, value))
            .into()
    }

    #[test]
    fn a_copy_of_a_copy_keeps_the_first_id_date_and_queue() {
        let first = Message {
            first_received_at: Some(Timestamp(1_000)),
            ..message("first")
        };
        let wanted = marks([
            (FIRST_ID, "first"),
            (FIRST_SOURCE, "local:first"),
            (FIRST_RECEIVED, "1970-01-01T00:00:01.000Z"),
        ]);
        assert_eq!(of_copy(&first, Some("local:first")), wanted);
        let second = Message {
            first_received_at: Some(Timestamp(9_000)),
            attributes: wanted.clone(),
            ..message("second")
        };
        assert_eq!(of_copy(&second, Some("local:second")), wanted);
        assert!(has_had_id(&second, "first") && has_had_id(&second, "second"));
        assert!(!has_had_id(&second, "third"));
        assert_eq!(first_id(&second), Some("first"));
    }

    #[test]
    fn a_message_that_was_never_received_has_no_date() {
        assert_eq!(of_copy(&message("a"), None), marks([(FIRST_ID, "a")]));
    }
}
