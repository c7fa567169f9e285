//! Sending in version 0.1 of the contract, sync and async: its bindings, and the conversion to the
//! capability and back.

use super::sending::{Denied, NotDelivered, QueueCaller, sending};
use crate::capability::caller::{View, ViewOf, view};
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

impl<C: QueueCaller> types::Host for View<'_, C> {}
impl<C: QueueCaller> queues_types::Host for View<'_, C> {}

impl<C: QueueCaller> queues::Host for View<'_, C> {
    /// Suspends the guest's stack, and with it everything in the instance.
    async fn send(&mut self, queue: String, message: Outgoing) -> Result<String, SendError> {
        let message = outgoing(message);
        sending(self.0, queue, message).await.map_err(denied)
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
        let message = outgoing(message);
        let sending = accessor.with(|mut access| sending(access.get().0, queue, message));
        sending.await.map_err(denied)
    }
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
