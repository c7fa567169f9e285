//! The port to queue systems. `Backend` has the facts that need no connection; `BackendClient` has
//! the calls that need the configuration. Knows no backend.

mod setting;

use crate::account::{Accounts, AwsAccount};
use crate::clock::Timestamp;
use crate::control::{ControlChange, QueueControl};
use crate::error_kind::{CallError, ErrorKind};
use crate::fleet::FleetStore;
use crate::idempotency::{Records, RecordsError};
use crate::keyvalue::Bucket;
use crate::memory::Budget;
use crate::message::OutgoingMessage;
use crate::queue::{Depth, Queue, QueueError};
use crate::schedule::ScheduleStore;
pub use setting::{BackendSetting, BadValue, SectionValues, SettingFlag, SettingForm};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The facts of a backend that hold for all its queues and need no connection.
#[derive(Debug, Clone)]
pub struct BackendFacts {
    /// The unique name of the backend. Queue names begin with it and a colon. It is also the name
    /// of the Cargo feature and of the section in the configuration file.
    pub name: &'static str,
    /// The name of the system in OpenTelemetry's semantic conventions (`messaging.system`).
    pub messaging_system: &'static str,
    /// The permitted number of characters of a queue name.
    pub name_length: RangeInclusive<usize>,
    /// The keys of the backend's section in the configuration.
    pub settings: &'static [BackendSetting],
    /// The settings of `[dispatcher]` that the backend's section may also have, because they
    /// concern the backend.
    pub shared_settings: &'static [&'static str],
    /// Whether the queues are files of this program. Commands without a queue name use this
    /// backend.
    pub is_embedded: bool,
    /// Whether calls for a queue are made as its account says.
    pub has_accounts: bool,
    /// Whether queues have tags.
    pub has_tags: bool,
    /// Whether the backend has both FIFO and standard queues. Otherwise all its queues treat groups
    /// alike.
    pub has_fifo_queues: bool,
    /// Whether `Ask::newest_first` has an effect.
    pub can_choose_newest: bool,
    /// Whether queues keep to `Queue::share_out` when they deliver. Otherwise tenants and priorities
    /// only share what a process holds.
    pub shares_out: bool,
    /// Whether `BackendClient::depths` counts all queues in one call.
    pub counts_at_once: bool,
    /// The suffix after a slash that names the dead letters of a queue, if the backend keeps them
    /// in the queue itself. They are listed, moved and removed under that name.
    pub dead_letter_part: Option<&'static str>,
    /// Whether `BackendClient::cancel` can cancel messages.
    pub can_cancel: bool,
    /// Whether `BackendClient::workers` can list workers.
    pub lists_workers: bool,
    /// Whether `BackendClient::bucket` can open buckets.
    pub has_buckets: bool,
    /// Whether `BackendClient::fleet` can open the store of a fleet.
    pub has_fleets: bool,
    /// Whether messages can have a group when they are received.
    pub has_groups: bool,
    /// Whether messages can have attributes when they are received.
    pub has_attributes: bool,
    /// Whether all processes share the pauses and limits that operators set on queues, by
    /// `BackendClient::controls`.
    pub shares_controls: bool,
    /// The place where scheduled messages for the backend's queues wait.
    pub schedule_home: ScheduleHome,
    /// The cost of one call of `Queue::depth`.
    pub depth_cost: DepthCost,
    /// Whether `Queue::depth` counts every message rather than estimates.
    pub counts_exactly: bool,
    /// Whether `Queue::purge` also removes messages in flight.
    pub purges_in_flight: bool,
    /// Whether `Queue::depth` counts a message that was released with a delay as in flight until
    /// the delay is over.
    pub counts_released_as_in_flight: bool,
}

impl BackendFacts {
    /// Returns the facts of a backend of this name that has no optional feature.
    pub const fn of(name: &'static str) -> Self {
        Self {
            name,
            messaging_system: name,
            name_length: RangeInclusive::new(1, 80),
            settings: &[],
            shared_settings: &[],
            is_embedded: false,
            has_accounts: false,
            has_tags: false,
            has_fifo_queues: false,
            can_choose_newest: true,
            shares_out: false,
            counts_at_once: false,
            dead_letter_part: None,
            can_cancel: false,
            lists_workers: false,
            has_buckets: false,
            has_fleets: false,
            has_groups: true,
            has_attributes: true,
            shares_controls: false,
            schedule_home: ScheduleHome::None,
            depth_cost: DepthCost::Free,
            counts_exactly: true,
            purges_in_flight: false,
            counts_released_as_in_flight: false,
        }
    }
}

