//! A fuzz target: any series of operations, with any texts, on the core and on its model.

use super::model::{QueueStep, check};
use dispatcher_core::fuzz::Choices;
use dispatcher_core::message::{Attribute, AttributeValue, Outcome, OutgoingMessage};
use dispatcher_core::queue::GroupShare;
use std::time::Duration;

/// The longest series.
const MOST: usize = 200;

/// Steps, each of a few bytes.
pub fn operations(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut left = MOST;
    check(std::iter::from_fn(|| {
        left = left.checked_sub(1)?;
        (!choices.is_empty()).then(|| step(&mut choices))
    }));
}

fn step(choices: &mut Choices<'_>) -> QueueStep {
    let (kind, queue) = (choices.below(7), choices.below(2));
    match kind {
        0 | 1 => QueueStep::Send {
            queue,
            item: outgoing(choices),
        },
        2 => QueueStep::Receive {
            queue,
            max: 1 + choices.below(12),
            visibility: seconds(choices),
            newest_first: choices.flag(),
            groups: match choices.below(3) {
                0 => GroupShare::One,
                1 => GroupShare::Spread(1 + choices.below(6)),
                _ => GroupShare::Fill,
            },
        },
        3 => QueueStep::Extend {
            pick: choices.byte().into(),
            more: seconds(choices),
        },
        4 => QueueStep::Settle {
            pick: choices.byte().into(),
            outcome: match choices.below(3) {
                0 => Outcome::Delete,
                1 => Outcome::Release(seconds(choices)),
                _ => Outcome::DeadLetter(choices.text()),
            },
        },
        5 => QueueStep::Forge {
            queue,
            receipt: choices.text(),
        },
        _ => {
            let forward = i64::from(choices.byte()) * i64::from(choices.byte());
            QueueStep::Pass(if choices.flag() { -forward } else { forward })
        }
    }
}

/// Small times are likely, and those around the ceiling of 12 hours.
fn seconds(choices: &mut Choices<'_>) -> Duration {
    Duration::from_secs(match choices.below(4) {
        0 => 0,
        1 => choices.byte().into(),
        2 => 43_100 + u64::from(choices.byte()),
        _ => choices.number() % 100_000,
    })
}

fn outgoing(choices: &mut Choices<'_>) -> OutgoingMessage {
    OutgoingMessage {
        body: choices.text(),
        // Few groups, of odd names.
        group: choices.option(|choices| match choices.below(4) {
            0 => String::new(),
            1 => "\0".into(),
            2 => "\0\0'--".into(),
            _ => choices.text(),
        }),
        delay: if choices.flag() {
            seconds(choices)
        } else {
            Duration::ZERO
        },
        attributes: choices.list(4, |choices| Attribute {
            name: choices.text(),
            data_type: choices.text(),
            value: if choices.flag() {
                AttributeValue::Text(choices.text())
            } else {
                let length = choices.byte().into();
                AttributeValue::Binary(choices.bytes(length).to_vec())
            },
        }),
        ..OutgoingMessage::default()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_operations_finds_nothing() {
        dispatcher_core::fuzz::replay("operations", super::operations);
    }
}
