//! A fuzz target: between SQS's shapes and ours. Nothing is lost or made up on the way, calls are
//! cut within SQS's limits, and every answer comes back to its own item.

use super::batch::{EntryIds, MOST_BYTES, Plan, answers, calls};
use super::send::SendEntry;
use super::{BATCH, Clients, QueueTarget, address, convert, dead};
use aws_sdk_sqs::types::{self as sdk, BatchResultErrorEntry, MessageSystemAttributeName};
use dispatcher_aws::{BehaviorVersion, SdkConfig};
use dispatcher_core::fuzz::Choices;
use dispatcher_core::message::{Attribute, AttributeValue, Message, Outcome};
use dispatcher_core::queue::ItemError;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Messages, a slice to settle, sizes to cut, and an address.
pub fn wire(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let delivered = deliveries(&mut choices);
    dead_letter(&delivered, &mut choices);
    settle(delivered, &mut choices);
    cut(&mut choices);
    durations(&mut choices);
    addresses(&String::from_utf8_lossy(choices.rest()));
}

fn attribute(name: String, choices: &mut Choices<'_>) -> Attribute {
    let length = usize::try_from(choices.number() % (2 << 20)).expect("it is small");
    let value = if choices.flag() {
        AttributeValue::Text(choices.text())
    } else {
        // Large ones, too, though no input is as large.
        AttributeValue::Binary(vec![choices.byte(); length])
    };
    Attribute {
        name,
        data_type: choices.text(),
        value,
    }
}

/// Whatever SQS delivers becomes a message that says the same.
fn deliveries(choices: &mut Choices<'_>) -> Vec<Message> {
    let list = choices.list(6, |choices| {
        let attributes = choices.list(12, |choices| (choices.text(), choices.byte()));
        let attributes: BTreeMap<String, Attribute> = attributes
            .into_iter()
            .map(|(name, _)| (name.clone(), attribute(name, choices)))
            .collect();
        let mut delivery = sdk::Message::builder()
            .set_message_id(choices.option(|choices| format!("m{}", choices.below(4))))
            .set_receipt_handle(choices.option(Choices::text))
            .set_body(choices.option(Choices::text));
        for name in [
            "ApproximateReceiveCount",
            "SentTimestamp",
            "MessageGroupId",
            "AWSTraceHeader",
        ] {
            if let Some(value) = choices.option(Choices::text) {
                delivery = delivery.attributes(MessageSystemAttributeName::from(name), value);
            }
        }
        if let Some(value) = choices.option(Choices::text) {
            delivery = delivery.attributes(MessageSystemAttributeName::from(&*value), value);
        }
        for attribute in attributes.values() {
            delivery = delivery.message_attributes(&attribute.name, convert::attribute(attribute));
        }
        let delivery = delivery.build();
        let told = (
            delivery.message_id().is_some(),
            delivery.receipt_handle().is_some(),
        );
        let (body, system) = (delivery.body.clone(), delivery.attributes.clone());
        let message = convert::message(delivery, "q", "arn");
        assert_eq!(message.is_some(), told == (true, true));
        let message = message?;
        assert_eq!(message.body, body.unwrap_or_default());
        assert!(message.attributes.iter().eq(attributes.values()));
        assert_eq!(
            message.system_attributes.len(),
            system.map_or(0, |system| system.len())
        );
        assert!(message.receive_count >= 1);
        Some(message)
    });
    list.into_iter().flatten().collect()
}

fn target(fifo: bool) -> &'static QueueTarget {
    static TARGETS: OnceLock<[QueueTarget; 2]> = OnceLock::new();
    let make = |fifo| QueueTarget {
        name: "q".into(),
        url: "http://127.0.0.1:1/0/q".into(),
        fifo,
        content_deduplication: false,
        clients: Arc::new(Clients::of(
            &SdkConfig::builder()
                .behavior_version(BehaviorVersion::latest())
                .build(),
        )),
    };
    &TARGETS.get_or_init(|| [false, true].map(make))[usize::from(fifo)]
}

/// A dead letter keeps what its sender said, and fits wherever the message did.
fn dead_letter(messages: &[Message], choices: &mut Choices<'_>) {
    for message in messages {
        let (reason, fifo) = (choices.text(), choices.flag());
        let (parcel, left_out) = dead::parcel(message, &reason, target(fifo));
        let own: Vec<_> = message
            .attributes
            .iter()
            .filter(|attribute| !dead::is_mark(&attribute.name))
            .collect();
        assert!(
            own.iter()
                .all(|attribute| parcel.attributes.contains(attribute))
        );
        // SQS refuses an empty body: a message without content says why instead.
        if message.body.is_empty() && message.unreadable.is_some() {
            assert!(!parcel.body.is_empty());
        } else {
            assert_eq!(parcel.body, message.body);
        }
        let attributes = message
            .attributes
            .iter()
            .map(Attribute::bytes)
            .sum::<usize>();
        if attributes + parcel.body.len() <= MOST_BYTES {
            assert!(parcel.bytes() <= MOST_BYTES);
        }
        assert!(parcel.attributes.len() <= own.len().max(10));
        assert!(left_out.len() <= 5);
        assert!(!fifo || parcel.group.is_some());
    }
}

