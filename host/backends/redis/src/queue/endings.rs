//! Distributes outcomes over calls. Short ones go into one call, which must be on time; dead
//! letters of long messages go into separate calls, which may take longer. Pure.

use super::wire;
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::ItemError;

/// The maximum number of bytes of a message, and of its dead letter's additions, that count as
/// short: a hundred of them take a line of 100 Mbit/s less than a tenth of a second.
const SHORT: usize = 10_000;

/// The end of one delivery, as arguments of the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisEnd<'a> {
    /// The message id.
    pub id: &'a str,
    /// The number of the delivery.
    pub count: &'a str,
    /// The letter of the outcome.
    pub letter: &'static str,
    /// The argument of the outcome.
    pub with: String,
    /// The bytes that the server copies, plus those of `with`.
    bytes: usize,
}

impl<'a> RedisEnd<'a> {
    /// Returns the end of a delivery, or an error if it cannot be written. `source` is the queue's
    /// name.
    pub(super) fn of(
        message: &'a Message,
        outcome: &Outcome,
        source: &str,
    ) -> Result<Self, ItemError> {
        let (id, count) = wire::delivery(&message.receipt)?;
        let (letter, with) = wire::outcome(message, outcome, source)?;
        let copied = match outcome {
            Outcome::DeadLetter(_) => message.body.len(),
            _ => 0,
        };
        Ok(Self {
            id,
            count,
            letter,
            bytes: copied + with.len(),
            with,
        })
    }

    /// Whether the script gets the same arguments for both, except for their ids.
    pub(super) fn ends_like(&self, other: &Self) -> bool {
        (self.count, self.letter, &self.with) == (other.count, other.letter, &other.with)
    }
}

/// The deliveries that end in one call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndingBatch<'a> {
    /// Whether the call may take longer.
    pub long: bool,
    /// At least one end, each with its position in the batch.
    pub ends: Vec<(usize, RedisEnd<'a>)>,
}

/// Splits a batch: all short ends in one call, then the long ones, `CALL` bytes or one end per
/// call.
pub(super) fn parts(ends: Vec<(usize, RedisEnd<'_>)>) -> Vec<EndingBatch<'_>> {
    let (long, short): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(_, end)| end.bytes > SHORT);
    let mut parts = Vec::new();
    if !short.is_empty() {
        parts.push(EndingBatch {
            long: false,
            ends: short,
        });
    }
    let mut bytes = 0;
    for (place, end) in long {
        bytes += end.bytes;
        match parts.last_mut() {
            Some(part) if part.long && bytes <= wire::CALL => part.ends.push((place, end)),
            _ => {
                bytes = end.bytes;
                parts.push(EndingBatch {
                    long: true,
                    ends: vec![(place, end)],
                });
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sized(bytes: usize) -> RedisEnd<'static> {
        RedisEnd {
            id: "",
            count: "",
            letter: "b",
            with: String::new(),
            bytes,
        }
    }

    proptest! {
        #[test]
        fn every_outcome_is_in_one_call_of_fitting_size(
            sizes in proptest::collection::vec(prop_oneof![0..=SHORT, 0..=2 * wire::CALL], 0..100)
        ) {
            let parts = parts(sizes.iter().copied().map(sized).enumerate().collect());
            let mut places = Vec::new();
            for part in &parts {
                let sum: usize = part.ends.iter().map(|(_, end)| end.bytes).sum();
                prop_assert!(!part.ends.is_empty());
                prop_assert!(sum <= wire::CALL || part.ends.len() == 1);
                prop_assert!(part.ends.iter().all(|(_, end)| (end.bytes > SHORT) == part.long));
                places.extend(part.ends.iter().map(|(place, _)| *place));
            }
            prop_assert!(parts.iter().skip(1).all(|part| part.long));
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..sizes.len()));
        }
    }
}
