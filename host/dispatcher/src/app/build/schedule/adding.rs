//! Adds scheduled messages: directly to the queue if it supports the delay, otherwise to a store.
//! Refuses at once a message that the queue would refuse.

use super::{AddedJob, LaterError, Schedules, When};
use crate::app::build::later::{of_item, of_queue, refused};
use crate::app::build::outlet::scheduled_reach_of;
use dispatcher_config::name::QueueName;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::{Queue, send_counted, send_traced};
use dispatcher_core::schedule;

impl Schedules {
    /// Sends a message that is due at `due`, for a caller that will not list it. If the queue
    /// accepts any delay, the message goes there at once: other dispatchers support delays, and
    /// their release may look nowhere else. Otherwise this is the same as `add`.
    pub async fn send(
        &self,
        name: &QueueName,
        message: OutgoingMessage,
        due: Timestamp,
    ) -> Result<AddedJob, LaterError> {
        let queue = self.queue(name).await.map_err(|error| of_queue(&error))?;
        if !queue.facts().delays.takes_any {
            return self.add(name, message, When::At(due)).await;
        }
        let delay = due.since(clock::wall_clock_now());
        let id = self
            .hand_over(&*queue, OutgoingMessage { delay, ..message })
            .await?;
        Ok(AddedJob {
            id,
            due,
            waits: false,
        })
    }

    /// Sends a message to the queue if the queue can delay it, otherwise adds it to the store.
    pub async fn add(
        &self,
        name: &QueueName,
        message: OutgoingMessage,
        when: When,
    ) -> Result<AddedJob, LaterError> {
        let queue = self.queue(name).await.map_err(|error| of_queue(&error))?;
        let reach = scheduled_reach_of(&*queue);
        let now = clock::wall_clock_now();
        let (due, every) = match when {
            When::At(due) => (due, None),
            When::Every(every) => {
                let due = every
                    .next(now)
                    .map_err(refused)?
                    .ok_or_else(|| refused("it never fires again".into()))?;
                (due, Some(every))
            }
        };
        let delay = due.since(now);
        let waits = queue.facts().delays.listed;
        let in_reach = delay <= reach.longest_delay_of(&message);
        if every.is_none() && (delay.is_zero() || in_reach) {
            let own_id = self
                .hand_over(&*queue, OutgoingMessage { delay, ..message })
                .await?;
            let id = if waits {
                format!("{name}/{own_id}")
            } else {
                own_id
            };
            return Ok(AddedJob { id, due, waits });
        }
        let taken = queue.would_take(&message).await;
        taken.map_err(|error| of_item(&error))?;
        let store = self.store(name).await?;
        let mut job = schedule::job(&name.to_string(), due, message, every);
        if let Some(id) = store.own_id(&job) {
            job.id = id;
        }
        let added = store.add(&job).await;
        if added.map_err(|error| self.of_store(name, &error))? {
            Ok(AddedJob {
                id: format!("{name}/{}", job.id),
                due,
                waits: true,
            })
        } else {
            Err(refused(format!("job `{name}/{}` already exists", job.id)))
        }
    }

    /// Sends a message now and returns its id. A message from a handler already belongs to the
    /// handler's span.
    async fn hand_over(
        &self,
        queue: &dyn Queue,
        mut message: OutgoingMessage,
    ) -> Result<String, LaterError> {
        let (sent, tracer) = (self.backends().sent(), self.backends().tracer());
        let answers = if message.remote_context().is_some() {
            send_counted(queue, &[message], &sent).await
        } else {
            let items = std::slice::from_mut(&mut message);
            send_traced(queue, items, "schedule", &sent, &tracer).await
        };
        let id = answers
            .into_iter()
            .next()
            .ok_or_else(|| refused("the queue did not answer".into()))?;
        id.map_err(|error| of_item(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::build::Backends;
    use dispatcher_config::StoreConfig;
    use dispatcher_core::schedule::cron::Periodic;
    use dispatcher_local::queue::{LocalStore, QueueSettings};
    use std::sync::Arc;

    #[tokio::test]
    async fn job_that_its_embedded_queue_would_refuse_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = QueueSettings {
            fifo: true,
            longest: 10,
            ..QueueSettings::default()
        };
        let store = LocalStore::open(folder.path()).expect("a store");
        store.create("jobs.fifo", fifo).await.expect("a queue");
        let stores = StoreConfig {
            data: folder.path().to_owned(),
            ..StoreConfig::default()
        };
        let schedules = Schedules::new(Arc::new(Backends::new(stores)), None);
        let name: QueueName = "local:jobs.fifo".parse().expect("a name");
        let add = async |body: &str, group: Option<&str>| {
            let message = OutgoingMessage {
                body: body.into(),
                group: group.map(str::to_owned),
                ..OutgoingMessage::default()
            };
            let every = Periodic::new("@hourly", "UTC").expect("a pattern");
            schedules.add(&name, message, When::Every(every)).await
        };
        let told = add("x", None).await.expect_err("it has no group");
        assert!(told.message.contains("wanted a message group"), "{told}");
        let added = add("far too long", Some("g")).await;
        let told = added.expect_err("it is too long");
        assert!(told.message.contains("12 bytes"), "{told}");
        assert!(add("x", Some("g")).await.is_ok());
        let listed = schedules.list(Some(&name)).await.expect("a list");
        assert_eq!(listed.len(), 1);
    }
}
