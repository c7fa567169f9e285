//! What the tests of several files here start from: a delivery, and a queue that is never called.

use super::{Clients, LONGEST_MESSAGE, QueueTarget, affordable};
use dispatcher_aws::SdkConfig;
use dispatcher_core::message::samples;
use dispatcher_core::message::{Message, Receipt};
use std::sync::Arc;

pub(super) fn delivery(id: &str, receive_count: u32) -> Message {
    Message {
        queue: "q".into(),
        body: "body".into(),
        source: "arn:aws:sqs:eu-west-1:123456789012:q".into(),
        receipt: Receipt(format!("{id}/{receive_count}")),
        receive_count,
        ..samples::message(id)
    }
}

pub(super) fn target(fifo: bool) -> QueueTarget {
    let config = SdkConfig::builder()
        .behavior_version(dispatcher_aws::BehaviorVersion::latest())
        .build();
    QueueTarget {
        name: "q".into(),
        url: "http://127.0.0.1:1/0/q".into(),
        fifo,
        content_deduplication: false,
        clients: Arc::new(Clients::of(&config)),
    }
}

#[test]
fn finding_04_receive_asks_for_at_most_the_free_permits_and_at_least_one() {
    for (free, max, wanted) in [
        (u64::MAX, 10, 10),
        (3 * LONGEST_MESSAGE, 10, 3),
        (3 * LONGEST_MESSAGE, 2, 2),
        (LONGEST_MESSAGE - 1, 10, 1),
        (0, 1, 1),
    ] {
        assert_eq!(affordable(free, max), wanted, "{free} {max}");
    }
}
