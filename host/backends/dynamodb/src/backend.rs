//! The DynamoDB backend for the program: tables as queues, and tables for scheduled messages of SQS
//! queues.

use crate::queue::{Completed, Dynamo, FAILED};
use crate::schedule::DynamoDb as Schedules;
use crate::settings;
use dispatcher_aws as aws;
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendSetting, BadValue, Permission, Purpose,
    QueueTerms, ScheduleOf,
};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::queue::{Queue, QueueError};
use dispatcher_core::schedule::ScheduleStore;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// What is called on tables that tasks are taken from; conditional writes need no more (Service
/// Authorization Reference, "Amazon DynamoDB"). A transaction is allowed by the names of its parts.
const TAKE: &[&str] = &[
    "dynamodb:DescribeTable",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
];
/// The same where tasks that are done are deleted.
const TAKE_AND_DELETE: &[&str] = &[
    "dynamodb:DeleteItem",
    "dynamodb:DescribeTable",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
];
const COPY: &[&str] = &["dynamodb:DescribeTable", "dynamodb:PutItem"];

/// Tables of Amazon DynamoDB, or of a server that speaks its protocol.
pub struct DynamoDbBackend;

#[async_trait::async_trait]
impl Backend for DynamoDbBackend {
    fn name(&self) -> &'static str {
        "dynamodb"
    }

    fn has_cheap_depth(&self) -> bool {
        false
    }

    /// By the table's ARN.
    fn queue_of_source(&self, source: &str) -> Option<String> {
        let mut parts = source.splitn(6, ':');
        let is_arn = parts.next() == Some("arn") && parts.nth(1) == Some("dynamodb");
        let table = parts.nth(2)?.strip_prefix("table/")?;
        is_arn.then(|| table.to_owned())
    }

    /// What DynamoDB takes as the name of a table ("quotas" in its guide).
    fn name_length(&self) -> RangeInclusive<usize> {
        3..=255
    }

    /// They stay in the table, as FAILURE.
    fn has_dead_letters(&self, _queue: &str) -> bool {
        true
    }

    fn dead_letter_part(&self) -> Option<&'static str> {
        Some(FAILED)
    }

    fn shares_controls(&self) -> bool {
        true
    }

    /// Of a table and its indices.
    fn permission(
        &self,
        queue: &str,
        purpose: Purpose,
        partition: &str,
        config: &BackendConfig,
    ) -> Option<Permission> {
        let table = format!("arn:{partition}:dynamodb:*:*:table/{queue}");
        match purpose {
            Purpose::Receive => Some(Permission {
                sid: "TakeTasks",
                actions: match settings::completed(config) {
                    Completed::Keep => TAKE,
                    Completed::Delete => TAKE_AND_DELETE,
                },
                resources: vec![format!("{table}/index/*"), table],
            }),
            Purpose::DeadLetter => Some(Permission {
                sid: "DeadLetterTasks",
                actions: COPY,
                resources: vec![table],
            }),
            Purpose::Redrive | Purpose::Send => None,
        }
    }

    fn settings(&self) -> &'static [BackendSetting] {
        settings::SETTINGS
    }

    fn shared_settings(&self) -> &'static [&'static str] {
        &["endpoint-url"]
    }

    fn check_setting(&self, key: &str, value: &str) -> Result<(), BadValue> {
        settings::check(key, value)
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        let options = settings::options(config)?;
        let sdk = aws::shared_configuration(config.endpoint_url.as_deref()).await;
        Ok(Arc::new(DynamoDbClient {
            queues: Dynamo::connect(&sdk, options),
            schedules: Schedules::connect(&sdk),
        }))
    }
}

struct DynamoDbClient {
    queues: Dynamo,
    schedules: Schedules,
}

#[async_trait::async_trait]
impl BackendClient for DynamoDbClient {
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError> {
        if let Some((table, FAILED)) = queue.split_once('/') {
            return Ok(Arc::new(self.queues.failed(table).await?));
        }
        let open = self.queues.open(queue, terms.dead_letter).await?;
        Ok(Arc::new(open.within(terms.budget.cloned())))
    }

    async fn queues(&self) -> Result<Vec<String>, QueueError> {
        self.queues.names().await
    }

    async fn controls(&self, queues: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        self.queues.controls(queues).await
    }

    async fn change_control(&self, queue: &str, change: &ControlChange) -> Result<(), QueueError> {
        self.queues.change_control(queue, change).await
    }

    async fn schedule(&self, of: ScheduleOf<'_>) -> Result<Arc<dyn ScheduleStore>, CallError> {
        match of {
            ScheduleOf::Table { table, queue } => Ok(Arc::new(self.schedules.table(table, queue))),
            ScheduleOf::All | ScheduleOf::Queue(_) => Err(CallError {
                kind: ErrorKind::Invalid,
                message: "scheduled messages wait in a table; wanted its name".to_owned(),
            }),
        }
    }
}
