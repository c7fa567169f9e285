//! The PostgreSQL backend for the program.

use crate::bucket::PostgresBucket;
use crate::fleet::PostgresFleet;
use crate::install;
use crate::queue::{self, DEAD, LONGEST_NAME, PostgresQueue, QueueOptions};
use crate::schedule::PostgresSchedule;
use crate::server::Server;
use crate::settings;
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendFacts, BackendRoles, BadValue, QueueTerms,
    ScheduleHome, ScheduleOf,
};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::keyvalue::Bucket;
use dispatcher_core::queue::{Queue, QueueError};
use dispatcher_core::schedule::ScheduleStore;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Queues in a PostgreSQL database, in the layout of pgmq.
pub struct PostgresBackend;

#[async_trait::async_trait]
impl Backend for PostgresBackend {
    fn facts(&self) -> &'static BackendFacts {
        const FACTS: BackendFacts = BackendFacts {
            messaging_system: "postgresql",
            name_length: 1..=LONGEST_NAME,
            settings: settings::SETTINGS,
            has_buckets: true,
            has_fleets: true,
            shares_controls: true,
            counts_exactly: false,
            schedule_home: ScheduleHome::Shared,
            ..BackendFacts::of("postgres")
        };
        &FACTS
    }

    fn check_setting(&self, key: &str, value: &str) -> Result<(), BadValue> {
        settings::check(key, value)
    }

    fn has_dead_letters(&self, queue: &str) -> bool {
        queue::default_dead_letters(queue).is_some()
    }

    fn installation(&self, roles: &BackendRoles) -> Option<String> {
        Some(install::script(roles))
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        let connections = config
            .get("max-connections")
            .and_then(|most| most.parse().ok());
        let settings_of_queues = config.list("archive").iter();
        let archived = settings_of_queues.filter_map(|one| one.strip_suffix("=yes"));
        Ok(Arc::new(PostgresClient {
            server: Server::new(
                config.get("url"),
                connections.unwrap_or(settings::CONNECTIONS),
            )?,
            archived: archived.map(str::to_owned).collect(),
        }))
    }
}

/// A client of one server. Its queues share the connections.
struct PostgresClient {
    server: Server,
    /// The names of the queues whose messages move to the archive.
    archived: BTreeSet<String>,
}

#[async_trait::async_trait]
impl BackendClient for PostgresClient {
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError> {
        let options = QueueOptions {
            dead_letter: terms.dead_letter,
            archive: self.archived.contains(queue),
            budget: terms.budget.cloned(),
        };
        let open = PostgresQueue::open(&self.server, queue, options).await?;
        Ok(Arc::new(open))
    }

    async fn queues(&self) -> Result<Vec<String>, QueueError> {
        queue::names(&self.server).await
    }

    async fn is_dead_letter_queue(&self, queue: &str) -> Result<bool, QueueError> {
        Ok(queue.ends_with(DEAD))
    }

    async fn exists(&self, queue: &str) -> Result<bool, QueueError> {
        Ok(self.queues().await?.iter().any(|name| name == queue))
    }

    async fn controls(&self, queues: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        queue::controls(&self.server, queues).await
    }

    async fn change_control(&self, queue: &str, change: &ControlChange) -> Result<(), QueueError> {
        queue::change_control(&self.server, queue, change).await
    }

    async fn schedule(&self, of: ScheduleOf<'_>) -> Result<Arc<dyn ScheduleStore>, CallError> {
        match of {
            ScheduleOf::All => Ok(Arc::new(PostgresSchedule::on(&self.server))),
            ScheduleOf::Queue(_) | ScheduleOf::Table { .. } => Err(CallError {
                kind: ErrorKind::Invalid,
                message: "scheduled messages of all queues wait in one table on PostgreSQL"
                    .to_owned(),
            }),
        }
    }

    async fn bucket(&self, name: &str) -> Result<Arc<dyn Bucket>, CallError> {
        Ok(Arc::new(PostgresBucket::on(&self.server, name)))
    }

    async fn fleet(&self, name: &str) -> Result<Arc<dyn FleetStore>, CallError> {
        Ok(Arc::new(PostgresFleet::on(&self.server, name)))
    }

    async fn install(&self, roles: &BackendRoles) -> Result<(), CallError> {
        self.server.run_script(&install::script(roles)).await?;
        for queue in queue::unprepared(&self.server).await? {
            tracing::warn!(queue, "queue of pgmq not prepared; its first use says why");
        }
        Ok(())
    }
}
