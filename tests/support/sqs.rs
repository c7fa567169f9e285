//! A client of SQS for tests, straight on the SDK: what it says does not depend on the program
//! under test. Knows only what the suites need.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{Credentials, Region, SharedCredentialsProvider};
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use dispatcher_aws as aws;
use dispatcher_aws::{BehaviorVersion, SdkConfig};
use std::collections::HashMap;

/// What the program is told instead of its environment: this endpoint, and credentials that an
/// emulator accepts. Attempts and timeouts are the program's own.
pub fn configuration(endpoint_url: &str) -> SdkConfig {
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .endpoint_url(endpoint_url)
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
            "test", "test", None, None, "tests",
        )))
        .build();
    aws::with_limits(&config)
}

/// How many messages a queue holds, as the server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Could be received.
    pub waiting: u64,
    /// Received and invisible.
    pub in_flight: u64,
    /// Sent with a delay.
    pub delayed: u64,
}

/// A client of one server.
#[derive(Debug, Clone)]
pub struct SqsServer {
    /// For what the helpers do not do.
    pub client: Client,
}

impl SqsServer {
    /// Calls nothing yet.
    pub fn at(endpoint_url: &str) -> Self {
        Self {
            client: Client::new(&configuration(endpoint_url)),
        }
    }

    /// A new queue; its URL. Attributes as SQS names them: `("VisibilityTimeout", "1")`.
    pub async fn create(&self, name: &str, attributes: &[(&str, &str)]) -> String {
        let attributes: HashMap<QueueAttributeName, String> = attributes
            .iter()
            .map(|(name, value)| (QueueAttributeName::from(*name), (*value).to_owned()))
            .collect();
        self.client
            .create_queue()
            .queue_name(name)
            .set_attributes(Some(attributes).filter(|some| !some.is_empty()))
            .send()
            .await
            .unwrap_or_else(|error| panic!("cannot create {name}: {error:?}"))
            .queue_url
            .expect("a new queue has a URL")
    }

    /// A name that no other test uses.
    pub fn fresh_name(hint: &str) -> String {
        format!("{hint}-{}", uuid::Uuid::new_v4().simple())
    }

    /// Sends all, in order, ten at a time.
    pub async fn send_many(&self, url: &str, bodies: impl IntoIterator<Item = String>) {
        let entries: Vec<SendMessageBatchRequestEntry> = bodies
            .into_iter()
            .enumerate()
            .map(|(at, body)| {
                SendMessageBatchRequestEntry::builder()
                    .id(at.to_string())
                    .message_body(body)
                    .build()
                    .expect("id and body are set")
            })
            .collect();
        for chunk in entries.chunks(10) {
            let answer = self
                .client
                .send_message_batch()
                .queue_url(url)
                .set_entries(Some(chunk.to_vec()))
                .send()
                .await
                .expect("the server takes messages");
            assert!(answer.failed.is_empty(), "{:?}", answer.failed);
        }
    }

    /// How many messages the queue holds.
    pub async fn counts(&self, url: &str) -> Counts {
        use QueueAttributeName as Name;
        let answer = self
            .client
            .get_queue_attributes()
            .queue_url(url)
            .attribute_names(Name::All)
            .send()
            .await
            .expect("the queue exists");
        let attributes = answer.attributes.unwrap_or_default();
        let count = |name: Name| attributes[&name].parse().expect("a number");
        Counts {
            waiting: count(Name::ApproximateNumberOfMessages),
            in_flight: count(Name::ApproximateNumberOfMessagesNotVisible),
            delayed: count(Name::ApproximateNumberOfMessagesDelayed),
        }
    }

    /// Returns once the queue holds nothing, in flight or not.
    pub async fn wait_until_empty(&self, url: &str) {
        self.wait_until(url, |counts| counts == Counts::default())
            .await;
    }

    /// Returns once the queue holds what is wanted; asks again and again, since SQS tells nobody.
    pub async fn wait_until(&self, url: &str, is_wanted: impl Fn(Counts) -> bool) {
        let asking = async {
            while !is_wanted(self.counts(url).await) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(crate::PATIENCE, asking)
            .await
            .expect("the queue comes to hold what is wanted");
    }

    /// Receives and deletes until a long poll brings nothing; the bodies in the order they came.
    pub async fn drain(&self, url: &str) -> Vec<String> {
        let mut bodies = Vec::new();
        loop {
            let answer = self
                .client
                .receive_message()
                .queue_url(url)
                .max_number_of_messages(10)
                .wait_time_seconds(1)
                .send()
                .await
                .expect("the queue exists");
            let messages = answer.messages.unwrap_or_default();
            if messages.is_empty() {
                return bodies;
            }
            for message in messages {
                bodies.push(message.body.unwrap_or_default());
                self.client
                    .delete_message()
                    .queue_url(url)
                    .set_receipt_handle(message.receipt_handle)
                    .send()
                    .await
                    .expect("it was just received");
            }
        }
    }
}
