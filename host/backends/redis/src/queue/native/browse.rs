//! Walking over what waits without receiving it, receiving what was chosen on the way, and emptying
//! the queue.

use super::super::wire::Claimed;
use super::super::{PURGED_AT_ONCE, item_errors, largest, script, wire};
use super::NativeQueue;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::{BrowseCursor, BrowsePage, PurgeStep, QueueError};
use redis::Value;
use std::time::Duration;

impl NativeQueue {
    /// A page of what waits after the cursor.
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
        let strange = || item_errors::unexpected_answer(self.lines.link.place(), "a page");
        let Some((Value::BulkString(next), messages)) = answer.split_first() else {
            return Err(strange());
        };
        let next = String::from_utf8(next.clone()).map_err(|_| strange())?;
        let messages = [&[Value::Int(0)], messages].concat();
        let claimed = wire::claimed(&messages, &self.identity.name, largest);
        Ok(BrowsePage {
            messages: match claimed {
                Some(Claimed::Messages { messages, .. }) => messages,
                Some(Claimed::Nothing(_)) => Vec::new(),
                _ => return Err(strange()),
            },
            next: (!next.is_empty()).then_some(BrowseCursor(next)),
        })
    }

    /// The message of an id, if it waits.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Message>, QueueError> {
        let largest = largest(self.budget.as_ref());
        let mut call = script::FIND.key(&self.base);
        call.arg(id).arg(largest);
        let _turn = self.lines.turn().await;
        let answer: Vec<Value> = self.lines.link.run(&call).await?;
        match wire::claimed(&answer, &self.identity.name, largest) {
            Some(Claimed::Messages { messages, .. }) => Ok(messages.into_iter().next()),
            Some(Claimed::Nothing(_)) => Ok(None),
            _ => Err(item_errors::unexpected_answer(
                self.lines.link.place(),
                "a message",
            )),
        }
    }

    /// The cursor behind what was sent until now, by the server's clock.
    pub(super) async fn end_of_list(&self) -> Result<BrowseCursor, QueueError> {
        let mut pipe = redis::pipe();
        pipe.cmd("TIME");
        let ((seconds, micros),): ((u64, u64),) = self.lines.link.pipe(&pipe).await?;
        Ok(BrowseCursor(format!(
            "w{:016}",
            seconds * 1_000_000 + micros
        )))
    }

    /// Claims these messages, as far as they can be received.
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
            let answer = self.lines.link.run::<Vec<Value>>(&call).await;
            let answer = answer.inspect_err(|error| {
                let this = item_errors::is_doubtful(error).then_some(number);
                self.doubts.add(&worker, this.into_iter());
            })?;
            let messages = match wire::claimed(&answer, &self.identity.name, largest) {
                Some(Claimed::Messages { messages, .. }) => messages,
                Some(Claimed::Nothing(_)) => return Ok(Vec::new()),
                Some(Claimed::Stranger) => {
                    self.worker.lose(&worker);
                    continue;
                }
                None => {
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

    /// Removes some of what is not in flight.
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
