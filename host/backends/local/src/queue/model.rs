//! A model of the core, two lists in memory, simple enough to be plainly right, and the comparison
//! of the two step by step. The callers choose the steps.

use super::claim::receive;
use super::deliver::send;
use super::look::{depth, peek, queue_id};
use super::schema::in_memory;
use super::settle::{Origin, SettleResult, extend, settle};
use super::time::StoreTime;
use super::turn::{LocalDelivery, Turn};
use dispatcher_core::message::{Attribute, Outcome, OutgoingMessage, Receipt};
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
    item: OutgoingMessage,
    visible_at: StoreTime,
    sent_at: StoreTime,
    received_at: StoreTime,
    in_flight: bool,
    count: u32,
    moved_from: Option<(u64, u32)>,
}

impl Row {
    /// Whether it goes back to where it was sent once it is visible.
    fn is_back(&self) -> bool {
        self.in_flight && self.item.group.is_none()
    }
}

/// A delivery in the model.
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

/// The kinds of answers, without their texts.
#[derive(Debug, PartialEq, Eq)]
enum AnswerKind {
    Done,
    Gone,
    Refused,
}

fn result_of(answer: &SettleResult) -> AnswerKind {
    match answer {
        Ok(()) => AnswerKind::Done,
        Err(ItemError::Gone(_)) => AnswerKind::Gone,
        Err(_) => AnswerKind::Refused,
    }
}

