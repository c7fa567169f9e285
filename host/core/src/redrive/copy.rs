//! What is sent in the place of a message. Pure.

use super::select::text_of;
use crate::message::{self, Attribute, AttributeValue, Message, Outgoing, TRACE_HEADER};
use crate::queue::{
    DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, MessageLimits, POLICY_SOURCE, REDRIVEN,
};
use std::time::Duration;

/// What becomes of the attributes that Dispatcher gives dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Reason and source are removed, and `REDRIVEN` counts how often the message was moved back.
    Redriven,
    /// All attributes stay as they are.
    Kept,
}

/// A copy to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LetterCopy {
    /// The message.
    pub outgoing: Outgoing,
    /// Whether the count belongs to it but has no room beside the sender's attributes, none of which
    /// is dropped.
    pub lacks_count: bool,
}

/// The copy of a message with this body, for a queue with these limits. Keeps every attribute of the
/// sender's with its type, the group and the trace header. The deduplication id is new: a queue
/// accepts and discards what it was sent under the same id before, and the original is then deleted.
pub(super) fn copy_of(
    letter: &Message,
    body: String,
    marks: Marks,
    limits: MessageLimits,
) -> LetterCopy {
    let count = redriven(letter).saturating_add(1);
    let is_ours = |one: &&Attribute| match marks {
        Marks::Redriven => {
            [DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, REDRIVEN].contains(&one.name.as_str())
        }
        Marks::Kept => false,
    };
    let system = letter.system_attributes.iter();
    let system = system.filter(|(name, _)| name == TRACE_HEADER);
    let trace_header = system.map(|(_, value)| value.clone()).next();
    let carried = text_of(letter, TRACE_HEADER).filter(|_| trace_header.is_none());
    let is_header = |one: &&Attribute| carried.is_some() && one.name == TRACE_HEADER;
    let kept = letter.attributes.iter();
    let kept = kept.filter(|one| !is_ours(one) && !is_header(one));
    let mut outgoing = Outgoing {
        body,
        attributes: kept.cloned().collect(),
        delay: Duration::ZERO,
        group: letter.group.clone(),
        deduplication: Some(format!("{}-{count}", letter.id)),
        trace_header: trace_header.or_else(|| carried.map(str::to_owned)),
        ..Outgoing::default()
    };
    let mut lacks_count = false;
    if marks == Marks::Redriven {
        let mark = Attribute {
            name: REDRIVEN.to_owned(),
            data_type: "Number".to_owned(),
            value: AttributeValue::Text(count.to_string()),
        };
        let bytes = message::bytes(&outgoing.body, &outgoing.attributes) + mark.bytes();
        let is_full = limits
            .attributes
            .is_some_and(|most| outgoing.attributes.len() >= most);
        lacks_count = is_full || limits.bytes.is_some_and(|most| bytes > most);
        if !lacks_count {
            outgoing.attributes.push(mark);
        }
    }
    LetterCopy {
        outgoing,
        lacks_count,
    }
}

/// How often a message was moved back from a dead-letter queue, as far as it says.
pub fn redriven(letter: &Message) -> u32 {
    let count = text_of(letter, REDRIVEN);
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// The queue that a dead letter came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LetterSource {
    /// As the redrive policy of SQS or of the embedded queue wrote it; no sender can.
    Policy(String),
    /// As an attribute says, which Dispatcher writes and any sender can.
    Attribute(String),
}

impl LetterSource {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Policy(name) | Self::Attribute(name) => name,
        }
    }
}

