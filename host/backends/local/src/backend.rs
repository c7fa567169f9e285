//! The embedded backend for the program.

use crate::fleet::LocalFleet;
use crate::idempotency::{self, LocalRecords};
use crate::keyvalue::Local as Buckets;
use crate::queue::{LocalStore as Queues, named_by};
use crate::schedule::File;
use dispatcher_core::account::AwsAccount;
use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendFacts, Contradiction, DelayedMessage,
    QueueDeclaration, QueueTerms, ScheduleHome, ScheduleOf, WantedNames, not_made_yet,
};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::idempotency::{Records, RecordsError};
use dispatcher_core::keyvalue::Bucket;
use dispatcher_core::queue::{Depth, Queue, QueueError};
use dispatcher_core::schedule::ScheduleStore;
use dispatcher_core::tasks;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The suffix of the default dead-letter queue.
const DEAD: &str = ".dead";

/// Queues in files of the data folder.
pub struct LocalBackend;

#[async_trait::async_trait]
impl Backend for LocalBackend {
    fn facts(&self) -> &'static BackendFacts {
        const FACTS: BackendFacts = BackendFacts {
            messaging_system: "dispatcher_local",
            shared_settings: &["data"],
            is_embedded: true,
            has_tags: true,
            shares_out: true,
            counts_at_once: true,
            has_buckets: true,
            has_fleets: true,
            shares_controls: true,
            schedule_home: ScheduleHome::Shared,
            ..BackendFacts::of("local")
        };
        &FACTS
    }

    fn has_dead_letters(&self, queue: &str) -> bool {
        !queue.ends_with(DEAD)
    }

    /// Accepts ARNs too: redrive policies of this backend name queues by ARN, as SQS does.
    fn queue_of_source(&self, source: &str) -> Option<String> {
        let name = source.strip_prefix("local:");
        name.or_else(|| named_by(source)).map(str::to_owned)
    }

    fn records_file(&self, data: &Path) -> Option<PathBuf> {
        Some(idempotency::path(data))
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        Ok(Arc::new(LocalClient {
            data: Some(config.data.clone()),
            queues: OnceCell::new(),
            buckets: OnceCell::new(),
        }))
    }
}

/// Returns a client of an open store of queues. It opens the other files of `data` when they are
/// needed; without `data` it has none.
pub fn client_of(store: Queues, data: Option<&Path>) -> Arc<dyn BackendClient> {
    Arc::new(LocalClient {
        data: data.map(Path::to_owned),
        queues: OnceCell::new_with(Some(store)),
        buckets: OnceCell::new(),
    })
}

/// The files of one data folder, each opened when it is first needed.
struct LocalClient {
    /// `None` if the queues are in memory.
    data: Option<PathBuf>,
    queues: OnceCell<Queues>,
    buckets: OnceCell<Buckets>,
}

impl LocalClient {
    /// Whether the store is open or its file exists. Does not create the file.
    fn is_made(&self) -> bool {
        let file = self.data.as_ref().map(|data| data.join("local.db"));
        self.queues.initialized() || file.is_some_and(|file| file.exists())
    }

    fn folder(&self) -> Result<&Path, CallError> {
        self.data.as_deref().ok_or_else(|| CallError {
            kind: ErrorKind::Invalid,
            message: "queues in memory have no schedule, buckets, records or limits".to_owned(),
        })
    }

    async fn store(&self) -> Result<&Queues, QueueError> {
        self.queues
            .get_or_try_init(|| async { Queues::open(self.folder()?) })
            .await
    }
}

#[async_trait::async_trait]
impl BackendClient for LocalClient {
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError> {
        let open = self.store().await?.queue(queue, terms.dead_letter)?;
        Ok(Arc::new(open.within(terms.budget.cloned(), terms.attempts)))
    }

    async fn make(&self, queues: &[&str]) -> Result<(), QueueError> {
        let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
        self.store().await?.make(queues).await
    }

    async fn queues(&self) -> Result<Vec<String>, QueueError> {
        self.store().await?.names()
    }

