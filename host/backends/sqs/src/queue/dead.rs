//! Converts a message to a dead letter: the same, with the reason and the source as two additional
//! attributes; and remembers which messages are there already. Calls nothing.

use super::batch::MOST_BYTES;
use super::send::SendEntry;
use super::{QueueTarget, convert};
use dispatcher_core::message::{Attribute, AttributeValue, Message};
use dispatcher_core::queue::{DEAD_LETTER_REASON as REASON, DEAD_LETTER_SOURCE as SOURCE};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most attributes of one message (SQS quotas).
pub(super) const MOST_ATTRIBUTES: usize = 10;

/// The longest reason, in bytes: enough to act on, and little beside a message's 1 MiB.
const LONGEST_REASON: usize = 2_048;

/// The most ids that `DeadLetteredIds` keeps; beyond it the oldest goes.
const MOST_BURIED: usize = 1_024;

/// The ids of messages that were sent to the dead-letter queue but could not be deleted from
/// their own: when they are settled or received again, no second copy is sent.
#[derive(Debug, Default)]
pub(super) struct DeadLetteredIds(Mutex<VecDeque<String>>);

impl DeadLetteredIds {
    pub(super) fn add(&self, id: &str) {
        let mut ids = self.lock();
        if ids.len() == MOST_BURIED {
            ids.pop_front();
        }
        ids.push_back(id.to_owned());
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.lock().iter().any(|known| known == id)
    }

    /// The message is gone from its own queue.
    pub(super) fn forget(&self, id: &str) {
        self.lock().retain(|known| known != id);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message for the dead-letter queue, and the names of the two attributes that did not fit:
/// the sender's own are never dropped for them, and of the two the reason goes first.
pub(super) fn parcel(
    message: &Message,
    reason: &str,
    target: &QueueTarget,
) -> (SendEntry, Vec<&'static str>) {
    // SQS refuses an empty body, which no message has but one whose content could not be read.
    let body = match (message.body.as_str(), &message.unreadable) {
        ("", Some(_)) => legible(reason),
        (body, _) => body.to_owned(),
    };
    let mut parcel = SendEntry {
        body,
        // What an earlier death has left would only mislead.
        attributes: message
            .attributes
            .iter()
            .filter(|a| a.name != REASON && a.name != SOURCE)
            .cloned()
            .collect(),
        delay: std::time::Duration::ZERO,
        exact: false,
        group: message.group.clone(),
        // The same for every attempt to dead-letter this message: when the delete fails after the send,
        // a FIFO queue keeps one copy.
        deduplication: Some(message.id.clone()),
        trace_header: convert::find(&message.system_attributes, "AWSTraceHeader")
            .map(str::to_owned),
    };
    if target.fifo && parcel.group.is_none() {
        parcel.group = Some(message.id.clone());
    }
    let mut left_out = Vec::new();
    for (name, value) in [(REASON, legible(reason)), (SOURCE, message.source.clone())] {
        let attribute = Attribute {
            name: name.into(),
            data_type: "String".into(),
            value: AttributeValue::Text(value),
        };
        let fits = parcel.attributes.len() < MOST_ATTRIBUTES
            && parcel.bytes() + attribute.bytes() <= MOST_BYTES;
        if fits {
            parcel.attributes.push(attribute);
        } else {
            left_out.push(name);
        }
    }
    (parcel, left_out)
}

/// A reason that SQS takes: never empty, not too long, and without characters that it refuses.
fn legible(reason: &str) -> String {
    let mut text = String::new();
    for c in reason
        .chars()
        .map(|c| if convert::takes(c) { c } else { '\u{fffd}' })
    {
        if text.len() + c.len_utf8() > LONGEST_REASON {
            break;
        }
        text.push(c);
    }
    if text.is_empty() {
        text.push_str("no reason given");
    }
    text
}

#[cfg(test)]
mod tests;
