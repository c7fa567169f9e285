//! Finds the message inside a message: in the notification that SNS sends to a queue, and in the S3
//! pointer that the extended client libraries send in place of a large body. Pure.

use crate::message::{Attribute, ContentError, Message};
use serde_json::Value;

/// The envelope around the bodies of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Envelope {
    /// No envelope.
    #[default]
    None,
    /// A notification of SNS, unless its subscription delivers raw messages.
    Sns,
}

/// The treatment of a message whose body is in S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum S3Pointers {
    /// The message is dead-lettered: dispatcher does not fetch the body.
    #[default]
    DeadLetter,
    /// The handler gets the pointer.
    Pass,
}

/// The classes that the libraries name in a pointer.
const POINTERS: [&str; 2] = [
    "software.amazon.payloadoffloading.PayloadS3Pointer",
    "com.amazon.sqs.javamessaging.MessageS3Pointer",
];

impl Envelope {
    /// Returns the inner message, or `None` if there is no envelope because the sender sent
    /// directly to the queue. Keeps the ids, dates and counts of the outer message.
    pub fn open(self, message: &Message) -> Option<Message> {
        // This test saves parsing most bodies.
        if self == Self::None || !message.body.contains("Notification") {
            return None;
        }
        let notification: Value = serde_json::from_str(&message.body).ok()?;
        let is_sns = text(&notification, "Type") == Some("Notification")
            && text(&notification, "TopicArn").is_some();
        if !is_sns {
            return None;
        }
        let body = text(&notification, "Message")?.to_owned();
        let mut attributes = message.attributes.clone();
        let mut add = |attribute: Attribute| {
            if !attributes.iter().any(|own| own.name == attribute.name) {
                attributes.push(attribute);
            }
        };
        let senders = notification.get("MessageAttributes");
        for (name, attribute) in senders.and_then(Value::as_object).into_iter().flatten() {
            if let Some(value) = text(attribute, "Value") {
                add(Attribute::text(name, value));
            }
        }
        for (name, field) in [
            ("sns-topic-arn", "TopicArn"),
            ("sns-message-id", "MessageId"),
            ("sns-subject", "Subject"),
        ] {
            if let Some(value) = text(&notification, field) {
                add(Attribute::text(name, value));
            }
        }
        Some(Message {
            body,
            attributes,
            body_md5: None,
            attributes_md5: None,
            ..message.clone()
        })
    }
}

impl S3Pointers {
    /// Returns the error of a message whose body is in S3, unless pointers are passed to the
    /// handler.
    pub fn refuse(self, message: &Message) -> Option<ContentError> {
        if self == Self::Pass || !message.body.trim_start().starts_with('[') {
            return None;
        }
        let class = POINTERS
            .iter()
            .find(|class| message.body.contains(**class))?;
        let body: Value = serde_json::from_str(&message.body).ok()?;
        let pointer = body.as_array().filter(|parts| parts.len() == 2)?;
        let is_one = pointer[0].as_str() == Some(*class);
        let bucket = text(&pointer[1], "s3BucketName")?;
        let key = text(&pointer[1], "s3Key")?;
        is_one.then(|| ContentError::InS3 {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AttributeValue, samples};
    use serde_json::json;

    fn message(body: &Value) -> Message {
        Message {
            body: body.to_string(),
            body_md5: Some("of the envelope".into()),
            attributes: vec![Attribute::text("own", "1")],
            ..samples::message("m")
        }
    }

    fn notification() -> Value {
        json!({
            "Type": "Notification",
            "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
            "TopicArn": "arn:aws:sns:us-west-2:123456789012:MyTopic",
            "Subject": "My First Message",
            "Message": "{\"order\":1}",
            "Timestamp": "2012-05-02T00:54:06.655Z",
            "SignatureVersion": "1",
            "MessageAttributes": {
                "kind": {"Type": "String", "Value": "order"},
                "own": {"Type": "String", "Value": "2"},
            },
        })
    }

    #[test]
    fn notification_of_sns_is_its_message_with_its_attributes() {
        let sealed = message(&notification());
        let opened = Envelope::Sns.open(&sealed).expect("a notification");
        assert_eq!(opened.body, r#"{"order":1}"#);
        assert_eq!(
            (&opened.id, opened.receive_count),
            (&sealed.id, sealed.receive_count)
        );
        assert_eq!(opened.body_md5, None);
        let attributes: Vec<_> = opened
            .attributes
            .iter()
            .map(|attribute| match &attribute.value {
                AttributeValue::Text(text) => (attribute.name.as_str(), text.as_str()),
                AttributeValue::Binary(_) => (attribute.name.as_str(), "binary"),
            })
            .collect();
        assert_eq!(
            attributes,
            [
                ("own", "1"),
                ("kind", "order"),
                (
                    "sns-topic-arn",
                    "arn:aws:sns:us-west-2:123456789012:MyTopic"
                ),
                ("sns-message-id", "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"),
                ("sns-subject", "My First Message"),
            ]
        );
        assert_eq!(Envelope::None.open(&sealed), None);
    }

    #[test]
    fn what_sns_did_not_wrap_stays_as_it_is() {
        for body in [
            json!({"order": 1}),
            json!({"Type": "Notification", "Message": "no topic"}),
            json!({"Type": "SubscriptionConfirmation", "TopicArn": "a", "Message": "Notification"}),
            json!({"Type": "Notification", "TopicArn": "a", "Message": {"no": "text"}}),
            json!("Notification"),
        ] {
            assert_eq!(Envelope::Sns.open(&message(&body)), None, "{body}");
        }
    }

    #[test]
    fn pointers_of_the_extended_client_libraries_are_recognised() {
        let place = json!({"s3BucketName": "b", "s3Key": "k/1"});
        for class in POINTERS {
            let pointer = message(&json!([class, place]));
            let error = S3Pointers::DeadLetter.refuse(&pointer).expect(class);
            let text = error.to_string();
            assert!(text.contains("bucket b, key k/1"), "{text}");
            assert_eq!(S3Pointers::Pass.refuse(&pointer), None);
        }
        for other in [
            json!(["com.example.Pointer", place]),
            json!([POINTERS[0], {"s3Key": "k"}]),
            json!([POINTERS[0]]),
            json!({"s3BucketName": "b", "s3Key": POINTERS[0]}),
        ] {
            assert_eq!(
                S3Pointers::DeadLetter.refuse(&message(&other)),
                None,
                "{other}"
            );
        }
    }
}
