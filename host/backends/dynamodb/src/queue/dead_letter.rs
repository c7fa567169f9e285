//! Copies dead letters to another table. One transaction writes the copy there and the `FAILURE`
//! here, so that neither a crash nor a lost response duplicates a dead letter.

use super::item::{self, REASON, TASK_ID};
use super::item_errors::of_item;
use super::receipt::TaskDelivery;
use super::send::{NewTask, fresh};
use super::settle::{TableEnd, end, ended_before, ending};
use super::status::FAILURE;
use super::table::Table;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    CancellationReason, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use dispatcher_aws::failure;
use dispatcher_core::clock;
use dispatcher_core::message::{Attribute, Message};
use dispatcher_core::queue::origin::{FIRST_ID, first_id};
use dispatcher_core::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, ItemError};

/// The reasons why a part of a transaction was not made: its condition did not hold, or DynamoDB
/// does not accept the item.
const UNMET: &str = "ConditionalCheckFailed";
const INVALID: &str = "ValidationError";

/// The result of an attempt to dead-letter.
enum DeadLetterResult {
    Ended(Result<(), ItemError>),
    /// The dead-letter table has another item with this id.
    IdIsTaken,
    /// The copy cannot be made, with the reason.
    Impossible(String),
}

/// Moves a delivery to another table, with the reason and its source as attributes. A task that
/// cannot be copied, for example because it would be too large, becomes a `FAILURE` in its own
/// table.
pub(super) async fn dead_letter(
    table: &Table,
    dead_letter_queue: &Table,
    delivery: &TaskDelivery,
    message: &Message,
    why: String,
) -> Result<(), ItemError> {
    let mut attributes = message.attributes.clone();
    attributes.retain(|one| one.name != DEAD_LETTER_REASON && one.name != DEAD_LETTER_SOURCE);
    attributes.push(Attribute::text(DEAD_LETTER_REASON, &why));
    attributes.push(Attribute::text(DEAD_LETTER_SOURCE, &message.source));
    let copy = NewTask {
        id: message.id.clone(),
        created: message.sent_at.unwrap_or_else(clock::wall_clock_now),
        delay: std::time::Duration::ZERO,
        life: dead_letter_queue.dead_letter_lifetime(),
        body: &message.body,
        attributes: &attributes,
    };
    let mut tried = attempt(table, dead_letter_queue, delivery, &copy, &why).await;
    if let DeadLetterResult::IdIsTaken = tried {
        // Two tables may share this dead-letter table, and producers choose the ids of their tasks.
        let id = format!("{}.{}", message.id, delivery.token);
        let mut marked = attributes.clone();
        marked.retain(|one| one.name != FIRST_ID);
        let first = first_id(message).unwrap_or(&message.id);
        marked.push(Attribute::text(FIRST_ID, first));
        let copy = NewTask {
            id,
            attributes: &marked,
            ..copy
        };
        tried = attempt(table, dead_letter_queue, delivery, &copy, &why).await;
    }
    let impossible = match tried {
        DeadLetterResult::Ended(answer) => return answer,
        DeadLetterResult::IdIsTaken => "its ids are taken there".to_owned(),
        DeadLetterResult::Impossible(words) => words,
    };
    let (queue, task, dead_letter_queue) = (&message.queue, &message.id, &dead_letter_queue.name);
    tracing::warn!(
        queue,
        task,
        to = dead_letter_queue,
        reason = impossible,
        "dead letter not copied: it stays in its table as FAILURE"
    );
    end(table, delivery, &TableEnd::Failure(why)).await
}

/// Writes the copy and ends the delivery in one transaction.
async fn attempt(
    table: &Table,
    dead_letter_queue: &Table,
    delivery: &TaskDelivery,
    copy: &NewTask<'_>,
    why: &str,
) -> DeadLetterResult {
    let mut copy = match fresh(dead_letter_queue, copy) {
        Ok(copy) => copy,
        Err(words) => return DeadLetterResult::Impossible(words),
    };
    copy.insert(REASON.to_owned(), item::text(why));
    let put = Put::builder()
        .table_name(&dead_letter_queue.name)
        .set_item(Some(copy))
        .condition_expression("attribute_not_exists(#id)")
        .expression_attribute_names("#id", TASK_ID)
        .build()
        .expect("table and item are set");
    let moved = TableEnd::Moved {
        why: why.to_owned(),
        to: dead_letter_queue.name.clone(),
    };
    let failing = failing(table, delivery, &moved);
    let sent = table
        .client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().put(put).build())
        .transact_items(TransactWriteItem::builder().update(failing).build())
        .send()
        .await;
    table.spent.wrote(None);
    match sent {
        Ok(_) => {
            dead_letter_queue.notify();
            DeadLetterResult::Ended(Ok(()))
        }
        Err(error) => sort(table, delivery, &error),
    }
}

/// Maps the error of a failed transaction to a result, by the reasons of its two parts.
fn sort(
    table: &Table,
    delivery: &TaskDelivery,
    error: &SdkError<TransactWriteItemsError>,
) -> DeadLetterResult {
    let call = table.call("TransactWriteItems");
    let reasons = reasons(error);
    let [put, update] = [0_usize, 1].map(|at| reasons.get(at).and_then(CancellationReason::code));
    match (put, update) {
        // The copy and the end are written together or not at all. So a copy of this delivery can
        // only exist if the delivery has ended.
        (_, Some(UNMET)) => {
            DeadLetterResult::Ended(ended_before(reasons[1].item(), delivery, FAILURE))
        }
        (Some(UNMET), _) => DeadLetterResult::IdIsTaken,
        (Some(INVALID), _) | (_, Some(INVALID)) => {
            let words = reasons.iter().find_map(CancellationReason::message);
            DeadLetterResult::Impossible(words.unwrap_or(INVALID).to_owned())
        }
        (Some(_), _) => DeadLetterResult::Ended(Err(ItemError::Transient(format!(
            "{call} was cancelled: {}",
            reasons
                .iter()
                .filter_map(|reason| reason.code())
                .collect::<Vec<_>>()
                .join(", ")
        )))),
        (None, _) => {
            let failed = call.failed(error);
            match failure::code(error) {
                Some("ValidationException") => DeadLetterResult::Impossible(failed.message),
                _ => DeadLetterResult::Ended(Err(of_item(failed))),
            }
        }
    }
}

fn failing(table: &Table, delivery: &TaskDelivery, outcome: &TableEnd) -> Update {
    let mut step = ending(table, delivery, outcome);
    let (names, values) = step.expression_parts(table);
    let update = Update::builder()
        .table_name(&table.name)
        .key(TASK_ID, item::text(step.task))
        .update_expression(step.update)
        .condition_expression(step.condition)
        .set_expression_attribute_names(Some(names))
        .set_expression_attribute_values(Some(values))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    update.build().expect("table, key and update are set")
}

fn reasons(error: &SdkError<TransactWriteItemsError>) -> Vec<CancellationReason> {
    match error.as_service_error() {
        Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
            cancelled.cancellation_reasons().to_vec()
        }
        _ => Vec::new(),
    }
}
