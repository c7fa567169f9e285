//! What the tests of several files here start from: a delivery, and a queue that is never called.

use super::{Clients, Target};
use crate::aws::SdkConfig;
use crate::message::samples;
use crate::message::{Message, Receipt};
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

pub(super) fn target(fifo: bool) -> Target {
    let config = SdkConfig::builder()
        .behavior_version(crate::aws::BehaviorVersion::latest())
        .build();
    Target {
        name: "q".into(),
        url: "http://127.0.0.1:1/0/q".into(),
        fifo,
        content_deduplication: false,
        clients: Arc::new(Clients::of(&config)),
    }
}
