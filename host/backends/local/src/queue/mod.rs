//! The embedded queue: one SQLite file, safe for several processes at once. All of its SQL is here;
//! other backends are not used.
//!
//! `schema` defines the file. `deliver`, `claim`, `settle` and `look` are the steps on it; they take
//! `now` (`turn`), a moment of the store's own time (`time`). `sharing` chooses messages by tenant
//! and priority. `writer` is the thread that runs the steps, many in one transaction. `work` passes
//! calls to it, `lines` holds the receives that wait for messages, and `notifier` wakes other
//! processes.
//!
//! More than the port offers, for servers that share the file with others: `service` is the entry;
//! `settings`, `declare`, `registry`, `sending`, `holding`, `carry` and `moves` are its operations.

mod browse;
mod carry;
mod claim;
mod content;
mod controls;
mod declare;
mod delayed;
mod deliver;
mod groups;
mod holding;
mod lines;
mod look;
mod moves;
mod notifier;
mod refusal;
mod registry;
mod schema;
mod sending;
mod service;
mod settings;
mod settle;
mod sharing;
mod time;
mod turn;
mod work;
mod writer;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(any(test, fuzzing))]
mod model;

use deliver::DeliveryTerms;
use dispatcher_core::backend::DelayedMessage;
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::sharing::{SharingRules, TenantBacklog};
use dispatcher_core::queue::{
    Ask, BrowseCursor, BrowsePage, Delays, Depth, ErrorKind, GroupShare, Identity, ItemError,
    PurgeStep, Queue, QueueError, QueueFacts, ReceivedMessages, VISIBILITY_CEILING,
};
use dispatcher_sqlite::Database;

use settle::Origin;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use turn::LocalDelivery;
use work::{Durability, Handle};

pub use holding::SettleRefusal;
pub use moves::{Move, Status};
pub use registry::KnownQueue;
pub use sending::{QueuedSend, SentMessage, content_id, once_key};
pub use settings::{LONGEST_MESSAGE, QueueSettings, Redrive, arn, named_by};
pub use time::StoreTime;
pub use turn::QueueId;

/// The longest `wait` of one receive: that of SQS, so that routes behave alike.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// The maximum number of messages of one call.
const BATCH: usize = 100;
/// The maximum number of messages that one receive brings behind others of their groups. Each round
/// of a group, from its receive to the commit of its last deletion, waits for the disk a few times;
/// the more messages share a round, the less it costs each.
const MOST_FOLLOWING: usize = 500;
/// The number of tenants whose messages are counted at once.
const TENANTS_AT_ONCE: usize = 16;
/// The suffix of the default dead-letter queue.
const DEAD: &str = ".dead";

/// A folder with its file of queues. Clones share the connection. Its thread ends when the last
/// clone and the last of its queues are dropped.
#[derive(Clone)]
pub struct LocalStore {
    handle: Arc<Handle>,
    place: schema::StoreFiles,
    /// The rules of standard queues of SQS.
    standard: Arc<sharing::SharingSlot>,
}

impl LocalStore {
    /// Opens `local.db` in the folder; creates both if they are missing. Blocks for some
    /// milliseconds. Errors name the folder and the cause.
    pub fn open(folder: &Path) -> Result<Self, QueueError> {
        Self::start(folder).map(|(store, _)| store)
    }

    /// Opens a store in memory, for this process alone. It is lost with its last clone.
    pub fn open_in_memory() -> Result<Self, QueueError> {
        let (place, connection) = schema::open_in_memory()?;
        let notifier = notifier::FileNotifier::alone();
        Self::begin(place, connection, notifier).map(|(store, _)| store)
    }

    fn start(folder: &Path) -> Result<(Self, JoinHandle<()>), QueueError> {
        let (place, connection, notifier) = schema::open(folder)?;
        let notifier = notifier::FileNotifier::new(place.notifier_file(), notifier);
        Self::begin(place, connection, notifier)
    }

