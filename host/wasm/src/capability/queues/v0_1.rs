//! Sending in version 0.1 of the contract, sync and async: its bindings, and the conversion to the
//! capability and back.

use super::sending::{Denied, NotDelivered, QueuesGrant};
use crate::capability::caller::{GrantedTo, View, ViewOf, view};
use bindings::dispatcher::plugin::queues_types::{Outgoing, SendError};
use bindings::dispatcher::plugin::{queues, queues_async, queues_types, types};
use dispatcher_core::message;
use dispatcher_core::message::{Attribute, AttributeValue};
use std::time::Duration;
use wasmtime::component::{Accessor, Linker};

mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package dispatcher:host;
            world senders {
                import dispatcher:plugin/queues@0.1.0;
                import dispatcher:plugin/queues-async@0.1.0;
            }
        ",
        world: "dispatcher:host/senders",
        imports: { default: async | tracing | verbose_tracing },
    });
}

/// Adds both flavours to a linker. What is granted is the guest's to know.
pub(super) fn link<C: QueueCaller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    queues::add_to_linker::<_, ViewOf<C>>(linker, view)?;
    queues_async::add_to_linker::<_, ViewOf<C>>(linker, view)
}

/// A caller that may be granted queues.
pub(super) trait QueueCaller: GrantedTo<Option<QueuesGrant>> {}

impl<C: GrantedTo<Option<QueuesGrant>>> QueueCaller for C {}

impl<C: QueueCaller> types::Host for View<'_, C> {}
impl<C: QueueCaller> queues_types::Host for View<'_, C> {}

impl<C: QueueCaller> queues::Host for View<'_, C> {
    /// Suspends the guest's stack, and with it everything in the instance.
    async fn send(&mut self, queue: String, message: Outgoing) -> Result<String, SendError> {
        sending(self.0, queue, message).await
    }
}

impl<C: QueueCaller> queues_async::Host for View<'_, C> {}

impl<T, C: QueueCaller> queues_async::HostWithStore<T> for ViewOf<C> {
    /// Runs beside whatever else the instance does.
    async fn send(
        accessor: &Accessor<T, Self>,
        queue: String,
        message: Outgoing,
    ) -> Result<String, SendError> {
        let sending = accessor.with(|mut access| sending(access.get().0, queue, message));
        sending.await
    }
}

/// Holds nothing of the caller while it waits.
fn sending<C: QueueCaller>(
    caller: &C,
    queue: String,
    message: Outgoing,
) -> impl Future<Output = Result<String, SendError>> + Send + use<C> {
    let granted = caller.granted().clone();
    let held = caller.hold(bytes(&message).saturating_add(queue.len()));
    async move {
        let Some(granted) = granted else {
            let why = "the configuration does not allow this plugin to send to any queue";
            return Err(SendError::Forbidden(why.to_owned()));
        };
        let Ok(_held) = held else {
            let why = "the plugin has too many pending messages";
            return Err(SendError::Unavailable(why.to_owned()));
        };
        let sent = granted.send(queue, outgoing(message)).await;
        sent.map_err(denied)
    }
}

/// The host memory of a message, however short its parts are.
fn bytes(message: &Outgoing) -> usize {
    let attributes = message.attributes.iter().map(|one| {
        let value = match &one.value {
            types::AttributeValue::Text(text) => text.len(),
            types::AttributeValue::Binary(bytes) => bytes.len(),
        };
        // Twice: the contract's and ours.
        2 * size_of_val(one) + one.name.len() + one.data_type.len() + value
    });
    let group = message.group.as_ref().map_or(0, String::len);
    attributes.sum::<usize>() + message.body.len() + group
}

fn outgoing(message: Outgoing) -> message::Outgoing {
    let attributes = message.attributes.into_iter().map(|one| Attribute {
        name: one.name,
        data_type: one.data_type,
        value: match one.value {
            types::AttributeValue::Text(text) => AttributeValue::Text(text),
            types::AttributeValue::Binary(bytes) => AttributeValue::Binary(bytes),
        },
    });
    message::Outgoing {
        body: message.body,
        attributes: attributes.collect(),
        delay: Duration::from_millis(message.delay),
        group: message.group,
        ..message::Outgoing::default()
    }
}

fn denied(why: Denied) -> SendError {
    match why {
        Denied::Forbidden(why) => SendError::Forbidden(why),
        Denied::Failed(NotDelivered::Refused(why)) => SendError::Refused(why),
        Denied::Failed(NotDelivered::Unavailable(why)) => SendError::Unavailable(why),
    }
}
