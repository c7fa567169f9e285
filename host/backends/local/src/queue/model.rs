//! A model of the core so simple that it is plainly right, two lists in memory, and the comparison
//! of the two, step by step. What the steps are is its callers' to choose.

use super::deliver::{receive, send};
use super::look::{depth, peek, queue_id};
use super::schema::in_memory;
use super::settle::{Origin, SettleResult, extend, settle};
use super::time::StoreTime;
use super::turn::{LocalDelivery, Turn};
use dispatcher_core::message::{Attribute, Outcome, Outgoing, Receipt};
use dispatcher_core::queue::{Ask, Depth, GroupShare, ItemError, VISIBILITY_CEILING};
use dispatcher_core::queue::{DEAD_LETTER_REASON as REASON, DEAD_LETTER_SOURCE as SOURCE};
use rusqlite::Connection;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// One message of the model; lists keep the order of sending.
#[derive(Debug, Clone)]
struct Row {
    key: u64,
    id: String,
    item: Outgoing,
    visible_at: StoreTime,
    sent_at: StoreTime,
    received_at: StoreTime,
    in_flight: bool,
    count: u32,
    moved_from: Option<(u64, u32)>,
}

/// A delivery as the model knows it.
#[derive(Debug, Clone, Copy)]
struct ModelDelivery {
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

fn result_of(answer: &SettleResult) -> Said {
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
            item: item.clone(),
            visible_at: self.now + item.delay,
            sent_at: self.now,
            received_at: StoreTime(0),
            in_flight: false,
            count: 0,
            moved_from: None,
        });
    }

    /// The places of the messages of each group that can be received from its first on, and of each
    /// message without a group; with the place and the moment by which these sets are ordered.
    fn ready(&self, queue: usize) -> Vec<((StoreTime, usize), Vec<usize>)> {
        let rows = &self.queues[queue];
        let mut seen = BTreeSet::new();
        let mut ready = Vec::new();
        for at in 0..rows.len() {
            let Some(group) = &rows[at].item.group else {
                ready.push(((rows[at].visible_at, at), vec![at]));
                continue;
            };
            if !seen.insert(group) {
                continue;
            }
            let members: Vec<usize> = (at..rows.len())
                .filter(|at| rows[*at].item.group.as_ref() == Some(group))
                .collect();
            let holds = members
                .iter()
                .filter(|one| **one == at || rows[**one].in_flight);
            let gate = holds.map(|at| (rows[*at].visible_at, *at)).max();
            let visible = |at: &usize| rows[*at].visible_at <= self.now;
            let open = members.into_iter().take_while(visible).collect();
            ready.extend(gate.map(|gate| (gate, open)));
        }
        ready.retain(|((opens, _), _)| *opens <= self.now);
        ready.sort();
        ready
    }

    /// The places of what a receive brings, in order; and whether nothing can be received after it.
    fn chosen(&self, queue: usize, ask: Ask) -> (Vec<usize>, bool) {
        let mut ready = self.ready(queue);
        if ask.newest_first {
            let rows = &self.queues[queue];
            ready.sort_by_key(|((_, gate), _)| Reverse((rows[*gate].sent_at, *gate)));
        }
        let all = ready.len() < ask.max;
        ready.truncate(ask.max);
        let mut spare = match ask.groups {
            GroupShare::Spread(beyond) if ready.len() < ask.max => ask.max - ready.len() + beyond,
            _ => 0,
        };
        let sets = ready.into_iter().map(|(_, mut set)| {
            let most = match ask.groups {
                GroupShare::One => 1,
                _ if ask.newest_first => 1,
                GroupShare::Spread(_) => 1 + spare,
                GroupShare::Fill => return set,
            };
            set.truncate(most);
            spare -= set.len() - 1;
            set
        });
        let most = match ask.groups {
            GroupShare::Spread(_) => usize::MAX,
            _ => ask.max,
        };
        let chosen: Vec<usize> = sets.flatten().take(most).collect();
        let all = match ask.groups {
            GroupShare::Fill => chosen.len() < ask.max,
            _ => all,
        };
        (chosen, all)
    }

    fn receive(&mut self, queue: usize, ask: Ask) -> (Vec<(Row, ModelDelivery)>, bool) {
        let (chosen, all) = self.chosen(queue, ask);
        let now = self.now;
        let take = |at: usize| {
            let row = &mut self.queues[queue][at];
            row.count += 1;
            row.in_flight = true;
            row.received_at = now;
            row.visible_at = now + ask.visibility;
            let handed = ModelDelivery {
                queue,
                key: row.key,
                count: row.count,
            };
            (row.clone(), handed)
        };
        (chosen.into_iter().map(take).collect(), all)
    }

    fn find(&mut self, handed: ModelDelivery) -> Option<Result<usize, Said>> {
        let rows = &self.queues[handed.queue];
        let at = rows.iter().position(|row| row.key == handed.key)?;
        Some(if rows[at].count == handed.count {
            Ok(at)
        } else {
            Err(Said::Gone)
        })
    }

    fn extend(&mut self, handed: ModelDelivery, more: Duration) -> Said {
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

    fn settle(&mut self, handed: ModelDelivery, outcome: &Outcome) -> Said {
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
            Outcome::DeadLetter(reason) => {
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
                let attributes = &mut row.item.attributes;
                attributes.retain(|one| ![REASON, SOURCE].contains(&&*one.name));
                attributes.push(Attribute::text(REASON, reason));
                attributes.push(Attribute::text(SOURCE, "local:q"));
                self.queues[1].push(row);
            }
        }
        Said::Done
    }

    /// Whether this delivery was dead-lettered; remembered for as long as the dead letter is there.
    fn is_dead(&self, handed: ModelDelivery) -> bool {
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

/// One thing that is done to both.
#[derive(Debug, Clone)]
pub(super) enum QueueStep {
    Send {
        queue: usize,
        item: Outgoing,
    },
    Receive {
        queue: usize,
        max: usize,
        visibility: Duration,
        newest_first: bool,
        groups: GroupShare,
    },
    /// Of one of the deliveries so far, by its place, counted round.
    Extend {
        pick: usize,
        more: Duration,
    },
    Settle {
        pick: usize,
        outcome: Outcome,
    },
    /// Settles what no receive has delivered.
    Forge {
        queue: usize,
        receipt: String,
    },
    /// Sets the clock this many seconds forward, or back.
    Pass(i64),
}

/// The core and the model concurrently.
struct Pair<'a> {
    connection: &'a Connection,
    origins: [Origin; 2],
    model: Model,
    handed: Vec<(ModelDelivery, LocalDelivery)>,
}

