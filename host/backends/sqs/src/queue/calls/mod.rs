//! The three calls of a message's life: ReceiveMessage, DeleteMessageBatch and
//! ChangeMessageVisibilityBatch. Knows only the types of SQS.

use super::QueueTarget;
use super::batch::EntryIds;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequestEntry, Message as SqsDelivery, MessageSystemAttributeName,
};
use dispatcher_core::message::Receipt;
use dispatcher_core::queue::QueueError;

/// The parameters of a receive.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceiveCall {
    pub max: i32,
    pub visibility_s: i32,
    pub wait_s: i32,
    /// `ReceiveRequestAttemptId`, on FIFO queues.
    pub attempt: Option<String>,
}

/// The response to a batch.
#[derive(Debug)]
pub(super) struct BatchAnswer {
    /// The ids of the entries of the call.
    pub ids: EntryIds,
    /// The ids of the successful entries.
    pub done: Vec<String>,
    pub failed: Vec<BatchResultErrorEntry>,
}

impl QueueTarget {
    pub(super) async fn receive(&self, call: ReceiveCall) -> Result<Vec<SqsDelivery>, QueueError> {
        let answer = self
            .clients
            .polls
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(call.max)
            .visibility_timeout(call.visibility_s)
            .wait_time_seconds(call.wait_s)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .set_receive_request_attempt_id(call.attempt)
            .send()
            .await
            .map_err(|error| self.call("ReceiveMessage").failed(&error))?;
        Ok(answer.messages.unwrap_or_default())
    }

    /// Deletes messages by their receipts.
    pub(super) async fn delete(&self, receipts: &[&Receipt]) -> Result<BatchAnswer, QueueError> {
        let ids = EntryIds::fresh();
        let entries = receipts.iter().enumerate().map(|(position, receipt)| {
            DeleteMessageBatchRequestEntry::builder()
                .id(ids.at(position))
                .receipt_handle(&receipt.0)
                .build()
                .expect("id and receipt are set")
        });
        let answer = self
            .clients
            .control
            .delete_message_batch()
            .queue_url(&self.url)
            .set_entries(Some(entries.collect()))
            .send()
            .await
            .map_err(|error| self.call("DeleteMessageBatch").failed(&error))?;
        let done = answer.successful.into_iter().map(|entry| entry.id);
        Ok(BatchAnswer {
            done: done.collect(),
            failed: answer.failed,
            ids,
        })
    }

    /// Sets the visibility timeout of deliveries, in seconds from now.
    pub(super) async fn change_visibility(
        &self,
        changes: &[(&Receipt, i32)],
    ) -> Result<BatchAnswer, QueueError> {
        let ids = EntryIds::fresh();
        let entries = changes
            .iter()
            .enumerate()
            .map(|(position, (receipt, seconds))| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(ids.at(position))
                    .receipt_handle(&receipt.0)
                    .visibility_timeout(*seconds)
                    .build()
                    .expect("id and receipt are set")
            });
        let answer = self
            .clients
            .control
            .change_message_visibility_batch()
            .queue_url(&self.url)
            .set_entries(Some(entries.collect()))
            .send()
            .await
            .map_err(|error| self.call("ChangeMessageVisibilityBatch").failed(&error))?;
        let done = answer.successful.into_iter().map(|entry| entry.id);
        Ok(BatchAnswer {
            done: done.collect(),
            failed: answer.failed,
            ids,
        })
    }
}

#[cfg(test)]
mod tests;