/// A kind of queue system: its facts, the rules for its names and settings, and a way to connect to
/// it. The default of each method is right for a backend without that feature.
#[async_trait::async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the facts that hold for all queues of the backend.
    fn facts(&self) -> &'static BackendFacts;

    /// Returns `BackendFacts::name`.
    fn name(&self) -> &'static str {
        self.facts().name
    }

    /// Returns the facts about one queue, for a backend whose queues differ by its configuration.
    fn facts_of(&self, _queue: &str, _config: &BackendConfig) -> &'static BackendFacts {
        self.facts()
    }

    /// Checks whether a URL or an ARN names a queue of this backend. Called only for the backend
    /// whose queues are written without its name.
    ///
    /// # Errors
    /// The text says what was expected instead.
    fn check_address(&self, address: &str) -> Result<(), String> {
        Err(format!("`{address}` is not a queue name; wanted a name"))
    }

    /// Checks a value of the backend's section. Called only for values of the right form.
    fn check_setting(&self, _key: &str, _value: &str) -> Result<(), BadValue> {
        Ok(())
    }

    /// Checks the backend's section as a whole. Returns each problem with the key that it is about.
    fn check_section(&self, _values: &SectionValues) -> Vec<(&'static str, BadValue)> {
        Vec::new()
    }

    /// Whether a queue is a FIFO queue, by its name.
    fn is_fifo(&self, queue: &str) -> bool {
        self.facts().has_fifo_queues && queue.ends_with(".fifo")
    }

    /// Whether a queue can dead-letter messages when no dead-letter queue is configured.
    fn has_dead_letters(&self, _queue: &str) -> bool {
        false
    }

    /// Returns the queue of this backend that a dead letter names as its source
    /// (`Message::source`). Names of queues are written without the backend.
    fn queue_of_source(&self, source: &str) -> Option<String> {
        let name = source.strip_prefix(self.name())?.strip_prefix(':')?;
        Some(name.to_owned())
    }

    /// The file in which `BackendClient::records` keeps idempotency records, if the backend has
    /// them.
    fn records_file(&self, _data: &Path) -> Option<PathBuf> {
        None
    }

    /// Returns the statement that an IAM policy needs for this use of a queue. ARNs get `partition`
    /// when the name of the queue does not tell the partition.
    fn permission(
        &self,
        _queue: &str,
        _purpose: Purpose,
        _partition: &str,
        _config: &BackendConfig,
    ) -> Option<Permission> {
        None
    }

    /// The AWS partition of a queue, if its name tells it.
    fn partition(&self, _queue: &str) -> Option<String> {
        None
    }

    /// The price of a million calls for a queue, in US dollars at the list price of US East. `None`
    /// if calls are not billed.
    fn dollars_per_million_calls(&self, _queue: &str) -> Option<f64> {
        None
    }

    /// Returns the script that `install` runs, for a backend that must be installed on its server.
    fn installation(&self, _roles: &BackendRoles) -> Option<String> {
        None
    }

    /// Makes a client. Connects to nothing that may be slow; the client connects on first use.
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

/// The part of the configuration that a backend gets.
#[derive(Debug, Clone, Default)]
pub struct BackendConfig {
    /// The folder of the program's own files; it may not exist yet.
    pub data: PathBuf,
    /// The address to use for every AWS service; if `None`, the AWS SDK decides.
    pub endpoint_url: Option<String>,
    /// The accounts of queues and functions. A queue that belongs to none uses the credentials of
    /// the process.
    pub accounts: Accounts,
    /// The keys that are set in the backend's section. They were checked when the configuration was
    /// read.
    pub section: SectionValues,
}

impl BackendConfig {
    /// Returns the first value of a key of the section.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.section.get(key)?.first().map(String::as_str)
    }

    /// Returns all values of a key of the section.
    pub fn list(&self, key: &str) -> &[String] {
        self.section.get(key).map_or(&[], Vec::as_slice)
    }
}

/// A queue that the configuration declares. A setting that is `None` keeps its current value, or
/// gets the default of the backend if the queue is new.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueDeclaration {
    /// The place of the declaration: `dispatcher.toml:12`.
    pub at: String,
    /// The name of the queue without the backend.
    pub name: String,
    /// Whether the queue is a FIFO queue: it keeps groups in order and takes no message twice
    /// within five minutes.
    pub fifo: bool,
    /// The visibility timeout.
    pub visibility: Option<Duration>,
    /// The delay before a message may be received.
    pub delay: Option<Duration>,
    /// The time for which the queue keeps a message.
    pub retention: Option<Duration>,
    /// The dead-letter queue, by its name without the backend, and the number of receives after
    /// which a message goes there.
    pub redrive: Option<(String, u32)>,
}

/// A contradiction between a declaration and the existing queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The place of the declaration.
    pub at: String,
    /// The setting of the existing queue.
    pub found: String,
    /// The setting that would be accepted.
    pub wanted: String,
}

