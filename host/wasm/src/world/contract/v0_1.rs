//! Version 0.1 of the contract: its bindings, and the conversion from the host's types to the
//! guest's and back.

use super::exports::exports;
use crate::limits::reason;
use batch::dispatcher::plugin::context;
use dispatcher_core::message;
use dispatcher_core::message::FailureReason;
use std::time::Duration;
use wasmtime::component::{ComponentType, HasSelf, Linker, Lower};

/// What a plugin of single messages exports.
pub(crate) const HANDLER: &str = "dispatcher:plugin/handler@0.1.0";
/// What a plugin of batches exports.
pub(crate) const BATCH_HANDLER: &str = "dispatcher:plugin/batch-handler@0.1.0";

/// Bindings for plugins of batches.
mod batch {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package dispatcher:host;
            world batch {
                import dispatcher:plugin/context@0.1.0;
                export dispatcher:plugin/batch-handler@0.1.0;
            }
        ",
        world: "dispatcher:host/batch",
        imports: { default: tracing | verbose_tracing },
        exports: { default: async },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

/// Bindings for plugins of single messages, on the same types.
mod single {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package dispatcher:host;
            world single {
                import dispatcher:plugin/context@0.1.0;
                export dispatcher:plugin/handler@0.1.0;
            }
        ",
        world: "dispatcher:host/single",
        exports: { default: async },
        with: {
            "dispatcher:plugin/types@0.1.0": super::batch::dispatcher::plugin::types,
            "dispatcher:plugin/context@0.1.0": super::batch::dispatcher::plugin::context,
        },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

exports!();

/// Adds what any plugin may import to a linker.
pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    context::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)
}

impl types::Host for Guest {}

impl context::Host for Guest {
    fn cancelled(&mut self, message_id: String) -> bool {
        self.is_message_cancelled(&message_id)
    }
}

fn verdict(failure: types::Failure) -> Verdict {
    match failure {
        types::Failure::Retry(after) => Verdict::Retry {
            after: after.map(Duration::from_millis),
            why: FailureReason::Requested,
        },
        types::Failure::Reject(why) => Verdict::Reject(reason(why)),
        types::Failure::Busy(busy) => Verdict::Busy {
            after: busy.after.map(Duration::from_millis),
            why: reason(busy.reason),
        },
        types::Failure::Closed(why) => Verdict::Closed(reason(why)),
    }
}

/// The lists of one message in the guest's shape; all else it borrows as it is.
struct Lists<'a> {
    of: Delivery<'a>,
    system_attributes: Vec<(&'a str, &'a str)>,
    attributes: Vec<types::Attribute<'a>>,
}

impl<'a> Lists<'a> {
    fn of(of: Delivery<'a>) -> Self {
        let attributes = of.message.attributes.iter();
        Self {
            of,
            system_attributes: of.message.system_attributes_with_trace().collect(),
            attributes: attributes
                .map(|attribute| types::Attribute {
                    name: &attribute.name,
                    data_type: &attribute.data_type,
                    value: match &attribute.value {
                        message::AttributeValue::Text(text) => types::AttributeValue::Text(text),
                        message::AttributeValue::Binary(bytes) => {
                            types::AttributeValue::Binary(bytes)
                        }
                    },
                })
                .collect(),
        }
    }

    fn message(&self) -> types::Message<'_> {
        let message = self.of.message;
        types::Message {
            id: &message.id,
            queue: &message.queue,
            body: &message.body,
            source: &message.source,
            receipt: &message.receipt.0,
            receive_count: message.receive_count,
            deadline: self.of.deadline(),
            sent_at: message.sent_at.map(|date| date.0),
            first_received_at: message.first_received_at.map(|date| date.0),
            group: message.group.as_deref(),
            system_attributes: &self.system_attributes,
            attributes: &self.attributes,
            body_md5: message.body_md5.as_deref(),
            attributes_md5: message.attributes_md5.as_deref(),
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

/// `attribute` of the contract, owned; the same in later versions.
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

impl From<message::Attribute> for Attribute {
    fn from(attribute: message::Attribute) -> Self {
        Self {
            name: attribute.name,
            data_type: attribute.data_type,
            value: match attribute.value {
                message::AttributeValue::Text(text) => AttributeValue::Text(text),
                message::AttributeValue::Binary(bytes) => AttributeValue::Binary(bytes),
            },
        }
    }
}

impl Message {
    fn of(of: Delivery<'_>) -> Self {
        let message = of.message.clone();
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let system = of.message.system_attributes_with_trace().map(owned);
        let attributes = message.attributes.into_iter();
        Self {
            id: message.id.to_string(),
            queue: message.queue.to_string(),
            body: message.body,
            source: message.source.to_string(),
            receipt: message.receipt.0,
            receive_count: message.receive_count,
            deadline: of.deadline(),
            sent_at: message.sent_at.map(|date| date.0),
            first_received_at: message.first_received_at.map(|date| date.0),
            group: message.group,
            system_attributes: system.collect(),
            attributes: attributes.map(Attribute::from).collect(),
            body_md5: message.body_md5,
            attributes_md5: message.attributes_md5,
        }
    }
}