/// Takes all steps; panics at the first at which the two differ.
pub(super) fn check(steps: impl IntoIterator<Item = QueueStep>) {
    let connection = in_memory();
    let origins = [("q", Some("q.dead")), ("q.dead", None)].map(|(name, dead)| Origin {
        id: queue_id(&connection, name).expect("a queue"),
        name: name.into(),
        dead_letter: dead.map(Into::into),
    });
    let mut pair = Pair {
        connection: &connection,
        origins,
        model: Model {
            now: StoreTime(1_000_000_000_000),
            ..Model::default()
        },
        handed: Vec::new(),
    };
    for step in steps {
        pair.take(step);
        let turn = Turn::new(&connection, pair.model.now);
        for (queue, origin) in pair.origins.iter().enumerate() {
            let found = depth(&turn, origin.id).expect("a depth");
            assert_eq!(found, pair.model.depth(queue));
        }
    }
}

impl Pair<'_> {
    fn take(&mut self, step: QueueStep) {
        let mut turn = Turn::new(self.connection, self.model.now);
        match step {
            QueueStep::Send { queue, item } => {
                let items = std::slice::from_ref(&item);
                let ids = send(&mut turn, self.origins[queue].id, items).expect("a send");
                let id = ids[0].clone().expect("it is small enough");
                self.model.send(queue, id, &item);
            }
            QueueStep::Receive {
                queue,
                max,
                visibility,
                newest_first,
                groups,
            } => {
                let ask = Ask {
                    max,
                    visibility,
                    wait: Duration::ZERO,
                    newest_first,
                    groups,
                    ..Ask::PLAIN
                };
                self.receive(&mut turn, queue, ask);
            }
            QueueStep::Extend { pick, more } if !self.handed.is_empty() => {
                let (hand, delivery) = self.handed[pick % self.handed.len()];
                let origin = &self.origins[hand.queue];
                let answer = extend(&mut turn, origin.id, delivery, more).expect("an answer");
                assert_eq!(result_of(&answer), self.model.extend(hand, more));
            }
            QueueStep::Settle { pick, outcome } if !self.handed.is_empty() => {
                let (hand, delivery) = self.handed[pick % self.handed.len()];
                let origin = &self.origins[hand.queue];
                let answer = settle(&mut turn, origin, delivery, &outcome).expect("an answer");
                assert_eq!(result_of(&answer), self.model.settle(hand, &outcome));
            }
            QueueStep::Forge { queue, receipt } => self.forge(&mut turn, queue, &receipt),
            QueueStep::Pass(seconds) => {
                let ms = self.model.now.0.saturating_add(seconds * 1000);
                self.model.now = StoreTime(ms);
            }
            QueueStep::Extend { .. } | QueueStep::Settle { .. } => {}
        }
    }

    /// Receives from the file and from the model; both must give the same.
    fn receive(&mut self, turn: &mut Turn<'_>, queue: usize, ask: Ask) {
        let id = self.origins[queue].id;
        let peeked = peek(turn, id, "q", ask.max).expect("a peek");
        let got = receive(turn, id, "q", ask).expect("a receive");
        let (wanted, all) = self.model.receive(queue, ask);
        assert_eq!(got.drained, all);
        assert_eq!(got.messages.len(), wanted.len());
        for (at, (message, (row, hand))) in got.messages.iter().zip(wanted).enumerate() {
            assert_eq!((&message.id, message.receive_count), (&row.id, row.count));
            assert_eq!(
                (&message.body, &message.attributes, &message.group),
                (&row.item.body, &row.item.attributes, &row.item.group)
            );
            if !ask.newest_first && ask.groups == GroupShare::One {
                assert_eq!(peeked[at].id, row.id);
            }
            let delivery = LocalDelivery::parse(&message.receipt).expect("a receipt of ours");
            self.handed.push((hand, delivery));
        }
    }

    /// A receipt that nobody was given changes nothing; one that was may be guessed.
    fn forge(&self, turn: &mut Turn<'_>, queue: usize, receipt: &str) {
        let Ok(delivery) = LocalDelivery::parse(&Receipt(receipt.to_owned())) else {
            return;
        };
        let known = |(_, handed): &&(ModelDelivery, LocalDelivery)| *handed == delivery;
        if self.handed.iter().find(known).is_none() {
            let forged = &self.origins[queue];
            let released = Outcome::Release(Duration::ZERO);
            let answer = settle(turn, forged, delivery, &released).expect("an answer");
            assert_ne!(result_of(&answer), Said::Refused);
        }
    }
}
