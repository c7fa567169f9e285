//! The core against the model, by steps that a queue sees in its life.

use crate::queue::model::{QueueStep, check};
use dispatcher_core::message::{Outcome, OutgoingMessage};
use dispatcher_core::queue::GroupShare;
use proptest::prelude::*;
use std::time::Duration;

fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
    let delay = prop_oneof![4 => Just(0), 2 => 0..40_u64];
    let hours = prop_oneof![8 => 0..40_u64, 1 => 43_190..43_210_u64];
    let outcome = prop_oneof![
        3 => Just(Outcome::Delete),
        2 => (0..40_u64).prop_map(|s| Outcome::Release(Duration::from_secs(s))),
        1 => Just(Outcome::DeadLetter("why".into())),
    ];
    let groups = prop_oneof![
        Just(GroupShare::One),
        (0..5_usize).prop_map(GroupShare::Spread),
        Just(GroupShare::Fill),
    ];
    let pick = any::<usize>();
    let hours = hours.prop_map(Duration::from_secs);
    let step = prop_oneof![
        4 => (0..2_usize, prop::option::of(0..3_u8), delay)
            .prop_map(|(queue, group, delay)| QueueStep::Send {
                queue,
                item: OutgoingMessage {
                    group: group.map(|group| group.to_string()),
                    delay: Duration::from_secs(delay),
                    ..OutgoingMessage::default()
                },
            }),
        4 => (0..2_usize, 1..7_usize, (0..40_u64).prop_map(Duration::from_secs), any::<bool>(), groups)
            .prop_map(|(queue, max, visibility, newest_first, groups)| QueueStep::Receive {
                queue, max, visibility, newest_first, groups
            }),
        2 => (pick, hours).prop_map(|(pick, more)| QueueStep::Extend { pick, more }),
        4 => (pick, outcome).prop_map(|(pick, outcome)| QueueStep::Settle { pick, outcome }),
        3 => prop_oneof![6 => 0..30_i64, 1 => -20..0_i64, 1 => 43_180..43_220_i64]
            .prop_map(QueueStep::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn core_matches_the_model(steps in steps()) {
        check(steps);
    }
}
