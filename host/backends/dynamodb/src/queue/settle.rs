//! Extends and settles deliveries with conditional steps that require the fence token and never
//! check a time.

use super::item::{self, EXPIRES, MOVED, NOT_BEFORE, REASON, STATUS, TOKEN, TTL, TaskItem, UNTIL};
use super::item_errors::of_item;
use super::receipt::TaskDelivery;
use super::status::{self, FAILURE, PENDING, SUCCESS, TAKEN};
use super::table::{ConditionalRemoval, ConditionalStep, StepResult, Table, side_by_side};
use super::{Completion, DynamoQueue};
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Message, Outcome, Receipt};
use dispatcher_core::queue::{ErrorKind, ItemError, VISIBILITY_CEILING};
use std::time::Duration;

type SettleResult = Result<(), ItemError>;

/// The condition that a delivery still holds its task. If the sample has taken the task since, it
/// has no lease.
const HELD: &str = "begins_with(#status, :held) AND #token = :token AND attribute_exists(#until)";
/// The names of the columns of a lease.
pub(super) const LEASE: &[(&str, &str)] = &[("#token", TOKEN), ("#until", UNTIL)];

/// The end of a delivery that is `TAKEN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TableEnd {
    Success,
    Failure(String),
    /// `FAILURE`, with a copy in this table.
    Moved {
        why: String,
        to: String,
    },
    Pending(Duration),
}

impl TableEnd {
    fn status(&self) -> &'static str {
        match self {
            Self::Success => SUCCESS,
            Self::Failure(_) | Self::Moved { .. } => FAILURE,
            Self::Pending(_) => PENDING,
        }
    }
}

impl DynamoQueue {
    /// Extends each lease to this duration from now; a zero duration releases the task.
    pub(super) async fn extend_all(&self, items: &[(Receipt, Duration)]) -> Vec<SettleResult> {
        let futures = items.iter().cloned().map(|(receipt, more)| {
            let table = self.table.clone();
            async move {
                let delivery = TaskDelivery::parse(&receipt)?;
                if more.is_zero() {
                    return end(&table, &delivery, &TableEnd::Pending(Duration::ZERO)).await;
                }
                let step = extension(&delivery, TAKEN, more)?;
                match table.step(step).await.map_err(of_item)? {
                    StepResult::Done(_) => Ok(()),
                    StepResult::Not(found) => Err(gone(found.as_ref())),
                }
            }
        });
        side_by_side(futures.collect()).await
    }

    /// Settles each delivery of the slice once. If a delivery has several outcomes, the most final
    /// one applies.
    pub(super) async fn settle_all(&self, items: &[(Message, Outcome)]) -> Vec<SettleResult> {
        let mut chosen: Vec<(&Message, &Outcome)> = Vec::new();
        let mut places = Vec::new();
        for (message, outcome) in items {
            let known = chosen
                .iter()
                .position(|(other, _)| other.receipt == message.receipt);
            match known {
                None => {
                    places.push(chosen.len());
                    chosen.push((message, outcome));
                }
                Some(at) => {
                    places.push(at);
                    if finality(outcome) > finality(chosen[at].1) {
                        chosen[at].1 = outcome;
                    }
                }
            }
        }
        let futures = chosen.into_iter().map(|(message, outcome)| {
            let (table, dead_letter_queue) = (self.table.clone(), self.dead_letter_queue.clone());
            let (message, outcome) = (message.clone(), outcome.clone());
            async move {
                let delivery = TaskDelivery::parse(&message.receipt)?;
                match (outcome, dead_letter_queue) {
                    (Outcome::Delete, _) => complete(&table, &delivery).await,
                    (Outcome::Release(after), _) => {
                        end(&table, &delivery, &TableEnd::Pending(after)).await
                    }
                    (Outcome::DeadLetter(why), None) => {
                        end(&table, &delivery, &TableEnd::Failure(why)).await
                    }
                    (Outcome::DeadLetter(why), Some(dead_letter_queue)) => {
                        super::dead_letter::dead_letter(
                            &table,
                            &dead_letter_queue,
                            &delivery,
                            &message,
                            why,
                        )
                        .await
                    }
                }
            }
        });
        let answers = side_by_side(futures.collect()).await;
        places.into_iter().map(|at| answers[at].clone()).collect()
    }
}

fn finality(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Release(_) => 0,
        Outcome::DeadLetter(_) => 1,
        Outcome::Delete => 2,
    }
}

/// Returns the values for the condition [`HELD`].
fn held_values(delivery: &TaskDelivery, status: &str) -> Vec<(&'static str, AttributeValue)> {
    vec![
        (":held", item::text(status)),
        (":token", item::text(delivery.token.clone())),
    ]
}

