//! Dead letters in a table of their own: the copy there and the `FAILURE` here in one transaction,
//! so that neither a crash nor a lost answer makes two of one.

use super::item::{self, REASON, STATUS, TASK_ID, UPDATED};
use super::receipt::Delivery;
use super::send::{Fresh, fresh};
use super::settle::{End, end, ended_before, ending};
use super::status::FAILURE;
use super::table::Table;
use super::trouble::of_item;
use crate::clock;
use crate::message::{Attribute, Message};
use crate::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, ItemError};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    CancellationReason, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};

/// Moves a delivery to another table, with the reason and its source as attributes.
pub(super) async fn bury(
    table: &Table,
    grave: &Table,
    delivery: &Delivery,
    message: &Message,
    why: String,
) -> Result<(), ItemError> {
    let mut attributes = message.attributes.clone();
    attributes.retain(|one| one.name != DEAD_LETTER_REASON && one.name != DEAD_LETTER_SOURCE);
    attributes.push(Attribute::text(DEAD_LETTER_REASON, &why));
    attributes.push(Attribute::text(DEAD_LETTER_SOURCE, &message.source));
    let copy = Fresh {
        id: message.id.clone(),
        created: message.sent_at.unwrap_or_else(clock::today),
        delay: std::time::Duration::ZERO,
        life: grave.life_of_the_dead(),
        body: &message.body,
        attributes: &attributes,
    };
    let mut copy = fresh(grave, &copy).map_err(ItemError::Refused)?;
    copy.insert(REASON.to_owned(), item::text(&why));
    let put = Put::builder()
        .table_name(&grave.name)
        .set_item(Some(copy))
        .condition_expression("attribute_not_exists(#id)")
        .expression_attribute_names("#id", TASK_ID)
        .build()
        .expect("table and item are set");
    let outcome = End::Failure(why);
    let sent = table
        .client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().put(put).build())
        .transact_items(
            TransactWriteItem::builder()
                .update(failing(table, delivery, &outcome))
                .build(),
        )
        .send()
        .await;
    table.spent.wrote(None);
    let error = match sent {
        Ok(_) => {
            grave.ring();
            return Ok(());
        }
        Err(error) => error,
    };
    let reasons = reasons(&error);
    let unmet = |at: usize| {
        let reason = reasons.get(at)?;
        (reason.code() == Some("ConditionalCheckFailed")).then_some(reason)
    };
    match (unmet(0), unmet(1)) {
        // Buried already; what is left is to say so here.
        (Some(_), None) => end(table, delivery, &outcome).await,
        (_, Some(reason)) => ended_before(reason.item(), delivery, FAILURE),
        (None, None) if !reasons.is_empty() => Err(ItemError::Passing(format!(
            "{} was cancelled: {}",
            table.call("TransactWriteItems"),
            reasons
                .iter()
                .filter_map(|reason| reason.code())
                .collect::<Vec<_>>()
                .join(", ")
        ))),
        (None, None) => Err(of_item(table.call("TransactWriteItems").failed(&error))),
    }
}

fn failing(table: &Table, delivery: &Delivery, outcome: &End) -> Update {
    let step = ending(table, delivery, outcome);
    let mut update = Update::builder()
        .table_name(&table.name)
        .key(TASK_ID, item::text(step.task))
        .update_expression(step.update)
        .condition_expression(step.condition)
        .expression_attribute_names("#status", STATUS)
        .expression_attribute_names("#updated", UPDATED)
        .expression_attribute_values(":date", table.dates.write(clock::today()))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    for (name, column) in step.names {
        update = update.expression_attribute_names(*name, *column);
    }
    for (name, value) in step.values {
        update = update.expression_attribute_values(name, value);
    }
    update.build().expect("table, key and update are set")
}

fn reasons(error: &SdkError<TransactWriteItemsError>) -> Vec<CancellationReason> {
    let cancelled = match error {
        SdkError::ServiceError(answer) => match answer.err() {
            TransactWriteItemsError::TransactionCanceledException(cancelled) => cancelled,
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    cancelled.cancellation_reasons().to_vec()
}