    fn begin(
        place: schema::StoreFiles,
        connection: Database,
        notifier: notifier::FileNotifier,
    ) -> Result<(Self, JoinHandle<()>), QueueError> {
        let clock = time::StoreClock::of(&connection).map_err(|error| place.classify(&error))?;
        let (sender, jobs) = mpsc::channel();
        let handle = Handle::new(sender, place.clone());
        let writer = writer::QueueWriter::new(
            place.clone(),
            (connection, clock),
            notifier,
            jobs,
            Arc::downgrade(&handle),
        );
        let thread = std::thread::Builder::new()
            .name("local-queue".into())
            .spawn(move || writer.run())
            .map_err(|error| place.failed(ErrorKind::Transient, error))?;
        let store = Self {
            handle,
            place,
            standard: Arc::new(sharing::SharingSlot::standard()),
        };
        Ok((store, thread))
    }

    /// Opens a queue by its bare name; creates it if it does not exist. Dead letters go to the
    /// queue `dead_letter` of the same file, else to the one that the queue's settings name, else
    /// to `NAME.dead`; a queue whose name ends in `.dead` has no default. The visibility timeout is
    /// that of the settings. Blocks for some milliseconds.
    pub fn queue(&self, name: &str, dead_letter: Option<&str>) -> Result<LocalQueue, QueueError> {
        let (id, settings) = self.find_or_make(name)?;
        // SQS accepts a policy that names its own queue. It is ignored here: dead letters go
        // elsewhere.
        let is_own = |redrive: &Redrive| redrive.dead_letter_queue == name;
        let redrive = settings.redrive.filter(|redrive| !is_own(redrive));
        let dead_letter = match dead_letter {
            Some(same) if same == name => {
                return Err(self.place.failed(
                    ErrorKind::Invalid,
                    format!("`{name}` cannot be its own dead-letter queue"),
                ));
            }
            Some(other) => Some(other.to_owned()),
            None => match &redrive {
                Some(redrive) => Some(redrive.dead_letter_queue.clone()),
                None if name.ends_with(DEAD) => None,
                None => Some(format!("{name}{DEAD}")),
            },
        };
        let full = format!("local:{name}");
        Ok(LocalQueue {
            handle: self.handle.clone(),
            name: full.as_str().into(),
            identity: Identity {
                name: full.clone(),
                source: full,
                visibility: Duration::from_secs(settings.visibility_s),
                batch: BATCH,
                longest_wait: LONGEST_WAIT,
                proof_wait: Duration::ZERO,
                ordered_groups: true,
                deduplicates: settings.fifo,
                dead_letters: dead_letter.is_some(),
                most_receives: redrive.as_ref().map(|redrive| redrive.most_receives),
                redrive_target: false,
            },
            terms: DeliveryTerms {
                dead_letter: dead_letter.clone(),
                sharing: Some(Arc::default()),
                ..DeliveryTerms::default()
            },
            origin: Origin {
                id,
                name: name.to_owned(),
                dead_letter,
            },
            redrive_target: redrive.map(|redrive| redrive.dead_letter_queue),
        })
    }

