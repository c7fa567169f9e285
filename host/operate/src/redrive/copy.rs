//! The copy that is sent in place of a message. Pure.

use dispatcher_core::message::{self, Attribute, AttributeValue, Message, OutgoingMessage};
use dispatcher_core::queue::origin::{self, is_origin, text_of};
use dispatcher_core::queue::{
    DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, MessageLimits, POLICY_SOURCE, REDRIVEN,
};

/// The treatment of the attributes that Dispatcher adds to dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Reason and source are removed, and `REDRIVEN` counts how often the message was moved back.
    Redriven,
    /// All of them stay unchanged.
    Kept,
}

impl Marks {
    /// Whether a copy loses the letter's attribute of this name.
    fn removes(self, name: &str) -> bool {
        let of_letter = [DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, REDRIVEN];
        is_origin(name) || (self == Self::Redriven && of_letter.contains(&name))
    }
}

/// A copy to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LetterCopy {
    /// The message.
    pub outgoing: OutgoingMessage,
    /// Whether the count does not fit beside the sender's attributes, none of which is dropped.
    pub lacks_count: bool,
}

/// Returns the copy of a message with this body, for a queue with these limits. The copy keeps
/// every attribute of the sender with its type, the group and the trace header, and records the
/// message's first id. The deduplication id is new: a queue accepts and discards a message with an
/// id that it received before, and the original would then be deleted.
pub(super) fn copy_of(
    letter: &Message,
    body: String,
    marks: Marks,
    limits: MessageLimits,
) -> LetterCopy {
    let count = redriven(letter).saturating_add(1);
    let mut outgoing = OutgoingMessage {
        deduplication: Some(format!("{}-{count}", letter.id)),
        ..letter.copy_with(body)
    };
    outgoing.attributes.retain(|one| !marks.removes(&one.name));
    // The first id has priority: a message that cannot be found is worse than one that is not
    // counted.
    let source = if marks == Marks::Redriven {
        source_of(letter)
    } else {
        None
    };
    let mut added = origin::of_copy(letter, source.as_ref().map(LetterSource::name));
    if marks == Marks::Redriven {
        added.insert(1, count_mark(count));
    }
    let mut lacks_count = false;
    for mark in added {
        let is_count = mark.name == REDRIVEN;
        if has_room(&outgoing, &mark, limits) {
            outgoing.attributes.push(mark);
        } else {
            lacks_count |= is_count;
        }
    }
    LetterCopy {
        outgoing,
        lacks_count,
    }
}

fn count_mark(count: u32) -> Attribute {
    Attribute {
        name: REDRIVEN.to_owned(),
        data_type: "Number".to_owned(),
        value: AttributeValue::Text(count.to_string()),
    }
}

fn has_room(outgoing: &OutgoingMessage, mark: &Attribute, limits: MessageLimits) -> bool {
    let bytes = message::bytes(&outgoing.body, &outgoing.attributes) + mark.bytes();
    let is_full = limits
        .attributes
        .is_some_and(|most| outgoing.attributes.len() >= most);
    !is_full && limits.bytes.is_none_or(|most| bytes <= most)
}

/// Returns how often a message was moved back from a dead-letter queue, according to its attribute.
pub fn redriven(letter: &Message) -> u32 {
    let count = text_of(letter, REDRIVEN);
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// The source queue of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LetterSource {
    /// Written by the redrive policy of SQS or of the embedded queue; senders cannot write it.
    Policy(String),
    /// Written in an attribute by Dispatcher, but any sender can write it.
    Attribute(String),
}

impl LetterSource {
    /// Returns the name of the queue.
    pub fn name(&self) -> &str {
        match self {
            Self::Policy(name) | Self::Attribute(name) => name,
        }
    }
}

/// Returns the source queue of a dead letter, if it is known: from the queue's redrive policy,
/// otherwise from an attribute.
pub fn source_of(letter: &Message) -> Option<LetterSource> {
    let mut system = letter.system_attributes.iter();
    let by_policy = system
        .find(|(name, _)| name == POLICY_SOURCE)
        .map(|(_, arn)| LetterSource::Policy(arn.clone()));
    by_policy.or_else(|| {
        let named = text_of(letter, DEAD_LETTER_SOURCE)?;
        Some(LetterSource::Attribute(named.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::TRACE_HEADER;
    use dispatcher_core::message::samples::message;
    use dispatcher_core::queue::origin::{FIRST_ID, FIRST_SOURCE};

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

    fn first_id(id: &str) -> Attribute {
        Attribute::text(FIRST_ID, id)
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
        let first_source = Attribute::text(FIRST_SOURCE, "local:q");
        let wanted = [binary(), first_id("id"), count_mark(1), first_source];
        assert_eq!(sent.attributes, wanted);
        assert_eq!(sent.group.as_deref(), Some("g"));
        assert_eq!(sent.trace_header.as_deref(), Some("Root=1-2"));
        assert_eq!(sent.deduplication.as_deref(), Some("id-1"));
    }

    #[test]
    fn the_count_goes_up_and_so_the_deduplication_id_is_new_each_time() {
        let sent = copy(&letter(vec![count_mark(2)]), Marks::Redriven).outgoing;
        assert_eq!(sent.attributes, [first_id("id"), count_mark(3)]);
        assert_eq!(sent.deduplication.as_deref(), Some("id-3"));
        let many = Attribute::text(REDRIVEN, "many");
        let odd = copy(&letter(vec![many]), Marks::Redriven).outgoing;
        assert_eq!(odd.attributes, [first_id("id"), count_mark(1)]);
    }

    #[test]
    fn attributes_of_the_sender_stay_and_of_ours_the_first_id_goes_last() {
        let all: Vec<_> = (0..10)
            .map(|n| Attribute::text(n.to_string(), "x"))
            .collect();
        for (own, wanted) in [
            (7, vec![FIRST_ID, REDRIVEN, FIRST_SOURCE]),
            (8, vec![FIRST_ID, REDRIVEN]),
            (9, vec![FIRST_ID]),
            (10, vec![]),
        ] {
            let own = all[..own].to_vec();
            let mut dead = letter(own.clone());
            dead.system_attributes = vec![(POLICY_SOURCE.into(), "arn:q".into())];
            let LetterCopy {
                outgoing,
                lacks_count,
            } = copy(&dead, Marks::Redriven);
            let sent = outgoing.attributes;
            assert_eq!(sent[..own.len()], own);
            let added: Vec<&str> = sent[own.len()..].iter().map(|one| &*one.name).collect();
            assert_eq!(added, wanted);
            assert_eq!(lacks_count, !added.contains(&REDRIVEN));
        }
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
    fn a_move_keeps_every_attribute_and_adds_the_first_id() {
        let own = vec![Attribute::text(DEAD_LETTER_REASON, "why"), binary()];
        let sent = copy(&letter(own.clone()), Marks::Kept);
        assert_eq!(sent.outgoing.attributes[..2], own);
        assert_eq!(sent.outgoing.attributes[2..], [first_id("id")]);
        assert!(!sent.lacks_count);
    }

    #[test]
    fn a_trace_header_that_travelled_as_an_attribute_is_one_again() {
        let sent = copy(
            &letter(vec![Attribute::text(TRACE_HEADER, "Root=1")]),
            Marks::Kept,
        );
        assert_eq!(sent.outgoing.attributes, [first_id("id")]);
        assert_eq!(sent.outgoing.trace_header.as_deref(), Some("Root=1"));
        assert_eq!(sent.outgoing.attributes_with_trace().len(), 2);
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
