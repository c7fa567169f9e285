//! The receipt of one delivery as a text: the fence token, the time of the receive and the task's
//! id. Pure.

use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::Receipt;
use dispatcher_core::queue::ItemError;

/// One delivery of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskDelivery {
    /// The fence token: a UUID, new with each delivery.
    pub token: String,
    /// The time of the receive, from which the ceiling of 12 hours is counted.
    pub taken: Timestamp,
    /// The task's id, which may be any text.
    pub task: String,
}

impl TaskDelivery {
    /// Returns the receipt as the port uses it.
    pub(super) fn receipt(&self) -> Receipt {
        let Self { token, taken, task } = self;
        Receipt(format!("{token}.{}.{task}", taken.0))
    }

    /// Parses a receipt that `receipt` returned; any other text is refused.
    pub(super) fn parse(receipt: &Receipt) -> Result<Self, ItemError> {
        Self::read(&receipt.0)
            .ok_or_else(|| ItemError::Refused("not a receipt of this backend".into()))
    }

    fn read(receipt: &str) -> Option<Self> {
        let (token, rest) = receipt.split_once('.')?;
        let (taken, task) = rest.split_once('.')?;
        Some(Self {
            token: token.to_owned(),
            taken: Timestamp(taken.parse().ok()?),
            task: task.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn receipts_round_trip_for_any_id(task in ".*", ms: u64) {
            let delivery = TaskDelivery { token: "6f1e-9".into(), taken: Timestamp(ms), task };
            prop_assert_eq!(TaskDelivery::parse(&delivery.receipt()), Ok(delivery));
        }

        #[test]
        fn parser_panics_on_no_text(text in ".*") {
            let _ = TaskDelivery::parse(&Receipt(text));
        }
    }
}
