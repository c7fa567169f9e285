//! Converts messages and receipts to and from the arguments and answers of scripts. Pure.

pub(super) use crate::server::{CALL, LONGEST};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message;
use dispatcher_core::message::{
    Attribute, ContentError, Message, Outcome, OutgoingMessage, Receipt,
};
use dispatcher_core::queue::{
    DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, ItemError, VISIBILITY_CEILING,
};
use redis::Value;
use std::time::Duration;

/// A time far beyond any delay, whose milliseconds Lua still counts exactly.
const FAR: u64 = 1 << 50;

/// The answer of `claim`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClaimAnswer {
    Messages {
        /// At least one message.
        messages: Vec<Message>,
        /// Whether there were more, too many for one answer.
        more: bool,
        /// The number of messages that went before others because they had waited too long.
        overdue: usize,
    },
    /// No message, and the time until the next look unless something is sent.
    Nothing(Option<Duration>),
    /// No message yet: the server has put some of the waiting messages in their places, and goes on
    /// with the next claim by rules.
    Again,
    /// No message yet: the queue no longer has the rules of this process.
    RulesGone,
    /// The worker may not receive any more.
    Stranger,
}

impl ClaimAnswer {
    /// Returns the messages of the answer.
    pub(super) fn messages(&self) -> &[Message] {
        match self {
            Self::Messages { messages, .. } => messages,
            Self::Nothing(_) | Self::Again | Self::RulesGone | Self::Stranger => &[],
        }
    }
}

/// Reads an answer of `claim` or `peek`; `None` if it is not one. `queue` is the queue's name as
/// the configuration writes it. A body of more than `most` bytes was not loaded.
pub(super) fn claimed(answer: &[Value], queue: &str, most: u64) -> Option<ClaimAnswer> {
    let (first, rest) = answer.split_first()?;
    let Value::Int(first) = first else {
        return None;
    };
    if rest.is_empty() {
        return Some(match *first {
            -2 => ClaimAnswer::Stranger,
            -3 => ClaimAnswer::Again,
            -4 => ClaimAnswer::RulesGone,
            ..0 => ClaimAnswer::Nothing(None),
            ms => ClaimAnswer::Nothing(Some(Duration::from_millis(ms.unsigned_abs()))),
        });
    }
    let columns = Columns::of(rest)?;
    let messages = (0..columns.ids.len()).map(|at| columns.message(at, queue, most));
    Some(ClaimAnswer::Messages {
        messages: messages.collect::<Option<_>>()?,
        more: first % 2 == 1,
        overdue: usize::try_from(first / 2).ok()?,
    })
}

/// The messages of an answer: the time of the receive, and lists with one value for each message,
/// or without values.
struct Columns<'a> {
    received_at: Option<Timestamp>,
    ids: &'a [Value],
    bodies: &'a [Value],
    attributes: &'a [Value],
    groups: &'a [Value],
    counts: &'a [Value],
    first_received_at: &'a [Value],
}

impl<'a> Columns<'a> {
    fn of(values: &'a [Value]) -> Option<Self> {
        let [received_at, lists @ ..] = values else {
            return None;
        };
        let lists: Vec<&[Value]> = lists
            .iter()
            .map_while(|list| match list {
                Value::Array(values) => Some(&values[..]),
                _ => None,
            })
            .collect();
        let [ids, bodies, attributes, groups, counts, first_received_at] = lists[..] else {
            return None;
        };
        Some(Self {
            received_at: time(&text(received_at)?),
            ids,
            bodies,
            attributes,
            groups,
            counts,
            first_received_at,
        })
    }

    fn message(&self, at: usize, queue: &str, most: u64) -> Option<Message> {
        let id = text(&self.ids[at])?;
        let count = self.counts.get(at).map_or(Some("1".into()), text)?;
        let first_received_at = match self.first_received_at.get(at) {
            Some(first) => time(&text(first)?),
            None => self.received_at,
        };
        let mut unreadable = None;
        let mut content = |value: &Value, what: &str| match content(value, what) {
            Ok(text) => text.to_owned(),
            Err(why) => {
                unreadable.get_or_insert(why);
                String::new()
            }
        };
        let (body, too_large) = match self.bodies.get(at)? {
            // A number in the place of a body is its length.
            Value::Int(bytes) => (String::new(), Some(bytes.unsigned_abs())),
            value => (content(value, "body"), None),
        };
        let json = match self.attributes.get(at).unwrap_or(&Value::Nil) {
            Value::Nil if !has_attributes(&id) => String::new(),
            value => content(value, "attributes"),
        };
        let attributes = match json.as_str() {
            "" => Vec::new(),
            json => serde_json::from_str(json).unwrap_or_else(|error| {
                unreadable.get_or_insert(format!("its attributes cannot be read: {error}"));
                Vec::new()
            }),
        };
        let group = self.groups.get(at).and_then(text);
        Some(Message {
            receipt: Receipt(format!("{id}.{count}")),
            queue: queue.to_owned(),
            source: queue.to_owned(),
            body,
            receive_count: count.parse().unwrap_or(u32::MAX),
            sent_at: sent_at(&id),
            first_received_at,
            group: group.and_then(|group| group.strip_prefix('=').map(str::to_owned)),
            system_attributes: Vec::new(),
            attributes,
            body_md5: None,
            attributes_md5: None,
            unreadable: match too_large {
                Some(bytes) => Some(ContentError::TooLarge { bytes, most }),
                None => unreadable.map(ContentError::Unreadable),
            },
            id,
        })
    }
}

