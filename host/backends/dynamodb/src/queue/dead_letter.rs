//! Copies dead letters to another table: the copy there and the `FAILURE` here in one transaction,
//! so that neither a crash nor a lost answer duplicates one.

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
use dispatcher_core::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, ItemError};

/// Why a part of a transaction was not made: its condition did not hold, or DynamoDB takes no such
/// item.
const UNMET: &str = "ConditionalCheckFailed";
const INVALID: &str = "ValidationError";

/// What came of a try to dead-letter.
enum Tried {
    Ended(Result<(), ItemError>),
    /// The dead-letter table has an item of that id, which is none of this delivery.
    IdIsTaken,
    /// There can be no such copy: why.
    Impossible(String),
}

/// Moves a delivery to another table, with the reason and its source as attributes. What cannot be
/// copied there, since it would be too large, becomes a `FAILURE` where it is.
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
    let mut copy = NewTask {
        id: message.id.clone(),
        created: message.sent_at.unwrap_or_else(clock::wall_clock_now),
        delay: std::time::Duration::ZERO,
        life: dead_letter_queue.dead_letter_lifetime(),
        body: &message.body,
        attributes: &attributes,
    };
    let mut tried = attempt(table, dead_letter_queue, delivery, &copy, &why).await;
    if let Tried::IdIsTaken = tried {
        // Two tables may share this one, and the ids of tasks are their producers' own.
        copy.id = format!("{}.{}", message.id, delivery.token);
        tried = attempt(table, dead_letter_queue, delivery, &copy, &why).await;
    }
    let impossible = match tried {
        Tried::Ended(answer) => return answer,
        Tried::IdIsTaken => "its ids are taken there".to_owned(),
        Tried::Impossible(words) => words,
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

/// The copy and the end of the delivery in one transaction.
async fn attempt(
    table: &Table,
    dead_letter_queue: &Table,
    delivery: &TaskDelivery,
    copy: &NewTask<'_>,
    why: &str,
) -> Tried {
    let mut copy = match fresh(dead_letter_queue, copy) {
        Ok(copy) => copy,
        Err(words) => return Tried::Impossible(words),
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
            Tried::Ended(Ok(()))
        }
        Err(error) => sort(table, delivery, &error),
    }
}

/// What a transaction that was not made says about its two parts.
fn sort(
    table: &Table,
    delivery: &TaskDelivery,
    error: &SdkError<TransactWriteItemsError>,
) -> Tried {
    let call = table.call("TransactWriteItems");
    let reasons = reasons(error);
    let code = |at: usize| reasons.get(at).and_then(CancellationReason::code);
    match (code(0), code(1)) {
        // Copy and end are made together or not at all. So a copy of this delivery may be there
        // only if the delivery has ended.
        (_, Some(UNMET)) => Tried::Ended(ended_before(reasons[1].item(), delivery, FAILURE)),
        (Some(UNMET), _) => Tried::IdIsTaken,
        (Some(INVALID), _) | (_, Some(INVALID)) => {
            let words = reasons.iter().find_map(CancellationReason::message);
            Tried::Impossible(words.unwrap_or(INVALID).to_owned())
        }
        (Some(_), _) => Tried::Ended(Err(ItemError::Transient(format!(
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
                Some("ValidationException") => Tried::Impossible(failed.message),
                _ => Tried::Ended(Err(of_item(failed))),
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
