//! Batches: which entries a call needs, and which result belongs to which. Pure; calls nothing.

use super::entry_errors::entry_failed;
use aws_sdk_sqs::types::BatchResultErrorEntry;
use dispatcher_core::message::{Message, Outcome, Receipt};
use dispatcher_core::queue::ItemError;
use std::ops::Range;

/// Maximum bytes of one message and of all messages of one call together, attributes included:
/// 1 MiB (SendMessageBatch in the SQS API reference).
pub(super) const MOST_BYTES: usize = 1_048_576;

/// The id of an entry within its call: its position.
pub(super) fn entry_id(position: usize) -> String {
    position.to_string()
}

/// Sorts the two lists of an answer back into the order of the entries. What SQS does not mention
/// may have been done or not, so it may be retried.
pub(super) fn answers<T>(
    count: usize,
    successful: impl IntoIterator<Item = (String, T)>,
    failed: &[BatchResultErrorEntry],
) -> Vec<Result<T, ItemError>> {
    let silent = || ItemError::Transient("SQS answered for the call but not for this entry".into());
    let mut list: Vec<Result<T, ItemError>> = (0..count).map(|_| Err(silent())).collect();
    let mut set = |id: &str, answer| {
        if let Some(place) = id.parse().ok().and_then(|at: usize| list.get_mut(at)) {
            *place = answer;
        }
    };
    for (id, value) in successful {
        set(&id, Ok(value));
    }
    for entry in failed {
        set(entry.id(), Err(entry_failed(entry)));
    }
    list
}

/// What to do about one message, however often it is in the slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchStep<'a> {
    /// The delivery that was received last.
    pub message: &'a Message,
    pub outcome: &'a Outcome,
}

impl<'a> BatchStep<'a> {
    pub(super) fn receipt(&self) -> &'a Receipt {
        &self.message.receipt
    }
}

/// The steps that settle a slice, one per message.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub steps: Vec<BatchStep<'a>>,
    /// For every item of the slice, its step.
    step_of: Vec<usize>,
}

impl<'a> Plan<'a> {
    /// The newest receipt of a message speaks for all: SQS may ignore an older one. Of different
    /// outcomes the most final counts, since a message that one delivery has finished with needs
    /// no other.
    pub(super) fn of(items: &'a [(Message, Outcome)]) -> Self {
        let mut steps: Vec<BatchStep<'a>> = Vec::with_capacity(items.len());
        let mut step_of = Vec::with_capacity(items.len());
        for (message, outcome) in items {
            let known = steps.iter().position(|step| step.message.id == message.id);
            let Some(at) = known else {
                step_of.push(steps.len());
                steps.push(BatchStep { message, outcome });
                continue;
            };
            step_of.push(at);
            let step = &mut steps[at];
            if message.receive_count >= step.message.receive_count {
                step.message = message;
            }
            if finality(outcome) >= finality(step.outcome) {
                step.outcome = outcome;
            }
        }
        Self { steps, step_of }
    }

    /// One answer per item of the slice from one answer per step.
    pub(super) fn spread(&self, answers: &[Result<(), ItemError>]) -> Vec<Result<(), ItemError>> {
        self.step_of
            .iter()
            .map(|&step| answers[step].clone())
            .collect()
    }
}

fn finality(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Release(_) => 0,
        Outcome::DeadLetter(_) => 1,
        Outcome::Delete => 2,
    }
}

/// Cuts a list of sizes into consecutive calls of at most `most_entries` and `MOST_BYTES`. A size
/// above the limit gets its own call.
pub(super) fn calls(sizes: &[usize], most_entries: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut bytes) = (0, 0_usize);
    for (at, size) in sizes.iter().enumerate() {
        let full = at - start == most_entries || bytes.saturating_add(*size) > MOST_BYTES;
        if at > start && full {
            ranges.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes = bytes.saturating_add(*size);
    }
    if start < sizes.len() {
        ranges.push(start..sizes.len());
    }
    ranges
}

#[cfg(test)]
mod tests;