/// Parses milliseconds in digits.
fn time(digits: &str) -> Option<Timestamp> {
    digits.parse().ok().map(Timestamp)
}

/// Returns a value as text.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// Returns a part of a message's content as text. The error says why it is not available.
pub(super) fn content<'a>(value: &'a Value, what: &str) -> Result<&'a str, String> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes)
            .map_err(|error| format!("its {what} cannot be read: {error}")),
        Value::Nil => Err(format!(
            "no {what} on the Redis server: evicted, or deleted by another client"
        )),
        other => Err(format!("its {what} cannot be read: found {other:?}")),
    }
}

/// Returns the time of sending. An id begins with its microsecond.
fn sent_at(id: &str) -> Option<Timestamp> {
    let us: u64 = id.get(..16)?.parse().ok()?;
    Some(Timestamp(us / 1000))
}

/// Whether a message was sent with attributes, by its id.
fn has_attributes(id: &str) -> bool {
    id.as_bytes().get(16) == Some(&b'a')
}

/// Splits a receipt into its id and count.
pub(super) fn delivery(receipt: &Receipt) -> Result<(&str, &str), ItemError> {
    let text = &receipt.0;
    text.split_once('.')
        .filter(|(id, count)| {
            let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
            id.len() == 25 && is_number
        })
        .ok_or_else(|| ItemError::Refused(format!("`{text}` is not a receipt of Redis")))
}

/// Returns whole milliseconds, at most `FAR`.
pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(FAR).min(FAR)
}

/// Encodes the sender's attributes; empty if there are none.
pub(super) fn attributes(attributes: &[Attribute]) -> Result<String, ItemError> {
    if attributes.is_empty() {
        return Ok(String::new());
    }
    serde_json::to_string(attributes).map_err(|error| {
        ItemError::Refused(format!("the attributes cannot be written as JSON: {error}"))
    })
}

/// Splits messages into the parts of one call each: `CALL` bytes, or one message.
pub(super) fn batches(items: &[OutgoingMessage]) -> impl Iterator<Item = &[OutgoingMessage]> {
    let mut left = items;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = left.iter().take_while(|item| {
            let first = bytes == 0;
            bytes += weight(item).max(1);
            first || bytes <= CALL
        });
        let batch;
        (batch, left) = left.split_at(fits.count());
        (!batch.is_empty()).then_some(batch)
    })
}

/// Returns the bytes of a message to send.
pub(super) fn weight(item: &OutgoingMessage) -> usize {
    message::bytes(&item.body, &item.attributes)
}

/// Encodes the attributes of a message, or returns an error if the message is too long.
pub(super) fn sendable(item: &OutgoingMessage) -> Result<String, ItemError> {
    let bytes = weight(item);
    if bytes > LONGEST {
        return Err(ItemError::Refused(format!(
            "the message has {bytes} bytes with its attributes, at most {LONGEST} fit"
        )));
    }
    attributes(&item.attributes_with_trace())
}

/// Returns the arguments of `settle` for an outcome: a letter and its argument. `source` is the
/// queue's name.
pub(super) fn outcome(
    message: &Message,
    outcome: &Outcome,
    source: &str,
) -> Result<(&'static str, String), ItemError> {
    Ok(match outcome {
        Outcome::Delete => ("d", String::new()),
        Outcome::Release(after) => ("r", ms(*after).to_string()),
        Outcome::DeadLetter(reason) => {
            let mut kept = message.attributes.clone();
            kept.retain(|attribute| {
                attribute.name != DEAD_LETTER_REASON && attribute.name != DEAD_LETTER_SOURCE
            });
            kept.push(Attribute::text(DEAD_LETTER_REASON, reason));
            kept.push(Attribute::text(DEAD_LETTER_SOURCE, source));
            ("b", attributes(&kept)?)
        }
    })
}

