//! What a handler of version 0.2 may take: a delivery, or its body as a type.

use super::Failure;
use super::bindings::imports::dispatcher::plugin::types as wire;
use crate::attempt::NEVER;
use crate::{Attribute, AttributeValue, FromMessage, Message};
use serde::de::DeserializeOwned;
use std::ops::Deref;

/// One delivery of a message, with what version 0.2 tells of it. It can be used as the
/// [`Message`] itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The message. Its body is empty where [`bytes`](Self::bytes) holds it.
    pub message: Message,
    /// The body, where it is not text.
    pub bytes: Option<Vec<u8>>,
    /// The number of this attempt at the message, from 1.
    pub attempt: u32,
    /// The same for every attempt at this message and different for any other.
    pub idempotency_key: String,
    /// The trace that the message belongs to.
    pub trace: Option<TraceContext>,
}

/// A position in a trace, as W3C Trace Context writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// `00-TRACE-SPAN-FLAGS`.
    pub traceparent: String,
    /// What vendors added.
    pub tracestate: Option<String>,
}

impl Deref for Delivery {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

impl Delivery {
    /// A first attempt at a message, for tests; its id is the idempotency key.
    pub fn of(message: impl Into<Message>) -> Self {
        let message = message.into();
        Self {
            bytes: None,
            attempt: message.receive_count,
            idempotency_key: message.id.clone(),
            trace: None,
            message,
        }
    }
}

/// What a handler of version 0.2 may take instead of the [`Delivery`] itself, made of it. Whatever is
/// [`FromMessage`] is one.
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}`",
    note = "it takes a `Delivery`, a `Typed<T>` where `T: serde::de::DeserializeOwned`, a `Message` or a `Json<T>`"
)]
pub trait FromDelivery: Sized {
    /// Makes it.
    ///
    /// # Errors
    /// Why the message is not done: the handler does not see it.
    fn from_delivery(delivery: Delivery) -> Result<Self, Failure>;
}

impl FromDelivery for Delivery {
    fn from_delivery(delivery: Delivery) -> Result<Self, Failure> {
        Ok(delivery)
    }
}

impl<I: FromMessage> FromDelivery for I {
    fn from_delivery(delivery: Delivery) -> Result<Self, Failure> {
        if delivery.bytes.is_some() {
            return Err(Failure::reject("the body: bytes where text is wanted"));
        }
        I::from_message(delivery.message).map_err(|failed| failed.failure.into())
    }
}

/// A delivery whose body is JSON of this type; a body of another type is rejected with the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Typed<T> {
    /// The body.
    pub value: T,
    /// The delivery, its body included.
    pub delivery: Delivery,
}

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: DeserializeOwned> FromDelivery for Typed<T> {
    fn from_delivery(delivery: Delivery) -> Result<Self, Failure> {
        let read = match &delivery.bytes {
            Some(bytes) => serde_json::from_slice(bytes),
            None => serde_json::from_str(&delivery.message.body),
        };
        match read {
            Ok(value) => Ok(Self { value, delivery }),
            Err(error) => Err(Failure::reject(format!("the body: {error}"))),
        }
    }
}

impl From<wire::Message> for Delivery {
    fn from(message: wire::Message) -> Self {
        let (body, bytes) = match message.body {
            wire::Body::Text(text) => (text, None),
            wire::Body::Bytes(bytes) => (String::new(), Some(bytes)),
        };
        let attributes = message.attributes.into_iter().map(|one| Attribute {
            name: one.name,
            data_type: one.data_type,
            value: match one.value {
                wire::AttributeValue::Text(text) => AttributeValue::Text(text),
                wire::AttributeValue::Binary(bytes) => AttributeValue::Binary(bytes),
            },
        });
        Self {
            message: Message {
                id: message.id,
                queue: message.queue,
                body,
                source: message.source,
                receipt: message.receipt,
                receive_count: message.receive_count,
                deadline: message.deadline,
                sent_at: message.sent_at,
                first_received_at: message.first_received_at,
                group: message.group,
                system_attributes: message.system_attributes,
                attributes: attributes.collect(),
                body_md5: message.body_md5,
                attributes_md5: message.attributes_md5,
            },
            bytes,
            attempt: message.attempt,
            idempotency_key: message.idempotency_key,
            trace: message.trace.map(|trace| TraceContext {
                traceparent: trace.traceparent,
                tracestate: trace.tracestate,
            }),
        }
    }
}

impl Delivery {
    /// Requests that the attempt may take this long from now, and sees the new end in
    /// [`time_left`](Message::time_left). Less is granted where the configuration's `max-timeout` is
    /// less, and nothing without one.
    pub fn extend(&mut self, by: std::time::Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        if self.message.deadline != NEVER
            && let Some(deadline) = super::extend(&self.message.id, ms)
        {
            self.message.deadline = deadline;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Json, testing, v0_2};

    #[derive(Debug, serde::Deserialize, PartialEq)]
    struct Order {
        amount: u64,
    }

    #[test]
    fn handler_takes_a_delivery_a_type_or_a_message() {
        let delivery = || Delivery::of(testing::json(r#"{"amount": 7}"#).id("m-1"));
        let check = |amount: u64| assert_eq!(amount, 7);
        assert_eq!(
            v0_2::run(|order: Typed<Order>| check(order.amount), delivery()),
            Ok(())
        );
        assert_eq!(
            v0_2::run(|order: Json<Order>| check(order.amount), delivery()),
            Ok(())
        );
        assert_eq!(
            v0_2::run(|one: Message| assert_eq!(one.id, "m-1"), delivery()),
            Ok(())
        );
        let key =
            |one: Delivery| assert_eq!((one.idempotency_key.as_str(), one.attempt), ("m-1", 1));
        assert_eq!(v0_2::run(key, delivery()), Ok(()));
    }

    #[test]
    fn body_of_another_type_is_rejected_unseen() {
        fn unseen(_: Typed<Order>) {
            panic!("it cannot be an order");
        }
        let other = Delivery::of(testing::message("[]"));
        let Err(Failure::Reject(why)) = v0_2::run(unseen, other) else {
            panic!("it is rejected");
        };
        assert!(why.starts_with("the body: invalid"), "{why}");
        let bytes = Delivery {
            bytes: Some(br#"{"amount": 7}"#.to_vec()),
            ..Delivery::of(testing::message(""))
        };
        let typed = |order: Typed<Order>| assert_eq!(order.value, Order { amount: 7 });
        assert_eq!(v0_2::run(typed, bytes.clone()), Ok(()));
        let why = "the body: bytes where text is wanted";
        assert_eq!(v0_2::run(|_: Message| (), bytes), Err(Failure::reject(why)));
    }
}