/// The terms of a route for its queues.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueTerms<'a> {
    /// The dead-letter queue, which is in the same backend.
    pub dead_letter: Option<&'a str>,
    /// The number of attempts after which a message is dead-lettered.
    pub attempts: Option<u32>,
    /// The limit on the bytes of messages that the process may hold.
    pub budget: Option<&'a Arc<Budget>>,
}

/// The cost of counting the messages of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepthCost {
    /// A negligible cost.
    Free,
    /// One billed call.
    OneCall,
    /// A read of the whole queue: the cost grows with its size.
    WholeQueue,
}

/// The place where scheduled messages for the queues of a backend wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleHome {
    /// One store for all queues of the backend.
    Shared,
    /// A store beside each queue.
    BesideQueue,
    /// Tables of the backend of this name.
    TableOf(&'static str),
    /// No place: this version cannot schedule messages for the backend's queues.
    None,
}

/// One of the schedules of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleOf<'a> {
    /// The schedule of all queues.
    All,
    /// The schedule beside this queue.
    Queue(&'a str),
    /// The table of this name. Its jobs go to `queue`, or each to the queue that it names if
    /// `queue` is `None`.
    Table {
        /// The name of the table.
        table: &'a str,
        /// The queue of all jobs of the table, as the configuration writes it.
        queue: Option<&'a str>,
    },
}

/// The names of queues that are looked up.
pub struct WantedNames<'a> {
    /// The start of all of them.
    pub prefix: &'a str,
    /// Whether a name is one of them.
    pub is_wanted: &'a (dyn Fn(&str) -> bool + Sync),
}

/// The use of a queue for which IAM permissions are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The program lists queues, for a pattern of names.
    List,
    /// The program asks which queues of a pattern are dead-letter queues.
    Find,
    /// The program receives from the queue and settles.
    Receive,
    /// The program moves dead letters to the queue.
    DeadLetter,
    /// The program moves dead letters to the target of the queue's redrive policy.
    Redrive,
    /// The program sends to the queue.
    Send,
    /// The program keeps the limits of a fleet in the table of this name.
    Fleet,
}

/// A statement of an IAM policy. Statements with the same `sid` become one statement of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The id of the statement.
    pub sid: &'static str,
    /// The actions that are allowed.
    pub actions: &'static [&'static str],
    /// The ARNs to which the statement applies.
    pub resources: Vec<String>,
}

/// The KMS key of an encrypted queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueKey {
    /// A key id, `alias/NAME`, or the ARN of either.
    pub key: String,
    /// The ARN of the queue; it tells where a key without an ARN is.
    pub queue: String,
}

/// The roles that get rights on a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackendRoles {
    /// The roles that receive and settle messages.
    pub workers: Vec<String>,
    /// The roles that only send.
    pub producers: Vec<String>,
}

/// The number of messages that were cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CancelCount {
    /// Waiting messages that were removed.
    pub waiting: u64,
    /// Running messages that are stopped.
    pub running: u64,
}

/// A process that receives from a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The unique name of the process.
    pub id: String,
    /// A text that names its process and machine.
    pub label: String,
    /// Each queue that it receives from, with the number of its messages in flight.
    pub queues: Vec<(String, u64)>,
}

/// A delayed message that waits in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayedMessage {
    /// The message's id.
    pub id: String,
    /// The name of its queue, without the backend.
    pub queue: String,
    /// The time from which it may be received.
    pub due: Timestamp,
    /// The message as sent; its `delay` is the remaining delay.
    pub message: OutgoingMessage,
}

/// A setting of a server that can lose messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerWarning {
    /// The server that it is about: `the Redis server`.
    pub about: &'static str,
    /// The finding and the remedy, in a clause.
    pub message: String,
}