/// Converts a number in the answer of `settle` or `extend`.
pub(super) fn answer(number: i64) -> Result<(), ItemError> {
    let why = match number {
        0 => return Ok(()),
        1 => "the message has been settled or cancelled and is gone",
        2 => "the message has been received again since",
        3 => "the message has been released",
        5 => return Err(ItemError::Cancelled),
        _ => {
            return Err(ItemError::Refused(format!(
                "that would keep the message invisible beyond {} h after its receive",
                VISIBILITY_CEILING.as_secs() / 3600
            )));
        }
    };
    Err(ItemError::Gone(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::AttributeValue;
    use dispatcher_core::message::samples::message as sample;
    use proptest::prelude::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn sum(batch: &[OutgoingMessage]) -> usize {
        batch.iter().map(weight).sum()
    }

    /// An answer with these: id, body, attributes, group, count and first receive of each.
    fn answer(messages: &[[Value; 6]]) -> Vec<Value> {
        let lists =
            (0..6).map(|at| Value::Array(messages.iter().map(|one| one[at].clone()).collect()));
        [Value::Int(0), text("1763764001000")]
            .into_iter()
            .chain(lists)
            .collect()
    }

    #[test]
    fn message_is_decoded() {
        let id = "1763764000123456-0123abcd";
        let mut fields = [id, "body", "", "=g", "3", "1763764000999"].map(text);
        fields[2] = Value::Nil;
        let answer = answer(&[fields]);
        let Some(ClaimAnswer::Messages { messages, more, .. }) = claimed(&answer, "redis:q", 100)
        else {
            panic!("messages");
        };
        assert!(!more);
        let message = &messages[0];
        assert_eq!((message.id.as_str(), message.receive_count), (id, 3));
        assert_eq!(message.sent_at, Some(Timestamp(1_763_764_000_123)));
        assert_eq!(message.group.as_deref(), Some("g"));
        assert_eq!(
            message.first_received_at,
            Some(Timestamp(1_763_764_000_999))
        );
        assert_eq!((&message.attributes, &message.unreadable), (&vec![], &None));
        assert_eq!(delivery(&message.receipt), Ok((id, "3")));
    }

    #[test]
    fn first_number_counts_overdue_messages() {
        let mut answer =
            answer(&[["1763764000123456-0123abcd", "body", "", "", "1", "1"].map(text)]);
        for (number, wanted) in [
            (0, (false, 0)),
            (1, (true, 0)),
            (6, (false, 3)),
            (7, (true, 3)),
        ] {
            answer[0] = Value::Int(number);
            let Some(ClaimAnswer::Messages { more, overdue, .. }) =
                claimed(&answer, "redis:q", 100)
            else {
                panic!("messages");
            };
            assert_eq!((more, overdue), wanted);
        }
    }

    #[test]
    fn empty_list_means_none_and_the_first_receive() {
        let id = "1763764000123456-0123abcd";
        let mut answer = answer(&[[id, "body", "", "", "", ""].map(text)]);
        answer[4..].fill(Value::Array(Vec::new()));
        let read = claimed(&answer, "redis:q", 100).expect("a message");
        let [message] = read.messages() else {
            panic!("{read:?}");
        };
        assert_eq!(
            (message.body.as_str(), &message.unreadable),
            ("body", &None)
        );
        assert_eq!((&message.attributes, &message.group), (&vec![], &None));
        assert_eq!(message.receive_count, 1);
        assert_eq!(
            message.first_received_at,
            Some(Timestamp(1_763_764_001_000))
        );
    }

    #[test]
    fn answer_of_another_shape_is_none() {
        let good = answer(&[["1763764000123456-0123abcd", "body", "", "", "1", "1"].map(text)]);
        assert!(claimed(&good, "redis:q", 100).is_some());
        for at in 1..good.len() {
            let mut bad = good.clone();
            bad[at] = Value::Int(1);
            assert_eq!(claimed(&bad, "redis:q", 100), None, "{at}");
            bad.remove(at);
            assert_eq!(claimed(&bad, "redis:q", 100), None, "without {at}");
        }
        let mut without_body = good;
        without_body[3] = Value::Array(Vec::new());
        assert_eq!(claimed(&without_body, "redis:q", 100), None);
    }

    #[test]
    fn empty_answer_carries_the_time_of_the_next_message() {
        let soon = Some(Duration::from_millis(5));
        for (number, wanted) in [
            (-1, ClaimAnswer::Nothing(None)),
            (-2, ClaimAnswer::Stranger),
            (-3, ClaimAnswer::Again),
            (-4, ClaimAnswer::RulesGone),
            (5, ClaimAnswer::Nothing(soon)),
        ] {
            let read = claimed(&[Value::Int(number)], "redis:q", 100);
            assert_eq!(read, Some(wanted));
        }
        assert_eq!(claimed(&[], "redis:q", 100), None);
        assert_eq!(claimed(&[text("x")], "redis:q", 100), None);
        assert_eq!(claimed(&[Value::Int(0), text("x")], "redis:q", 100), None);
    }

    #[test]
    fn dead_letter_has_one_reason() {
        let mut message = sample("m");
        message.attributes = vec![
            Attribute::text(DEAD_LETTER_REASON, "an older one"),
            Attribute::text("tenant", "7"),
        ];
        let dead = Outcome::DeadLetter("why".into());
        let (letter, json) = outcome(&message, &dead, "redis:q").expect("written");
        assert_eq!(letter, "b");
        let read: Vec<Attribute> = serde_json::from_str(&json).expect("JSON");
        let names: Vec<_> = read.iter().map(|attribute| &*attribute.name).collect();
        assert_eq!(names, ["tenant", DEAD_LETTER_REASON, DEAD_LETTER_SOURCE]);
        assert_eq!(read[1].value, AttributeValue::Text("why".into()));
    }

    #[test]
    fn message_too_large_for_a_call_is_refused() {
        let mut item = OutgoingMessage {
            body: "x".repeat(LONGEST - 5),
            ..OutgoingMessage::default()
        };
        assert_eq!(sendable(&item), Ok(String::new()));
        // With `String` these are nine bytes more.
        item.attributes = vec![Attribute::text("a", "bc")];
        let refused = sendable(&item).expect_err("too long").to_string();
        assert!(refused.contains("32000004 bytes"), "{refused}");
    }

    #[test]
    fn finding_03_missing_or_unreadable_content_affects_only_its_own_message() {
        let good = ["1763764000123456a0123abcd", "body", "", "", "1", "1"].map(text);
        let not_utf8 = Value::BulkString(vec![b'a', 0xff]);
        for (at, bad, says) in [
            (1, Value::Nil, "no body"),
            (1, not_utf8.clone(), "its body cannot be read"),
            (2, Value::Nil, "no attributes"),
            (2, not_utf8, "its attributes cannot be read"),
            (2, text("{"), "its attributes cannot be read"),
        ] {
            let mut fields = good.clone();
            fields[at] = bad;
            let answer = answer(&[good.clone(), fields]);
            let read = claimed(&answer, "redis:q", 100).expect("messages");
            let [first, second] = read.messages() else {
                panic!("{read:?}");
            };
            assert_eq!((first.body.as_str(), &first.unreadable), ("body", &None));
            let error = second.unreadable.as_ref().map(ToString::to_string);
            let why = error.unwrap_or_default();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn finding_04_body_that_was_not_loaded_is_too_large() {
        let mut fields = ["1763764000123456-0123abcd", "", "", "", "1", "1"].map(text);
        fields[1] = Value::Int(101);
        let read = claimed(&answer(&[fields]), "redis:q", 100).expect("a message");
        let [message] = read.messages() else {
            panic!("{read:?}");
        };
        let too_large = ContentError::TooLarge {
            bytes: 101,
            most: 100,
        };
        assert_eq!(message.unreadable, Some(too_large));
    }

    proptest! {
        #[test]
        fn batches_keep_order_and_fit_the_limit(
            sizes in proptest::collection::vec(0..CALL / 2, 0..9),
        ) {
            let items: Vec<_> = sizes
                .iter()
                .map(|size| OutgoingMessage {
                    body: "x".repeat(*size),
                    ..OutgoingMessage::default()
                })
                .collect();
            let split: Vec<_> = batches(&items).collect();
            prop_assert_eq!(&split.concat(), &items);
            prop_assert!(split.iter().all(|batch| sum(batch) <= CALL || batch.len() == 1));
            for pair in split.windows(2) {
                prop_assert!(sum(pair[0]) + weight(&pair[1][0]) > CALL - 9);
            }
        }

        #[test]
        fn receipt_decoder_never_panics(text in ".{0,40}") {
            let receipt = Receipt(text);
            if let Ok((id, count)) = delivery(&receipt) {
                prop_assert_eq!(format!("{}.{}", id, count), receipt.0.clone());
            }
        }

        #[test]
        fn answer_decoder_never_panics(numbers in proptest::collection::vec(any::<i64>(), 0..4)) {
            let answer: Vec<Value> = numbers.into_iter().map(Value::Int).collect();
            claimed(&answer, "redis:q", 100);
        }
    }
}
