//! The queues that scheduled messages and the messages of plugins go to: what each takes, and how it
//! answers. Decides nothing about when.

use super::later::LaterError;
use super::schedule::{Schedules, in_time};
use crate::name::{Backend, QueueName};
use dispatcher_core::message::Outgoing;
use dispatcher_core::queue::{ItemError, Queue};
use dispatcher_core::schedule::decide::{AHEAD, SendLimits};
use dispatcher_core::schedule::mover::{NotSent, Outlet};
use dispatcher_wasm::capability::queues::{Deliver, NotDelivered};
use std::sync::Arc;
use std::time::Duration;

/// How often a store is looked at that costs little to look at: the embedded queues', and Redis.
pub const LOOK: Duration = Duration::from_secs(1);

/// What an open queue takes. Of SQS: 15 minutes, and nothing on FIFO queues (SendMessage in the SQS
/// API reference). What waits for its time in the embedded queue or on Redis holds up the rest of its
/// group.
pub fn reach_of(name: &QueueName, queue: &dyn Queue) -> SendLimits {
    let identity = queue.identity();
    let longest_delay = match name.backend {
        Backend::Sqs if identity.ordered_groups => Duration::ZERO,
        Backend::Sqs => AHEAD,
        Backend::Local | Backend::Redis | Backend::DynamoDb => Duration::MAX,
    };
    SendLimits {
        longest_delay,
        longest_delay_in_group: match name.backend {
            Backend::Local | Backend::Redis => Duration::ZERO,
            Backend::Sqs | Backend::DynamoDb => longest_delay,
        },
        own_delay: queue.own_delay(),
        batch: identity.batch,
        ordered: identity.ordered_groups,
    }
}

/// What an open queue takes of what is scheduled. A queue on Redis delays by any time, but what waits
/// in it cannot be listed: it gets what is due within the next two looks.
pub fn scheduled_reach_of(name: &QueueName, queue: &dyn Queue) -> SendLimits {
    let reach = reach_of(name, queue);
    let longest_delay = match name.backend {
        // Those that keep no order of groups are npm `worqr`'s, which knows no delays.
        Backend::Redis if !reach.ordered => Duration::ZERO,
        Backend::Redis => LOOK * 2,
        Backend::Sqs | Backend::Local | Backend::DynamoDb => reach.longest_delay,
    };
    SendLimits {
        longest_delay,
        ..reach
    }
}

/// Queues by name, opened when they are first needed.
pub struct Queues(pub Arc<Schedules>);

#[async_trait::async_trait]
impl Outlet for Queues {
    async fn reach(&self, queue: &str) -> Result<SendLimits, String> {
        let name: QueueName = queue.parse()?;
        let open = self.0.queue(&name).await;
        let open = open.map_err(|error| error.to_string())?;
        Ok(scheduled_reach_of(&name, &*open))
    }

    async fn send(&self, queue: &str, items: Vec<Outgoing>) -> Vec<Result<(), NotSent>> {
        let passing = |why: String| vec![Err(NotSent::Passing(why)); items.len()];
        let name = match queue.parse::<QueueName>() {
            Ok(name) => name,
            Err(why) => return passing(why),
        };
        let open = match self.0.queue(&name).await {
            Ok(open) => open,
            Err(error) => return passing(error.to_string()),
        };
        let answers = open.send(&items).await.into_iter();
        answers
            .map(|answer| match answer {
                Ok(_) => Ok(()),
                Err(ItemError::Passing(why)) => Err(NotSent::Passing(why)),
                Err(error) => Err(NotSent::Refused(error.to_string())),
            })
            .collect()
    }
}

#[async_trait::async_trait]
impl Deliver for Queues {
    async fn deliver(&self, queue: &str, message: Outgoing) -> Result<String, NotDelivered> {
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
