//! `DeleteMessage`, `ChangeMessageVisibility` and their batches.

use super::attributes::is_fifo;
use super::fault::{Fault, FaultKind};
use super::input::{Batch, ReceiptInput};
use super::receiving::LONGEST_VISIBILITY_S;
use super::sending::{Outcome, batch_ids};
use super::service::Service;
use dispatcher_core::message::Receipt;
use dispatcher_local::queue::SettleRefusal;
use serde_json::{Map, Value};
use std::time::Duration;

impl Service {
    pub(super) async fn delete_message(
        &self,
        path: Option<&str>,
        asked: ReceiptInput,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let receipt = receipt(asked.receipt_handle)?;
        let ordered = is_fifo(&queue.name);
        let deleted = self
            .store
            .delete_from(queue.id, vec![receipt.clone()], ordered);
        judge(deleted.await?.first(), &receipt)?;
        Ok(Value::Null)
    }

    pub(super) async fn delete_batch(
        &self,
        path: Option<&str>,
        asked: Batch<ReceiptInput>,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let (mut outcome, good) = entries(
            "DeleteMessageBatch",
            asked.entries,
            |entry: ReceiptInput| receipt(entry.receipt_handle),
        )?;
        let receipts = good.iter().map(|(_, receipt)| receipt.clone()).collect();
        let ordered = is_fifo(&queue.name);
        let answers = self.store.delete_from(queue.id, receipts, ordered).await?;
        for ((id, receipt), answer) in good.into_iter().zip(answers) {
            record_result(&mut outcome, id, judge(Some(&answer), &receipt));
        }
        Ok(outcome.into_json())
    }

    pub(super) async fn change(
        &self,
        path: Option<&str>,
        asked: ReceiptInput,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let item = change(asked)?;
        let ordered = is_fifo(&queue.name);
        let changed = self
            .store
            .change_visibility(queue.id, vec![item.clone()], ordered);
        judge(changed.await?.first(), &item.0)?;
        Ok(Value::Null)
    }

    pub(super) async fn change_batch(
        &self,
        path: Option<&str>,
        asked: Batch<ReceiptInput>,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let action = "ChangeMessageVisibilityBatch";
        let (mut outcome, good) = entries(action, asked.entries, change)?;
        let items = good.iter().map(|(_, item)| item.clone()).collect();
        let ordered = is_fifo(&queue.name);
        let changed = self.store.change_visibility(queue.id, items, ordered);
        let answers = changed.await?;
        for ((id, item), answer) in good.into_iter().zip(answers) {
            record_result(&mut outcome, id, judge(Some(&answer), &item.0));
        }
        Ok(outcome.into_json())
    }
}

/// Returns the entries of a batch that can be tried, and an outcome with the others refused.
fn entries<T>(
    action: &str,
    entries: Option<Vec<ReceiptInput>>,
    read: impl Fn(ReceiptInput) -> Result<T, Fault>,
) -> Result<(Outcome, Vec<(String, T)>), Fault> {
    let entries = entries.unwrap_or_default();
    let ids = batch_ids(action, entries.iter().map(|entry| entry.id.as_deref()))?;
    let mut outcome = Outcome::default();
    let mut good = Vec::new();
    for (id, entry) in ids.into_iter().zip(entries) {
        match read(entry) {
            Ok(item) => good.push((id, item)),
            Err(fault) => outcome.fail(id, &fault),
        }
    }
    Ok((outcome, good))
}

fn record_result(outcome: &mut Outcome, id: String, answer: Result<(), Fault>) {
    match answer {
        Ok(()) => outcome.succeed(id, Map::new()),
        Err(fault) => outcome.fail(id, &fault),
    }
}

fn receipt(given: Option<String>) -> Result<Receipt, Fault> {
    let given = given.filter(|receipt| !receipt.is_empty());
    given
        .map(Receipt)
        .ok_or_else(|| Fault::missing("ReceiptHandle"))
}

fn change(asked: ReceiptInput) -> Result<(Receipt, Duration), Fault> {
    let receipt = receipt(asked.receipt_handle)?;
    let seconds = asked
        .visibility_timeout
        .ok_or_else(|| Fault::missing("VisibilityTimeout"))?;
    if !(0..=LONGEST_VISIBILITY_S).contains(&seconds) {
        return Err(Fault::value(
            seconds,
            "VisibilityTimeout",
            "Must be between 0 and 43200.",
        ));
    }
    Ok((receipt, Duration::from_secs(seconds.unsigned_abs())))
}

/// Converts a refusal to SQS's words, which SDKs and people look for.
fn judge(answer: Option<&Result<(), SettleRefusal>>, receipt: &Receipt) -> Result<(), Fault> {
    let Some(Err(why)) = answer else {
        return Ok(());
    };
    Err(match why {
        SettleRefusal::Unreadable => Fault::no_receipt(&receipt.0),
        SettleRefusal::Expired => Fault::value(
            &receipt.0,
            "ReceiptHandle",
            "The receipt handle has expired.",
        ),
        SettleRefusal::Vanished => Fault::value(
            &receipt.0,
            "ReceiptHandle",
            "Message does not exist or is not available for visibility timeout change.",
        ),
        SettleRefusal::Visible => Fault::new(
            FaultKind::MessageNotInflight,
            format!("The message referred to by {} is not in flight.", receipt.0),
        ),
        SettleRefusal::BeyondCeiling => Fault::new(
            FaultKind::InvalidParameterValue,
            "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
        ),
    })
}
