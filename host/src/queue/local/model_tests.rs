//! The core against a model so simple that it is plainly right: two lists in memory.

use super::deliver::{receive, send};
use super::look::{depth, peek, queue_id};
use super::schema::in_memory;
use super::settle::{Answer, Origin, extend, settle};
use super::time::StoreTime;
use super::turn::{Delivery, Turn};
use crate::message::{Outcome, Outgoing};
use crate::queue::{Ask, Depth, ItemError, VISIBILITY_CEILING};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// One message of the model; lists keep the order of sending.
#[derive(Debug, Clone)]
struct Row {
    key: u64,
    id: String,
    group: Option<String>,
    visible_at: StoreTime,
    sent_at: StoreTime,
    received_at: StoreTime,
    in_flight: bool,
    count: u32,
    moved_from: Option<(u64, u32)>,
}

/// A delivery as the model knows it.
#[derive(Debug, Clone, Copy)]
struct Handed {
    queue: usize,
    key: u64,
    count: u32,
}

#[derive(Default)]
struct Model {
    now: StoreTime,
    keys: u64,
    queues: [Vec<Row>; 2],
}

/// The kinds of answers, without their words.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Done,
    Gone,
    Refused,
}

fn said(answer: &Answer) -> Said {
    match answer {
        Ok(()) => Said::Done,
        Err(ItemError::Gone(_)) => Said::Gone,
        Err(_) => Said::Refused,
    }
}

impl Model {
    fn send(&mut self, queue: usize, id: String, item: &Outgoing) {
        self.keys += 1;
        self.queues[queue].push(Row {
            key: self.keys,
            id,
            group: item.group.clone(),
            visible_at: self.now + item.delay,
            sent_at: self.now,
            received_at: StoreTime(0),
            in_flight: false,
            count: 0,
            moved_from: None,
        });
    }

    /// The places of what a receive would bring, in order.
    fn ready(&self, queue: usize) -> Vec<usize> {
        let rows = &self.queues[queue];
        let mut seen = BTreeSet::new();
        let mut ready: Vec<_> = (0..rows.len())
            .filter(|at| {
                rows[*at]
                    .group
                    .as_ref()
                    .is_none_or(|group| seen.insert(group))
            })
            .filter(|at| rows[*at].visible_at <= self.now)
            .collect();
        ready.sort_by_key(|at| (rows[*at].visible_at, *at));
        ready
    }

    fn receive(&mut self, queue: usize, ask: Ask) -> Vec<(String, u32, Handed)> {
        let mut ready = self.ready(queue);
        if ask.newest_first {
            let rows = &self.queues[queue];
            ready.sort_by_key(|at| Reverse((rows[*at].sent_at, *at)));
        }
        let now = self.now;
        let take = |at: usize| {
            let row = &mut self.queues[queue][at];
            row.count += 1;
            row.in_flight = true;
            row.received_at = now;
            row.visible_at = now + ask.visibility;
            let handed = Handed {
                queue,
                key: row.key,
                count: row.count,
            };
            (row.id.clone(), row.count, handed)
        };
        ready.into_iter().take(ask.max).map(take).collect()
    }

    fn find(&mut self, handed: Handed) -> Option<Result<usize, Said>> {
        let rows = &self.queues[handed.queue];
        let at = rows.iter().position(|row| row.key == handed.key)?;
        Some(if rows[at].count == handed.count {
            Ok(at)
        } else {
            Err(Said::Gone)
        })
    }

    fn extend(&mut self, handed: Handed, more: Duration) -> Said {
        let now = self.now;
        let at = match self.find(handed) {
            Some(Ok(at)) => at,
            _ => return Said::Gone,
        };
        let row = &mut self.queues[handed.queue][at];
        if !row.in_flight {
            Said::Gone
        } else if now + more > row.received_at + VISIBILITY_CEILING {
            Said::Refused
        } else {
            row.visible_at = now + more;
            Said::Done
        }
    }

    fn settle(&mut self, handed: Handed, outcome: &Outcome) -> Said {
        let at = match (self.find(handed), outcome) {
            (Some(Ok(at)), _) => at,
            (Some(Err(said)), _) => return said,
            (None, Outcome::Delete) => return Said::Done,
            (None, Outcome::DeadLetter(_)) if self.is_dead(handed) => return Said::Done,
            (None, _) => return Said::Gone,
        };
        let now = self.now;
        let row = &mut self.queues[handed.queue][at];
        match outcome {
            Outcome::Release(_) if !row.in_flight => return Said::Done,
            _ if !row.in_flight => return Said::Gone,
            Outcome::Release(after) => {
                row.in_flight = false;
                row.visible_at = now + *after;
            }
            Outcome::Delete => drop(self.queues[handed.queue].remove(at)),
            Outcome::DeadLetter(_) if handed.queue == 1 => return Said::Refused,
            Outcome::DeadLetter(_) => {
                let mut row = self.queues[0].remove(at);
                self.keys += 1;
                row = Row {
                    key: self.keys,
                    visible_at: now,
                    in_flight: false,
                    count: 0,
                    moved_from: Some((handed.key, handed.count)),
                    ..row
                };
                self.queues[1].push(row);
            }
        }
        Said::Done
    }

    /// Whether this delivery was dead-lettered; remembered for as long as the dead letter is there.
    fn is_dead(&self, handed: Handed) -> bool {
        let from = Some((handed.key, handed.count));
        self.queues
            .iter()
            .flatten()
            .any(|row| row.moved_from == from)
    }

