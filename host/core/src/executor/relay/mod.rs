//! A handler that sends messages to another queue. Their own queue deletes them once the attempt is
//! done, so a message is in one of both queues at any time.

use crate::clock;
use crate::files;
use crate::handler::{Attempt, Handler};
use crate::message::{DEDUPLICATION_ID, FailureReason, Message, OutgoingMessage, Verdict};
use crate::queue::{ItemError, Queue, first_failure, send_counted};
use crate::tasks;
use crate::telemetry::metrics::durations::SentMessages;
use crate::telemetry::trace::{self, CallAnswer, CallStart, SpanKind, Tracer};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The maximum duration of a call that sends messages, including retries. No call begins with less
/// time left: the attempt would end without its answer, and all its messages would be sent again.
const CALL: Duration = Duration::from_secs(20);

/// A result of sending one message.
type SendAnswer = Result<String, ItemError>;

/// A relay to one queue.
pub struct Relay {
    queue: Arc<dyn Queue>,
    sent: Arc<SentMessages>,
    control: Handle,
}

impl Relay {
    /// Creates a relay to `queue` that counts in `sent`. Messages are sent on `control`, regardless
    /// of which thread polls the attempt.
    pub fn new(queue: Arc<dyn Queue>, sent: Arc<SentMessages>, control: Handle) -> Self {
        Self {
            queue,
            sent,
            control,
        }
    }

    /// Sends messages in one call.
    async fn send(&self, mut items: Vec<OutgoingMessage>) -> Vec<SendAnswer> {
        let name = &self.queue.identity().name;
        let attempt = trace::active();
        let call = attempt
            .and_then(|attempt| attempt.begin_call(|tracer| start(tracer, name, items.len())));
        for item in &mut items {
            if let Some(call) = &call {
                item.trace(call.context());
            }
        }
        let (queue, sent) = (self.queue.clone(), self.sent.clone());
        let sending = tasks::spawn_on(&self.control, async move {
            send_counted(&*queue, &items, &sent).await
        });
        let answers = sending.finished().await;
        if let Some(call) = call {
            call.end(|| answered(&answers));
        }
        answers
    }

    fn verdict(&self, answer: SendAnswer) -> Verdict {
        let name = &self.queue.identity().name;
        match answer {
            Ok(_) => Verdict::Done,
            Err(ItemError::Refused(why)) => Verdict::Reject(format!("`{name}` refuses it: {why}")),
            Err(error) => self.not_sent(&error.to_string()),
        }
    }

    fn not_sent(&self, why: &str) -> Verdict {
        let name = &self.queue.identity().name;
        Verdict::Retry {
            after: None,
            why: FailureReason::Failed(format!("it was not sent to `{name}`: {why}")),
        }
    }

    /// Returns the places of the messages that the next call sends. Gives the messages a verdict that
    /// must not be sent any more.
    fn next(&self, attempt: &Attempt, verdicts: &mut [Option<Verdict>]) -> Vec<usize> {
        let keeps_order = self.queue.identity().ordered_groups;
        let one_by_one = keeps_order && !self.queue.facts().sends_groups_in_order;
        let is_late = attempt.deadline.left(clock::now()) < CALL;
        let (mut unsent, mut groups) = (HashSet::new(), HashSet::new());
        let mut next = Vec::new();
        for (at, message) in attempt.messages.iter().enumerate() {
            let group = if keeps_order {
                message.group.as_deref()
            } else {
                None
            };
            if verdicts[at].is_none() {
                let why = match () {
                    () if attempt.cancelled[at].is_cancelled() => Some("its lease is lost"),
                    () if is_late => Some("the attempt has no time left"),
                    () if group.is_some_and(|group| unsent.contains(group)) => {
                        Some("an earlier message of its group was not sent")
                    }
                    () => None,
                };
                verdicts[at] = why.map(|why| self.not_sent(why));
            }
            match &verdicts[at] {
                Some(Verdict::Done) => {}
                Some(_) => unsent.extend(group),
                None if next.len() == self.batch() => {}
                None => {
                    let is_first = group.is_none_or(|group| groups.insert(group));
                    next.extend((is_first || !one_by_one).then_some(at));
                }
            }
        }
        next
    }
}

#[async_trait::async_trait]
impl Handler for Relay {
    fn batch(&self) -> usize {
        self.queue.identity().batch.max(1)
    }

    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict> {
        let mut verdicts: Vec<Option<Verdict>> = vec![None; attempt.messages.len()];
        loop {
            let next = self.next(&attempt, &mut verdicts);
            if next.is_empty() {
                return verdicts.into_iter().flatten().collect();
            }
            let items = next.iter().map(|at| copy_of(&attempt.messages[*at]));
            let answers = self.send(items.collect()).await;
            for (at, answer) in next.into_iter().zip(answers) {
                verdicts[at] = Some(self.verdict(answer));
            }
        }
    }
}

/// Returns the copy of a message. Its deduplication id is the same in each attempt, so that a queue
/// that deduplicates keeps one copy.
fn copy_of(message: &Message) -> OutgoingMessage {
    let mut system = message.system_attributes.iter();
    let own = system.find(|(name, _)| name == DEDUPLICATION_ID);
    let id = own.map_or_else(
        || files::digest(format!("{} {}", message.source, message.id).as_bytes()),
        |(_, id)| id.clone(),
    );
    OutgoingMessage {
        deduplication: Some(id),
        ..message.copy_with(message.body.clone())
    }
}

/// Returns the start of the span of a call.
fn start(tracer: &Tracer, queue: &str, messages: usize) -> CallStart {
    let mut attributes = tracer.destination(queue);
    attributes.extend([
        ("messaging.operation.name", "send".into()),
        ("messaging.operation.type", "send".into()),
        ("messaging.batch.message_count", messages.into()),
    ]);
    CallStart {
        kind: SpanKind::Producer,
        name: format!("send {queue}"),
        attributes,
    }
}

/// Returns the end of the span of a call.
fn answered(answers: &[SendAnswer]) -> CallAnswer {
    let failures = answers.iter().filter_map(|answer| answer.as_ref().err());
    let failed = failures.clone().count();
    let attributes = first_failure(answers).map(|kind| {
        [
            ("dispatcher.failed_messages", failed.into()),
            ("error.type", kind.into()),
        ]
    });
    CallAnswer {
        attributes: attributes.into_iter().flatten().collect(),
        failure: failures.map(ToString::to_string).next(),
    }
}

#[cfg(test)]
mod tests;
