//! The core against the model, by steps that a queue sees in its life.

use crate::queue::claim::claim;
use crate::queue::deliver::DeliveryTerms;
use crate::queue::look::queue_id;
use crate::queue::model::{QueueStep, check, check_on};
use crate::queue::schema::in_memory;
use crate::queue::sharing::SharingSlot;
use crate::queue::time::StoreTime;
use crate::queue::turn::Turn;
use dispatcher_core::message::place::MessagePlace;
use dispatcher_core::message::{Outcome, OutgoingMessage};
use dispatcher_core::queue::sharing::SharingRules;
use dispatcher_core::queue::{Ask, GroupShare};
use proptest::prelude::*;
use rusqlite::Connection;
use std::sync::Arc;
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

/// Creates lanes for a queue, as the first receive that shares messages out does.
fn share_out(connection: &Connection, name: &str) {
    let slot = SharingSlot::default();
    slot.set(&Arc::new(SharingRules {
        by_group: name == "q",
        priority: Some(MessagePlace::Attribute("priority".into())),
        ..SharingRules::default()
    }));
    let terms = DeliveryTerms {
        sharing: Some(Arc::new(slot)),
        ..DeliveryTerms::default()
    };
    let mut turn = Turn::new(connection, StoreTime(1_000_000_000_000));
    let queue = queue_id(connection, name).unwrap();
    claim(&mut turn, queue, name, Ask::PLAIN, &terms).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn core_matches_the_model(steps in steps()) {
        check(steps);
    }

    #[test]
    fn queue_with_lanes_matches_the_model_for_processes_without_rules(steps in steps()) {
        let connection = in_memory();
        for name in ["q", "q.dead"] {
            share_out(&connection, name);
        }
        check_on(&connection, steps);
    }
}
