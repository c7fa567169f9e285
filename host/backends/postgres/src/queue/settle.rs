//! Ends and extends deliveries. Each kind of ending is one statement for all its deliveries.

use super::PostgresQueue;
use super::content::of_dead_letter;
use super::receipt::{Delivery, DeliveryLists};
use crate::server::errors;
use crate::server::time::micros;
use crate::server::{Value, listener};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::message::{Message, Outcome, Receipt};
use dispatcher_core::queue::{ItemError, VISIBILITY_CEILING};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// The number of dead letters whose new ids are remembered.
const REMEMBERED: usize = 1_000;

/// The new ids of messages that were dead-lettered a moment ago.
#[derive(Debug, Default)]
pub(super) struct RecentCopies(Mutex<VecDeque<(i64, i64)>>);

impl RecentCopies {
    fn add(&self, id: i64, copy: i64) {
        let mut copies = self.0.lock();
        copies.push_back((id, copy));
        if copies.len() > REMEMBERED {
            copies.pop_front();
        }
    }

    pub(super) fn copy_of(&self, id: &str) -> Option<String> {
        let id: i64 = id.parse().ok()?;
        let copies = self.0.lock();
        let found = copies.iter().rev().find(|(one, _)| *one == id);
        found.map(|(_, copy)| copy.to_string())
    }
}

/// The deliveries of one call, by how they end. A delivery that is there twice ends once.
#[derive(Default)]
struct Endings {
    done: BTreeSet<Delivery>,
    /// The released ones, with the delay.
    released: BTreeMap<Delivery, i64>,
    /// The dead letters, with the headers to add.
    dead: BTreeMap<Delivery, String>,
}

impl PostgresQueue {
    pub(super) async fn settle_deliveries(
        &self,
        items: &[(Message, Outcome)],
    ) -> Vec<Result<(), ItemError>> {
        let mut endings = Endings::default();
        let mut deliveries = Vec::with_capacity(items.len());
        for (message, outcome) in items {
            let delivery = Delivery::read(&message.receipt);
            deliveries.push(delivery.and_then(|delivery| {
                self.add(&mut endings, delivery, message, outcome)?;
                Ok(delivery)
            }));
        }
        let (done, released, dead) = tokio::join!(
            self.finish(&endings.done),
            self.release(&endings.released),
            self.dead_letter(&endings.dead),
        );
        if !endings.released.is_empty() || items.iter().any(|(one, _)| one.group.is_some()) {
            listener::wake(&self.claims.wakes);
        }
        let ended = items.iter().zip(deliveries);
        let answers = ended.map(|((_, outcome), delivery)| {
            let ids = match outcome {
                Outcome::Delete => &done,
                Outcome::Release(_) => &released,
                Outcome::DeadLetter(_) => &dead,
            };
            answer(ids, delivery?)
        });
        answers.collect()
    }

    fn add(
        &self,
        endings: &mut Endings,
        delivery: Delivery,
        message: &Message,
        outcome: &Outcome,
    ) -> Result<(), ItemError> {
        match outcome {
            Outcome::Delete => {
                endings.done.insert(delivery);
            }
            Outcome::Release(after) => {
                endings.released.insert(delivery, micros(*after));
            }
            Outcome::DeadLetter(_) if self.dead_letter_queue.is_none() => {
                let why = format!("`{}` has no dead-letter queue", self.identity.name);
                return Err(ItemError::Refused(why));
            }
            Outcome::DeadLetter(reason) => {
                let added = of_dead_letter(message, reason);
                endings.dead.insert(delivery, added);
            }
        }
        Ok(())
    }

    async fn finish(&self, done: &BTreeSet<Delivery>) -> Result<BTreeSet<Delivery>, CallError> {
        let lists: DeliveryLists = done.iter().copied().collect();
        let rows = self.end(&self.statements.done, &lists, &[]).await?;
        Ok(rows.iter().map(delivery).collect())
    }

    async fn release(
        &self,
        released: &BTreeMap<Delivery, i64>,
    ) -> Result<BTreeSet<Delivery>, CallError> {
        let lists: DeliveryLists = released.keys().copied().collect();
        let delays: Vec<i64> = released.values().copied().collect();
        let values: [Value<'_>; 1] = [(&delays, Type::INT8_ARRAY)];
        let rows = self.end(&self.statements.release, &lists, &values).await?;
        Ok(rows.iter().map(delivery).collect())
    }

    async fn dead_letter(
        &self,
        dead: &BTreeMap<Delivery, String>,
    ) -> Result<BTreeSet<Delivery>, CallError> {
        let lists: DeliveryLists = dead.keys().copied().collect();
        let added: Vec<&str> = dead.values().map(String::as_str).collect();
        let values: [Value<'_>; 1] = [(&added, Type::TEXT_ARRAY)];
        let sql = &self.statements.dead_letter;
        let mut moved = self.end(sql, &lists, &values).await;
        if let (Err(error), Some(queue)) = (&moved, &self.dead_letter_queue)
            && error.kind == ErrorKind::NotFound
        {
            // The first dead letter creates the queue.
            super::create(&self.server, queue).await?;
            moved = self.end(sql, &lists, &values).await;
        }
        let rows = moved?;
        for row in &rows {
            self.dead_lettered.add(row.get(0), row.get("new_id"));
        }
        Ok(rows.iter().map(delivery).collect())
    }

    /// Runs a statement for deliveries, unless there are none.
    async fn end(
        &self,
        sql: &str,
        lists: &DeliveryLists,
        more: &[Value<'_>],
    ) -> Result<Vec<Row>, CallError> {
        if lists.is_empty() {
            return Ok(Vec::new());
        }
        let values = [&lists.values()[..], more].concat();
        self.server.run(sql, &values).await
    }

    pub(super) async fn extend_deliveries(
        &self,
        items: &[(Receipt, Duration)],
    ) -> Vec<Result<(), ItemError>> {
        let deliveries: Vec<_> = items.iter().map(|(one, _)| Delivery::read(one)).collect();
        let held = items.iter().zip(&deliveries);
        let extended: BTreeMap<Delivery, i64> = held
            .filter_map(|((_, time), delivery)| Some((*delivery.as_ref().ok()?, micros(*time))))
            .collect();
        let lists: DeliveryLists = extended.keys().copied().collect();
        let times: Vec<i64> = extended.values().copied().collect();
        let ceiling = micros(VISIBILITY_CEILING);
        let values: [Value<'_>; 2] = [(&times, Type::INT8_ARRAY), (&ceiling, Type::INT8)];
        let rows = self.end(&self.statements.extend, &lists, &values).await;
        let ended = rows.map(|rows| rows.iter().map(delivery).collect());
        if items.iter().any(|(_, time)| time.is_zero()) {
            listener::wake(&self.claims.wakes);
        }
        let answers = deliveries.into_iter();
        answers.map(|one| answer(&ended, one?)).collect()
    }
}

/// Reads the delivery that a statement has ended or extended.
fn delivery(row: &Row) -> Delivery {
    Delivery {
        id: row.get(0),
        count: row.get(1),
        at: row.get(2),
    }
}

/// Returns the answer for a delivery of a statement that has ended or extended these.
fn answer(
    ended: &Result<BTreeSet<Delivery>, CallError>,
    delivery: Delivery,
) -> Result<(), ItemError> {
    match ended {
        Ok(deliveries) if deliveries.contains(&delivery) => Ok(()),
        Ok(_) => {
            let why = "the message was received again, released or settled since";
            Err(ItemError::Gone(why.to_owned()))
        }
        Err(error) => Err(errors::item(error)),
    }
}
