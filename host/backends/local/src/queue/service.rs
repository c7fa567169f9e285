//! The store as a service: all operations on the file beyond the port. Each call is one step in the
//! writer's transaction, shared with concurrent requests. Independent of any protocol.

use super::declare;
use super::deliver::DeliveryTerms;
use super::holding::{self, SettleRefusal};
use super::moves::{self, Move};
use super::registry::{self, KnownQueue};
use super::sending::{self, QueuedSend, SentMessage};
use super::settings::QueueSettings;
use super::time::StoreTime;
use super::turn::QueueId;
use super::work::Durability;
use super::{LocalStore, controls, look};
use dispatcher_core::backend::{Contradiction, QueueDeclaration};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::{Ask, Depth, ItemError, QueueError, ReceivedMessages};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The answer to one item of a call.
pub(super) type LeaseCheck = Result<(), SettleRefusal>;

/// Queues, by their bare names. A missing queue is not an error but gives `None` or false.
impl LocalStore {
    /// Returns a queue.
    pub async fn find(&self, name: &str) -> Result<Option<KnownQueue>, QueueError> {
        let name = name.to_owned();
        self.handle
            .run(Durability::Look, move |turn| registry::find(turn, &name))
            .await
    }

    /// Creates a queue. If a configured queue of the name exists, returns it unchanged. A queue
    /// that was merely opened takes these settings.
    pub async fn create(
        &self,
        name: &str,
        settings: QueueSettings,
    ) -> Result<Option<KnownQueue>, QueueError> {
        let name = name.to_owned();
        self.handle
            .run(Durability::Full, move |turn| {
                registry::create(turn, &name, &settings)
            })
            .await
    }

    /// Changes the settings of a queue.
    pub async fn change(
        &self,
        name: &str,
        change: impl Fn(&mut QueueSettings) + Send + 'static,
    ) -> Result<bool, QueueError> {
        let name = name.to_owned();
        self.handle
            .run(Durability::Full, move |turn| {
                registry::change(turn, &name, &change)
            })
            .await
    }

    /// Deletes a queue with all its messages.
    pub async fn delete_queue(&self, name: &str) -> Result<bool, QueueError> {
        let name = name.to_owned();
        self.handle
            .run(Durability::Full, move |turn| registry::delete(turn, &name))
            .await
    }

    /// Returns the contradictions between the declarations and the existing queues. Changes
    /// nothing.
    pub async fn contradictions(
        &self,
        queues: Vec<QueueDeclaration>,
    ) -> Result<Vec<Contradiction>, QueueError> {
        self.handle
            .run(Durability::Look, move |turn| {
                declare::contradictions(turn, &queues)
            })
            .await
    }

    /// Creates queues, or changes them to match their declarations. Changes none if a declaration
    /// contradicts an existing queue.
    pub async fn declare(
        &self,
        queues: Vec<QueueDeclaration>,
    ) -> Result<Vec<Contradiction>, QueueError> {
        self.handle
            .run(Durability::Full, move |turn| {
                declare::declare(turn, &queues)
            })
            .await
    }

    /// Deletes every queue with all its messages, and every move task.
    pub async fn reset(&self) -> Result<(), QueueError> {
        self.handle.run(Durability::Full, registry::reset).await
    }

    /// Makes the writer look for due messages at once, after the clock was moved ahead.
    pub fn wake(&self) {
        self.handle.notified();
    }

    /// Deletes all messages of a queue.
    pub async fn purge(&self, queue: QueueId) -> Result<(), QueueError> {
        self.handle
            .run(Durability::Full, move |turn| registry::purge(turn, queue))
            .await
    }

    /// Returns up to `max` names that begin with `prefix` and come after `after`, sorted.
    pub async fn list(
        &self,
        prefix: &str,
        after: &str,
        max: usize,
    ) -> Result<Vec<String>, QueueError> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        self.handle
            .run(Durability::Look, move |turn| {
                registry::list(turn, &prefix, &after, max)
            })
            .await
    }

    /// Returns the queues whose redrive policies name this dead-letter queue.
    pub async fn sources(&self, dead_letter_queue: &str) -> Result<Vec<String>, QueueError> {
        let dead_letter_queue = dead_letter_queue.to_owned();
        self.handle
            .run(Durability::Look, move |turn| {
                registry::sources(turn, &dead_letter_queue)
            })
            .await
    }

    /// Returns how much a queue holds.
    pub async fn depth_of(&self, queue: QueueId) -> Result<Depth, QueueError> {
        self.handle
            .run(Durability::Look, move |turn| look::depth(turn, queue))
            .await
    }

    /// Returns the operators' settings of each of these queues.
    pub async fn controls(&self, queues: Vec<String>) -> Result<Vec<QueueControl>, QueueError> {
        self.handle
            .run(Durability::Look, move |turn| controls::read(turn, &queues))
            .await
    }

    /// Changes the operators' settings of a queue.
    pub async fn change_control(
        &self,
        queue: &str,
        change: ControlChange,
    ) -> Result<(), QueueError> {
        let queue = queue.to_owned();
        self.handle
            .run(Durability::Full, move |turn| {
                controls::change(turn, &queue, &change)
            })
            .await
    }

    /// Deletes some of the messages whose retention is over. Returns whether there may be more.
    pub async fn drop_old(&self) -> Result<bool, QueueError> {
        self.handle.run(Durability::Light, registry::drop_old).await
    }
}

