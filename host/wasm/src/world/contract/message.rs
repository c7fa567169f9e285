//! The contract's bindings, and the conversion from the host's types to the guest's and back.

use super::Delivery;
use super::trace::TraceContext;
use crate::limits::reason;
use dispatcher_core::message;
use dispatcher_core::message::{FailureReason, Verdict};
use std::time::Duration;

/// Bindings for the types, and for the interfaces that plugins import without a grant.
pub(super) mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package dispatcher:host;
            world imports {
                import dispatcher:plugin/types@0.1.0;
                import dispatcher:plugin/context@0.1.0;
                import dispatcher:plugin/log@0.1.0;
                import dispatcher:plugin/metrics@0.1.0;
            }
        ",
        world: "dispatcher:host/imports",
        imports: { default: tracing | verbose_tracing },
    });
}

pub(super) use bindings::dispatcher::plugin::types::{self, Failed, Failure};

/// Converts a delivery to the guest's form. Copies it, since a call may outlive every borrow.
pub(super) fn message(of: Delivery<'_>) -> types::Message {
    let message = of.message.clone();
    let system = of
        .message
        .system_attributes_with_trace()
        .map(|(name, value): (&str, &str)| (name.to_owned(), value.to_owned()));
    types::Message {
        id: message.id,
        queue: of.prefix.bare(&message.queue),
        body: types::Body::Text(message.body),
        source: message.source,
        receipt: message.receipt.0,
        receive_count: message.receive_count,
        attempt: of.number(),
        idempotency_key: of.idempotency_key(),
        trace: TraceContext::of(of.message).map(|trace| types::TraceContext {
            traceparent: trace.traceparent,
            tracestate: trace.tracestate,
        }),
        deadline: of.deadline(),
        sent_at: message.sent_at.map(|date| date.0),
        first_received_at: message.first_received_at.map(|date| date.0),
        group: message.group,
        system_attributes: system.collect(),
        attributes: message.attributes.into_iter().map(attribute).collect(),
        body_md5: message.body_md5,
        attributes_md5: message.attributes_md5,
    }
}

fn attribute(attribute: message::Attribute) -> types::Attribute {
    types::Attribute {
        name: attribute.name,
        data_type: attribute.data_type,
        value: match attribute.value {
            message::AttributeValue::Text(text) => types::AttributeValue::Text(text),
            message::AttributeValue::Binary(bytes) => types::AttributeValue::Binary(bytes),
        },
    }
}

/// Converts a failure of the guest.
pub(super) fn verdict(failure: Failure) -> Verdict {
    match failure {
        Failure::Retry(retry) => Verdict::Retry {
            after: retry.after.map(Duration::from_millis),
            why: match retry.reason {
                Some(why) => FailureReason::RequestedWith(reason(why)),
                None => FailureReason::Requested,
            },
        },
        Failure::Reject(why) => Verdict::Reject(reason(why)),
        Failure::Busy(busy) => Verdict::Busy {
            after: busy.after.map(Duration::from_millis),
            why: reason(busy.reason),
        },
        Failure::Closed(why) => Verdict::Closed(reason(why)),
    }
}
