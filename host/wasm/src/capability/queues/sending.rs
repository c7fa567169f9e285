//! Grants queues to a plugin, and logs denials. Does not depend on the contract's version or on how
//! a message is sent.

use crate::capability::caller::{Grant, GrantedTo};
use crate::capability::refusals::{Denial, Refusals};
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::prefix::QueuePrefix;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::trace::{self, CallAnswer, CallStart, SpanKind, Tracer};
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The denial of a message.
const REFUSED: Denial =
    Denial::ungranted(&<Option<QueuesGrant>>::DESCRIPTION, "send to this queue");

/// The reason why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDelivered {
    /// The message is refused permanently, with the reason.
    Refused(String),
    /// A later attempt may succeed, with the reason.
    Unavailable(String),
}

/// Sends messages of plugins.
#[async_trait::async_trait]
pub trait Deliver: Send + Sync + 'static {
    /// Sends a message with a delay of any length, and returns its ID. After `Ok` the message
    /// survives a crash.
    async fn deliver(&self, queue: &str, message: OutgoingMessage) -> Result<String, NotDelivered>;
}

/// The queues that one plugin may send to.
#[derive(Clone)]
pub struct QueuesGrant {
    /// Sends the messages.
    pub deliver: Arc<dyn Deliver>,
    /// The full names of the queues. Plugins write them without the prefix.
    pub allowed: Vec<String>,
}

impl fmt::Debug for QueuesGrant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Queues({})", self.allowed.join(", "))
    }
}

/// The reason why there is no message ID.
pub(crate) enum SendDenial {
    /// The queue is not granted, explained for the plugin's author.
    Forbidden(String),
    /// The message could not be sent.
    Failed(NotDelivered),
}

/// The granted queues and the logged denials of one plugin.
#[derive(Debug)]
pub(crate) struct GrantedQueues {
    queues: QueuesGrant,
    prefix: QueuePrefix,
    refusals: Arc<Refusals>,
    control: Handle,
}

impl GrantedQueues {
    /// Creates the grant. Messages are sent on `control`, regardless of who polls the guest.
    pub(crate) fn new(
        queues: QueuesGrant,
        prefix: QueuePrefix,
        refusals: Arc<Refusals>,
        control: Handle,
    ) -> Self {
        Self {
            queues,
            prefix,
            refusals,
            control,
        }
    }

    /// Returns the full name of a queue that the guest names, if it is granted.
    fn full_name(&self, queue: &str) -> Option<String> {
        let full = self.prefix.full(queue);
        self.queues.allowed.contains(&full).then_some(full)
    }

    /// Sends a message, if the queue is granted.
    pub(crate) async fn send(
        &self,
        queue: String,
        message: OutgoingMessage,
    ) -> Result<String, SendDenial> {
        let Some(full) = self.full_name(&queue) else {
            // The guest chose the name, which may have any length. Only the truncated name is
            // logged and kept.
            let queue = self.refusals.refuse(&REFUSED, &queue);
            let why = format!(
                "the configuration does not allow this plugin to send to {queue}; {} grants it",
                REFUSED.capability.flag_for(&queue)
            );
            return Err(SendDenial::Forbidden(why));
        };
        let deliver = Arc::clone(&self.queues.deliver);
        let sending = tasks::spawn_on(&self.control, async move {
            deliver.deliver(&full, message).await
        });
        sending.finished().await.map_err(SendDenial::Failed)
    }
}

/// A caller that may be granted queues.
pub(super) trait QueueCaller: GrantedTo<Option<QueuesGrant>> {}

impl<C: GrantedTo<Option<QueuesGrant>>> QueueCaller for C {}

