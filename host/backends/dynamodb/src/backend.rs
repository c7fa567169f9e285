//! The DynamoDB backend for the program: tables as queues, and tables for scheduled messages of SQS
//! queues.

use crate::fleet::DynamoFleet;
use crate::queue::{Completion, Dynamo, FAILED, Options};
use crate::schedule::DynamoDb as Schedules;
use crate::settings;
use dispatcher_aws as aws;
use dispatcher_aws::SdkConfig;
use dispatcher_aws::accounts::AccountClients;
use dispatcher_core::account::{Accounts, AwsAccount};
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendFacts, BadValue, DepthCost, Permission, Purpose,
    QueueTerms, ScheduleOf, WantedNames,
};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::queue::{Queue, QueueError};
use dispatcher_core::schedule::ScheduleStore;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The actions on tables that tasks are taken from. Conditional writes need no further actions
/// (Service Authorization Reference, "Amazon DynamoDB"). A transaction needs only the permissions
/// of its parts.
const TAKE: &[&str] = &[
    "dynamodb:DescribeTable",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
];
/// The actions of [`TAKE`], plus the deletion of completed tasks.
const TAKE_AND_DELETE: &[&str] = &[
    "dynamodb:DeleteItem",
    "dynamodb:DescribeTable",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
];
const COPY: &[&str] = &["dynamodb:DescribeTable", "dynamodb:PutItem"];
/// The actions on the table of a fleet.
const KEEP_LIMITS: &[&str] = &[
    "dynamodb:BatchGetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
];

/// Tables of Amazon DynamoDB, or of a server that speaks its protocol.
pub struct DynamoDbBackend;

#[async_trait::async_trait]
impl Backend for DynamoDbBackend {
    fn facts(&self) -> &'static BackendFacts {
        const FACTS: BackendFacts = BackendFacts {
            // "Quotas" in the DynamoDB guide.
            name_length: 3..=255,
            settings: settings::SETTINGS,
            shared_settings: &["endpoint-url"],
            has_accounts: true,
            dead_letter_part: Some(FAILED),
            has_fleets: true,
            has_groups: false,
            shares_controls: true,
            depth_cost: DepthCost::WholeQueue,
            ..BackendFacts::of("dynamodb")
        };
        &FACTS
    }

    /// Returns the table's name from its ARN.
    fn queue_of_source(&self, source: &str) -> Option<String> {
        let mut parts = source.splitn(6, ':');
        let is_arn = parts.next() == Some("arn") && parts.nth(1) == Some("dynamodb");
        let table = parts.nth(2)?.strip_prefix("table/")?;
        is_arn.then(|| table.to_owned())
    }

    /// Dead letters stay in the table, as FAILURE.
    fn has_dead_letters(&self, _queue: &str) -> bool {
        true
    }

    /// Covers a table and its indices.
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
                    Completion::Keep => TAKE,
                    Completion::Delete => TAKE_AND_DELETE,
                },
                resources: vec![format!("{table}/index/*"), table],
            }),
            Purpose::DeadLetter => Some(Permission {
                sid: "DeadLetterTasks",
                actions: COPY,
                resources: vec![table],
            }),
            Purpose::Fleet => Some(Permission {
                sid: "KeepLimits",
                actions: KEEP_LIMITS,
                resources: vec![table],
            }),
            Purpose::List => Some(Permission {
                sid: "ListTables",
                actions: &["dynamodb:ListTables"],
                // The action has no resources.
                resources: vec!["*".to_owned()],
            }),
            Purpose::Find | Purpose::Redrive | Purpose::Send => None,
        }
    }

    fn check_setting(&self, key: &str, value: &str) -> Result<(), BadValue> {
        settings::check(key, value)
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        let options = settings::options(config)?;
        aws::environment::check()?;
        Ok(Arc::new(DynamoDbClient {
            accounts: config.accounts.clone(),
            options,
            clients: AccountClients::new(config.endpoint_url.clone()),
        }))
    }
}

struct DynamoDbClient {
    accounts: Accounts,
    options: Options,
    clients: AccountClients<TableClients>,
}

/// The clients of one account.
struct TableClients {
    queues: Dynamo,
    schedules: Schedules,
    sdk: SdkConfig,
}

impl DynamoDbClient {
    /// Returns the clients for tables of this account, or of the process itself.
    async fn of(&self, account: Option<&AwsAccount>) -> Arc<TableClients> {
        let clients = self.clients.of(account, |sdk| TableClients {
            queues: Dynamo::connect(sdk, self.options.clone()),
            schedules: Schedules::connect(sdk),
            sdk: sdk.clone(),
        });
        clients.await
    }

    fn account_of(&self, table: &str) -> Option<&AwsAccount> {
        self.accounts.of_queue(&format!("dynamodb:{table}"))
    }

    async fn of_table(&self, table: &str) -> Arc<TableClients> {
        self.of(self.account_of(table)).await
    }
}

#[async_trait::async_trait]
impl BackendClient for DynamoDbClient {
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError> {
        if let Some((table, FAILED)) = queue.split_once('/') {
            let clients = self.of_table(table).await;
            return Ok(Arc::new(clients.queues.failed(table).await?));
        }
        let clients = self.of_table(queue).await;
        let open = clients.queues.open(queue, terms.dead_letter).await?;
        Ok(Arc::new(open.within(terms.budget.cloned())))
    }

    async fn queues(&self) -> Result<Vec<String>, QueueError> {
        self.of(None).await.queues.names().await
    }

    async fn queues_in(
        &self,
        account: Option<&AwsAccount>,
        wanted: &WantedNames<'_>,
    ) -> Result<Vec<String>, QueueError> {
        let queues = &self.of(account).await.queues;
        queues.names_among(wanted.is_wanted).await
    }

    async fn controls(&self, queues: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        let mut by_account: BTreeMap<Option<&AwsAccount>, Vec<usize>> = BTreeMap::new();
        for (at, queue) in queues.iter().enumerate() {
            by_account
                .entry(self.account_of(queue))
                .or_default()
                .push(at);
        }
        let mut controls = vec![QueueControl::default(); queues.len()];
        for (account, places) in by_account {
            let own: Vec<&str> = places.iter().map(|at| queues[*at]).collect();
            let found = self.of(account).await.queues.controls(&own).await?;
            for (at, control) in places.into_iter().zip(found) {
                controls[at] = control;
            }
        }
        Ok(controls)
    }

    async fn change_control(&self, queue: &str, change: &ControlChange) -> Result<(), QueueError> {
        let clients = self.of_table(queue).await;
        clients.queues.change_control(queue, change).await
    }

    async fn schedule(&self, of: ScheduleOf<'_>) -> Result<Arc<dyn ScheduleStore>, CallError> {
        match of {
            ScheduleOf::Table { table, queue } => {
                let clients = self.of_table(table).await;
                Ok(Arc::new(clients.schedules.table(table, queue)))
            }
            ScheduleOf::All | ScheduleOf::Queue(_) => Err(CallError {
                kind: ErrorKind::Invalid,
                message: "scheduled messages wait in a table; wanted its name".to_owned(),
            }),
        }
    }

    async fn fleet(&self, name: &str) -> Result<Arc<dyn FleetStore>, CallError> {
        let clients = self.of_table(name).await;
        Ok(Arc::new(DynamoFleet::connect(&clients.sdk, name)))
    }
}
