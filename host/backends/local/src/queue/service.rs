//! The store as a service to others: all operations on the file beyond the port. Each call is one
//! step in the writer's transaction, shared with concurrent requests. Knows no protocol.

use super::declare;
use super::deliver::DeliveryTerms;
use super::holding::{self, SettleRefusal};
use super::moves::{self, Move};
use super::registry::{self, KnownQueue};
use super::sending::{self, QueuedSend, SentMessage};
use super::settings::QueueSettings;
use super::time::StoreTime;
use super::turn::{QueueId, Turn};
use super::work::Durability;
use super::{LocalStore, controls, look};
use dispatcher_core::backend::{Contradiction, QueueDeclaration};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::{Ask, Depth, ItemError, QueueError, Received};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The answer to one item of a call.
pub(super) type LeaseCheck = Result<(), SettleRefusal>;

/// Queues. All by their bare names; what is not there is no error but `None` or false.
impl LocalStore {
    /// What is known about a queue.
    pub async fn find(&self, name: &str) -> Result<Option<KnownQueue>, QueueError> {
        let name = name.to_owned();
        self.handle
            .run(Durability::Look, move |turn| registry::find(turn, &name))
            .await
    }

    /// Makes a queue, unless somebody made one of the name: then that one, as it is. One that was
    /// merely opened takes these settings.
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

    /// Changes what a queue is set to.
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

    /// Deletes a queue with all it holds.
    pub async fn delete_queue(&self, name: &str) -> Result<bool, QueueError> {
        let name = name.to_owned();
        self.handle
            .run(Durability::Full, move |turn| registry::delete(turn, &name))
            .await
    }

    /// Which declarations contradict what is there. Changes nothing.
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

    /// Makes queues, or changes them to what is declared; none, if a declaration contradicts what is
    /// there.
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

    /// Deletes every queue with all it holds, and every task that moves messages.
    pub async fn reset(&self) -> Result<(), QueueError> {
        self.handle.run(Durability::Full, registry::reset).await
    }

    /// Has what is due looked for at once, after the clock was moved ahead.
    pub fn wake(&self) {
        self.handle.notified();
    }

    /// Takes everything out of a queue.
    pub async fn purge(&self, queue: QueueId) -> Result<(), QueueError> {
        self.handle
            .run(Durability::Full, move |turn| registry::purge(turn, queue))
            .await
    }

    /// Up to `max` names that begin so and come after this one, in their order.
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

    /// The queues whose given-up messages go to this one.
    pub async fn sources(&self, dead_letter_queue: &str) -> Result<Vec<String>, QueueError> {
        let dead_letter_queue = dead_letter_queue.to_owned();
        self.handle
            .run(Durability::Look, move |turn| {
                registry::sources(turn, &dead_letter_queue)
            })
            .await
    }

    /// How much a queue holds.
    pub async fn depth_of(&self, queue: QueueId) -> Result<Depth, QueueError> {
        self.handle
            .run(Durability::Look, move |turn| look::depth(turn, queue))
            .await
    }

    /// What operators set on each of these queues.
    pub async fn controls(&self, queues: Vec<String>) -> Result<Vec<QueueControl>, QueueError> {
        let run = move |turn: &mut Turn<'_>| controls::read(turn, &queues);
        self.handle.run(Durability::Look, run).await
    }

    /// Changes what operators set on a queue.
    pub async fn change_control(
        &self,
        queue: &str,
        change: ControlChange,
    ) -> Result<(), QueueError> {
        let queue = queue.to_owned();
        let run = move |turn: &mut Turn<'_>| controls::change(turn, &queue, &change);
        self.handle.run(Durability::Full, run).await
    }

    /// Drops some of what is older than its queue keeps; whether there may be more.
    pub async fn drop_old(&self) -> Result<bool, QueueError> {
        self.handle.run(Durability::Light, registry::drop_old).await
    }
}

/// Messages.
impl LocalStore {
    /// Sends; one answer per item, in order. What has an id survives a loss of power.
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

    /// Receives as the port does, as far as `budget` has bytes for the messages. `ask` must keep to
    /// its bounds: at least one, at most 12 hours.
    pub async fn receive_from(
        &self,
        known: &KnownQueue,
        ask: Ask,
        budget: Arc<Budget>,
        hurry: &CancellationToken,
    ) -> Result<Received, QueueError> {
        let name: Arc<str> = format!("local:{}", known.name).into();
        let terms = DeliveryTerms {
            budget: Some(budget),
            ..DeliveryTerms::default()
        };
        self.handle
            .receive((known.id, name), ask, terms, hurry)
            .await
    }

    /// Ends deliveries; `ordered` says that one that is over is an error.
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

    /// Keeps deliveries invisible for this long from now.
    pub async fn change_visibility(
        &self,
        queue: QueueId,
        items: Vec<(Receipt, Duration)>,
    ) -> Result<Vec<LeaseCheck>, QueueError> {
        self.handle
            .run(Durability::Light, move |turn| {
                let items = items.iter();
                items
                    .map(|(receipt, more)| holding::change_visibility(turn, queue, receipt, *more))
                    .collect()
            })
            .await
    }

    /// Until when a delivery is invisible, if it is not over.
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

    /// Keeps deliveries as if they were received now, if all are as their receive left them: their
    /// messages as that gave them, and until when.
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
    /// Begins one under this handle; false if one of the same source is running.
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

    /// The last tasks of a source, the newest first.
    pub async fn moves(&self, source: &str, max: usize) -> Result<Vec<Move>, QueueError> {
        let source = source.to_owned();
        self.handle
            .run(Durability::Look, move |turn| {
                moves::list(turn, &source, max)
            })
            .await
    }

    /// All tasks that are to continue.
    pub async fn running_moves(&self) -> Result<Vec<Move>, QueueError> {
        self.handle
            .run(Durability::Look, |turn| moves::running(turn))
            .await
    }

    /// Stops a task; what it was before, if there is one of the handle.
    pub async fn cancel_move(&self, handle: &str) -> Result<Option<Move>, QueueError> {
        let handle = handle.to_owned();
        self.handle
            .run(Durability::Full, move |turn| moves::cancel(turn, &handle))
            .await
    }

    /// Moves up to `max` messages of a task; how many, or nothing once it has ended.
    pub async fn step_move(&self, handle: &str, max: usize) -> Result<Option<usize>, QueueError> {
        let handle = handle.to_owned();
        self.handle
            .run(Durability::Full, move |turn| {
                moves::step(turn, &handle, max)
            })
            .await
    }
}