/// Sends a message of a guest. Does not borrow the caller while it waits.
pub(super) fn sending<C: QueueCaller>(
    caller: &C,
    queue: String,
    mut message: OutgoingMessage,
) -> impl Future<Output = Result<String, SendDenial>> + Send + use<C> {
    let granted = caller.granted().clone();
    let held = caller.hold(bytes(&message).saturating_add(2 * queue.len()));
    // A queue that is not granted may have any name, so it gets no span.
    let sent_to = match &granted {
        Some(granted) if held.is_ok() => granted.full_name(&queue),
        _ => None,
    };
    let traced = sent_to.zip(trace::active());
    let call = traced.and_then(|(full, attempt)| attempt.begin_call(|tracer| start(tracer, &full)));
    if let Some(call) = &call {
        message.trace(call.context());
    }
    async move {
        let Some(granted) = granted else {
            let why = "the configuration does not allow this plugin to send to any queue";
            return Err(SendDenial::Forbidden(why.to_owned()));
        };
        let Ok(_held) = held else {
            let why = "the plugin has too many pending messages";
            return Err(SendDenial::Failed(NotDelivered::Unavailable(
                why.to_owned(),
            )));
        };
        let sent = granted.send(queue, message).await;
        if let Some(call) = call {
            call.end(|| answer(&sent));
        }
        sent
    }
}

/// Returns the start of the span of a message that a guest sends.
fn start(tracer: &Tracer, queue: &str) -> CallStart {
    let mut attributes = tracer.destination(queue);
    attributes.extend([
        ("messaging.operation.name", "send".into()),
        ("messaging.operation.type", "send".into()),
    ]);
    CallStart {
        kind: SpanKind::Producer,
        name: format!("send {queue}"),
        attributes,
    }
}

/// Returns the end of the span.
fn answer(sent: &Result<String, SendDenial>) -> CallAnswer {
    let (attribute, failure) = match sent {
        Ok(id) => {
            // The ID of a message that can be cancelled has the queue before it.
            let id = id.rsplit('/').next().unwrap_or(id);
            (("messaging.message.id", id.to_owned().into()), None)
        }
        Err(SendDenial::Forbidden(why) | SendDenial::Failed(NotDelivered::Refused(why))) => {
            (("error.type", "refused".into()), Some(why.clone()))
        }
        Err(SendDenial::Failed(NotDelivered::Unavailable(why))) => {
            (("error.type", "transient".into()), Some(why.clone()))
        }
    };
    CallAnswer {
        attributes: vec![attribute],
        failure,
    }
}

/// Returns the host memory of a message in bytes, including the overhead of short parts.
fn bytes(message: &OutgoingMessage) -> usize {
    // Twice: for the contract's copy and the host's.
    let attributes: usize = message
        .attributes
        .iter()
        .map(|one| 2 * size_of::<Attribute>() + one.bytes())
        .sum();
    let rest = [&message.group, &message.deduplication]
        .into_iter()
        .flatten()
        .map(String::len);
    attributes + message.body.len() + rest.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::refusals::Count;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Sends nothing and says where it would have gone.
    struct NamingSender;

    #[async_trait::async_trait]
    impl Deliver for NamingSender {
        async fn deliver(&self, queue: &str, _: OutgoingMessage) -> Result<String, NotDelivered> {
            Ok(queue.to_owned())
        }
    }

    #[tokio::test]
    async fn queue_without_a_grant_is_denied_and_counted() {
        let counted = Arc::new(AtomicUsize::new(0));
        let count = counted.clone();
        let queues = QueuesGrant {
            deliver: Arc::new(NamingSender),
            allowed: vec!["local:prod-invoices".into(), "arn:aws:sqs:a:1:b".into()],
        };
        let count = Count::by(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let refusals = Arc::new(Refusals::new("tested", count));
        let prefix = QueuePrefix::new("prod-");
        let granted = GrantedQueues::new(queues, prefix, refusals, Handle::current());
        let send = async |queue: &str| {
            let message = OutgoingMessage {
                body: "x".into(),
                attributes: Vec::new(),
                delay: Duration::ZERO,
                group: None,
                ..OutgoingMessage::default()
            };
            granted.send(queue.to_owned(), message).await
        };
        for (named, full) in [
            ("local:invoices", "local:prod-invoices"),
            ("arn:aws:sqs:a:1:b", "arn:aws:sqs:a:1:b"),
        ] {
            assert!(matches!(send(named).await, Ok(queue) if queue == full));
        }
        for other in ["local:prod-invoices", "invoices", "local:*", ""] {
            let Err(SendDenial::Forbidden(why)) = send(other).await else {
                panic!("{other} is not granted");
            };
            assert!(
                why.starts_with("the configuration does not allow this plugin to send"),
                "{why}"
            );
        }
        assert_eq!(counted.load(Ordering::Relaxed), 4);
    }
}
