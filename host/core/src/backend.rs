//! The port to backends: what the program needs from a queue system before anything is opened
//! (`Backend`) and once its configuration is known (`BackendClient`). Knows no backend.

mod setting;

use crate::clock::Timestamp;
use crate::control::{ControlChange, QueueControl};
use crate::error_kind::{CallError, ErrorKind};
use crate::idempotency::{Records, RecordsError};
use crate::keyvalue::Bucket;
use crate::memory::Budget;
use crate::message::Outgoing;
use crate::queue::{Depth, Queue, QueueError};
use crate::schedule::ScheduleStore;
pub use setting::{BackendSetting, BadValue, SectionValues, SettingFlag, SettingForm};
use std::cmp::Ordering;
use std::fmt::{self, Display};
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A kind of system in which queues live: facts that need no connection, and how it is connected to.
/// What has a default is what a backend without the feature in question answers.
#[async_trait::async_trait]
pub trait Backend: Send + Sync + 'static {
    /// What queue names begin with, before the colon; the name of its Cargo feature and of its section
    /// in the configuration file. Unique.
    fn name(&self) -> &'static str;

    /// What the conventions of OpenTelemetry call it (`messaging.system`).
    fn messaging_system(&self) -> &'static str {
        self.name()
    }

    /// How many characters the name of a queue may have.
    fn name_length(&self) -> RangeInclusive<usize> {
        1..=80
    }

    /// Whether a URL or an ARN names a queue of this backend; an error says what was wanted. Asked only
    /// of the backend whose queues are written without its name.
    fn check_address(&self, address: &str) -> Result<(), String> {
        Err(format!("`{address}` is not a queue name; wanted a name"))
    }

    /// The keys of its section in the configuration.
    fn settings(&self) -> &'static [BackendSetting] {
        &[]
    }

    /// Which settings of `[dispatcher]` its section may have as well, because they are about it.
    fn shared_settings(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a value of its section can be used; asked of those whose form is right.
    fn check_setting(&self, _key: &str, _value: &str) -> Result<(), BadValue> {
        Ok(())
    }

    /// What is wrong with its section as a whole, each with the key that it is about.
    fn check_section(&self, _values: &SectionValues) -> Vec<(&'static str, BadValue)> {
        Vec::new()
    }

    /// Whether its queues are files of this program, so that commands that name no queue mean it.
    fn is_embedded(&self) -> bool {
        false
    }

    /// Whether it has FIFO queues beside standard ones. Elsewhere all queues treat groups alike.
    fn has_fifo_queues(&self) -> bool {
        false
    }

    /// Whether the name of a queue says that it is FIFO.
    fn is_fifo(&self, queue: &str) -> bool {
        self.has_fifo_queues() && queue.ends_with(".fifo")
    }

    /// Whether `Ask::newest_first` has an effect.
    fn can_choose_newest(&self) -> bool {
        true
    }

    /// Whether a queue has somewhere to put its dead letters where no dead-letter queue is configured.
    fn has_dead_letters(&self, _queue: &str) -> bool {
        false
    }

    /// Whether `BackendClient::depths` counts all queues in one call.
    fn counts_at_once(&self) -> bool {
        false
    }

    /// What a queue's name ends with, behind a slash, where its own dead letters are meant: they stay in
    /// it, and are listed, moved and removed under that name.
    fn dead_letter_part(&self) -> Option<&'static str> {
        None
    }

    /// The queue of this backend that a dead letter names as its source (`Message::source`), as the
    /// names of its queues are written without the backend.
    fn queue_of_source(&self, source: &str) -> Option<String> {
        let name = source.strip_prefix(self.name())?.strip_prefix(':')?;
        Some(name.to_owned())
    }

    /// Whether `BackendClient::cancel` can cancel messages.
    fn can_cancel(&self) -> bool {
        false
    }

    /// Whether `BackendClient::workers` can list workers.
    fn lists_workers(&self) -> bool {
        false
    }

    /// Whether `BackendClient::bucket` can open buckets.
    fn has_buckets(&self) -> bool {
        false
    }

    /// Whether processes share what operators set on its queues, by `BackendClient::controls`.
    fn shares_controls(&self) -> bool {
        false
    }

    /// Where scheduled messages for its queues wait.
    fn schedule_home(&self) -> ScheduleHome {
        ScheduleHome::None
    }

    /// The file in which `BackendClient::records` keeps idempotency records, where it can.
    fn records_file(&self, _data: &Path) -> Option<PathBuf> {
        None
    }

    /// What an IAM policy must allow for using a queue. `partition` is that of the ARNs which the name
    /// leaves open.
    fn permission(
        &self,
        _queue: &str,
        _purpose: Purpose,
        _partition: &str,
        _config: &BackendConfig,
    ) -> Option<Permission> {
        None
    }

    /// The AWS partition of a queue, from its name.
    fn partition(&self, _queue: &str) -> Option<String> {
        None
    }

    /// Whether `Queue::depth` is cheap: it is not billed, and does not read all messages.
    fn has_cheap_depth(&self) -> bool {
        true
    }

    /// Whether `Queue::depth` counts every message, and is no estimate.
    fn counts_exactly(&self) -> bool {
        true
    }

    /// Whether `Queue::purge` also removes what is in flight.
    fn purges_in_flight(&self) -> bool {
        false
    }

    /// Whether `Queue::depth` counts a message as in flight that was released for a later attempt, until
    /// then.
    fn counts_released_as_in_flight(&self) -> bool {
        false
    }

    /// What a million calls for a queue cost in US dollars, at the list price of US East; nothing
    /// where calls are not billed.
    fn dollars_per_million_calls(&self, _queue: &str) -> Option<f64> {
        None
    }

    /// Makes a client. Connects to nothing that may be slow: that is done when it is first needed.
    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError>;
}

