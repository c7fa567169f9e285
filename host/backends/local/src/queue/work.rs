//! The requests of the writer's thread, and the handle that sends them. Knows no SQL.

use super::deliver::DeliveryTerms;
use super::lines::WaitingReceive;
use super::schema::StoreFiles;
use super::turn::{QueueId, Turn};
use dispatcher_core::clock;
use dispatcher_core::queue::{Ask, ErrorKind, QueueError, Received};
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How a piece of work must be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// Only reads.
    Look,
    /// Survives a crash of the process, not a loss of power: what an extension loses is merely
    /// delivered again.
    Light,
    /// Survives a loss of power.
    Full,
}

/// A piece of work with a place for its outcome. `run` may be called again after its transaction
/// was rolled back; the last outcome counts.
pub(super) trait Work: Send {
    /// How it must be run.
    fn care(&self) -> Durability;
    /// Does it, inside a transaction unless it only looks.
    fn run(&mut self, turn: &mut Turn<'_>) -> rusqlite::Result<()>;
    /// Notes that it failed.
    fn fail(&mut self, error: QueueError);
    /// Tells the outcome to whoever asked.
    fn answer(self: Box<Self>);
}

/// What is sent to the writer's thread.
pub(super) enum WriterRequest {
    /// Run this.
    Work(Box<dyn Work>),
    /// Somebody wants messages.
    Receive(QueueId, WaitingReceive),
    /// Nobody wants to wait for this queue any longer.
    Hurry(QueueId),
    /// Another process has rung.
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

/// Work whose outcome nobody waits for.
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

/// Asks the writer's thread, which ends when the last handle is gone.
pub(super) struct Handle {
    jobs: mpsc::Sender<WriterRequest>,
    place: StoreFiles,
}

impl Handle {
    /// A handle of the thread that reads the other end of `jobs`.
    pub(super) fn new(jobs: mpsc::Sender<WriterRequest>, place: StoreFiles) -> Arc<Self> {
        Arc::new(Self { jobs, place })
    }

    /// Tells the writer that another process has rung.
    pub(super) fn notified(&self) {
        // A writer that has ended needs no waking.
        let _ = self.jobs.send(WriterRequest::Bell);
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
        // A caller who has gone needs no answer.
        self.put(care, run, move |value| drop(reply.send(value)))?;
        outcome.await.unwrap_or_else(|_| Err(self.ended()))
    }

    /// Runs work and blocks until it is done: a few milliseconds.
    pub(super) fn run_blocking<T, F>(&self, care: Durability, run: F) -> Result<T, QueueError>
    where
        T: Send + 'static,
        F: FnMut(&mut Turn<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, outcome) = mpsc::channel();
        self.put(care, run, move |value| drop(reply.send(value)))?;
        outcome.recv().unwrap_or_else(|_| Err(self.ended()))
    }

    /// Stands in line for messages.
    pub(super) async fn receive(
        &self,
        (queue, name): (QueueId, Arc<str>),
        ask: Ask,
        terms: DeliveryTerms,
        hurry: &CancellationToken,
    ) -> Result<Received, QueueError> {
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
                // The writer ends the wait itself, so that nothing is given to a call that left.
                self.jobs.send(WriterRequest::Hurry(queue)).map_err(|_| self.ended())?;
                outcome.await
            }
        };
        answer.unwrap_or_else(|_| Err(self.ended()))
    }
}