    /// Returns the key and the settings of a queue; creates it if it does not exist. An existing
    /// queue needs no transaction, which would wait for the disk.
    fn find_or_make(&self, name: &str) -> Result<(QueueId, QueueSettings), QueueError> {
        let wanted = name.to_owned();
        let found = self.handle.run_blocking(Durability::Look, move |turn| {
            let Some(id) = look::known_id(turn.connection, &wanted)? else {
                return Ok(None);
            };
            Ok(Some((id, settings::read(turn, id)?.unwrap_or_default())))
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
        let wanted = name.to_owned();
        self.handle.run_blocking(Durability::Full, move |turn| {
            let id = look::queue_id(turn.connection, &wanted)?;
            Ok((id, settings::read(turn, id)?.unwrap_or_default()))
        })
    }

    /// Whether a queue of one of these bare names exists. Creates none.
    pub async fn has_one_of(&self, names: [String; 2]) -> Result<bool, QueueError> {
        self.handle
            .run(Durability::Look, move |turn: &mut turn::Turn<'_>| {
                for name in &names {
                    if look::known_id(turn.connection, name)?.is_some() {
                        return Ok(true);
                    }
                }
                Ok(false)
            })
            .await
    }

    /// Creates the missing ones of the queues with these bare names, all in one transaction.
    pub async fn make(&self, names: Vec<String>) -> Result<(), QueueError> {
        let look = move |turn: &mut turn::Turn<'_>| {
            let mut missing = Vec::new();
            for name in &names {
                if look::known_id(turn.connection, name)?.is_none() {
                    missing.push(name.clone());
                }
            }
            Ok(missing)
        };
        let missing = self.handle.run(Durability::Look, look).await?;
        if missing.is_empty() {
            return Ok(());
        }
        self.handle
            .run(Durability::Full, move |turn: &mut turn::Turn<'_>| {
                for name in &missing {
                    look::queue_id(turn.connection, name)?;
                }
                Ok(())
            })
            .await
    }

    /// Returns the bare names of all queues that were ever opened or got dead letters, sorted.
    /// Blocks for some milliseconds.
    pub fn names(&self) -> Result<Vec<String>, QueueError> {
        self.handle
            .run_blocking(Durability::Look, |turn| look::names(turn))
    }

    /// Whether the redrive policy of another queue names this one.
    pub async fn has_sources(&self, name: &str) -> Result<bool, QueueError> {
        let name = name.to_owned();
        let sources = self
            .handle
            .run(Durability::Look, move |turn| registry::sources(turn, &name));
        Ok(!sources.await?.is_empty())
    }

    /// Returns the tags of the queue of this bare name.
    pub async fn tags(&self, name: &str) -> Result<BTreeMap<String, String>, QueueError> {
        let name = name.to_owned();
        let queue = self
            .handle
            .run(Durability::Look, move |turn| registry::find(turn, &name));
        let tags = queue.await?.map(|queue| queue.settings.tags);
        Ok(tags.unwrap_or_default())
    }

    /// Returns how much each of these queues holds, by their bare names and in their order; `None`
    /// for a queue that does not exist. It makes one call for all of them and creates no queue.
    pub async fn depths(&self, names: Vec<String>) -> Result<Vec<Option<Depth>>, QueueError> {
        let run = move |turn: &mut turn::Turn<'_>| look::depths(turn, &names);
        self.handle.run(Durability::Look, run).await
    }

    /// Returns the messages that were sent with a delay to the queue of this bare name, or to any
    /// queue, and are still delayed: the soonest first, at most `most`.
    pub async fn delayed(
        &self,
        queue: Option<&str>,
        most: usize,
    ) -> Result<Vec<DelayedMessage>, QueueError> {
        let queue = queue.map(str::to_owned);
        let run = move |turn: &mut turn::Turn<'_>| delayed::list(turn, queue.as_deref(), most);
        self.handle.run(Durability::Look, run).await
    }

    /// Cancels a delayed message. Returns false if no message of this id is delayed in that queue.
    pub async fn cancel(&self, queue: &str, id: &str) -> Result<bool, QueueError> {
        let (queue, id) = (queue.to_owned(), id.to_owned());
        let run = move |turn: &mut turn::Turn<'_>| delayed::cancel(turn, &queue, &id);
        self.handle.run(Durability::Full, run).await
    }
}

/// One queue of a `LocalStore`.
pub struct LocalQueue {
    handle: Arc<Handle>,
    identity: Identity,
    origin: Origin,
    name: Arc<str>,
    terms: DeliveryTerms,
    /// The bare name of the queue that its redrive policy names.
    redrive_target: Option<String>,
}

impl LocalQueue {
    /// Limits the queue to a process that may hold the bytes of `budget` and makes `attempts`
    /// attempts. A message that was received that often, the last time without an answer, or that
    /// is larger than the budget is dead-lettered without being read. `ReceivedMessages` reports such
    /// messages.
    #[must_use]
    pub fn within(self, budget: Option<Arc<Budget>>, attempts: Option<u32>) -> Self {
        let terms = DeliveryTerms {
            budget,
            attempts,
            reports: true,
            ..self.terms
        };
        Self { terms, ..self }
    }

