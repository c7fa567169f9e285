//! Random steps. Before each receive, a search of all messages says what it may bring; this search
//! knows neither lanes nor triggers.

use super::*;
use crate::queue::browse::purge;
use crate::queue::carry::move_back;
use crate::queue::time::StoreTime;
use dispatcher_core::queue::sharing::{PRIORITIES, Priority};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeSet;

const TENANTS: [&str; 5] = ["", "a", "b", "c", "d"];

type ModelLane = (u8, String);

#[derive(Debug, Clone)]
enum SharingStep {
    Send {
        tenant: usize,
        priority: u8,
        delay: u64,
    },
    Receive {
        max: usize,
        visibility: u64,
        newest_first: bool,
    },
    /// A receive of a process without rules.
    Plain(usize),
    Settle {
        pick: usize,
        outcome: Outcome,
    },
    Extend {
        pick: usize,
        more: u64,
    },
    Purge,
    /// Moves all dead letters back.
    Redrive,
    Rules {
        by_group: bool,
        priority: bool,
    },
    Park(BTreeSet<usize>),
    Waits(Option<u64>),
    Pass(u64),
}

/// A message as the file has it, without its lane.
#[derive(Debug, Clone)]
struct WaitingMessage {
    seq: i64,
    lane: ModelLane,
    visible_at: StoreTime,
    sent_at: StoreTime,
}

struct SharingModel {
    world: SharedWorld,
    sharing: SharingRules,
    handed: Vec<Message>,
    /// The lanes that have paid, while each receive since found messages in them.
    paid: BTreeMap<ModelLane, i64>,
}

impl SharingModel {
    /// Returns the messages that count, received or not.
    fn all(&self) -> Vec<WaitingMessage> {
        let sql = "SELECT e.seq, e.visible_at, e.sent_at, coalesce(e.message_group, ''),
                          substr(p.body, 1 + length(coalesce(e.message_group, '')))
                   FROM entries e JOIN payloads p ON p.seq = coalesce(e.payload, e.seq)
                   WHERE e.queue = ?1 AND (e.head OR ?2)";
        let (by_group, by_priority) = (self.sharing.by_group, self.sharing.priority.is_some());
        let mut find = self.world.connection.prepare_cached(sql).unwrap();
        find.query_map(rusqlite::params![self.world.origin.id, by_group], |row| {
            let priority: String = row.get(4)?;
            let priority = priority.parse().unwrap_or(3);
            let tenant: String = row.get(3)?;
            Ok(WaitingMessage {
                seq: row.get(0)?,
                visible_at: row.get(1)?,
                sent_at: row.get(2)?,
                lane: (
                    if by_priority && (1..=5).contains(&priority) {
                        priority
                    } else {
                        3
                    },
                    if by_group { tenant } else { String::new() },
                ),
            })
        })
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
    }

    /// Returns the messages that can be received.
    fn receivable(&self) -> Vec<WaitingMessage> {
        let mut all = self.all();
        all.retain(|one| {
            one.visible_at <= self.world.now && !self.sharing.parked.contains(&one.lane.1)
        });
        all
    }

