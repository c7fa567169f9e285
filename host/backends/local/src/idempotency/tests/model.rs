//! The file against a model: a map in memory. Several connections, as several processes have;
//! dates that jump; what has expired is deleted at any time, in steps of any size.

use crate::idempotency::schema::open;
use crate::idempotency::steps::{expire, known, remember};
use dispatcher_core::clock::Timestamp;
use proptest::prelude::*;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::time::Duration;

const HANDLES: usize = 3;
const QUEUES: [&str; 2] = ["arn:aws:sqs:eu-west-1:1:a", "local:b"];

#[derive(Debug, Clone)]
enum RecordsStep {
    Remember {
        queue: usize,
        ids: Vec<u8>,
        ttl_ms: u64,
    },
    Known {
        queue: usize,
        ids: Vec<u8>,
    },
    Expire {
        most: usize,
    },
    /// The date changes by so much, in either direction.
    Jump {
        ms: i64,
    },
    /// A process dies and another begins.
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<(usize, RecordsStep)>> {
    let queue = 0..QUEUES.len();
    let ids = || prop::collection::vec(0_u8..12, 1..5);
    let ttl_ms = prop_oneof![0_u64..2_000, Just(u64::MAX)];
    let step = prop_oneof![
        4 => (queue.clone(), ids(), ttl_ms)
            .prop_map(|(queue, ids, ttl_ms)| RecordsStep::Remember { queue, ids, ttl_ms }),
        4 => (queue, ids()).prop_map(|(queue, ids)| RecordsStep::Known { queue, ids }),
        2 => (0_usize..5).prop_map(|most| RecordsStep::Expire { most }),
        2 => (-500_i64..1_000).prop_map(|ms| RecordsStep::Jump { ms }),
        1 => Just(RecordsStep::Reopen),
    ];
    prop::collection::vec((0..HANDLES, step), 1..60)
}

fn words(ids: &[u8]) -> Vec<String> {
    ids.iter().map(|id| format!("id-{id}")).collect()
}

fn rows(connection: &Connection) -> usize {
    let count = connection.query_row("SELECT count(*) FROM done", [], |row| row.get::<_, u32>(0));
    count.unwrap() as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn records_match_a_map_model(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let connect = || open(folder.path()).unwrap();
        let mut handles = [(); HANDLES].map(|()| connect());
        let mut model = BTreeMap::<(usize, u8), Timestamp>::new();
        let mut now = Timestamp(1_000);
        for (handle, step) in steps {
            let [writer, reader] = &handles[handle];
            match step {
                RecordsStep::Remember { queue, ids, ttl_ms } => {
                    let until = now + Duration::from_millis(ttl_ms);
                    remember(writer, QUEUES[queue], &words(&ids), until).unwrap();
                    for id in ids {
                        let kept = model.entry((queue, id)).or_default();
                        *kept = until.max(*kept);
                    }
                }
                RecordsStep::Known { queue, ids } => {
                    let told = known(reader, now, QUEUES[queue], &words(&ids)).unwrap();
                    let wanted: Vec<bool> = ids
                        .iter()
                        .map(|id| model.get(&(queue, *id)).is_some_and(|until| *until > now))
                        .collect();
                    prop_assert_eq!(told, wanted);
                }
                RecordsStep::Expire { most } => {
                    let expired = expire(writer, now, most).unwrap();
                    let gone = model.values().filter(|until| **until <= now).count();
                    prop_assert_eq!(expired, gone.min(most));
                    // Of those that expire at the same time it is not told which go first.
                    model.retain(|(queue, id), _| {
                        let row = "SELECT 1 FROM done JOIN queues ON queue = number
                                   WHERE name = ?1 AND id = ?2";
                        let mut row = writer.prepare_cached(row).unwrap();
                        row.exists([QUEUES[*queue], &words(&[*id])[0]]).unwrap()
                    });
                    prop_assert_eq!(rows(writer), model.len());
                    let left = model.values().filter(|until| **until <= now).count();
                    prop_assert_eq!(left, gone - expired, "only what has expired goes");
                }
                RecordsStep::Jump { ms } => now = Timestamp(now.0.saturating_add_signed(ms)),
                RecordsStep::Reopen => handles[handle] = connect(),
            }
        }
    }
}
