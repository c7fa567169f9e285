//! The target queues of scheduled messages and of messages from plugins: their limits and their
//! results. Does not decide when to send.

use super::later::LaterError;
use super::schedule::{Schedules, in_time};
use dispatcher_config::name::QueueName;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::{ItemError, Queue, send_counted};
use dispatcher_core::schedule::decide::SendLimits;
use dispatcher_core::schedule::mover::{NotSent, Outlet};
use dispatcher_wasm::capability::queues::{Deliver, NotDelivered};
use std::sync::Arc;

/// Returns the limits of an open queue.
pub fn reach_of(queue: &dyn Queue) -> SendLimits {
    let identity = queue.identity();
    let delays = queue.facts().delays;
    SendLimits {
        longest_delay: delays.longest,
        longest_delay_in_group: delays.longest_in_group,
        own_delay: queue.facts().own_delay,
        batch: identity.batch,
        ordered: identity.ordered_groups,
    }
}

/// Returns the limits of an open queue for scheduled messages.
pub fn scheduled_reach_of(queue: &dyn Queue) -> SendLimits {
    SendLimits {
        longest_delay: queue.facts().delays.longest_scheduled,
        ..reach_of(queue)
    }
}

/// Queues by name. Each is opened when it is first needed.
pub struct OpenedQueues(pub Arc<Schedules>);

#[async_trait::async_trait]
impl Outlet for OpenedQueues {
    async fn reach(&self, queue: &str) -> Result<SendLimits, String> {
        let name: QueueName = queue.parse()?;
        let open = self
            .0
            .queue(&name)
            .await
            .map_err(|error| error.to_string())?;
        Ok(scheduled_reach_of(&*open))
    }

    async fn send(&self, queue: &str, items: Vec<OutgoingMessage>) -> Vec<Result<(), NotSent>> {
        let opened = match queue.parse::<QueueName>() {
            Ok(name) => self.0.queue(&name).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        let open = match opened {
            Ok(open) => open,
            Err(why) => return vec![Err(NotSent::Transient(why)); items.len()],
        };
        let sent = self.0.backends().sent();
        let answers = send_counted(&*open, &items, &sent).await.into_iter();
        answers
            .map(|answer| match answer {
                Ok(_) => Ok(()),
                Err(ItemError::Transient(why)) => Err(NotSent::Transient(why)),
                Err(error) => Err(NotSent::Refused(error.to_string())),
            })
            .collect()
    }
}

#[async_trait::async_trait]
impl Deliver for OpenedQueues {
    async fn deliver(&self, queue: &str, message: OutgoingMessage) -> Result<String, NotDelivered> {
        let refused = NotDelivered::Refused;
        let name: QueueName = queue.parse().map_err(refused)?;
        let due = in_time(message.delay).map_err(refused)?;
        match self.0.send(&name, message, due).await {
            Ok(added) => Ok(added.id),
            Err(LaterError {
                passing: true,
                message,
            }) => Err(NotDelivered::Unavailable(message)),
            Err(LaterError { message, .. }) => Err(NotDelivered::Refused(message)),
        }
    }
}
