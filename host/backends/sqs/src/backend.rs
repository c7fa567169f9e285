//! The SQS backend for the program.

use crate::iam;
use crate::queue::{ClientKind, Encryption, Sqs as Queues};
use dispatcher_aws as aws;
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendSetting, Permission, Purpose, QueueKey,
    QueueTerms, ScheduleHome, SettingForm,
};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::queue::{Queue, QueueError};
use std::sync::Arc;

/// `[backend.sqs]`.
const SETTINGS: &[BackendSetting] = &[BackendSetting {
    key: "client",
    help: "How messages are received, deleted and extended: by lean requests that share the AWS SDK's \
           credentials and connections, or each call through the SDK",
    value: "direct|sdk",
    default: "direct",
    form: SettingForm::Word(&["direct", "sdk"]),
    flag: None,
}];

/// Amazon SQS, or a server that speaks its protocol.
pub struct SqsBackend;

#[async_trait::async_trait]
impl Backend for SqsBackend {
    fn name(&self) -> &'static str {
        "sqs"
    }

    fn messaging_system(&self) -> &'static str {
        "aws_sqs"
    }

    fn check_address(&self, address: &str) -> Result<(), String> {
        let is_arn = address.starts_with("arn:");
        let is_sqs = address.split(':').nth(2) == Some("sqs") && address.split(':').count() == 6;
        if is_arn && !is_sqs {
            return Err(format!(
                "`{address}` is not the ARN of an SQS queue; wanted arn:aws:sqs:REGION:ACCOUNT:NAME"
            ));
        }
        Ok(())
    }

    /// By ARN, and by URL where the ARN could not be read.
    fn queue_of_source(&self, source: &str) -> Option<String> {
        let is_arn = source.starts_with("arn:") && self.check_address(source).is_ok();
        let is_url = source.starts_with("https://") || source.starts_with("http://");
        (is_arn || is_url).then(|| source.to_owned())
    }

    fn has_fifo_queues(&self) -> bool {
        true
    }

    fn can_choose_newest(&self) -> bool {
        false
    }

    fn schedule_home(&self) -> ScheduleHome {
        ScheduleHome::TableOf("dynamodb")
    }

    fn permission(
        &self,
        queue: &str,
        purpose: Purpose,
        partition: &str,
        _config: &BackendConfig,
    ) -> Option<Permission> {
        iam::permission(queue, purpose, partition)
    }

    fn partition(&self, queue: &str) -> Option<String> {
        iam::partition(queue).map(str::to_owned)
    }

    fn has_cheap_depth(&self) -> bool {
        false
    }

    /// `ApproximateNumberOfMessages` and its siblings.
    fn counts_exactly(&self) -> bool {
        false
    }

    /// `PurgeQueue` deletes all messages, whoever has received them.
    fn purges_in_flight(&self) -> bool {
        true
    }

    /// A release with a delay changes the visibility timeout: the message stays invisible.
    fn counts_released_as_in_flight(&self) -> bool {
        true
    }

    /// As *Amazon SQS pricing* lists them for the first 100 billion requests of a month.
    fn dollars_per_million_calls(&self, queue: &str) -> Option<f64> {
        Some(if self.is_fifo(queue) { 0.5 } else { 0.4 })
    }

    fn settings(&self) -> &'static [BackendSetting] {
        SETTINGS
    }

    fn shared_settings(&self) -> &'static [&'static str] {
        &["endpoint-url"]
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        let sdk = aws::shared_configuration(config.endpoint_url.as_deref()).await;
        let kind = match config.get("client") {
            Some("sdk") => ClientKind::Sdk,
            _ => ClientKind::Direct,
        };
        Ok(Arc::new(SqsClient(Queues::connect(&sdk).with_client(kind))))
    }
}

struct SqsClient(Queues);

#[async_trait::async_trait]
impl BackendClient for SqsClient {
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError> {
        let open = self.0.open(queue, terms.dead_letter).await?;
        Ok(Arc::new(open.within(terms.budget.cloned())))
    }

    async fn queues(&self) -> Result<Vec<String>, QueueError> {
        self.0.names().await
    }

    async fn encryption_key(&self, queue: &str) -> Result<Option<QueueKey>, QueueError> {
        let key = self.0.encryption(queue).await?;
        Ok(key.map(|Encryption { key, queue }| QueueKey { key, queue }))
    }
}
