//! Converts tasks of the worqr format to and from scripts, and reports what they cannot carry.
//! Pure.

use super::super::wire::{content, text};
use dispatcher_core::message::{ContentError, Message, Outgoing, Receipt};
use dispatcher_core::queue::ItemError;
use md5::{Digest, Md5};
use redis::Value;
use std::time::Duration;

/// What `take` answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Messages {
        /// At least one.
        messages: Vec<Message>,
        /// The digest of each task; `None` for one that was not loaded.
        digests: Vec<Option<String>>,
        /// More may be there, and would have been too much for one answer.
        more: bool,
    },
    /// None; when a released task is back.
    Nothing(Option<Duration>),
    /// The worker has failed.
    Stranger,
}

impl Taken {
    /// What it brought.
    pub(super) fn messages(&self) -> &[Message] {
        match self {
            Self::Messages { messages, .. } => messages,
            Self::Nothing(_) | Self::Stranger => &[],
        }
    }
}

/// Reads an answer of `take`, which loads tasks of at most so many bytes; `None` if it is not one.
pub(super) fn taken(answer: &[Value], queue: &str, most: u64) -> Option<Taken> {
    let (first, rest) = answer.split_first()?;
    let Value::Int(first) = first else {
        return None;
    };
    if rest.is_empty() {
        return Some(match *first {
            -2 => Taken::Stranger,
            ..0 => Taken::Nothing(None),
            ms => Taken::Nothing(Some(Duration::from_millis(ms.unsigned_abs()))),
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
    Some(Taken::Messages {
        messages: messages.collect::<Option<_>>()?,
        digests: tasks.map(digest).collect(),
        more: *first == 1,
    })
}

/// What `beat` answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heartbeat<'a> {
    /// Whether the worker was.
    pub alive: bool,
    /// Its processes that somebody has taken away.
    pub gone: &'a [String],
    /// Its processes.
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

/// A task as a message: its process is its id and its receipt.
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

/// Whether a message is nothing but a payload.
pub(super) fn sendable(item: &Outgoing) -> Result<(), ItemError> {
    let more = match item {
        Outgoing { attributes, .. } if !attributes.is_empty() => "attributes",
        Outgoing { group: Some(_), .. } => "groups",
        Outgoing { delay, .. } if !delay.is_zero() => "delays",
        _ => return Ok(()),
    };
    let why = format!("the worqr format has only payloads, and no {more}");
    Err(ItemError::Refused(why))
}

/// Somebody has taken the process away, or it was finished.
pub(super) fn gone() -> ItemError {
    ItemError::Gone("the task no longer belongs to this worker".into())
}

fn digest(task: &Value) -> Option<String> {
    match task {
        Value::BulkString(bytes) => Some(hexadecimal(Md5::new_with_prefix(bytes))),
        _ => None,
    }
}

/// What the package calls the lock of a unique task after.
pub(super) fn md5(task: &str) -> String {
    hexadecimal(Md5::new_with_prefix(task))
}

/// A digest as the package writes it.
pub(super) fn hexadecimal(digest: Md5) -> String {
    let bytes = digest.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_04_task_that_was_not_loaded_is_too_large() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let answer = [Value::Int(0), text("q_1"), Value::Int(70), text("1")];
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
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let taken = |answer: &[Value]| taken(answer, "redis:q", 10);
        assert_eq!(taken(&[Value::Int(-2)]), Some(Taken::Stranger));
        let answer = [Value::Int(0), text("q_1"), text("task"), text("2")];
        let Some(Taken::Messages {
            messages,
            digests,
            more,
        }) = taken(&answer)
        else {
            panic!("messages");
        };
        assert_eq!((&*messages[0].body, messages[0].receive_count), ("task", 2));
        assert_eq!(digests, [Some(md5("task"))]);
        assert!(!more);
        assert_eq!(taken(&answer[..3]), None);
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
