//! Sends messages that an application enqueues through the admin API: in batches if the queue
//! accepts them now, otherwise through its schedule.

use super::QueueMessages;
use super::known::SendTarget;
use crate::app::build::outlet::reach_of;
use crate::app::build::schedule::{AddedJob, LaterError, When, in_time};
use crate::app::operations::{PATIENCE, backend_failed, within};
use dispatcher_config::name::QueueName;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::{ErrorKind, ItemError, Queue, send_traced};
use dispatcher_operate::problem::CallProblem;
use dispatcher_operate::verbs::send::{MessageOrder, SendReport, SendTime, SentView};
use std::sync::Arc;
use std::time::Duration;

/// The time limit of one request. Messages that are not sent by then are not tried.
const LONGEST: Duration = Duration::from_secs(20);

impl QueueMessages {
    /// Sends messages in order, and returns the result of each. Messages that were not tried,
    /// because of the time limit, a stop, or an earlier batch that the queue did not answer, can be
    /// sent again by the caller.
    pub(super) async fn send_all(
        &self,
        queue: &str,
        orders: Vec<MessageOrder>,
    ) -> Result<SendReport, CallProblem> {
        let SendTarget { name, is_made } = self.known.sends_to(queue)?;
        let open = self.open_to_send(&name, is_made).await?;
        let deduplicates =
            open.identity().deduplicates && orders.iter().all(|order| order.time.is_none());
        let until = clock::now() + LONGEST;
        let wanted = orders.len();
        let mut items = Vec::with_capacity(wanted);
        for step in steps(&*open, orders) {
            if let Some(why) = self.why_not(&items, until) {
                let rest = wanted - items.len();
                items.extend(
                    std::iter::repeat_with(|| failed(format!("not tried: {why}"), true)).take(rest),
                );
                break;
            }
            match step {
                SendStep::Batch(batch) => items.extend(self.send_batch(&*open, batch).await),
                SendStep::Later(message, time) => {
                    items.push(self.schedule(&name, *message, time).await);
                }
            }
        }
        let sent = items.iter().filter(|item| item.error.is_none()).count();
        Ok(SendReport {
            queue: queue.to_owned(),
            sent: sent.into(),
            failed: (items.len() - sent).into(),
            deduplicates,
            items,
        })
    }

    /// Opens the target queue, and creates it if that is permitted.
    async fn open_to_send(
        &self,
        name: &QueueName,
        is_made: bool,
    ) -> Result<Arc<dyn Queue>, CallProblem> {
        if is_made {
            let opened = within(PATIENCE, self.schedules.queue(name)).await?;
            return opened.map_err(|error| backend_failed(&error));
        }
        // Opened each time, because it may have been deleted since.
        let opened = within(PATIENCE, self.backends.open_existing(name)).await?;
        opened.map_err(|error| match error.kind {
            ErrorKind::NotFound => CallProblem::not_found(format!(
                "Nothing was sent: there is no queue `{name}`. Create it with CreateQueue, or \
                 declare it by a section [queue.NAME]."
            )),
            _ => backend_failed(&error),
        })
    }

    /// Returns the reason why no further message is tried, if there is one.
    fn why_not(&self, items: &[SentView], until: BootInstant) -> Option<String> {
        if self.stop.is_cancelled() {
            return Some("the process is stopping".to_owned());
        }
        if clock::now() >= until {
            return Some(format!("the request took longer than {LONGEST:?}"));
        }
        let is_silent = items.last().is_some_and(|last| last.retryable);
        is_silent.then(|| "the queue did not accept the message before it".to_owned())
    }

    async fn send_batch(
        &self,
        queue: &dyn Queue,
        mut batch: Vec<OutgoingMessage>,
    ) -> Vec<SentView> {
        let (sent, tracer) = (self.backends.sent(), self.backends.tracer());
        let answers = send_traced(queue, &mut batch, "api", &sent, &tracer)
            .await
            .into_iter()
            .chain(std::iter::repeat_with(|| {
                Err(ItemError::Transient(
                    "the queue's answer did not contain it".to_owned(),
                ))
            }));
        answers
            .take(batch.len())
            .map(|answer| match answer {
                Ok(id) => SentView {
                    id: Some(id),
                    due: None,
                    error: None,
                    retryable: false,
                },
                Err(error) => failed(error.to_string(), matches!(error, ItemError::Transient(_))),
            })
            .collect()
    }

    async fn schedule(
        &self,
        name: &QueueName,
        message: OutgoingMessage,
        time: SendTime,
    ) -> SentView {
        let when = match time {
            SendTime::After(delay) => match in_time(delay) {
                Ok(due) => When::At(due),
                Err(found) => return failed(found, false),
            },
            SendTime::At(due) => When::At(due),
            SendTime::Every(every) => When::Every(every),
        };
        match self.schedules.add(name, message, when).await {
            Ok(AddedJob { id, due, .. }) => SentView {
                id: Some(id),
                due: Some(due.to_string()),
                error: None,
                retryable: false,
            },
            Err(LaterError { passing, message }) => failed(message, passing),
        }
    }
}

/// The messages of one call.
enum SendStep {
    /// Messages that are sent now.
    Batch(Vec<OutgoingMessage>),
    /// A message for later.
    Later(Box<OutgoingMessage>, SendTime),
}

/// Returns the calls that send these messages in order.
fn steps(queue: &dyn Queue, orders: Vec<MessageOrder>) -> Vec<SendStep> {
    let reach = reach_of(queue);
    let most = queue.identity().batch.max(1);
    let mut steps = Vec::new();
    for MessageOrder { mut message, time } in orders {
        match time {
            Some(SendTime::After(delay))
                if delay <= reach.longest_delay_of(&message) && in_time(delay).is_ok() =>
            {
                message.delay = delay;
            }
            Some(time) => {
                steps.push(SendStep::Later(Box::new(message), time));
                continue;
            }
            None => {}
        }
        match steps.last_mut() {
            Some(SendStep::Batch(batch)) if batch.len() < most => batch.push(message),
            _ => steps.push(SendStep::Batch(vec![message])),
        }
    }
    steps
}

/// Returns the result of a message that was not sent.
fn failed(error: String, retryable: bool) -> SentView {
    SentView {
        id: None,
        due: None,
        error: Some(error),
        retryable,
    }
}
