//! Concurrent calls in one instance: a call that is started here and awaited elsewhere. It outlives
//! every borrow, so its messages are copied until the guest has them.

use super::{BATCH_HANDLER, HANDLER, sort_out, types, verdict};
use crate::guest::Guest;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message;
use dispatcher_core::message::Verdict;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Accessor, ComponentType, GuestTaskId, InstancePre, Lower, TypedFunc, TypedFuncCallConcurrent,
};
use wasmtime::{AsContextMut, Engine, Store};

type SingleAnswer = (Result<(), types::Failure>,);
type BatchAnswer = (Result<Vec<types::Failed>, types::Failure>,);

/// A plugin whose instances take many attempts at once.
#[derive(Clone)]
pub(crate) struct ManyPre(InstancePre<Guest>);

/// The export of one instance.
#[derive(Clone, Copy)]
pub(crate) enum Many {
    Single(TypedFunc<(Message,), SingleAnswer>),
    Batch(TypedFunc<(Vec<Message>,), BatchAnswer>),
}

/// A call that was begun.
pub(crate) enum StartedBatch {
    Single(TypedFuncCallConcurrent<Guest, (Message,), SingleAnswer>),
    Batch(TypedFuncCallConcurrent<Guest, (Vec<Message>,), BatchAnswer>),
}

impl ManyPre {
    /// Creates it from a component with one of the two exports. None if it is not asynchronous: an
    /// instance would begin an attempt only when the previous one has ended.
    pub(crate) fn new(pre: InstancePre<Guest>) -> Option<Self> {
        let component = pre.component();
        let is_async = |interface| {
            let instance = component.get_export_index(None, interface)?;
            match component.get_export(Some(&instance), "handle") {
                Some((ComponentItem::ComponentFunc(handle), _)) => Some(handle.async_()),
                _ => None,
            }
        };
        let is_async = is_async(HANDLER).or_else(|| is_async(BATCH_HANDLER));
        is_async.unwrap_or_default().then_some(Self(pre))
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.0.engine()
    }

    pub(crate) async fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<Many> {
        let instance = self.0.instantiate_async(&mut *store).await?;
        let component = self.0.component();
        let handle = |interface| {
            let interface = component.get_export_index(None, interface)?;
            component.get_export_index(Some(&interface), "handle")
        };
        if let Some(handle) = handle(HANDLER) {
            return Ok(Many::Single(instance.get_typed_func(store, handle)?));
        }
        let handle = handle(BATCH_HANDLER);
        let handle = handle.ok_or_else(|| wasmtime::format_err!("no function handle"))?;
        Ok(Many::Batch(instance.get_typed_func(store, handle)?))
    }
}

impl Many {
    /// Queues a call; the guest begins it when the store's event loop comes to it.
    pub(crate) fn begin(
        self,
        store: impl AsContextMut<Data = Guest>,
        attempt: &Attempt,
    ) -> wasmtime::Result<StartedBatch> {
        let mut messages = attempt.messages.iter().map(|one| Message::of(one, attempt));
        Ok(match self {
            Self::Single(handle) => {
                let message = messages.next();
                let message = message.ok_or_else(|| wasmtime::format_err!("no message"))?;
                StartedBatch::Single(handle.start_call_concurrent(store, (message,))?)
            }
            Self::Batch(handle) => {
                StartedBatch::Batch(handle.start_call_concurrent(store, (messages.collect(),))?)
            }
        })
    }

    /// One verdict per message of the attempt that was begun. An error is a trap.
    pub(crate) async fn finish(
        self,
        begun: StartedBatch,
        accessor: &Accessor<Guest>,
        attempt: &Attempt,
    ) -> wasmtime::Result<Vec<Verdict>> {
        let messages = &attempt.messages;
        Ok(match (self, begun) {
            (Self::Single(handle), StartedBatch::Single(call)) => {
                let (answer,) = handle.finish_call_concurrent(accessor, call).await?;
                vec![answer.map_or_else(verdict, |()| Verdict::Done)]
            }
            (Self::Batch(handle), StartedBatch::Batch(call)) => {
                match handle.finish_call_concurrent(accessor, call).await?.0 {
                    Ok(failed) => sort_out(messages, failed),
                    Err(failure) => vec![verdict(failure); messages.len()],
                }
            }
            _ => unreachable!("a call is finished by the function that began it"),
        })
    }
}

impl StartedBatch {
    /// The computing task, as far as the engine reports it.
    pub(crate) fn task(&self) -> GuestTaskId {
        match self {
            Self::Single(call) => call.task(),
            Self::Batch(call) => call.task(),
        }
    }
}

/// `message` of the contract, owned.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Message {
    id: String,
    queue: String,
    body: String,
    source: String,
    receipt: String,
    #[component(name = "receive-count")]
    receive_count: u32,
    deadline: u64,
    #[component(name = "sent-at")]
    sent_at: Option<u64>,
    #[component(name = "first-received-at")]
    first_received_at: Option<u64>,
    group: Option<String>,
    #[component(name = "system-attributes")]
    system_attributes: Vec<(String, String)>,
    attributes: Vec<Attribute>,
    #[component(name = "body-md5")]
    body_md5: Option<String>,
    #[component(name = "attributes-md5")]
    attributes_md5: Option<String>,
}

/// `attribute` of the contract, owned.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Attribute {
    name: String,
    #[component(name = "data-type")]
    data_type: String,
    value: AttributeValue,
}

/// `attribute-value` of the contract, owned.
#[derive(ComponentType, Lower)]
#[component(variant)]
pub(crate) enum AttributeValue {
    #[component(name = "text")]
    Text(String),
    #[component(name = "binary")]
    Binary(Vec<u8>),
}

impl Message {
    fn of(message: &message::Message, attempt: &Attempt) -> Self {
        let message = message.clone();
        let attributes = message.attributes.into_iter();
        Self {
            id: message.id.to_string(),
            queue: message.queue.to_string(),
            body: message.body,
            source: message.source.to_string(),
            receipt: message.receipt.0,
            receive_count: message.receive_count,
            deadline: attempt.deadline_date.0,
            sent_at: message.sent_at.map(|date| date.0),
            first_received_at: message.first_received_at.map(|date| date.0),
            group: message.group,
            system_attributes: message.system_attributes,
            attributes: attributes
                .map(|attribute| Attribute {
                    name: attribute.name,
                    data_type: attribute.data_type,
                    value: match attribute.value {
                        message::AttributeValue::Text(text) => AttributeValue::Text(text),
                        message::AttributeValue::Binary(bytes) => AttributeValue::Binary(bytes),
                    },
                })
                .collect(),
            body_md5: message.body_md5,
            attributes_md5: message.attributes_md5,
        }
    }
}