    /// Returns what the lanes have paid, and the virtual times.
    fn accounts(&self) -> (BTreeMap<ModelLane, i64>, [i64; PRIORITIES]) {
        let (mut lanes, mut times) = (BTreeMap::new(), [0; PRIORITIES]);
        let connection = &self.world.connection;
        let known = "SELECT 1 FROM sqlite_schema WHERE name = 'lanes'";
        if connection.prepare(known).unwrap().exists([]).unwrap() {
            let mut find = connection
                .prepare("SELECT priority, tenant, pass FROM lanes")
                .unwrap();
            let mut rows = find.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                lanes.insert(
                    (row.get(0).unwrap(), row.get(1).unwrap()),
                    row.get(2).unwrap(),
                );
            }
            let mut find = connection
                .prepare("SELECT priority, pass FROM lane_times")
                .unwrap();
            let mut rows = find.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let priority: u8 = row.get(0).unwrap();
                times[usize::from(priority) - 1] = row.get(1).unwrap();
            }
        }
        (lanes, times)
    }

    fn deadline(&self, one: &WaitingMessage) -> Option<StoreTime> {
        let priority = Priority::new(one.lane.0.into()).unwrap();
        let wait = self.sharing.longest_wait(priority)?;
        Some(one.visible_at + wait).filter(|deadline| *deadline <= self.world.now)
    }

    fn receive(&mut self, ask: Ask) {
        let mut left = self.receivable();
        let (mut sums, mut times) = self.accounts();
        let (total, before) = (left.len(), sums.clone());
        for (lane, paid) in &self.paid {
            assert_eq!(
                sums.get(lane),
                Some(paid),
                "{lane:?} has paid and has messages"
            );
        }
        let answer = self.world.receive_by(&self.world.terms, ask);
        assert_eq!(
            answer.messages.len(),
            total.min(ask.max),
            "nothing is stranded"
        );
        assert_eq!(answer.drained, total < ask.max);
        let mut overdue = 0;
        for message in &answer.messages {
            let seq = LocalDelivery::parse(&message.receipt).unwrap().seq;
            let at = left.iter().position(|one| one.seq == seq);
            let got = left[at.expect("it can be received")].clone();
            let sum = |lane: &ModelLane| {
                let sum = sums.get(lane).copied().unwrap_or_default();
                sum.max(times[usize::from(lane.0) - 1])
            };
            let paid = sum(&got.lane);
            let first = left.iter().filter_map(|one| self.deadline(one)).min();
            if let Some(first) = first {
                assert_eq!(
                    self.deadline(&got),
                    Some(first),
                    "overdue messages go first"
                );
                overdue += 1;
            } else {
                let urgent = left.iter().map(|one| one.lane.0).min();
                assert_eq!(Some(got.lane.0), urgent, "urgent messages go first");
                let same = left.iter().filter(|one| one.lane.0 == got.lane.0);
                let least = same.map(|one| sum(&one.lane)).min();
                assert_eq!(Some(paid), least, "the lane that has paid least goes first");
                let lane = left.iter().filter(|one| one.lane == got.lane);
                let next = if ask.newest_first {
                    lane.min_by_key(|one| Reverse((one.sent_at, one.seq)))
                } else {
                    lane.min_by_key(|one| (one.visible_at, one.seq))
                };
                assert_eq!(next.map(|one| one.seq), Some(seq), "a lane is in order");
                times[usize::from(got.lane.0) - 1] = paid;
            }
            let price = i64::try_from(self.sharing.price(&got.lane.1)).unwrap();
            sums.insert(got.lane.clone(), paid + price);
            left.retain(|one| one.seq != seq);
        }
        assert_eq!(answer.overdue, overdue);
        self.check_accounts(&before, &sums, times);
        if total < ask.max && self.receivable().is_empty() {
            let due = self.world.next_due();
            assert!(
                due.is_none_or(|due| due > self.world.now),
                "{due:?} with nothing to do"
            );
        }
        self.handed.extend(answer.messages);
    }

    /// Checks what the lanes have paid after a receive.
    fn check_accounts(
        &mut self,
        before: &BTreeMap<ModelLane, i64>,
        sums: &BTreeMap<ModelLane, i64>,
        times: [i64; PRIORITIES],
    ) {
        let (lanes, found_times) = self.accounts();
        assert_eq!(found_times, times);
        for (lane, sum) in sums {
            if before.get(lane) != Some(sum) {
                assert_eq!(lanes.get(lane), Some(sum));
                self.paid.insert(lane.clone(), *sum);
            }
        }
        self.forget_empty();
    }

    fn forget_empty(&mut self) {
        let used: BTreeSet<ModelLane> = self.all().into_iter().map(|one| one.lane).collect();
        self.paid.retain(|lane, _| used.contains(lane));
    }

    /// A message that can be received, now or later, is due no later.
    fn check_due(&self) {
        let mut all = self.all();
        all.retain(|one| !self.sharing.parked.contains(&one.lane.1));
        if let Some(first) = all.iter().map(|one| one.visible_at).min() {
            let due = self.world.next_due().expect("a message waits");
            assert!(
                due <= first.max(self.world.now),
                "{due:?} is later than {first:?}"
            );
        }
        let (lanes, _) = self.accounts();
        assert!(lanes.len() <= PRIORITIES * TENANTS.len());
    }

    fn take(&mut self, step: SharingStep) {
        let seconds = Duration::from_secs;
        match step {
            SharingStep::Send {
                tenant,
                priority,
                delay,
            } => {
                let priority = match priority {
                    0 => String::new(),
                    priority => priority.to_string(),
                };
                drop(self.world.send(TENANTS[tenant], &priority, seconds(delay)));
            }
            SharingStep::Receive {
                max,
                visibility,
                newest_first,
            } => {
                let visibility = seconds(visibility);
                self.receive(Ask {
                    max,
                    visibility,
                    newest_first,
                    ..Ask::PLAIN
                });
            }
            SharingStep::Plain(max) => {
                let ask = Ask { max, ..Ask::PLAIN };
                let answer = self.world.receive_by(&DeliveryTerms::default(), ask);
                self.handed.extend(answer.messages);
            }
            SharingStep::Settle { pick, outcome } if !self.handed.is_empty() => {
                let message = self.handed[pick % self.handed.len()].clone();
                self.world.settle(&message, &outcome);
            }
            SharingStep::Extend { pick, more } if !self.handed.is_empty() => {
                let message = &self.handed[pick % self.handed.len()];
                let delivery = LocalDelivery::parse(&message.receipt).unwrap();
                let mut turn = self.world.turn();
                let _ = extend(&mut turn, self.world.origin.id, delivery, seconds(more)).unwrap();
            }
            SharingStep::Settle { .. } | SharingStep::Extend { .. } => {}
            SharingStep::Purge => {
                purge(&mut self.world.turn(), self.world.origin.id).unwrap();
            }
            SharingStep::Redrive => {
                let dead = queue_id(&self.world.connection, "q.dead").unwrap();
                let sql = "SELECT seq FROM entries WHERE queue = ?1";
                let mut find = self.world.connection.prepare(sql).unwrap();
                let rows = find.query_map([dead], |row| row.get(0)).unwrap();
                for seq in rows.collect::<Result<Vec<i64>, _>>().unwrap() {
                    let moved = move_back(&mut self.world.turn(), dead, seq, Some("q"));
                    moved.unwrap().unwrap();
                }
            }
            SharingStep::Rules { by_group, priority } => {
                self.sharing.by_group = by_group || !priority;
                self.sharing.priority = by_priority().priority.filter(|_| priority);
                self.paid.clear();
                self.world.share(self.sharing.clone());
            }
            SharingStep::Park(tenants) => {
                let tenants = tenants.into_iter();
                self.sharing.parked = tenants.map(|at| TENANTS[at].to_owned()).collect();
                self.world.share(self.sharing.clone());
            }
            SharingStep::Waits(wait) => {
                self.sharing.longest_waits = [None, wait, None, wait.map(|s| s + 3), wait]
                    .map(|wait| wait.map(Duration::from_secs));
                self.world.share(self.sharing.clone());
            }
            SharingStep::Pass(time) => self.world.pass(seconds(time)),
        }
        self.forget_empty();
        self.check_due();
    }
}