    async fn queues_in(
        &self,
        _account: Option<&AwsAccount>,
        wanted: &WantedNames<'_>,
    ) -> Result<Vec<String>, QueueError> {
        if !self.is_made() {
            return Ok(Vec::new());
        }
        let mut names = self.queues().await?;
        names.retain(|name| (wanted.is_wanted)(name));
        Ok(names)
    }

    async fn is_dead_letter_queue(&self, queue: &str) -> Result<bool, QueueError> {
        Ok(queue.ends_with(DEAD) || self.store().await?.has_sources(queue).await?)
    }

    async fn tags(&self, queue: &str) -> Result<BTreeMap<String, String>, QueueError> {
        self.store().await?.tags(queue).await
    }

    async fn contradictions(
        &self,
        queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        if !self.is_made() {
            return Ok(Vec::new());
        }
        self.store().await?.contradictions(queues.to_vec()).await
    }

    async fn declare(&self, queues: &[QueueDeclaration]) -> Result<Vec<Contradiction>, QueueError> {
        self.store().await?.declare(queues.to_vec()).await
    }

    /// Whether the queue exists. A dead-letter queue exists as soon as its queue does.
    async fn exists(&self, queue: &str) -> Result<bool, QueueError> {
        if !self.is_made() {
            return Ok(false);
        }
        let bare = queue.strip_suffix(DEAD).unwrap_or(queue);
        let names = [queue, bare].map(str::to_owned);
        self.store().await?.has_one_of(names).await
    }

    /// Counts all queues in one call. A dead-letter queue exists as soon as its queue does, and is
    /// empty until the first dead letter.
    async fn depths(&self, queues: &[&str]) -> Vec<Result<Depth, QueueError>> {
        let bare = |name: &&str| name.strip_suffix(DEAD).map(str::to_owned);
        let asked = queues
            .iter()
            .map(|name| (*name).to_owned())
            .chain(queues.iter().filter_map(bare))
            .collect();
        let found = match self.store().await {
            Ok(store) => store.depths(asked).await,
            Err(error) => Err(error),
        };
        let mut found = match found {
            Ok(found) => found,
            Err(error) => return vec![Err(error); queues.len()],
        };
        let mut bare = found.split_off(queues.len()).into_iter();
        let named = queues.iter().zip(found);
        named
            .map(|(name, own): (&&str, Option<Depth>)| {
                let of = name.strip_suffix(DEAD).and_then(|_| bare.next().flatten());
                own.or(of.map(|_| Depth::default()))
                    .ok_or_else(not_made_yet)
            })
            .collect()
    }

    async fn controls(&self, queues: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
        self.store().await?.controls(queues).await
    }

    async fn change_control(&self, queue: &str, change: &ControlChange) -> Result<(), QueueError> {
        self.store().await?.change_control(queue, *change).await
    }

    async fn delayed(
        &self,
        queue: Option<&str>,
        most: usize,
    ) -> Result<Vec<DelayedMessage>, QueueError> {
        self.store().await?.delayed(queue, most).await
    }

    async fn take_back(&self, queue: &str, id: &str) -> Result<bool, QueueError> {
        self.store().await?.cancel(queue, id).await
    }

    async fn schedule(&self, _of: ScheduleOf<'_>) -> Result<Arc<dyn ScheduleStore>, CallError> {
        Ok(Arc::new(File::of(self.folder()?)))
    }

    async fn bucket(&self, name: &str) -> Result<Arc<dyn Bucket>, CallError> {
        let folder = self.folder()?.to_owned();
        let store = self
            .buckets
            .get_or_try_init(|| tasks::blocking(move || Buckets::open(&folder)).finished())
            .await?;
        Ok(Arc::new(store.bucket(name)))
    }

    async fn fleet(&self, name: &str) -> Result<Arc<dyn FleetStore>, CallError> {
        let (folder, name) = (self.folder()?.to_owned(), name.to_owned());
        let opening = tasks::blocking(move || LocalFleet::open(&folder, &name));
        Ok(Arc::new(opening.finished().await?))
    }

    fn records(&self) -> Result<Arc<dyn Records>, RecordsError> {
        let folder = self.folder().map_err(|error| RecordsError(error.message))?;
        Ok(Arc::new(LocalRecords::open(folder)?))
    }
}