/// Messages.
impl LocalStore {
    /// Sends messages. Returns one answer per item, in order. A message with an id survives a loss
    /// of power.
    pub async fn send_to(
        &self,
        queue: QueueId,
        drafts: Vec<QueuedSend>,
    ) -> Result<Vec<Result<SentMessage, ItemError>>, QueueError> {
        self.handle
            .run(Durability::Full, move |turn| {
                sending::send(turn, queue, &drafts)
            })
            .await
    }

    /// Receives as the port does, as far as `budget` has bytes for the messages. `ask` must be
    /// within its bounds: at least one message, at most 12 hours. Groups of a queue that is not FIFO
    /// are not kept in order: each is a tenant, as for SQS's fair queues.
    pub async fn receive_from(
        &self,
        known: &KnownQueue,
        ask: Ask,
        budget: Arc<Budget>,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        let name: Arc<str> = format!("local:{}", known.name).into();
        let terms = DeliveryTerms {
            budget: Some(budget),
            client_of: Some(known.settings.incarnation),
            sharing: (!known.settings.fifo).then(|| self.standard.clone()),
            ..DeliveryTerms::default()
        };
        self.handle
            .receive((known.id, name), ask, terms, hurry)
            .await
    }

    /// Ends deliveries. With `ordered`, a delivery that is over is an error.
    pub async fn delete_from(
        &self,
        queue: QueueId,
        receipts: Vec<Receipt>,
        ordered: bool,
    ) -> Result<Vec<LeaseCheck>, QueueError> {
        self.handle
            .run(Durability::Full, move |turn| {
                let receipts = receipts.iter();
                receipts
                    .map(|receipt| holding::delete(turn, queue, receipt, ordered))
                    .collect()
            })
            .await
    }

    /// Makes deliveries invisible for this long from now. With `ordered`, a delivery that is over
    /// is an error.
    pub async fn change_visibility(
        &self,
        queue: QueueId,
        items: Vec<(Receipt, Duration)>,
        ordered: bool,
    ) -> Result<Vec<LeaseCheck>, QueueError> {
        self.handle
            .run(Durability::Light, move |turn| {
                items
                    .iter()
                    .map(|(receipt, more): &(Receipt, Duration)| {
                        holding::change_visibility(turn, queue, receipt, *more, ordered)
                    })
                    .collect()
            })
            .await
    }

    /// Returns until when a delivery is invisible, or `None` if it is over.
    pub async fn until(
        &self,
        queue: QueueId,
        receipt: Receipt,
    ) -> Result<Option<StoreTime>, QueueError> {
        self.handle
            .run(Durability::Look, move |turn| {
                holding::until(turn, queue, &receipt)
            })
            .await
    }

    /// Extends deliveries as if they were received now, if all are as their receive left them.
    /// Returns their messages, as the receive did, and the end of their new visibility timeout.
    pub async fn take_again(
        &self,
        known: &KnownQueue,
        receipts: Vec<Receipt>,
        until: StoreTime,
        visibility: Duration,
    ) -> Result<Option<(Vec<Message>, StoreTime)>, QueueError> {
        let (queue, name) = (known.id, format!("local:{}", known.name));
        self.handle
            .run(Durability::Light, move |turn| {
                holding::take_again(turn, (queue, &name), &receipts, until, visibility)
            })
            .await
    }
}

/// Tasks that move dead letters back.
impl LocalStore {
    /// Starts a task under this handle. Returns false if a task of the same source is running.
    pub async fn start_move(
        &self,
        handle: &str,
        source: &str,
        target: Option<String>,
        rate: Option<u32>,
    ) -> Result<bool, QueueError> {
        let (handle, source) = (handle.to_owned(), source.to_owned());
        self.handle
            .run(Durability::Full, move |turn| {
                moves::start(turn, &handle, &source, target.as_deref(), rate)
            })
            .await
    }

    /// Returns the last tasks of a source, the newest first.
    pub async fn moves(&self, source: &str, max: usize) -> Result<Vec<Move>, QueueError> {
        let source = source.to_owned();
        self.handle
            .run(Durability::Look, move |turn| {
                moves::list(turn, &source, max)
            })
            .await
    }

    /// Returns all running tasks.
    pub async fn running_moves(&self) -> Result<Vec<Move>, QueueError> {
        self.handle
            .run(Durability::Look, |turn| moves::running(turn))
            .await
    }

    /// Cancels a task if it is running. Returns the task as it was before; `None` if there is none
    /// of this handle.
    pub async fn cancel_move(&self, handle: &str) -> Result<Option<Move>, QueueError> {
        let handle = handle.to_owned();
        self.handle
            .run(Durability::Full, move |turn| moves::cancel(turn, &handle))
            .await
    }

    /// Moves up to `max` messages of a task. Returns how many, or `None` once it has ended.
    pub async fn step_move(&self, handle: &str, max: usize) -> Result<Option<usize>, QueueError> {
        let handle = handle.to_owned();
        self.handle
            .run(Durability::Full, move |turn| {
                moves::step(turn, &handle, max)
            })
            .await
    }
}