impl PartialEq for dyn Backend {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Backend {}

impl PartialOrd for dyn Backend {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Backend {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl Hash for dyn Backend {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for dyn Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// What the configuration says to a backend.
#[derive(Debug, Clone, Default)]
pub struct BackendConfig {
    /// The folder of the program's own files. May not exist yet.
    pub data: PathBuf,
    /// The address of every AWS service; without it, as the SDK decides.
    pub endpoint_url: Option<String>,
    /// The keys of the backend's section that are set, checked when the configuration was read.
    pub section: SectionValues,
}

impl BackendConfig {
    /// The value of a key of the section.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.section.get(key)?.first().map(String::as_str)
    }

    /// All values of a key of the section.
    pub fn list(&self, key: &str) -> &[String] {
        self.section.get(key).map_or(&[], Vec::as_slice)
    }
}

/// A queue that the configuration declares, by its bare name. What is `None` stays as it is, or is
/// as usual where the queue is made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueDeclaration {
    /// Where it was written: `dispatcher.toml:12`.
    pub at: String,
    /// The bare name.
    pub name: String,
    /// Groups in order, and nothing taken twice within five minutes.
    pub fifo: bool,
    /// How long a received message stays invisible.
    pub visibility: Option<Duration>,
    /// How long a message waits before it may be received.
    pub delay: Option<Duration>,
    /// How long a message is kept.
    pub retention: Option<Duration>,
    /// The queue that a message goes to, by its bare name, after it was received so many times.
    pub redrive: Option<(String, u32)>,
}

/// Why a declaration contradicts the queue that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// Where the declaration was written.
    pub at: String,
    /// What is there.
    pub found: String,
    /// What would do.
    pub wanted: String,
}

/// What a route wants of its queues.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueTerms<'a> {
    /// The queue of the same backend that dead letters go to.
    pub dead_letter: Option<&'a str>,
    /// A message is dead-lettered after this many attempts.
    pub attempts: Option<u32>,
    /// How many bytes of messages the process may hold.
    pub budget: Option<&'a Arc<Budget>>,
}

/// Where scheduled messages for the queues of a backend wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleHome {
    /// In one store for all queues of the backend.
    Shared,
    /// Beside each queue.
    BesideQueue,
    /// In tables of the backend of this name.
    TableOf(&'static str),
    /// Nowhere: nothing can be scheduled for its queues in this version.
    None,
}

/// Which schedule of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleOf<'a> {
    /// The one of all queues.
    All,
    /// The one beside this queue.
    Queue(&'a str),
    /// A table of this name; its jobs go to `queue`, as people write it, without it each to the queue
    /// that it names.
    Table {
        /// The table's name.
        table: &'a str,
        /// The queue of all its jobs.
        queue: Option<&'a str>,
    },
}

/// What a run does with a queue, in the eyes of IAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Receives from it and settles.
    Receive,
    /// Moves dead letters to it.
    DeadLetter,
    /// Moves dead letters to wherever its redrive policy points.
    Redrive,
    /// Sends to it.
    Send,
}

/// A statement of an IAM policy. Those of the same `sid` are one in the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The statement's id.
    pub sid: &'static str,
    /// What is allowed.
    pub actions: &'static [&'static str],
    /// The ARNs of what it is allowed on.
    pub resources: Vec<String>,
}

/// The key of a queue that is encrypted with AWS KMS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueKey {
    /// A key id, `alias/NAME`, or the ARN of either.
    pub key: String,
    /// The queue's ARN, which says where a key without an ARN is.
    pub queue: String,
}

/// How many messages were cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CancelCount {
    /// Waited, and are removed.
    pub waiting: u64,
    /// Ran, and are stopped.
    pub running: u64,
}

/// A process that receives from a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Its name.
    pub id: String,
    /// Its process and machine.
    pub label: String,
    /// Each queue that it receives from, with how many messages it has in flight.
    pub queues: Vec<(String, u64)>,
}

/// A message that waits in its queue for its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayedMessage {
    /// The message's id.
    pub id: String,
    /// The queue.
    pub queue: String,
    /// When it may be received.
    pub due: Timestamp,
    /// What was sent; `delay` is what is left of it.
    pub message: Outgoing,
}

/// What about a server will lose messages one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerWarning {
    /// What it is about: `the Redis server`.
    pub about: &'static str,
    /// What was found and what to do about it, in a clause.
    pub message: String,
}

