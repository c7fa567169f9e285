//! Batches: the entries of a call, and the assignment of results to entries. Pure; makes no calls.

use super::entry_errors::entry_failed;
use aws_sdk_sqs::types::BatchResultErrorEntry;
use dispatcher_core::message::{Message, Outcome, Receipt};
use dispatcher_core::queue::ItemError;
use std::ops::Range;

/// The maximum size in bytes of one message and of all messages of one call together, attributes
/// included: 1 MiB (SendMessageBatch in the SQS API reference).
pub(super) const MOST_BYTES: usize = 1_048_576;

/// The ids of the entries of one call. They are unique to the call, so a response that belongs to
/// another call is never taken for these entries.
#[derive(Debug, Clone)]
pub(super) struct EntryIds(String);

impl EntryIds {
    pub(super) fn fresh() -> Self {
        Self(format!("{:016x}", fastrand::u64(..)))
    }

    pub(super) fn at(&self, position: usize) -> String {
        format!("{}-{position}", self.0)
    }

    /// Returns the position of the entry with this id, if one of the `count` entries has it.
    fn position(&self, id: &str, count: usize) -> Option<usize> {
        let position: usize = id.rsplit('-').next()?.parse().ok()?;
        (position < count && self.at(position) == id).then_some(position)
    }
}

/// Sorts the two lists of a response into the order of the entries. An entry that the response
/// contains never or twice may or may not have been done, so its error is one that may be retried.
pub(super) fn answers<T>(
    ids: &EntryIds,
    count: usize,
    successful: impl IntoIterator<Item = (String, T)>,
    failed: &[BatchResultErrorEntry],
) -> Vec<Result<T, ItemError>> {
    let mut list: Vec<Option<Result<T, ItemError>>> = (0..count).map(|_| None).collect();
    let mut set = |id: &str, answer| {
        if let Some(at) = ids.position(id, count) {
            let is_first = list[at].is_none();
            list[at] = Some(if is_first {
                answer
            } else {
                Err(unclear(TWICE))
            });
        }
    };
    for (id, value) in successful {
        set(&id, Ok(value));
    }
    for entry in failed {
        set(entry.id(), Err(entry_failed(entry)));
    }
    let answers = list.into_iter();
    answers
        .map(|answer| answer.unwrap_or_else(|| Err(unclear(NEVER))))
        .collect()
}

const NEVER: &str = "SQS answered for the call but not for this entry";
const TWICE: &str = "SQS answered twice for this entry";

fn unclear(words: &str) -> ItemError {
    ItemError::Transient(words.to_owned())
}

/// The step for one message, even if it occurs several times in the slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchStep<'a> {
    /// The delivery with the latest receive.
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
    /// The index of the step of each item of the slice.
    step_of: Vec<usize>,
}

impl<'a> Plan<'a> {
    /// Plans one step per message. It uses the newest receipt, because SQS may ignore older ones,
    /// and the most final outcome, because a message that one delivery has finished needs no other.
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

    /// Returns one result per item of the slice, from one result per step.
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

/// Splits a list of sizes into consecutive calls of at most `most_entries` entries and `MOST_BYTES`
/// bytes. A size above the limit gets its own call.
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