    fn depth(&self, queue: usize) -> Depth {
        let rows = &self.queues[queue];
        let hidden = |row: &&Row| row.visible_at > self.now;
        let idle = |row: &&Row| !(row.in_flight && hidden(row));
        let oldest = rows.iter().filter(idle).map(|row| row.sent_at).min();
        let count = |test: &dyn Fn(&&Row) -> bool| rows.iter().filter(test).count() as u64;
        Depth {
            waiting: count(&|row| !hidden(row)),
            in_flight: count(&|row| hidden(row) && row.in_flight),
            delayed: count(&|row| hidden(row) && !row.in_flight),
            oldest: oldest.map(|sent| self.now.since(sent)),
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send {
        queue: usize,
        group: Option<u8>,
        delay: u64,
    },
    Receive {
        queue: usize,
        max: usize,
        visibility: u64,
        newest_first: bool,
    },
    Extend {
        pick: prop::sample::Index,
        more: u64,
    },
    Settle {
        pick: prop::sample::Index,
        outcome: Outcome,
    },
    /// Sets the clock this much forward, or back.
    Pass(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delay = prop_oneof![4 => Just(0), 2 => 0..40_u64];
    let hours = prop_oneof![8 => 0..40_u64, 1 => 43_190..43_210_u64];
    let outcome = prop_oneof![
        3 => Just(Outcome::Delete),
        2 => (0..40_u64).prop_map(|s| Outcome::Release(Duration::from_secs(s))),
        1 => Just(Outcome::DeadLetter("why".into())),
    ];
    let pick = any::<prop::sample::Index>();
    let step = prop_oneof![
        4 => (0..2_usize, prop::option::of(0..3_u8), delay)
            .prop_map(|(queue, group, delay)| Step::Send { queue, group, delay }),
        4 => (0..2_usize, 1..5_usize, 0..40_u64, any::<bool>()).prop_map(
            |(queue, max, visibility, newest_first)| Step::Receive {
                queue, max, visibility, newest_first
            }
        ),
        2 => (pick.clone(), hours).prop_map(|(pick, more)| Step::Extend { pick, more }),
        4 => (pick, outcome).prop_map(|(pick, outcome)| Step::Settle { pick, outcome }),
        3 => prop_oneof![6 => 0..30_i64, 1 => -20..0_i64, 1 => 43_180..43_220_i64]
            .prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

/// Receives from the file and from the model; both must give the same.
fn received(
    turn: &mut Turn<'_>,
    model: &mut Model,
    origins: &[Origin],
    queue: usize,
    ask: Ask,
) -> Result<Vec<(Handed, Delivery)>, TestCaseError> {
    let peeked = peek(turn, origins[queue].id, "q", ask.max).unwrap();
    let got = receive(turn, origins[queue].id, "q", ask).unwrap();
    let wanted = model.receive(queue, ask);
    prop_assert_eq!(got.drained, wanted.len() < ask.max);
    prop_assert_eq!(got.messages.len(), wanted.len());
    let mut handed = Vec::new();
    for (at, (message, (id, count, hand))) in got.messages.iter().zip(wanted).enumerate() {
        prop_assert_eq!((&message.id, message.receive_count), (&id, count));
        if !ask.newest_first {
            prop_assert_eq!(&peeked[at].id, &id);
        }
        handed.push((hand, Delivery::parse(&message.receipt).unwrap()));
    }
    Ok(handed)
}

fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let connection = in_memory();
    let origins = [("q", Some("q.dead")), ("q.dead", None)].map(|(name, dead)| Origin {
        id: queue_id(&connection, name).unwrap(),
        name: name.into(),
        dead_letter: dead.map(Into::into),
    });
    let mut model = Model {
        now: StoreTime(1_000_000_000_000),
        ..Model::default()
    };
    let mut handed: Vec<(Handed, Delivery)> = Vec::new();
    for step in steps {
        let mut turn = Turn::new(&connection, model.now);
        match step {
            Step::Send {
                queue,
                group,
                delay,
            } => {
                let item = Outgoing {
                    group: group.map(|group| group.to_string()),
                    delay: Duration::from_secs(delay),
                    ..Outgoing::default()
                };
                let ids = send(&mut turn, origins[queue].id, std::slice::from_ref(&item)).unwrap();
                model.send(queue, ids[0].clone().unwrap(), &item);
            }
            Step::Receive {
                queue,
                max,
                visibility,
                newest_first,
            } => {
                let ask = Ask {
                    max,
                    visibility: Duration::from_secs(visibility),
                    wait: Duration::ZERO,
                    newest_first,
                };
                handed.extend(received(&mut turn, &mut model, &origins, queue, ask)?);
            }
            Step::Extend { pick, more } if !handed.is_empty() => {
                let (hand, delivery) = *pick.get(&handed);
                let more = Duration::from_secs(more);
                let answer = extend(&mut turn, origins[hand.queue].id, delivery, more).unwrap();
                prop_assert_eq!(said(&answer), model.extend(hand, more));
            }
            Step::Settle { pick, outcome } if !handed.is_empty() => {
                let (hand, delivery) = *pick.get(&handed);
                let answer = settle(&mut turn, &origins[hand.queue], delivery, &outcome).unwrap();
                prop_assert_eq!(said(&answer), model.settle(hand, &outcome));
            }
            Step::Pass(seconds) => {
                let ms = model.now.0.saturating_add(seconds * 1000);
                model.now = StoreTime(ms);
            }
            Step::Extend { .. } | Step::Settle { .. } => {}
        }
        let turn = Turn::new(&connection, model.now);
        for (queue, origin) in origins.iter().enumerate() {
            prop_assert_eq!(depth(&turn, origin.id).unwrap(), model.depth(queue));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_core_answers_as_the_model(steps in steps()) {
        check(steps)?;
    }
}