/// A backend as the configuration reaches it. Queues are named without the backend. All calls may run
/// at once and are safe to drop.
#[async_trait::async_trait]
pub trait BackendClient: Send + Sync + 'static {
    /// Opens a queue; makes it where the backend makes queues on first use.
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError>;

    /// Makes those of these queues that are missing, where `open` would make each by itself and that is
    /// slower.
    async fn make(&self, _queues: &[&str]) -> Result<(), QueueError> {
        Ok(())
    }

    /// The names of all queues, if the backend can list them.
    async fn queues(&self) -> Result<Vec<String>, QueueError>;

    /// Which declarations contradict what is there. Makes and changes nothing.
    async fn contradictions(
        &self,
        _queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        Err(unsupported("declares no queues"))
    }

    /// Makes the queues that are declared, or changes them to what is declared; none, if a
    /// declaration contradicts what is there.
    async fn declare(
        &self,
        _queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        Err(unsupported("declares no queues"))
    }

    /// Whether a queue is there, where `open` would make it. Makes nothing.
    async fn exists(&self, _queue: &str) -> Result<bool, QueueError> {
        Ok(true)
    }

    /// How much each of these queues holds, in their order. Makes none.
    async fn depths(&self, queues: &[&str]) -> Vec<Result<Depth, QueueError>> {
        let mut depths = Vec::with_capacity(queues.len());
        for queue in queues {
            depths.push(match self.exists(queue).await {
                Ok(true) => depth_of(self, queue).await,
                Ok(false) => Err(not_made_yet()),
                Err(error) => Err(error),
            });
        }
        depths
    }

    /// Removes the message of that id from a queue, or all of that body, and stops those that run.
    async fn cancel(&self, _queue: &str, _task: &str) -> Result<CancelCount, QueueError> {
        Err(unsupported("cannot cancel messages"))
    }

    /// The processes that receive from it now.
    async fn workers(&self) -> Result<Vec<WorkerInfo>, QueueError> {
        Err(unsupported("does not list its workers"))
    }

    /// What operators set on each of these queues, in their order, as the last change left it.
    async fn controls(&self, _queues: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        Err(unsupported("keeps no pauses and limits of queues"))
    }

    /// Changes what is set on a queue, for all processes and until it is changed again. Changes of
    /// different fields do not undo each other.
    async fn change_control(
        &self,
        _queue: &str,
        _change: &ControlChange,
    ) -> Result<(), QueueError> {
        Err(unsupported("keeps no pauses and limits of queues"))
    }

    /// What waits in a queue, or in all, for its time and was never received; the soonest first, at most
    /// `most`. Empty
    /// where the backend cannot tell.
    async fn delayed(
        &self,
        _queue: Option<&str>,
        _most: usize,
    ) -> Result<Vec<DelayedMessage>, QueueError> {
        Ok(Vec::new())
    }

    /// Takes such a message back; false if there is none.
    async fn take_back(&self, _queue: &str, _id: &str) -> Result<bool, QueueError> {
        Ok(false)
    }

    /// The store of scheduled messages, as `Backend::schedule_home` says.
    async fn schedule(&self, _of: ScheduleOf<'_>) -> Result<Arc<dyn ScheduleStore>, CallError> {
        Err(unsupported("does not store scheduled messages"))
    }

    /// A bucket for plugins.
    async fn bucket(&self, _name: &str) -> Result<Arc<dyn Bucket>, CallError> {
        Err(unsupported("has no buckets"))
    }

    /// The store of idempotency records. Blocks for some milliseconds.
    fn records(&self) -> Result<Arc<dyn Records>, RecordsError> {
        Err(RecordsError("this backend stores no records".to_owned()))
    }

    /// The key of a queue that is encrypted with AWS KMS, where using it needs a permission.
    async fn encryption_key(&self, _queue: &str) -> Result<Option<QueueKey>, QueueError> {
        Ok(None)
    }

    /// What about the server will lose messages one day; nothing where it cannot be reached. `log`
    /// says whether that is logged as well.
    async fn warnings(&self, _log: bool) -> Vec<ServerWarning> {
        Vec::new()
    }
}

/// How much a queue holds, by opening it.
pub async fn depth_of<C: BackendClient + ?Sized>(
    client: &C,
    queue: &str,
) -> Result<Depth, QueueError> {
    let queue = client.open(queue, QueueTerms::default()).await?;
    queue.depth().await
}

/// The error for a queue that is not there, where the first message makes it.
pub fn not_made_yet() -> QueueError {
    QueueError {
        kind: ErrorKind::NotFound,
        message: "it does not exist; the first message sent to it creates it".into(),
    }
}

/// Why content of this format, which is later than `newest`, is not read. The rules are in
/// `host/docs/upgrade.md`.
pub fn newer_format(found: impl Display, newest: impl Display) -> String {
    format!(
        "it was written by a newer dispatcher (format {found}; this one reads up to {newest}); use that version"
    )
}

fn unsupported(what: &str) -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message: format!("this backend {what}"),
    }
}