impl Model {
    fn send(&mut self, queue: usize, id: String, item: &OutgoingMessage) {
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

    /// Returns the positions of the messages of each group that can be received, from its first on,
    /// and of each message without a group, with the time and the position by which these sets are
    /// ordered.
    fn ready(&self, queue: usize) -> Vec<((StoreTime, usize), Vec<usize>)> {
        let rows = &self.queues[queue];
        let mut seen = BTreeSet::new();
        let mut ready = Vec::new();
        for at in 0..rows.len() {
            let members: Vec<usize> = match &rows[at].item.group {
                None => vec![at],
                Some(group) if seen.insert(group) => (at..rows.len())
                    .filter(|at| rows[*at].item.group.as_ref() == Some(group))
                    .collect(),
                Some(_) => continue,
            };
            if rows[at].visible_at <= self.now {
                let open = members
                    .into_iter()
                    .take_while(|at| rows[*at].visible_at <= self.now);
                ready.push(((rows[at].visible_at, at), open.collect()));
            }
        }
        ready.sort();
        ready
    }

    /// Returns the first of these sets, in the order of a receive. A message without a group whose
    /// delivery ended without an answer is where it was sent.
    fn first_ready(&self, queue: usize, max: usize) -> Vec<((StoreTime, usize), Vec<usize>)> {
        let rows = &self.queues[queue];
        let ready = self.ready(queue);
        let unanswered = ready.iter().filter(|((_, at), _)| rows[*at].is_back());
        let mut first: Vec<_> = ready
            .iter()
            .take(max)
            .chain(unanswered.take(max))
            .cloned()
            .collect();
        for ((moment, at), _) in &mut first {
            if rows[*at].is_back() {
                *moment = rows[*at].sent_at;
            }
        }
        first.sort();
        first.dedup();
        first.truncate(max);
        first
    }

    /// Returns the positions of the messages that a receive brings, in order, and whether nothing
    /// can be received after them.
    fn chosen(&self, queue: usize, ask: Ask) -> (Vec<usize>, bool) {
        let ready = if ask.newest_first {
            let rows = &self.queues[queue];
            let mut ready = self.ready(queue);
            ready.sort_by_key(|((_, first), _)| Reverse((rows[*first].sent_at, *first)));
            ready.truncate(ask.max);
            ready
        } else {
            self.first_ready(queue, ask.max)
        };
        let all = ready.len() < ask.max;
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
        let taken = chosen.into_iter().map(|at| {
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
        });
        (taken.collect(), all)
    }

    fn find(&mut self, handed: ModelDelivery) -> Option<Result<usize, AnswerKind>> {
        let rows = &self.queues[handed.queue];
        let at = rows.iter().position(|row| row.key == handed.key)?;
        Some(if rows[at].count == handed.count {
            Ok(at)
        } else {
            Err(AnswerKind::Gone)
        })
    }

    fn extend(&mut self, handed: ModelDelivery, more: Duration) -> AnswerKind {
        let now = self.now;
        let at = match self.find(handed) {
            Some(Ok(at)) => at,
            _ => return AnswerKind::Gone,
        };
        let row = &mut self.queues[handed.queue][at];
        if !row.in_flight {
            AnswerKind::Gone
        } else if now + more > row.received_at + VISIBILITY_CEILING {
            AnswerKind::Refused
        } else {
            row.visible_at = now + more;
            AnswerKind::Done
        }
    }

    fn settle(&mut self, handed: ModelDelivery, outcome: &Outcome) -> AnswerKind {
        let at = match (self.find(handed), outcome) {
            (Some(Ok(at)), _) => at,
            (Some(Err(said)), _) => return said,
            (None, Outcome::Delete) => return AnswerKind::Done,
            (None, Outcome::DeadLetter(_)) if self.is_dead(handed) => return AnswerKind::Done,
            (None, _) => return AnswerKind::Gone,
        };
        let now = self.now;
        let row = &mut self.queues[handed.queue][at];
        match outcome {
            Outcome::Release(_) if !row.in_flight => return AnswerKind::Done,
            _ if !row.in_flight => return AnswerKind::Gone,
            Outcome::Release(after) => {
                row.in_flight = false;
                row.visible_at = now + *after;
            }
            Outcome::Delete => drop(self.queues[handed.queue].remove(at)),
            Outcome::DeadLetter(_) if handed.queue == 1 => return AnswerKind::Refused,
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
        AnswerKind::Done
    }

    /// Whether this delivery was dead-lettered. It is known for as long as the dead letter exists.
    fn is_dead(&self, handed: ModelDelivery) -> bool {
        let from = Some((handed.key, handed.count));
        self.queues
            .iter()
            .flatten()
            .any(|row| row.moved_from == from)
    }

    fn depth(&self, queue: usize) -> Depth {
        let (mut waiting, mut in_flight, mut delayed) = (0, 0, 0);
        let mut others = Vec::new();
        for row in &self.queues[queue] {
            let is_hidden = row.visible_at > self.now;
            if is_hidden && row.in_flight {
                in_flight += 1;
                continue;
            }
            if is_hidden {
                delayed += 1;
            } else {
                waiting += 1;
            }
            others.push(row.sent_at);
        }
        let oldest = others.into_iter().min();
        Depth {
            waiting,
            in_flight,
            delayed,
            oldest: oldest.map(|sent| self.now.since(sent)),
        }
    }
}

/// A step that is applied to both.
#[derive(Debug, Clone)]
pub(super) enum QueueStep {
    Send {
        queue: usize,
        item: OutgoingMessage,
    },
    Receive {
        queue: usize,
        max: usize,
        visibility: Duration,
        newest_first: bool,
        groups: GroupShare,
    },
    /// Extends one of the deliveries so far. `pick` is its position, modulo their number.
    Extend {
        pick: usize,
        more: Duration,
    },
    Settle {
        pick: usize,
        outcome: Outcome,
    },
    /// Settles a delivery that no receive has returned.
    Forge {
        queue: usize,
        receipt: String,
    },
    /// Sets the clock this many seconds forward, or back.
    Pass(i64),
}

/// The core and the model, side by side.
struct Pair<'a> {
    connection: &'a Connection,
    origins: [Origin; 2],
    model: Model,
    handed: Vec<(ModelDelivery, LocalDelivery)>,
}

/// Runs all steps. Panics at the first step after which the two differ.
pub(super) fn check(steps: impl IntoIterator<Item = QueueStep>) {
    check_on(&in_memory(), steps);
}

/// Runs all steps on this file.
pub(super) fn check_on(connection: &Connection, steps: impl IntoIterator<Item = QueueStep>) {
    let origins = [("q", Some("q.dead")), ("q.dead", None)].map(|(name, dead)| Origin {
        id: queue_id(connection, name).expect("a queue"),
        name: name.into(),
        dead_letter: dead.map(Into::into),
    });
    let mut pair = Pair {
        connection,
        origins,
        model: Model {
            now: StoreTime(1_000_000_000_000),
            ..Model::default()
        },
        handed: Vec::new(),
    };
    for step in steps {
        pair.take(step);
        let turn = Turn::new(connection, pair.model.now);
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

    /// Receives from the file and from the model, and compares the results.
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

    /// Settles with a receipt that no receive returned, which must change nothing. A guessed
    /// receipt that a receive did return is skipped.
    fn forge(&self, turn: &mut Turn<'_>, queue: usize, receipt: &str) {
        let Ok(delivery) = LocalDelivery::parse(&Receipt(receipt.to_owned())) else {
            return;
        };
        if self
            .handed
            .iter()
            .find(|(_, handed): &&(ModelDelivery, LocalDelivery)| *handed == delivery)
            .is_none()
        {
            let forged = &self.origins[queue];
            let released = Outcome::Release(Duration::ZERO);
            let answer = settle(turn, forged, delivery, &released).expect("an answer");
            assert_ne!(result_of(&answer), AnswerKind::Refused);
        }
    }
}