    /// Runs a step on every item whose receipt is valid, in one transaction.
    async fn each<I, F>(
        &self,
        care: Durability,
        items: Vec<(Receipt, I)>,
        step: F,
    ) -> Vec<Result<(), ItemError>>
    where
        I: Send + 'static,
        F: Fn(&mut turn::Turn<'_>, LocalDelivery, &I) -> rusqlite::Result<settle::SettleResult>
            + Send
            + 'static,
    {
        let count = items.len();
        if count == 0 {
            return Vec::new();
        }
        let run = move |turn: &mut turn::Turn<'_>| {
            items
                .iter()
                .map(|(receipt, item)| match LocalDelivery::parse(receipt) {
                    Ok(delivery) => step(turn, delivery, item),
                    Err(error) => Ok(Err(error)),
                })
                .collect()
        };
        spread(self.handle.run(care, run).await, count)
    }
}

/// Returns the failure of a whole call as that of each item.
fn spread<T>(
    outcome: Result<Vec<Result<T, ItemError>>, QueueError>,
    count: usize,
) -> Vec<Result<T, ItemError>> {
    outcome.unwrap_or_else(|error| {
        std::iter::repeat_with(|| Err(schema::item_error(&error)))
            .take(count)
            .collect()
    })
}

#[async_trait::async_trait]
impl Queue for LocalQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn facts(&self) -> QueueFacts {
        QueueFacts {
            // A delayed message delays the rest of its group.
            delays: Delays {
                longest_in_group: Duration::ZERO,
                listed: true,
                ..Delays::ANY
            },
            reports_redrives: self.terms.reports,
            can_browse: true,
            finds_by_id: true,
            shares_out: true,
            ..QueueFacts::default()
        }
    }

    fn dead_letter_queue(&self) -> Option<String> {
        let name = self.origin.dead_letter.as_ref()?;
        Some(format!("local:{name}"))
    }

    fn redrive_policy_target(&self) -> Option<String> {
        let name = self.redrive_target.as_ref()?;
        Some(format!("local:{name}"))
    }

    fn share_out(&self, sharing: &Arc<SharingRules>) {
        if let Some(slot) = &self.terms.sharing
            && slot.set(sharing)
        {
            self.handle.retry(self.origin.id);
        }
    }

    /// Counts the messages of a few tenants at a time, since other callers wait meanwhile.
    async fn backlogs(&self, tenants: &[String]) -> Result<Vec<TenantBacklog>, QueueError> {
        let mut backlogs = Vec::with_capacity(tenants.len());
        for tenants in tenants.chunks(TENANTS_AT_ONCE) {
            let (queue, tenants) = (self.origin.id, tenants.to_vec());
            let counted = self.handle.run(Durability::Look, move |turn| {
                sharing::backlogs(turn, queue, &tenants)
            });
            backlogs.extend(counted.await?);
        }
        Ok(backlogs)
    }

    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        if ask.visibility > VISIBILITY_CEILING {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!(
                    "`{}`: a visibility of {:?} is too long, wanted 0 s to 12 h",
                    self.name, ask.visibility
                ),
            });
        }
        let ask = Ask {
            max: ask.max.clamp(1, self.identity.batch),
            wait: ask.wait.min(self.identity.longest_wait),
            groups: match ask.groups {
                GroupShare::Spread(beyond) => GroupShare::Spread(beyond.min(MOST_FOLLOWING)),
                groups => groups,
            },
            ..ask
        };
        let of = (self.origin.id, self.name.clone());
        self.handle
            .receive(of, ask, self.terms.clone(), hurry)
            .await
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        let queue = self.origin.id;
        self.each(
            Durability::Light,
            items.to_vec(),
            move |turn, delivery, more| settle::extend(turn, queue, delivery, *more),
        )
        .await
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let origin = self.origin.clone();
        let items = items
            .iter()
            .map(|(message, outcome)| (message.receipt.clone(), outcome.clone()))
            .collect();
        self.each(Durability::Full, items, move |turn, delivery, outcome| {
            settle::settle(turn, &origin, delivery, outcome)
        })
        .await
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        let (queue, count, items) = (self.origin.id, items.len(), items.to_vec());
        if count == 0 {
            return Vec::new();
        }
        let run = move |turn: &mut turn::Turn<'_>| sending::send_as_set(turn, queue, &items);
        spread(self.handle.run(Durability::Full, run).await, count)
    }

    async fn would_take(&self, item: &OutgoingMessage) -> Result<(), ItemError> {
        let (queue, item) = (self.origin.id, item.clone());
        let run = move |turn: &mut turn::Turn<'_>| sending::would_take(turn, queue, &item);
        let told = self.handle.run(Durability::Look, run).await;
        told.unwrap_or_else(|error| Err(schema::item_error(&error)))
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let queue = self.origin.id;
        let run = move |turn: &mut turn::Turn<'_>| look::depth(turn, queue);
        self.handle.run(Durability::Look, run).await
    }

    async fn retention(&self) -> Result<Option<Duration>, QueueError> {
        let queue = self.origin.id;
        let run = move |turn: &mut turn::Turn<'_>| settings::read(turn, queue);
        let found = self.handle.run(Durability::Look, run).await?;
        let seconds = found.and_then(|settings| settings.retention_s);
        Ok(seconds.map(Duration::from_secs))
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        let (queue, name) = (self.origin.id, self.name.clone());
        let run = move |turn: &mut turn::Turn<'_>| look::peek(turn, queue, &name, max);
        self.handle.run(Durability::Look, run).await
    }

    async fn redrive_sources(&self) -> Result<Vec<String>, QueueError> {
        let name = self.origin.name.clone();
        let run = move |turn: &mut turn::Turn<'_>| registry::sources(turn, &name);
        let names = self.handle.run(Durability::Look, run).await?;
        Ok(names.iter().map(|name| format!("local:{name}")).collect())
    }

    async fn browse(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        let Some(after) = browse::row_of(after) else {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!("`{}`: the cursor is of another backend", self.name),
            });
        };
        let (queue, name) = (self.origin.id, self.name.clone());
        let run =
            move |turn: &mut turn::Turn<'_>| browse::page(turn, (queue, &name), after, max.max(1));
        self.handle.run(Durability::Look, run).await
    }

    async fn browse_end(&self) -> Result<BrowseCursor, QueueError> {
        let run = |turn: &mut turn::Turn<'_>| browse::end(turn);
        self.handle.run(Durability::Look, run).await
    }

    /// Receives chosen messages. They count as received before any of them is read, as with
    /// `receive`.
    async fn receive_these(
        &self,
        listed: &[Receipt],
        visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        let (queue, name) = (self.origin.id, self.name.clone());
        let chosen: Vec<Receipt> = listed.iter().take(BATCH).cloned().collect();
        let visibility = visibility.min(VISIBILITY_CEILING);
        let shares = self.terms.sharing().is_some();
        let taken = self.handle.run(Durability::Light, move |turn| {
            let in_order = !(shares && sharing::is_by_group(turn, queue)?);
            browse::take_chosen(turn, queue, &chosen, visibility, in_order)
        });
        let taken = taken.await?;
        self.handle
            .run(Durability::Look, move |turn: &mut turn::Turn<'_>| {
                browse::read(turn, &name, &taken)
            })
            .await
    }

    /// Searches the rows of the file for the id. Reads nothing but ids.
    async fn find_waiting(&self, id: &str) -> Result<Option<Message>, QueueError> {
        let mut after = 0;
        loop {
            let (queue, name) = (self.origin.id, self.name.clone());
            let id = id.to_owned();
            let run =
                move |turn: &mut turn::Turn<'_>| browse::find(turn, (queue, &name), &id, after);
            match self.handle.run(Durability::Look, run).await? {
                browse::Search::Found(message) => return Ok(Some(*message)),
                browse::Search::Beyond(row) => after = row,
                browse::Search::Ended => return Ok(None),
            }
        }
    }

    async fn cancel_delayed(&self, id: &str) -> Result<bool, QueueError> {
        let (queue, id) = (self.origin.name.clone(), id.to_owned());
        let run = move |turn: &mut turn::Turn<'_>| delayed::cancel_later(turn, &queue, &id);
        self.handle.run(Durability::Full, run).await
    }

    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        let queue = self.origin.id;
        let run = move |turn: &mut turn::Turn<'_>| browse::purge(turn, queue);
        self.handle.run(Durability::Full, run).await
    }
}

#[cfg(test)]
mod tests;
