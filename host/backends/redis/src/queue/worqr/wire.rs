//! Converts tasks of the worqr format to and from scripts, and reports what they cannot carry.
//! Pure.

use super::super::wire::{content, text};
use dispatcher_core::message::{ContentError, Message, OutgoingMessage, Receipt};
use dispatcher_core::queue::ItemError;
use md5::{Digest, Md5};
use redis::Value;
use std::time::Duration;

/// The answer of `take`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TakeAnswer {
    Messages {
        /// At least one message.
        messages: Vec<Message>,
        /// The digest of each task; `None` for one that was not loaded.
        digests: Vec<Option<String>>,
        /// Whether there may be more, too many for one answer.
        more: bool,
    },
    /// No message, and the time until a released task is back.
    Nothing(Option<Duration>),
    /// The worker has failed.
    Stranger,
}

impl TakeAnswer {
    /// Returns the messages of the answer.
    pub(super) fn messages(&self) -> &[Message] {
        match self {
            Self::Messages { messages, .. } => messages,
            Self::Nothing(_) | Self::Stranger => &[],
        }
    }
}

/// Reads an answer of `take`, which loads tasks of at most `most` bytes; `None` if it is not one.
pub(super) fn taken(answer: &[Value], queue: &str, most: u64) -> Option<TakeAnswer> {
    let (first, rest) = answer.split_first()?;
    let Value::Int(first) = first else {
        return None;
    };
    if rest.is_empty() {
        return Some(match *first {
            -2 => TakeAnswer::Stranger,
            ..0 => TakeAnswer::Nothing(None),
            ms => TakeAnswer::Nothing(Some(Duration::from_millis(ms.unsigned_abs()))),
        });
    }
    let messages = rest.chunks(3).map(|fields| match fields {
        [id, task, count] => {
            let count = text(count)?.parse().unwrap_or(u32::MAX);
            let mut message = message(text(id)?, task, count, queue);
            if let Value::Int(bytes) = task {
                let bytes = bytes.unsigned_abs();
                message.unreadable = Some(ContentError::TooLarge { bytes, most });
            }
            Some(message)
        }
        _ => None,
    });
    let tasks = rest.iter().skip(1).step_by(3);
    Some(TakeAnswer::Messages {
        messages: messages.collect::<Option<_>>()?,
        digests: tasks.map(digest).collect(),
        more: *first == 1,
    })
}

/// The answer of `beat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heartbeat<'a> {
    /// Whether the worker was alive.
    pub alive: bool,
    /// Its processes that others have taken away.
    pub gone: &'a [String],
    /// Its processes that are still there.
    pub there: &'a [String],
}

/// Reads an answer of `beat`; `None` if it is not one.
pub(super) fn beat(answer: &[String]) -> Option<Heartbeat<'_>> {
    let [alive, gone, processes @ ..] = answer else {
        return None;
    };
    let (gone, there) = processes.split_at_checked(gone.parse().ok()?)?;
    Some(Heartbeat {
        alive: alive == "1",
        gone,
        there,
    })
}

/// Returns a task as a message. Its process is its id and its receipt.
pub(super) fn message(id: String, task: &Value, count: u32, queue: &str) -> Message {
    let task = content(task, "body");
    Message {
        receipt: Receipt(id.clone()),
        id,
        queue: queue.to_owned(),
        source: queue.to_owned(),
        unreadable: task.as_ref().err().cloned().map(ContentError::Unreadable),
        body: task.unwrap_or_default().to_owned(),
        receive_count: count,
        sent_at: None,
        first_received_at: None,
        group: None,
        system_attributes: Vec::new(),
        attributes: Vec::new(),
        body_md5: None,
        attributes_md5: None,
    }
}

/// Checks that a message has only a payload.
pub(super) fn sendable(item: &OutgoingMessage) -> Result<(), ItemError> {
    let more = match item {
        OutgoingMessage { attributes, .. } if !attributes.is_empty() => "attributes",
        OutgoingMessage { group: Some(_), .. } => "groups",
        OutgoingMessage { delay, .. } if !delay.is_zero() => "delays",
        _ => return Ok(()),
    };
    let why = format!("the worqr format has only payloads, and no {more}");
    Err(ItemError::Refused(why))
}

/// Returns the error for a process that was taken away or finished.
pub(super) fn gone() -> ItemError {
    ItemError::Gone("the task no longer belongs to this worker".into())
}

fn digest(task: &Value) -> Option<String> {
    match task {
        Value::BulkString(bytes) => Some(hexadecimal(Md5::new_with_prefix(bytes))),
        _ => None,
    }
}

/// Returns the digest that names the lock of a unique task in the package.
pub(super) fn md5(task: &str) -> String {
    hexadecimal(Md5::new_with_prefix(task))
}

/// Returns a digest as the package writes it.
pub(super) fn hexadecimal(digest: Md5) -> String {
    let bytes = digest.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn finding_04_task_that_was_not_loaded_is_too_large() {
        let answer = [Value::Int(0), bulk("q_1"), Value::Int(70), bulk("1")];
        let read = taken(&answer, "redis:q", 10).expect("an answer");
        let too_large = ContentError::TooLarge {
            bytes: 70,
            most: 10,
        };
        assert_eq!(read.messages()[0].unreadable, Some(too_large));
    }

    #[test]
    fn script_digest_matches_the_npm_package() {
        // RFC 1321, A.5.
        assert_eq!(md5("abc"), "900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn answers_are_decoded() {
        let stranger = taken(&[Value::Int(-2)], "redis:q", 10);
        assert_eq!(stranger, Some(TakeAnswer::Stranger));
        let answer = [Value::Int(0), bulk("q_1"), bulk("task"), bulk("2")];
        let Some(TakeAnswer::Messages {
            messages,
            digests,
            more,
        }) = taken(&answer, "redis:q", 10)
        else {
            panic!("messages");
        };
        assert_eq!((&*messages[0].body, messages[0].receive_count), ("task", 2));
        assert_eq!(digests, [Some(md5("task"))]);
        assert!(!more);
        assert_eq!(taken(&answer[..3], "redis:q", 10), None);
        let words = ["1", "1", "q_1", "q_2", "q_3"].map(String::from);
        let read = Heartbeat {
            alive: true,
            gone: &words[2..3],
            there: &words[3..],
        };
        assert_eq!(beat(&words), Some(read));
        assert_eq!(beat(&words[..1]), None);
        assert_eq!(beat(&words[..2]), None);
    }
}
