//! Converts a message to a dead letter: the same message with its first id, the reason, the source
//! and the first receive as additional attributes. Remembers which messages were already sent to
//! the dead-letter queue. Makes no calls.

use super::batch::MOST_BYTES;
use super::send::SendEntry;
use super::{QueueTarget, convert};
use dispatcher_core::message::{Attribute, AttributeValue, Message};
use dispatcher_core::queue::origin::{self, FIRST_SOURCE, is_origin};
use dispatcher_core::queue::{DEAD_LETTER_REASON as REASON, DEAD_LETTER_SOURCE as SOURCE};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;

/// The maximum number of attributes of one message (SQS quotas).
pub(super) const MOST_ATTRIBUTES: usize = 10;

/// The maximum size of a reason in bytes: enough to act on, and small compared to a message's 1
/// MiB.
const LONGEST_REASON: usize = 2_048;

/// The maximum number of messages that `DeadLetteredIds` keeps; when it is full, the oldest is
/// dropped.
const MOST_BURIED: usize = 1_024;

/// The messages that were last sent to the dead-letter queue, by their ids. If a message could not
/// be deleted from its own queue, it is settled or received again, and no second copy is sent.
#[derive(Debug, Default)]
pub(super) struct DeadLetteredIds(Mutex<VecDeque<DeadLetteredId>>);

#[derive(Debug)]
struct DeadLetteredId {
    id: String,
    /// The id of the copy in the dead-letter queue.
    copy: String,
    /// Whether the message was deleted from its own queue.
    is_deleted: bool,
}

impl DeadLetteredIds {
    pub(super) fn add(&self, id: &str, copy: String) {
        let mut ids = self.lock();
        if ids.len() == MOST_BURIED {
            ids.pop_front();
        }
        ids.push_back(DeadLetteredId {
            id: id.to_owned(),
            copy,
            is_deleted: false,
        });
    }

    /// Whether the message was sent to the dead-letter queue and is still in its own queue.
    pub(super) fn contains(&self, id: &str) -> bool {
        let ids = self.lock();
        ids.iter().any(|known| known.id == id && !known.is_deleted)
    }

    /// Returns the id of the last copy of a message.
    pub(super) fn copy_of(&self, id: &str) -> Option<String> {
        let ids = self.lock();
        let known = ids.iter().rev().find(|known| known.id == id)?;
        Some(known.copy.clone())
    }

    /// Notes that the message was deleted from its own queue.
    pub(super) fn forget(&self, id: &str) {
        let mut ids = self.lock();
        let known = ids.iter_mut().filter(|known| known.id == id);
        known.for_each(|known| known.is_deleted = true);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<DeadLetteredId>> {
        self.0.lock()
    }
}

/// Returns the message for the dead-letter queue, and the names of the additional attributes that
/// did not fit. The sender's attributes are never dropped for them.
pub(super) fn parcel(
    message: &Message,
    reason: &str,
    target: &QueueTarget,
) -> (SendEntry, Vec<String>) {
    // SQS refuses an empty body. Only a message whose content could not be read has one.
    let body = match (message.body.as_str(), &message.unreadable) {
        ("", Some(_)) => legible(reason),
        (body, _) => body.to_owned(),
    };
    let mut parcel = SendEntry {
        body,
        // Attributes of an earlier dead-lettering would be misleading.
        attributes: message
            .attributes
            .iter()
            .filter(|attribute| !is_mark(&attribute.name))
            .cloned()
            .collect(),
        delay: std::time::Duration::ZERO,
        exact: false,
        group: message.group.clone(),
        // The id is the same for each attempt to dead-letter this message. If the delete fails
        // after the send, a FIFO queue keeps only one copy.
        deduplication: Some(message.id.clone()),
        trace_header: convert::find(&message.system_attributes, "AWSTraceHeader")
            .map(str::to_owned),
    };
    if target.fifo && parcel.group.is_none() {
        parcel.group = Some(message.id.clone());
    }
    let mut left_out = Vec::new();
    for attribute in marks(message, reason) {
        let fits = parcel.attributes.len() < MOST_ATTRIBUTES
            && parcel.bytes() + attribute.bytes() <= MOST_BYTES;
        if fits {
            parcel.attributes.push(attribute);
        } else {
            left_out.push(attribute.name);
        }
    }
    (parcel, left_out)
}

/// Returns the additional attributes of a dead letter. If not all fit, the last are left out first.
fn marks(message: &Message, reason: &str) -> Vec<Attribute> {
    let mut marks = origin::of_copy(message, None);
    // `SOURCE` has the same value.
    marks.retain(|mark| {
        mark.name != FIRST_SOURCE || mark.value != AttributeValue::Text(message.source.clone())
    });
    let of_letter = [
        Attribute::text(REASON, legible(reason)),
        Attribute::text(SOURCE, message.source.clone()),
    ];
    marks.splice(1..1, of_letter);
    marks
}

/// Whether an attribute is an additional attribute of a dead letter.
pub(super) fn is_mark(name: &str) -> bool {
    name == REASON || name == SOURCE || is_origin(name)
}

/// Makes a reason acceptable to SQS: never empty, not too long, and without characters that SQS
/// refuses.
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