/// Returns a step that requires that the delivery still holds its task in this status.
pub(super) fn held(
    delivery: &TaskDelivery,
    status: &str,
    update: &'static str,
    names: &'static [(&'static str, &'static str)],
    more: Vec<(&'static str, AttributeValue)>,
) -> ConditionalStep {
    let mut values = held_values(delivery, status);
    values.extend(more);
    ConditionalStep {
        task: delivery.task.clone(),
        update,
        condition: HELD,
        names,
        values,
    }
}

/// Returns the step that extends a lease to this duration from now.
pub(super) fn extension(
    delivery: &TaskDelivery,
    status: &str,
    more: Duration,
) -> Result<ConditionalStep, ItemError> {
    let until = clock::wall_clock_now() + more;
    if until > delivery.taken + VISIBILITY_CEILING {
        return Err(ItemError::Refused(format!(
            "{more:?} more would keep the message invisible beyond {} h after its receive",
            VISIBILITY_CEILING.as_secs() / 3600
        )));
    }
    let update = "SET #until = :until, #updated = :date";
    let until = vec![(":until", item::number(until.0))];
    Ok(held(delivery, status, update, LEASE, until))
}

/// Returns the step that ends a delivery.
pub(super) fn ending(table: &Table, delivery: &TaskDelivery, end: &TableEnd) -> ConditionalStep {
    let to = item::text(table.shards.key(end.status(), &delivery.task));
    match end {
        TableEnd::Success => held(
            delivery,
            TAKEN,
            "SET #status = :to, #updated = :date REMOVE #until",
            LEASE,
            vec![(":to", to)],
        ),
        TableEnd::Failure(why) => held(
            delivery,
            TAKEN,
            "SET #status = :to, #updated = :date, #reason = :why, #ttl = :end \
             REMOVE #until, #expires",
            &[
                ("#token", TOKEN),
                ("#until", UNTIL),
                ("#reason", REASON),
                ("#ttl", TTL),
                ("#expires", EXPIRES),
            ],
            vec![
                (":to", to),
                (":why", item::text(why)),
                (":end", life_ends(table)),
            ],
        ),
        TableEnd::Moved { why, to: copied } => held(
            delivery,
            TAKEN,
            "SET #status = :to, #updated = :date, #reason = :why, #ttl = :end, #moved = :moved \
             REMOVE #until, #expires",
            &[
                ("#token", TOKEN),
                ("#until", UNTIL),
                ("#reason", REASON),
                ("#ttl", TTL),
                ("#moved", MOVED),
                ("#expires", EXPIRES),
            ],
            vec![
                (":to", to),
                (":why", item::text(why)),
                (":moved", item::text(copied)),
                (":end", life_ends(table)),
            ],
        ),
        TableEnd::Pending(Duration::ZERO) => held(
            delivery,
            TAKEN,
            "SET #status = :to, #updated = :date REMOVE #until",
            LEASE,
            vec![(":to", to)],
        ),
        TableEnd::Pending(after) => held(
            delivery,
            TAKEN,
            "SET #status = :to, #updated = :date, #not_before = :at REMOVE #until",
            &[
                ("#token", TOKEN),
                ("#until", UNTIL),
                ("#not_before", NOT_BEFORE),
            ],
            vec![(":to", to), (":at", item::number(due(*after).0))],
        ),
    }
}

/// Returns the `ttl` of a task that becomes a dead letter now.
fn life_ends(table: &Table) -> AttributeValue {
    item::number(item::ttl(due(table.dead_letter_lifetime())))
}

fn due(after: Duration) -> Timestamp {
    clock::wall_clock_now() + after
}

/// Ends a delivery if it still holds its task. Succeeds also if it already ended in this way.
pub(super) async fn end(table: &Table, delivery: &TaskDelivery, end: &TableEnd) -> SettleResult {
    match table.step(ending(table, delivery, end)).await {
        Ok(StepResult::Done(_)) => {
            if matches!(end, TableEnd::Pending(_)) {
                table.recent.forget(&delivery.task);
                table.notify();
            }
            Ok(())
        }
        Ok(StepResult::Not(found)) => ended_before(found.as_ref(), delivery, end.status()),
        Err(error) => match end {
            // The item may have no room left for the reason.
            TableEnd::Failure(why) if error.kind == ErrorKind::Invalid && !why.is_empty() => {
                let (queue, task) = (&table.reading.queue, &delivery.task);
                tracing::warn!(queue, task, why, %error, "task becomes FAILURE without its reason");
                Box::pin(self::end(
                    table,
                    delivery,
                    &TableEnd::Failure(String::new()),
                ))
                .await
            }
            _ => Err(of_item(error)),
        },
    }
}

/// Ends a delivery whose task succeeded.
async fn complete(table: &Table, delivery: &TaskDelivery) -> SettleResult {
    match table.completed {
        Completion::Keep => end(table, delivery, &TableEnd::Success).await,
        Completion::Delete => remove_held(table, delivery, TAKEN).await,
    }
}

/// Removes a task that this delivery holds in this status. A missing task counts as removed: the
/// response to the first call may have been lost, and no record is left to distinguish the cases.
pub(super) async fn remove_held(
    table: &Table,
    delivery: &TaskDelivery,
    status: &str,
) -> SettleResult {
    let removal = ConditionalRemoval {
        task: &delivery.task,
        condition: HELD,
        names: LEASE,
        values: held_values(delivery, status),
    };
    match table.remove(removal).await.map_err(of_item)? {
        StepResult::Done(_) | StepResult::Not(None) => Ok(()),
        StepResult::Not(found) => Err(gone(found.as_ref())),
    }
}

/// Succeeds if this delivery already ended in this status: the response to the first call was lost.
pub(super) fn ended_before(
    found: Option<&TaskItem>,
    delivery: &TaskDelivery,
    status: &str,
) -> SettleResult {
    let same = found.is_some_and(|item| {
        let is_so = item::string(item, STATUS).is_some_and(|key| status::is(key, status));
        is_so && item::string(item, TOKEN) == Some(&delivery.token)
    });
    if same { Ok(()) } else { Err(gone(found)) }
}

/// Returns the error for a delivery that no longer holds its task.
pub(super) fn gone(found: Option<&TaskItem>) -> ItemError {
    ItemError::Gone(match found.and_then(|item| item::string(item, STATUS)) {
        None => "there is no such task any more".into(),
        Some(status) => format!("the task is {status} now, and not by this delivery"),
    })
}
