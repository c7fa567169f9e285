//! Walks over waiting messages without receiving them, receives chosen ones, and purges the queue.

use super::super::wire::ClaimAnswer;
use super::super::{PURGED_AT_ONCE, item_errors, largest, script, wire};
use super::NativeQueue;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::{BrowseCursor, BrowsePage, PurgeStep, QueueError};
use redis::Value;
use std::time::Duration;

impl NativeQueue {
    /// Returns a page of the messages that wait after the cursor.
    pub(super) async fn list(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        let largest = largest(self.budget.as_ref());
        let mut call = script::BROWSE.key(&self.base);
        call.arg(after.map_or("", |cursor| cursor.0.as_str()))
            .arg(max.clamp(1, self.identity.batch))
            .arg(wire::CALL)
            .arg(largest);
        let _turn = self.lines.turn().await;
        let answer: Vec<Value> = self.lines.link.run(&call).await?;
        let Some((Value::BulkString(next), messages)) = answer.split_first() else {
            return Err(self.unexpected_page());
        };
        let next = String::from_utf8(next.clone()).map_err(|_| self.unexpected_page())?;
        let messages = [&[Value::Int(0)], messages].concat();
        let claimed = wire::claimed(&messages, &self.identity.name, largest);
        Ok(BrowsePage {
            messages: match claimed {
                Some(ClaimAnswer::Messages { messages, .. }) => messages,
                Some(ClaimAnswer::Nothing(_)) => Vec::new(),
                _ => return Err(self.unexpected_page()),
            },
            next: (!next.is_empty()).then_some(BrowseCursor(next)),
        })
    }

    fn unexpected_page(&self) -> QueueError {
        item_errors::unexpected_answer(self.lines.link.place(), "a page")
    }

    /// Returns the message of an id, if it waits.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Message>, QueueError> {
        let largest = largest(self.budget.as_ref());
        let mut call = script::FIND.key(&self.base);
        call.arg(id).arg(largest);
        let _turn = self.lines.turn().await;
        let answer: Vec<Value> = self.lines.link.run(&call).await?;
        match wire::claimed(&answer, &self.identity.name, largest) {
            Some(ClaimAnswer::Messages { messages, .. }) => Ok(messages.into_iter().next()),
            Some(ClaimAnswer::Nothing(_)) => Ok(None),
            _ => Err(item_errors::unexpected_answer(
                self.lines.link.place(),
                "a message",
            )),
        }
    }

    /// Returns the cursor after all messages sent until now, by the server's clock.
    pub(super) async fn end_of_list(&self) -> Result<BrowseCursor, QueueError> {
        let mut pipe = redis::pipe();
        pipe.cmd("TIME");
        let ((seconds, micros),): ((u64, u64),) = self.lines.link.pipe(&pipe).await?;
        Ok(BrowseCursor(format!(
            "w{:016}",
            seconds * 1_000_000 + micros
        )))
    }

    /// Claims those of these messages that can be received.
    pub(super) async fn take_listed(
        &self,
        listed: &[Receipt],
        visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        let ids: Vec<&str> = listed
            .iter()
            .filter_map(|receipt| wire::delivery(receipt).ok())
            .map(|(id, _)| id)
            .take(self.identity.batch)
            .collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let _turn = self.lines.turn().await;
        loop {
            let worker = self.worker.join(&self.name, &self.base).await?;
            let number = self.doubts.number();
            let largest = largest(self.budget.as_ref());
            let mut call = script::TAKE.key(&self.base);
            call.arg(&*worker)
                .arg(number)
                .arg(wire::ms(visibility))
                .arg(wire::CALL)
                .arg(largest)
                .arg(&ids);
            let answer = self
                .lines
                .link
                .run::<Vec<Value>>(&call)
                .await
                .inspect_err(|error| {
                    let this = item_errors::is_doubtful(error).then_some(number);
                    self.doubts.add(&worker, this.into_iter());
                })?;
            let messages = match wire::claimed(&answer, &self.identity.name, largest) {
                Some(ClaimAnswer::Messages { messages, .. }) => messages,
                Some(ClaimAnswer::Nothing(_)) => return Ok(Vec::new()),
                Some(ClaimAnswer::Stranger) => {
                    self.worker.lose(&worker);
                    continue;
                }
                Some(ClaimAnswer::Again | ClaimAnswer::RulesGone) | None => {
                    return Err(item_errors::unexpected_answer(
                        self.lines.link.place(),
                        "a claim",
                    ));
                }
            };
            let receipts = messages.iter().map(|message| message.receipt.clone());
            if self.worker.took(&worker, &self.base, receipts) {
                return Ok(messages);
            }
        }
    }

    /// Removes some messages that are not in flight.
    pub(super) async fn remove_some(&self) -> Result<PurgeStep, QueueError> {
        let mut call = script::PURGE.key(&self.base);
        call.arg(PURGED_AT_ONCE);
        let (removed, has_more): (u64, u8) = self.lines.link.run(&call).await?;
        Ok(PurgeStep {
            removed: Some(removed),
            has_more: has_more == 1,
        })
    }
}