/// A connection to a backend with the settings of the configuration. Queues are named without the
/// backend. All calls may run concurrently and are safe to drop.
#[async_trait::async_trait]
pub trait BackendClient: Send + Sync + 'static {
    /// Opens a queue. Creates it if the backend creates queues on first use.
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError>;

    /// Creates the missing ones of these queues. Only for backends where `open` would create each
    /// one by itself, which is slower.
    async fn make(&self, _queues: &[&str]) -> Result<(), QueueError> {
        Ok(())
    }

    /// Lists the names of all queues, if the backend can.
    async fn queues(&self) -> Result<Vec<String>, QueueError>;

    /// Lists the queues with a wanted name, in an account or in that of the process. Creates nothing.
    async fn queues_in(
        &self,
        _account: Option<&AwsAccount>,
        wanted: &WantedNames<'_>,
    ) -> Result<Vec<String>, QueueError> {
        let mut names = self.queues().await?;
        names.retain(|name| (wanted.is_wanted)(name));
        Ok(names)
    }

    /// Whether a queue is the dead-letter queue of another one.
    async fn is_dead_letter_queue(&self, _queue: &str) -> Result<bool, QueueError> {
        Ok(false)
    }

    /// Returns the tags of a queue, if the backend has tags.
    async fn tags(&self, _queue: &str) -> Result<BTreeMap<String, String>, QueueError> {
        Ok(BTreeMap::new())
    }

    /// Returns the declarations that contradict existing queues. Creates and changes nothing.
    async fn contradictions(
        &self,
        _queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        Err(unsupported("declares no queues"))
    }

    /// Creates the declared queues, or changes existing ones to match. Does nothing and returns the
    /// contradictions if a declaration contradicts an existing queue.
    async fn declare(
        &self,
        _queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        Err(unsupported("declares no queues"))
    }

    /// Returns whether a queue exists, if `open` would create it. Creates nothing.
    async fn exists(&self, _queue: &str) -> Result<bool, QueueError> {
        Ok(true)
    }

    /// Counts the messages of each of these queues, in their order. Creates no queue.
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

    /// Removes the message with this id from a queue, or all messages with this body, and stops
    /// those that run.
    async fn cancel(&self, _queue: &str, _task: &str) -> Result<CancelCount, QueueError> {
        Err(unsupported("cannot cancel messages"))
    }

    /// Lists the processes that receive from the backend now.
    async fn workers(&self) -> Result<Vec<WorkerInfo>, QueueError> {
        Err(unsupported("does not list its workers"))
    }

    /// Reads the pauses and limits that operators set on each of these queues, in their order.
    async fn controls(&self, _queues: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        Err(unsupported("cannot store pauses and limits of queues"))
    }

    /// Changes the pause or limits of a queue, for all processes and until the next change. Changes
    /// of different fields do not undo each other.
    async fn change_control(
        &self,
        _queue: &str,
        _change: &ControlChange,
    ) -> Result<(), QueueError> {
        Err(unsupported("cannot store pauses and limits of queues"))
    }

    /// Lists the messages in a queue, or in all queues, that wait for their time and were never
    /// received: the soonest first, at most `most`. Empty if the backend cannot list them.
    async fn delayed(
        &self,
        _queue: Option<&str>,
        _most: usize,
    ) -> Result<Vec<DelayedMessage>, QueueError> {
        Ok(Vec::new())
    }

    /// Removes a delayed message. Returns false if there is none with this id.
    async fn take_back(&self, _queue: &str, _id: &str) -> Result<bool, QueueError> {
        Ok(false)
    }

    /// Opens the store of scheduled messages at `BackendFacts::schedule_home`.
    async fn schedule(&self, _of: ScheduleOf<'_>) -> Result<Arc<dyn ScheduleStore>, CallError> {
        Err(unsupported("does not store scheduled messages"))
    }

    /// Opens a bucket for plugins.
    async fn bucket(&self, _name: &str) -> Result<Arc<dyn Bucket>, CallError> {
        Err(unsupported("has no buckets"))
    }

    /// Opens the store of the fleet of this name. Fleets of different names share nothing.
    async fn fleet(&self, _name: &str) -> Result<Arc<dyn FleetStore>, CallError> {
        Err(unsupported("has no store for limits of all processes"))
    }

    /// Opens the store of idempotency records. Blocks for some milliseconds.
    fn records(&self) -> Result<Arc<dyn Records>, RecordsError> {
        Err(RecordsError("this backend stores no records".to_owned()))
    }

    /// Returns the KMS key of an encrypted queue, if its use needs a permission.
    async fn encryption_key(&self, _queue: &str) -> Result<Option<QueueKey>, QueueError> {
        Ok(None)
    }

    /// Makes on the server what the backend needs there, and gives roles their rights. Changes nothing
    /// if it was done before.
    async fn install(&self, _roles: &BackendRoles) -> Result<(), CallError> {
        Err(unsupported("needs no installation"))
    }

    /// Returns the settings of the server that can lose messages. Empty if the server cannot be
    /// reached. If `log` is true, they are also logged.
    async fn warnings(&self, _log: bool) -> Vec<ServerWarning> {
        Vec::new()
    }
}

/// Opens a queue and counts its messages.
pub async fn depth_of<C: BackendClient + ?Sized>(
    client: &C,
    queue: &str,
) -> Result<Depth, QueueError> {
    let queue = client.open(queue, QueueTerms::default()).await?;
    queue.depth().await
}

/// Returns the error for a queue that does not exist because its first message creates it.
pub fn not_made_yet() -> QueueError {
    QueueError {
        kind: ErrorKind::NotFound,
        message: "it does not exist; the first message sent to it creates it".into(),
    }
}

/// Returns the reason why content of a format later than `newest` is not read. The rules are in
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
