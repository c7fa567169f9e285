//! The SQS backend for the program.

use crate::iam;
use crate::queue::{Encryption, Sqs as Queues};
use dispatcher_aws as aws;
use dispatcher_aws::accounts::AccountClients;
use dispatcher_core::account::{Accounts, AwsAccount};
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendFacts, DepthCost, Permission, Purpose, QueueKey,
    QueueTerms, ScheduleHome, WantedNames,
};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::queue::{Queue, QueueError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amazon SQS, or a server that speaks its protocol.
pub struct SqsBackend;

#[async_trait::async_trait]
impl Backend for SqsBackend {
    fn facts(&self) -> &'static BackendFacts {
        const FACTS: BackendFacts = BackendFacts {
            messaging_system: "aws_sqs",
            shared_settings: &["endpoint-url"],
            has_accounts: true,
            has_tags: true,
            has_fifo_queues: true,
            can_choose_newest: false,
            schedule_home: ScheduleHome::TableOf("dynamodb"),
            depth_cost: DepthCost::OneCall,
            // SQS only reports `ApproximateNumberOfMessages` and similar attributes.
            counts_exactly: false,
            // `PurgeQueue` deletes all messages, including those in flight.
            purges_in_flight: true,
            // A release with a delay changes the visibility timeout, so the message stays in flight.
            counts_released_as_in_flight: true,
            ..BackendFacts::of("sqs")
        };
        &FACTS
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

    /// Accepts a queue's ARN, or its URL if the ARN could not be read.
    fn queue_of_source(&self, source: &str) -> Option<String> {
        let is_arn = source.starts_with("arn:") && self.check_address(source).is_ok();
        let is_url = source.starts_with("https://") || source.starts_with("http://");
        (is_arn || is_url).then(|| source.to_owned())
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

    /// Returns the price of the first 100 billion requests of a month (*Amazon SQS pricing*).
    fn dollars_per_million_calls(&self, queue: &str) -> Option<f64> {
        Some(if self.is_fifo(queue) { 0.5 } else { 0.4 })
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        aws::environment::check()?;
        Ok(Arc::new(SqsClient {
            accounts: config.accounts.clone(),
            clients: AccountClients::new(config.endpoint_url.clone()),
        }))
    }
}

struct SqsClient {
    accounts: Accounts,
    clients: AccountClients<Queues>,
}

impl SqsClient {
    /// Returns the client for a queue of this account, or of the process itself.
    async fn of(&self, account: Option<&AwsAccount>) -> Arc<Queues> {
        self.clients.of(account, Queues::connect).await
    }

    async fn of_queue(&self, queue: &str) -> Arc<Queues> {
        self.of(self.accounts.of_queue(queue)).await
    }
}

#[async_trait::async_trait]
impl BackendClient for SqsClient {
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError> {
        let open = self
            .of_queue(queue)
            .await
            .open(queue, terms.dead_letter)
            .await?;
        Ok(Arc::new(open.within(terms.budget.cloned())))
    }

    async fn queues(&self) -> Result<Vec<String>, QueueError> {
        self.of(None).await.names(None).await
    }

    async fn queues_in(
        &self,
        account: Option<&AwsAccount>,
        wanted: &WantedNames<'_>,
    ) -> Result<Vec<String>, QueueError> {
        let mut names = self.of(account).await.names(Some(wanted.prefix)).await?;
        names.retain(|name| (wanted.is_wanted)(name));
        Ok(names)
    }

    async fn is_dead_letter_queue(&self, queue: &str) -> Result<bool, QueueError> {
        self.of_queue(queue).await.has_sources(queue).await
    }

    async fn tags(&self, queue: &str) -> Result<BTreeMap<String, String>, QueueError> {
        self.of_queue(queue).await.tags(queue).await
    }

    async fn encryption_key(&self, queue: &str) -> Result<Option<QueueKey>, QueueError> {
        let key = self.of_queue(queue).await.encryption(queue).await?;
        Ok(key.map(|Encryption { key, queue }| QueueKey { key, queue }))
    }
}
