//! Detects a server that does not report receive counts, which SQS always reports. Pure.

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a delivery of the queue had no receive count.
#[derive(Debug, Default)]
pub(super) struct MissingCounts(AtomicBool);

impl MissingCounts {
    /// Whether one of these is the first delivery of the queue without a receive count. Each such
    /// delivery looks like the first of its message, so its attempts have no limit.
    pub(super) fn is_first(&self, deliveries: &[Message]) -> bool {
        !deliveries.iter().all(has_count) && !self.0.swap(true, Ordering::Relaxed)
    }
}

fn has_count(delivery: &Message) -> bool {
    let attributes = delivery.attributes.as_ref();
    let count = attributes.and_then(|attributes| {
        attributes.get(&MessageSystemAttributeName::ApproximateReceiveCount)
    });
    count.is_some_and(|count| count.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn delivery(count: Option<&str>) -> Message {
        let attributes = count.map(|count| {
            let name = MessageSystemAttributeName::ApproximateReceiveCount;
            HashMap::from([(name, count.to_owned())])
        });
        Message::builder().set_attributes(attributes).build()
    }

    #[test]
    fn first_delivery_without_a_count_is_noticed_once() {
        for other in [delivery(None), delivery(Some(""))] {
            let counts = MissingCounts::default();
            assert!(!counts.is_first(&[]));
            assert!(!counts.is_first(&[delivery(Some("2"))]));
            let deliveries = [delivery(Some("2")), other];
            assert!(counts.is_first(&deliveries));
            assert!(!counts.is_first(&deliveries));
        }
    }
}
