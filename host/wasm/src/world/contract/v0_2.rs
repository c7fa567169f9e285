//! Version 0.2 of the contract, a release candidate: its bindings, and the conversion from the host's
//! types to the guest's and back.

use super::exports::exports;
use super::trace::TraceContext;
use super::v0_1::Attribute;
use crate::limits::reason;
use crate::output::{LogEntry, LogLevel};
use dispatcher_core::clock;
use dispatcher_core::message;
use dispatcher_core::message::FailureReason;
use dispatcher_core::telemetry::metrics::of_plugins::NotMeasured;
use imports::dispatcher::plugin::{context, log, metrics};
use std::time::Duration;
use wasmtime::component::{ComponentType, HasSelf, Linker, Lower};

/// What a plugin of single messages exports.
pub(crate) const HANDLER: &str = "dispatcher:plugin/handler@0.2.0-rc.1";
/// What a plugin of batches exports.
pub(crate) const BATCH_HANDLER: &str = "dispatcher:plugin/batch-handler@0.2.0-rc.1";

/// Bindings for what plugins import without a grant.
mod imports {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.2",
        inline: "
            package dispatcher:host;
            world imports {
                import dispatcher:plugin/context@0.2.0-rc.1;
                import dispatcher:plugin/log@0.2.0-rc.1;
                import dispatcher:plugin/metrics@0.2.0-rc.1;
            }
        ",
        world: "dispatcher:host/imports",
        imports: { default: tracing | verbose_tracing },
    });
}

/// Bindings for plugins of batches.
mod batch {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.2",
        inline: "
            package dispatcher:host;
            world batch { export dispatcher:plugin/batch-handler@0.2.0-rc.1; }
        ",
        world: "dispatcher:host/batch",
        exports: { default: async },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

/// Bindings for plugins of single messages, on the same types.
mod single {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.2",
        inline: "
            package dispatcher:host;
            world single { export dispatcher:plugin/handler@0.2.0-rc.1; }
        ",
        world: "dispatcher:host/single",
        exports: { default: async },
        with: {
            "dispatcher:plugin/types@0.2.0-rc.1": super::batch::dispatcher::plugin::types,
        },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

exports!();

/// Adds what any plugin may import to a linker.
pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    context::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    log::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    metrics::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)
}

impl types::Host for Guest {}

impl context::Host for Guest {
    fn cancelled(&mut self, message_id: String) -> bool {
        self.is_message_cancelled(&message_id)
    }

    fn extend(&mut self, message_id: String, milliseconds: u64) -> Option<u64> {
        let attempt = self.attempt_at(&message_id)?;
        attempt
            .deadline
            .extend(clock::now() + Duration::from_millis(milliseconds));
        Some(attempt.deadline.date().0)
    }
}

impl log::Host for Guest {
    fn write(&mut self, entry: log::Entry) {
        let level = match entry.level {
            log::Level::Trace => LogLevel::Trace,
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.log(&LogEntry {
            level,
            text: entry.text,
            fields: entry.fields,
            message_id: entry.message_id,
        });
    }
}

impl metrics::Host for Guest {
    fn add(
        &mut self,
        name: String,
        labels: Vec<metrics::Label>,
        value: f64,
    ) -> Result<(), metrics::MetricError> {
        let meter = &self.settings().meter;
        meter.add(&name, labels, value).map_err(not_measured)
    }

    fn set(
        &mut self,
        name: String,
        labels: Vec<metrics::Label>,
        value: f64,
    ) -> Result<(), metrics::MetricError> {
        let meter = &self.settings().meter;
        meter.set(&name, labels, value).map_err(not_measured)
    }
}

fn not_measured(why: NotMeasured) -> metrics::MetricError {
    match why {
        NotMeasured::Invalid(why) => metrics::MetricError::Invalid(why),
        NotMeasured::TooMany => metrics::MetricError::TooMany,
    }
}

fn verdict(failure: types::Failure) -> Verdict {
    match failure {
        types::Failure::Retry(retry) => Verdict::Retry {
            after: retry.after.map(Duration::from_millis),
            why: match retry.reason {
                Some(why) => FailureReason::RequestedWith(reason(why)),
                None => FailureReason::Requested,
            },
        },
        types::Failure::Reject(why) => Verdict::Reject(reason(why)),
        types::Failure::Busy(busy) => Verdict::Busy {
            after: busy.after.map(Duration::from_millis),
            why: reason(busy.reason),
        },
        types::Failure::Closed(why) => Verdict::Closed(reason(why)),
    }
}

/// What the guest cannot borrow as it is of one message.
struct Lists<'a> {
    of: Delivery<'a>,
    idempotency_key: String,
    trace: Option<TraceContext>,
    system_attributes: Vec<(&'a str, &'a str)>,
    attributes: Vec<types::Attribute<'a>>,
}

impl<'a> Lists<'a> {
    fn of(of: Delivery<'a>) -> Self {
        let attributes = of.message.attributes.iter();
        Self {
            of,
            idempotency_key: of.idempotency_key(),
            trace: TraceContext::of(of.message),
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
            body: types::Body::Text(&message.body),
            source: &message.source,
            receipt: &message.receipt.0,
            receive_count: message.receive_count,
            attempt: self.of.number(),
            idempotency_key: &self.idempotency_key,
            trace: self.trace.as_ref().map(|trace| types::TraceContext {
                traceparent: &trace.traceparent,
                tracestate: trace.tracestate.as_deref(),
            }),
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
    body: MessageBody,
    source: String,
    receipt: String,
    #[component(name = "receive-count")]
    receive_count: u32,
    attempt: u32,
    #[component(name = "idempotency-key")]
    idempotency_key: String,
    trace: Option<Trace>,
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

/// `body` of the contract, owned.
#[derive(ComponentType, Lower)]
#[component(variant)]
pub(crate) enum MessageBody {
    #[component(name = "text")]
    Text(String),
    #[component(name = "bytes")]
    #[expect(dead_code, reason = "the type has it, and no backend delivers it")]
    Bytes(Vec<u8>),
}

/// `trace-context` of the contract, owned.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Trace {
    traceparent: String,
    tracestate: Option<String>,
}

impl Message {
    fn of(of: Delivery<'_>) -> Self {
        let message = of.message.clone();
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let system = of.message.system_attributes_with_trace().map(owned);
        let attributes = message.attributes.into_iter();
        Self {
            id: message.id,
            queue: message.queue,
            body: MessageBody::Text(message.body),
            source: message.source,
            receipt: message.receipt.0,
            receive_count: message.receive_count,
            attempt: of.number(),
            idempotency_key: of.idempotency_key(),
            trace: TraceContext::of(of.message).map(|trace| Trace {
                traceparent: trace.traceparent,
                tracestate: trace.tracestate,
            }),
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
