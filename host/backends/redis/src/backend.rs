//! The Redis backend for the program.

use crate::fleet::RedisFleet;
use crate::keyvalue::Redis as Buckets;
use crate::queue::{Eviction, Redis as Queues};
use crate::schedule::Redis as Schedules;
use crate::server::dial::TlsFiles;
use crate::server::link::{Link, RedisAddress, RedisConnections};
use crate::settings;
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendFacts, BadValue, CancelCount, QueueTerms,
    ScheduleHome, ScheduleOf, SectionValues, ServerWarning, WorkerInfo, depth_of, not_made_yet,
};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::keyvalue::Bucket;
use dispatcher_core::queue::{Depth, Queue, QueueError};
use dispatcher_core::schedule::ScheduleStore;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// The suffix of the default dead-letter queue.
const DEAD: &str = ".dead";

/// Queues on a Redis server: dispatcher's own and those of npm `worqr`.
pub struct RedisBackend;

const FACTS: BackendFacts = BackendFacts {
    settings: settings::SETTINGS,
    shares_out: true,
    can_cancel: true,
    lists_workers: true,
    has_buckets: true,
    has_fleets: true,
    shares_controls: true,
    schedule_home: ScheduleHome::BesideQueue,
    ..BackendFacts::of("redis")
};

/// The facts about queues of npm `worqr`, whose messages are only bodies.
const WORQR: BackendFacts = BackendFacts {
    shares_out: false,
    has_groups: false,
    has_attributes: false,
    ..FACTS
};

#[async_trait::async_trait]
impl Backend for RedisBackend {
    fn facts(&self) -> &'static BackendFacts {
        &FACTS
    }

    fn facts_of(&self, queue: &str, config: &BackendConfig) -> &'static BackendFacts {
        if is_worqr(&settings::worqr_queues(config), queue) {
            &WORQR
        } else {
            &FACTS
        }
    }

    fn check_setting(&self, key: &str, value: &str) -> Result<(), BadValue> {
        settings::check(key, value)
    }

    fn check_section(&self, values: &SectionValues) -> Vec<(&'static str, BadValue)> {
        settings::check_tls(values)
    }

    fn has_dead_letters(&self, queue: &str) -> bool {
        !queue.ends_with(DEAD)
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        let file = |key: &str| config.get(key).map(PathBuf::from);
        let lines = RedisConnections::new(&RedisAddress {
            url: config.get("url").unwrap_or(settings::URL).to_owned(),
            tls: TlsFiles {
                ca: file("ca-file"),
                client: file("cert-file").zip(file("key-file")),
            },
        })?;
        let prefix = config.get("prefix").unwrap_or(settings::PREFIX);
        let worqr_prefix = config.get("worqr-prefix");
        Ok(Arc::new(RedisClient {
            queues: Queues::on(&lines, prefix)?,
            schedules: Schedules::on(lines.link.clone(), prefix),
            buckets: Buckets::on(lines.link.clone(), prefix),
            urgent: lines.urgent,
            prefix: prefix.to_owned(),
            worqr: settings::worqr_queues(config),
            worqr_prefix: worqr_prefix.unwrap_or(settings::WORQR_PREFIX).to_owned(),
        }))
    }
}

/// A client of one server. Its queues, schedules, buckets and fleets share the connections.
struct RedisClient {
    queues: Queues,
    schedules: Schedules,
    buckets: Buckets,
    /// The link for calls that must be in time.
    urgent: Link,
    prefix: String,
    /// The names of the queues of npm `worqr`.
    worqr: BTreeSet<String>,
    worqr_prefix: String,
}

/// Whether a queue is one of these of npm `worqr`, or holds the dead letters of one.
fn is_worqr(worqr: &BTreeSet<String>, queue: &str) -> bool {
    let bare = queue.strip_suffix(DEAD).unwrap_or(queue);
    worqr.contains(bare) || worqr.contains(queue)
}

impl RedisClient {
    fn is_worqr(&self, queue: &str) -> bool {
        is_worqr(&self.worqr, queue)
    }

    fn is_among(&self, queue: &str, known: &BTreeSet<String>) -> bool {
        let bare = queue.strip_suffix(DEAD).unwrap_or(queue);
        self.is_worqr(queue) || known.contains(queue) || known.contains(bare)
    }

    async fn names(&self) -> Result<BTreeSet<String>, QueueError> {
        Ok(self.queues.names().await?.into_iter().collect())
    }
}