/// The queue that a dead letter came from, if it says: as the queue's own policy wrote it, else as an
/// attribute says.
pub fn source_of(letter: &Message) -> Option<LetterSource> {
    let mut system = letter.system_attributes.iter();
    let by_policy = system.find(|(name, _)| name == POLICY_SOURCE);
    let by_policy = by_policy.map(|(_, arn)| LetterSource::Policy(arn.clone()));
    let named = || text_of(letter, DEAD_LETTER_SOURCE);
    by_policy.or_else(|| Some(LetterSource::Attribute(named()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::samples::message;

    const SQS: MessageLimits = MessageLimits {
        attributes: Some(10),
        bytes: Some(1_048_576),
    };

    fn letter(attributes: Vec<Attribute>) -> Message {
        Message {
            attributes,
            group: Some("g".into()),
            ..message("id")
        }
    }

    fn binary() -> Attribute {
        Attribute {
            name: "thumb".into(),
            data_type: "Binary.jpeg".into(),
            value: AttributeValue::Binary(vec![0, 255]),
        }
    }

    fn copy(letter: &Message, marks: Marks) -> LetterCopy {
        copy_of(letter, letter.body.clone(), marks, SQS)
    }

    #[test]
    fn a_copy_keeps_what_the_sender_wrote_and_loses_what_made_it_a_dead_letter() {
        let mut dead = letter(vec![
            binary(),
            Attribute::text(DEAD_LETTER_REASON, "why"),
            Attribute::text(DEAD_LETTER_SOURCE, "local:q"),
        ]);
        dead.system_attributes = vec![(TRACE_HEADER.into(), "Root=1-2".into())];
        let sent = copy(&dead, Marks::Redriven).outgoing;
        assert_eq!(sent.attributes[0], binary());
        assert_eq!(sent.attributes[1].name, REDRIVEN);
        assert_eq!(sent.attributes[1].data_type, "Number");
        assert_eq!(sent.attributes.len(), 2);
        assert_eq!(sent.group.as_deref(), Some("g"));
        assert_eq!(sent.trace_header.as_deref(), Some("Root=1-2"));
        assert_eq!(sent.deduplication.as_deref(), Some("id-1"));
    }

    #[test]
    fn the_count_goes_up_and_so_the_deduplication_id_is_new_each_time() {
        let mark = |count: &str| Attribute {
            name: REDRIVEN.into(),
            data_type: "Number".into(),
            value: AttributeValue::Text(count.into()),
        };
        let sent = copy(&letter(vec![mark("2")]), Marks::Redriven).outgoing;
        assert_eq!(sent.attributes, [mark("3")]);
        assert_eq!(sent.deduplication.as_deref(), Some("id-3"));
        let odd = copy(&letter(vec![mark("many")]), Marks::Redriven).outgoing;
        assert_eq!(odd.attributes, [mark("1")]);
    }

    #[test]
    fn ten_attributes_of_the_sender_leave_no_room_for_the_count() {
        let own: Vec<_> = (0..10)
            .map(|n| Attribute::text(n.to_string(), "x"))
            .collect();
        let sent = copy(&letter(own.clone()), Marks::Redriven);
        assert!(sent.lacks_count);
        assert_eq!(sent.outgoing.attributes, own);
        let sent = copy(&letter(own[1..].to_vec()), Marks::Redriven);
        assert!(!sent.lacks_count);
        assert_eq!(sent.outgoing.attributes.len(), 10);
    }

    #[test]
    fn a_message_of_the_largest_size_leaves_no_room_for_the_count_either() {
        let full = Message {
            body: "x".repeat(1_048_576),
            ..message("id")
        };
        assert!(copy(&full, Marks::Redriven).lacks_count);
    }

    #[test]
    fn a_move_keeps_every_attribute() {
        let own = vec![Attribute::text(DEAD_LETTER_REASON, "why"), binary()];
        let sent = copy(&letter(own.clone()), Marks::Kept);
        assert_eq!(sent.outgoing.attributes, own);
        assert!(!sent.lacks_count);
    }

    #[test]
    fn a_trace_header_that_travelled_as_an_attribute_is_one_again() {
        let sent = copy(
            &letter(vec![Attribute::text(TRACE_HEADER, "Root=1")]),
            Marks::Kept,
        );
        assert_eq!(sent.outgoing.attributes, []);
        assert_eq!(sent.outgoing.trace_header.as_deref(), Some("Root=1"));
        assert_eq!(sent.outgoing.attributes_with_trace().len(), 1);
    }

    #[test]
    fn a_letter_names_its_source_unless_its_queue_does() {
        let mut dead = letter(vec![]);
        assert_eq!(source_of(&dead), None);
        dead.attributes = vec![Attribute::text(DEAD_LETTER_SOURCE, "local:q")];
        let named = LetterSource::Attribute("local:q".into());
        assert_eq!(source_of(&dead), Some(named));
        dead.system_attributes = vec![(POLICY_SOURCE.into(), "arn:policy".into())];
        let by_policy = LetterSource::Policy("arn:policy".into());
        assert_eq!(
            source_of(&dead),
            Some(by_policy),
            "what no sender can write holds"
        );
    }
}
