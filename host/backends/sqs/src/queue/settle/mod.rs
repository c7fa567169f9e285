//! Settles deliveries: deletes, releases and dead-letters, with one call for each kind in the
//! slice.

use super::batch::{BatchStep, Plan, answers};
use super::calls::BatchAnswer;
use super::entry_errors::{every_item, is_beyond_ceiling};
use super::{SqsQueue, convert, dead, send};
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Message, Outcome, Receipt};
use dispatcher_core::queue::{ItemError, QueueError};
use std::time::Duration;

/// The longest visibility timeout to request, in seconds. AWS advises to request less than 12
/// hours, since a request for one second more than is left is an error (ChangeMessageVisibility in
/// the SQS API reference).
pub(super) const SAFE_CEILING_S: u16 = 43_195;

type SettleResult = Result<(), ItemError>;

impl SqsQueue {
    /// Settles each message of the slice once. Dead letters are sent before anything is deleted, so
    /// that one call deletes their originals together with completed messages. Also returns the
    /// number of calls, each of which AWS bills.
    pub(super) async fn settle_all(
        &self,
        items: &[(Message, Outcome)],
    ) -> (Vec<SettleResult>, usize) {
        let plan = Plan::of(items);
        let (released, removed) = tokio::join!(self.release(&plan.steps), self.remove(&plan.steps));
        let calls = released.1 + removed.1;
        let (released, removed) = (released.0, removed.0);
        let results: Vec<SettleResult> = released
            .into_iter()
            .zip(removed)
            .map(|(released, removed)| {
                released
                    .or(removed)
                    .expect("every outcome either releases or removes")
            })
            .collect();
        (plan.spread(&results), calls)
    }

    /// Releases messages. Returns one result for each step that releases, `None` for the others,
    /// and the number of calls.
    async fn release(&self, steps: &[BatchStep<'_>]) -> (Vec<Option<SettleResult>>, usize) {
        let today = clock::wall_clock_now();
        let mut places = Vec::new();
        let mut changes = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            if let Outcome::Release(after) = step.outcome {
                places.push(at);
                changes.push((step.receipt(), release_s(step.message, *after, today)));
            }
        }
        let mut calls = usize::from(!changes.is_empty());
        let mut results = self.change_visibility(&changes).await;
        // The time since the receive is not always known. If the requested time is too long, half
        // of it is accepted, unless the message has been in flight for more than half of the 12
        // hours; then the message becomes visible when its current visibility timeout ends.
        let late: Vec<usize> = (0..changes.len())
            .filter(|&at| matches!(&results[at], Err(error) if is_beyond_ceiling(error)))
            .collect();
        if !late.is_empty() {
            calls += 1;
            let halves: Vec<_> = late
                .iter()
                .map(|&at| (changes[at].0, changes[at].1 / 2))
                .collect();
            for (at, answer) in late.into_iter().zip(self.change_visibility(&halves).await) {
                results[at] = answer;
            }
        }
        let mut list = vec![None; steps.len()];
        for (at, answer) in places.into_iter().zip(results) {
            list[at] = Some(answer);
        }
        (list, calls)
    }

    /// Deletes and dead-letters messages. Returns one result for each step that does, `None` for
    /// the others, and the number of calls.
    async fn remove(&self, steps: &[BatchStep<'_>]) -> (Vec<Option<SettleResult>>, usize) {
        let (mut list, sends) = self.dead_letter(steps).await;
        let places: Vec<usize> = steps
            .iter()
            .enumerate()
            .filter(|(at, step)| match step.outcome {
                Outcome::Delete => true,
                Outcome::DeadLetter(_) => matches!(list[*at], Some(Ok(()))),
                Outcome::Release(_) => false,
            })
            .map(|(at, _)| at)
            .collect();
        let receipts: Vec<&Receipt> = places.iter().map(|&at| steps[at].receipt()).collect();
        for (at, answer) in places.into_iter().zip(self.delete(&receipts).await) {
            if answer.is_ok() {
                self.dead_lettered.forget(&steps[at].message.id);
            }
            list[at] = Some(answer);
        }
        (list, sends + usize::from(!receipts.is_empty()))
    }

    /// Sends to the dead-letter queue. Returns one result for each step that dead-letters, `None`
    /// for the others, and the number of calls.
    async fn dead_letter(&self, steps: &[BatchStep<'_>]) -> (Vec<Option<SettleResult>>, usize) {
        let mut places = Vec::new();
        let mut parcels = Vec::new();
        let Some(dead_letter_queue) = &self.dead_letter else {
            let answers = steps.iter().map(|step| {
                matches!(step.outcome, Outcome::DeadLetter(_)).then(|| {
                    Err(ItemError::Refused(format!(
                        "queue `{}` has no dead-letter queue to move the message to",
                        self.identity.name
                    )))
                })
            });
            return (answers.collect(), 0);
        };
        let mut list: Vec<Option<SettleResult>> = vec![None; steps.len()];
        for (at, step) in steps.iter().enumerate() {
            if let Outcome::DeadLetter(reason) = step.outcome {
                if self.dead_lettered.contains(&step.message.id) {
                    list[at] = Some(Ok(()));
                    continue;
                }
                let (parcel, left_out) = dead::parcel(step.message, reason, dead_letter_queue);
                if !left_out.is_empty() {
                    tracing::warn!(
                        queue = self.identity.name,
                        message_id = step.message.id,
                        reason,
                        ?left_out,
                        "no space for these attributes besides the message's own; it is dead-lettered without them"
                    );
                }
                places.push(at);
                parcels.push(parcel);
            }
        }
        let (answers, calls) = send::send(dead_letter_queue, &parcels).await;
        for (at, answer) in places.into_iter().zip(answers) {
            list[at] = Some(answer.map(|copy| {
                self.dead_lettered.add(&steps[at].message.id, copy);
            }));
        }
        (list, calls)
    }

    async fn delete(&self, receipts: &[&Receipt]) -> Vec<SettleResult> {
        if receipts.is_empty() {
            return Vec::new();
        }
        answers_of(receipts.len(), self.target.delete(receipts).await)
    }

    /// Sets the visibility timeout of deliveries, in seconds from now.
    pub(super) async fn change_visibility(&self, changes: &[(&Receipt, i32)]) -> Vec<SettleResult> {
        if changes.is_empty() {
            return Vec::new();
        }
        answers_of(changes.len(), self.target.change_visibility(changes).await)
    }
}

/// Returns one result for each entry of a call.
fn answers_of(count: usize, answer: Result<BatchAnswer, QueueError>) -> Vec<SettleResult> {
    match answer {
        Ok(BatchAnswer { ids, done, failed }) => {
            let done = done.into_iter().map(|id| (id, ()));
            answers(&ids, count, done, &failed)
        }
        Err(error) => vec![Err(every_item(&error)); count],
    }
}

/// Returns the seconds for which to release a delivery: at most the rest of the 12 hours since its
/// receive. SQS reports when a message was first received, which for a first delivery is this
/// receive.
fn release_s(message: &Message, after: Duration, today: Timestamp) -> i32 {
    let held = match message.first_received_at {
        Some(received) if message.receive_count == 1 => today.since(received),
        _ => Duration::ZERO,
    };
    let left = i32::from(SAFE_CEILING_S) - convert::seconds(held, SAFE_CEILING_S);
    convert::seconds(after, SAFE_CEILING_S).min(left)
}

#[cfg(test)]
mod tests;
