//! Sending by the contract, sync and async: its bindings, and the conversion to the
//! capability and back.

use super::sending::{NotDelivered, QueueCaller, SendDenial, sending};
use crate::capability::caller::{View, ViewOf, begin_call, view};
use bindings::dispatcher::plugin::queues_types::{Outgoing, SendError};
use bindings::dispatcher::plugin::types::{AttributeValue, Body};
use bindings::dispatcher::plugin::{queues, queues_async, queues_types, types};
use dispatcher_core::message;
use dispatcher_core::message::Attribute;
use std::time::Duration;
use wasmtime::component::{Accessor, Linker};

mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
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

/// Adds the sync and async interfaces to a linker. Each call checks the grant of its guest.
pub(super) fn link<C: QueueCaller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    queues::add_to_linker::<_, ViewOf<C>>(linker, view)?;
    queues_async::add_to_linker::<_, ViewOf<C>>(linker, view)
}

impl<C: QueueCaller> types::Host for View<'_, C> {}
impl<C: QueueCaller> queues_types::Host for View<'_, C> {}

impl<C: QueueCaller> queues::Host for View<'_, C> {
    /// Suspends the guest's stack and thus the whole instance.
    async fn send(&mut self, queue: String, message: Outgoing) -> Result<String, SendError> {
        let message = outgoing(message)?;
        sending(self.0, queue, message).await.map_err(denied)
    }
}

impl<C: QueueCaller> queues_async::Host for View<'_, C> {}

impl<T, C: QueueCaller> queues_async::HostWithStore<T> for ViewOf<C> {
    /// Runs concurrently with the rest of the instance.
    async fn send(
        accessor: &Accessor<T, Self>,
        queue: String,
        message: Outgoing,
    ) -> Result<String, SendError> {
        let message = outgoing(message)?;
        let sending = begin_call(accessor, |caller, _| sending(caller, queue, message));
        sending.await.map_err(denied)
    }
}

fn outgoing(message: Outgoing) -> Result<message::OutgoingMessage, SendError> {
    let body = match message.body {
        Body::Text(text) => text,
        Body::Bytes(bytes) => String::from_utf8(bytes).map_err(|_| {
            let why = "the body is not UTF-8, and queues carry text: encode it, as in base64";
            SendError::Refused(why.to_owned())
        })?,
    };
    let attributes = message.attributes.into_iter().map(|one| Attribute {
        name: one.name,
        data_type: one.data_type,
        value: match one.value {
            AttributeValue::Text(text) => message::AttributeValue::Text(text),
            AttributeValue::Binary(bytes) => message::AttributeValue::Binary(bytes),
        },
    });
    Ok(message::OutgoingMessage {
        body,
        attributes: attributes.collect(),
        delay: Duration::from_millis(message.delay),
        group: message.group,
        deduplication: message.deduplication_id,
        ..message::OutgoingMessage::default()
    })
}

fn denied(why: SendDenial) -> SendError {
    match why {
        SendDenial::Forbidden(why) => SendError::Forbidden(why),
        SendDenial::Failed(NotDelivered::Refused(why)) => SendError::Refused(why),
        SendDenial::Failed(NotDelivered::Unavailable(why)) => SendError::Unavailable(why),
    }
}
