//! The requests to the writer thread, and the handle that sends them. Contains no SQL.

use super::deliver::DeliveryTerms;
use super::lines::WaitingReceive;
use super::schema::StoreFiles;
use super::turn::{QueueId, Turn};
use dispatcher_core::clock;
use dispatcher_core::queue::{Ask, ErrorKind, QueueError, ReceivedMessages};
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The durability that a piece of work needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// Only reads.
    Look,
    /// Survives a crash of the process, but not a loss of power: a message whose extension is lost
    /// is merely delivered again.
    Light,
    /// Survives a loss of power.
    Full,
}

/// A piece of work with a place for its outcome. The writer may call `run` again after a rollback;
/// the last outcome counts.
pub(super) trait Work: Send {
    /// Returns the durability that it needs.
    fn care(&self) -> Durability;
    /// Runs it, inside a transaction unless it only reads.
    fn run(&mut self, turn: &mut Turn<'_>) -> rusqlite::Result<()>;
    /// Records that it failed.
    fn fail(&mut self, error: QueueError);
    /// Sends the outcome to the caller.
    fn answer(self: Box<Self>);
}

/// A request to the writer thread.
pub(super) enum WriterRequest {
    /// Runs this work.
    Work(Box<dyn Work>),
    /// Waits for messages of this queue.
    Receive(QueueId, WaitingReceive),
    /// Looks again for messages of this queue, because the rules of waiting receives changed.
    Retry(QueueId),
    /// Ends the waits for this queue.
    Hurry(QueueId),
    /// Handles a notification by another process.
    Bell,
}

struct WriterTask<T, F, R> {
    care: Durability,
    run: F,
    outcome: Option<Result<T, QueueError>>,
    reply: R,
}

impl<T, F, R> Work for WriterTask<T, F, R>
where
    T: Send,
    F: FnMut(&mut Turn<'_>) -> rusqlite::Result<T> + Send,
    R: FnOnce(Result<T, QueueError>) + Send,
{
    fn care(&self) -> Durability {
        self.care
    }

    fn run(&mut self, turn: &mut Turn<'_>) -> rusqlite::Result<()> {
        self.outcome = Some(Ok((self.run)(turn)?));
        Ok(())
    }

    fn fail(&mut self, error: QueueError) {
        self.outcome = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        if let Some(outcome) = self.outcome {
            (self.reply)(outcome);
        }
    }
}

/// Returns work whose outcome no caller awaits.
pub(super) fn without_reply<F>(care: Durability, run: F) -> Box<dyn Work>
where
    F: FnMut(&mut Turn<'_>) -> rusqlite::Result<()> + Send + 'static,
{
    Box::new(WriterTask {
        care,
        run,
        outcome: None,
        reply: drop,
    })
}

/// A handle of the writer thread, which ends when the last handle is gone.
pub(super) struct Handle {
    jobs: mpsc::Sender<WriterRequest>,
    place: StoreFiles,
}

impl Handle {
    /// Creates a handle of the thread that reads the other end of `jobs`.
    pub(super) fn new(jobs: mpsc::Sender<WriterRequest>, place: StoreFiles) -> Arc<Self> {
        Arc::new(Self { jobs, place })
    }

    /// Notifies the writer that another process has rung.
    pub(super) fn notified(&self) {
        // A writer that has ended needs no notification.
        let _ = self.jobs.send(WriterRequest::Bell);
    }

    /// Notifies the writer that the rules of receives that wait for this queue changed.
    pub(super) fn retry(&self, queue: QueueId) {
        // A writer that has ended has no waiting receives.
        let _ = self.jobs.send(WriterRequest::Retry(queue));
    }

    fn ended(&self) -> QueueError {
        self.place
            .failed(ErrorKind::Invalid, "its thread has ended; open it again")
    }

    fn put<T, F, R>(&self, care: Durability, run: F, reply: R) -> Result<(), QueueError>
    where
        T: Send + 'static,
        F: FnMut(&mut Turn<'_>) -> rusqlite::Result<T> + Send + 'static,
        R: FnOnce(Result<T, QueueError>) + Send + 'static,
    {
        let task = Box::new(WriterTask {
            care,
            run,
            outcome: None,
            reply,
        });
        self.jobs
            .send(WriterRequest::Work(task))
            .map_err(|_| self.ended())
    }

    /// Runs work and waits for its outcome.
    pub(super) async fn run<T, F>(&self, care: Durability, run: F) -> Result<T, QueueError>
    where
        T: Send + 'static,
        F: FnMut(&mut Turn<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, outcome) = oneshot::channel();
        // A caller that is gone needs no answer.
        self.put(care, run, move |value| drop(reply.send(value)))?;
        outcome.await.unwrap_or_else(|_| Err(self.ended()))
    }

    /// Runs work and blocks until it is done, a few milliseconds.
    pub(super) fn run_blocking<T, F>(&self, care: Durability, run: F) -> Result<T, QueueError>
    where
        T: Send + 'static,
        F: FnMut(&mut Turn<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, outcome) = mpsc::channel();
        self.put(care, run, move |value| drop(reply.send(value)))?;
        outcome.recv().unwrap_or_else(|_| Err(self.ended()))
    }

    /// Waits in line for messages.
    pub(super) async fn receive(
        &self,
        (queue, name): (QueueId, Arc<str>),
        ask: Ask,
        terms: DeliveryTerms,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        let (reply, mut outcome) = oneshot::channel();
        let asked = WaitingReceive {
            name,
            ask,
            terms,
            until: clock::now() + ask.wait,
            reply,
        };
        self.jobs
            .send(WriterRequest::Receive(queue, asked))
            .map_err(|_| self.ended())?;
        let answer = tokio::select! {
            answer = &mut outcome => answer,
            () = hurry.cancelled() => {
                // The writer ends the wait itself, so that no messages go to a call that has left.
                self.jobs.send(WriterRequest::Hurry(queue)).map_err(|_| self.ended())?;
                outcome.await
            }
        };
        answer.unwrap_or_else(|_| Err(self.ended()))
    }
}