/// One step for each message, the newest receipt and the most final outcome; every item answered.
fn settle(messages: Vec<Message>, choices: &mut Choices<'_>) {
    let items: Vec<(Message, Outcome)> = messages
        .into_iter()
        .map(|message| {
            let outcome = match choices.below(3) {
                0 => Outcome::Delete,
                1 => Outcome::Release(Duration::from_millis(choices.number())),
                _ => Outcome::DeadLetter(choices.text()),
            };
            (message, outcome)
        })
        .collect();
    let plan = Plan::of(&items);
    for (message, outcome) in &items {
        let mut steps = plan
            .steps
            .iter()
            .filter(|step| step.message.id == message.id);
        let step = steps.next().expect("every message has a step");
        assert!(steps.next().is_none(), "a message has two steps");
        assert!(step.message.receive_count >= message.receive_count);
        assert!(*outcome != Outcome::Delete || *step.outcome == Outcome::Delete);
    }
    let ids = EntryIds::fresh();
    let failed = choices.list(4, |choices| {
        let id = if choices.flag() {
            choices.text()
        } else {
            ids.at(choices.below(12))
        };
        BatchResultErrorEntry::builder()
            .id(id)
            .code(choices.text())
            .sender_fault(choices.flag())
            .build()
            .expect("what must be set is set")
    });
    let done = choices.list(12, |choices| (ids.at(choices.below(12)), ()));
    let told: Vec<String> = done.iter().map(|(id, ())| id.clone()).collect();
    let results = answers(&ids, plan.steps.len(), done, &failed);
    assert_eq!(results.len(), plan.steps.len());
    for (at, result) in results.iter().enumerate() {
        let id = ids.at(at);
        let times = told.iter().filter(|told| **told == id).count();
        let is_failed = failed.iter().any(|entry| entry.id() == id);
        assert_eq!(result.is_ok(), times == 1 && !is_failed);
        if times == 0 && !is_failed {
            assert!(matches!(result, Err(ItemError::Transient(_))));
        }
    }
    assert_eq!(plan.spread(&results).len(), items.len());
}

/// Calls take all that is to be sent, in order, ten at most and a mebibyte at most.
fn cut(choices: &mut Choices<'_>) {
    let most = u64::try_from(2 * MOST_BYTES).expect("it is small");
    let sizes: Vec<usize> = choices.list(40, |choices| {
        usize::try_from(choices.number() % most).expect("it is small")
    });
    let mut next = 0;
    for range in calls(&sizes, BATCH) {
        assert_eq!(range.start, next);
        assert!((1..=BATCH).contains(&range.len()));
        let bytes: usize = sizes[range.clone()].iter().sum();
        assert!(bytes <= MOST_BYTES || range.len() == 1);
        next = range.end;
    }
    assert_eq!(next, sizes.len());
    let outgoing = dispatcher_core::message::OutgoingMessage {
        body: choices.text(),
        group: choices.option(Choices::text),
        attributes: choices.list(4, |choices| {
            let name = choices.text();
            attribute(name, choices)
        }),
        ..Default::default()
    };
    let parcel = SendEntry::of(&outgoing, target(choices.flag()));
    let sum: usize = outgoing.attributes.iter().map(Attribute::bytes).sum();
    assert_eq!(parcel.bytes(), sum + outgoing.body.len());
}

/// Never fewer seconds than were asked for, unless more than may be.
fn durations(choices: &mut Choices<'_>) {
    let asked = Duration::from_millis(choices.number());
    let seconds = convert::seconds(asked, 43_200);
    assert!((0..=43_200).contains(&seconds));
    let given = Duration::from_secs(u64::try_from(seconds).expect("not below zero"));
    assert!(given >= asked.min(Duration::from_secs(43_200)));
    assert!(given < asked + Duration::from_secs(1));
}

/// An address is a part of what was written, but for the case of a region.
fn addresses(text: &str) {
    let parts = match address::Address::of(text) {
        address::Address::Name(name) => vec![name.to_owned()],
        address::Address::Arn {
            region,
            account,
            name,
        } => [region, account, name].map(str::to_owned).into(),
        address::Address::Url {
            url,
            region,
            endpoint,
        } => {
            assert_eq!(url, text);
            let origin = endpoint.map(|endpoint| endpoint.origin.to_owned());
            region.into_iter().chain(origin).collect()
        }
    };
    let lower = text.to_ascii_lowercase();
    for part in parts {
        assert!(text.contains(&part) || lower.contains(&part), "{part}");
    }
    assert!(!address::name_in_url(text).contains('/'));
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_the_wire_finds_nothing() {
        dispatcher_core::fuzz::replay("wire", super::wire);
    }
}