fn steps() -> impl Strategy<Value = Vec<SharingStep>> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Delete),
        3 => (0..40_u64).prop_map(|s| Outcome::Release(Duration::from_secs(s))),
        2 => Just(Outcome::DeadLetter("why".into())),
    ];
    let delay = prop_oneof![3 => Just(0), 1 => 0..40_u64];
    let pick = any::<usize>();
    let step = prop_oneof![
        14 => (0..5_usize, 0..7_u8, delay)
            .prop_map(|(tenant, priority, delay)| SharingStep::Send { tenant, priority, delay }),
        10 => (1..7_usize, 0..40_u64, prop::bool::weighted(0.2)).prop_map(
            |(max, visibility, newest_first)| SharingStep::Receive { max, visibility, newest_first }
        ),
        1 => (1..4_usize).prop_map(SharingStep::Plain),
        8 => (pick, outcome).prop_map(|(pick, outcome)| SharingStep::Settle { pick, outcome }),
        2 => (pick, 0..40_u64).prop_map(|(pick, more)| SharingStep::Extend { pick, more }),
        1 => prop::bool::weighted(0.2).prop_map(|purge| if purge { SharingStep::Purge } else { SharingStep::Redrive }),
        1 => (any::<bool>(), any::<bool>())
            .prop_map(|(by_group, priority)| SharingStep::Rules { by_group, priority }),
        1 => prop::collection::btree_set(0..5_usize, 0..3).prop_map(SharingStep::Park),
        1 => prop::option::of(1..30_u64).prop_map(SharingStep::Waits),
        5 => prop_oneof![6 => 0..10_u64, 1 => 10..60_u64].prop_map(SharingStep::Pass),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn receives_match_a_search_of_all_messages(
        steps in steps(), by_group in any::<bool>(), b in 1..4_u32, c in 1..4_u32
    ) {
        let sharing = SharingRules {
            by_group,
            weights: weights(&[("b", b), ("c", c)]),
            ..by_priority()
        };
        let mut model = SharingModel {
            world: SharedWorld::new(sharing.clone()),
            sharing,
            handed: Vec::new(),
            paid: BTreeMap::new(),
        };
        for step in steps {
            model.take(step);
        }
    }
}