#[async_trait::async_trait]
impl BackendClient for RedisClient {
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError> {
        if self.is_worqr(queue) {
            let prefix = &self.worqr_prefix;
            let open = self.queues.worqr(prefix, queue, terms.dead_letter).await?;
            return Ok(Arc::new(open.within(terms.budget.cloned())));
        }
        let open = self.queues.queue(queue, terms.dead_letter).await?;
        Ok(Arc::new(open.within(terms.budget.cloned())))
    }

    async fn queues(&self) -> Result<Vec<String>, QueueError> {
        let mut names = self.queues.names().await?;
        names.extend(self.worqr.iter().cloned());
        Ok(names)
    }

    async fn is_dead_letter_queue(&self, queue: &str) -> Result<bool, QueueError> {
        Ok(queue.ends_with(DEAD))
    }

    async fn exists(&self, queue: &str) -> Result<bool, QueueError> {
        if self.is_worqr(queue) {
            return Ok(true);
        }
        Ok(self.is_among(queue, &self.names().await?))
    }

    /// Returns the depths. Reads the list of queues only once.
    async fn depths(&self, queues: &[&str]) -> Vec<Result<Depth, QueueError>> {
        let known = if queues.iter().all(|queue| self.is_worqr(queue)) {
            Ok(BTreeSet::new())
        } else {
            self.names().await
        };
        let mut depths = Vec::with_capacity(queues.len());
        for queue in queues {
            depths.push(match &known {
                _ if self.is_worqr(queue) => depth_of(self, queue).await,
                Ok(known) if self.is_among(queue, known) => depth_of(self, queue).await,
                Ok(_) => Err(not_made_yet()),
                Err(error) => Err(error.clone()),
            });
        }
        depths
    }

    async fn cancel(&self, queue: &str, task: &str) -> Result<CancelCount, QueueError> {
        if self.is_worqr(queue) {
            let prefix = &self.worqr_prefix;
            return self.queues.cancel_worqr(prefix, queue, task).await;
        }
        self.queues.refuse_newer().await?;
        self.queues.cancel(queue, task).await
    }

    async fn controls(&self, queues: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        self.queues.controls(queues).await
    }

    async fn change_control(&self, queue: &str, change: &ControlChange) -> Result<(), QueueError> {
        self.queues.refuse_newer().await?;
        self.queues.change_control(queue, change).await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, QueueError> {
        self.queues.workers().await
    }

    async fn schedule(&self, of: ScheduleOf<'_>) -> Result<Arc<dyn ScheduleStore>, CallError> {
        self.queues.refuse_newer().await?;
        match of {
            ScheduleOf::Queue(queue) => Ok(Arc::new(self.schedules.schedule(queue))),
            ScheduleOf::All | ScheduleOf::Table { .. } => Err(CallError {
                kind: ErrorKind::Invalid,
                message: "scheduled messages wait beside their queue on Redis; wanted a queue"
                    .to_owned(),
            }),
        }
    }

    async fn bucket(&self, name: &str) -> Result<Arc<dyn Bucket>, CallError> {
        self.queues.refuse_newer().await?;
        Ok(Arc::new(self.buckets.bucket(name)))
    }

    async fn fleet(&self, name: &str) -> Result<Arc<dyn FleetStore>, CallError> {
        self.queues.refuse_newer().await?;
        Ok(Arc::new(RedisFleet::on(&self.urgent, &self.prefix, name)))
    }

    async fn warnings(&self, log: bool) -> Vec<ServerWarning> {
        let message = match self.queues.eviction().await {
            Some(Eviction::Never) | None => return Vec::new(),
            Some(Eviction::By(policy)) => {
                if log {
                    tracing::warn!(
                        policy,
                        "Redis evicts messages when its memory is full; set maxmemory-policy to noeviction"
                    );
                }
                format!(
                    "its maxmemory-policy is {policy}: when its memory is full it evicts messages; \
                     `CONFIG SET maxmemory-policy noeviction` makes it refuse new ones instead"
                )
            }
            Some(Eviction::Unknown(reason)) => {
                if log {
                    tracing::info!(
                        reason,
                        "Redis does not show its maxmemory-policy; make sure that it is noeviction"
                    );
                }
                format!(
                    "its maxmemory-policy cannot be read, make sure that it is noeviction: {reason}"
                )
            }
        };
        let about = "the Redis server";
        vec![ServerWarning { about, message }]
    }
}
