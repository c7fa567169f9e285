//! The PostgreSQL backend for the program.

use crate::bucket::PostgresBucket;
use crate::fleet::PostgresFleet;
use crate::install;
use crate::queue::{self, DEAD, PostgresQueue, QueueOptions};
use crate::server::Server;
use crate::settings;
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendFacts, BackendRoles, BadValue, QueueTerms,
};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::keyvalue::Bucket;
use dispatcher_core::queue::{Queue, QueueError};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Queues in a PostgreSQL database, in the layout of pgmq.
pub struct PostgresBackend;

#[async_trait::async_trait]
impl Backend for PostgresBackend {
    fn facts(&self) -> &'static BackendFacts {
        const FACTS: BackendFacts = BackendFacts {
            messaging_system: "postgresql",
            // pgmq's limit: a name of 63 characters with what it adds.
            name_length: 1..=47,
            settings: settings::SETTINGS,
            has_buckets: true,
            has_fleets: true,
            shares_controls: true,
            ..BackendFacts::of("postgres")
        };
        &FACTS
    }

    fn check_setting(&self, key: &str, value: &str) -> Result<(), BadValue> {
        settings::check(key, value)
    }

    fn has_dead_letters(&self, queue: &str) -> bool {
        !queue.ends_with(DEAD)
    }

    fn installation(&self, roles: &BackendRoles) -> Option<String> {
        Some(install::script(roles))
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        let connections = config
            .get("max-connections")
            .and_then(|most| most.parse().ok());
        let archived = config.list("archive").iter();
        let archived = archived.filter_map(|one| one.strip_suffix("=yes"));
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

    async fn bucket(&self, name: &str) -> Result<Arc<dyn Bucket>, CallError> {
        Ok(Arc::new(PostgresBucket::on(&self.server, name)))
    }

    async fn fleet(&self, name: &str) -> Result<Arc<dyn FleetStore>, CallError> {
        Ok(Arc::new(PostgresFleet::on(&self.server, name)))
    }

    async fn install(&self, roles: &BackendRoles) -> Result<(), CallError> {
        self.server.run_script(&install::script(roles)).await
    }
}
