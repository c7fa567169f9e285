//! Distributes outcomes over calls: short ones in one call that must be on time, and dead letters
//! of long messages separately, in calls that may take longer. Pure.

use super::wire;
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::ItemError;

/// Maximum bytes of a message, and of what its dead letter says, that count as short: a hundred of
/// them take a line of 100 Mbit/s less than a tenth of a second.
const SHORT: usize = 10_000;

/// How one delivery ends, as the script is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisEnd<'a> {
    /// The message.
    pub id: &'a str,
    /// Which delivery of it.
    pub count: &'a str,
    /// What becomes of it.
    pub letter: &'static str,
    /// And what goes with that.
    pub with: String,
    /// How many bytes the server copies, and the call has beside its few.
    bytes: usize,
}

impl<'a> RedisEnd<'a> {
    /// Refuses what cannot be written. `source` is the queue's name.
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

    /// Whether the script gets the same arguments for both, but for their ids.
    pub(super) fn ends_like(&self, other: &Self) -> bool {
        (self.count, self.letter, &self.with) == (other.count, other.letter, &other.with)
    }
}

/// The deliveries that end in one call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndingBatch<'a> {
    /// It takes its time.
    pub long: bool,
    /// At least one, each with its place in the batch.
    pub ends: Vec<(usize, RedisEnd<'a>)>,
}

/// Parts a batch: all that is short together, then what is long, `CALL` bytes or one a call.
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
