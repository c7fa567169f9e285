//! One thread for many calls. It takes everything that waits, so that one commit answers all calls
//! and the cost of reaching the disk is shared. Independent of tables.

use super::database::IDLE;
use super::{CommitError, Database, Synchronous};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use rusqlite::Connection;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// The maximum number of calls that wait for a thread. Only a disk that hangs makes more wait.
const WAITING: usize = 4_096;

/// A connection that one thread writes to, and the jobs that wait for it. After a second without a
/// write it empties the write-ahead log.
#[derive(Debug)]
pub struct GroupWriter<J> {
    database: Database,
    jobs: Receiver<J>,
    most: usize,
    /// The time at which to empty the log, if something may be in it.
    tidy_at: Option<BootInstant>,
}

impl<J> GroupWriter<J> {
    /// Creates a writer that takes `most` jobs in one group, which bounds how long the first waits
    /// for the last.
    pub fn new(database: Database, jobs: Receiver<J>, most: usize) -> Self {
        Self {
            database,
            jobs,
            most,
            // An earlier process may have left something in the log.
            tidy_at: Some(clock::now() + IDLE),
        }
    }

    /// Returns the connection, to read from.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Returns everything that waits, as soon as there is something; nothing when `calm` has
    /// passed. Returns `None` once all callers are gone; the log is empty then.
    pub fn gather(&mut self, calm: Option<Duration>) -> Option<Vec<J>> {
        let until = calm.map(|calm| clock::now() + calm);
        loop {
            self.tidy();
            let next = until.into_iter().chain(self.tidy_at).min();
            let first = match next {
                None => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(next) => self.jobs.recv_timeout(next.since(clock::now())),
            };
            match first {
                Ok(first) => {
                    let mut group = vec![first];
                    group.extend(self.jobs.try_iter().take(self.most - 1));
                    return Some(group);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if until.is_some_and(|until| until <= clock::now()) {
                        return Some(Vec::new());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.database.tidy();
                    return None;
                }
            }
        }
    }

    /// Runs one transaction, as `Database::transact`.
    ///
    /// # Errors
    /// Fails if nothing was written, or if it is lost.
    pub fn transact<T>(
        &mut self,
        level: Synchronous,
        step: impl FnMut(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CommitError> {
        let outcome = self.database.transact(level, step);
        self.tidy_at = match &outcome {
            Err(CommitError::Lost(_)) => None,
            _ => Some(clock::now() + IDLE),
        };
        outcome
    }

    fn tidy(&mut self) {
        let now = clock::now();
        if self.tidy_at.is_some_and(|at| at <= now) {
            let is_empty = self.database.tidy();
            self.tidy_at = (!is_empty).then(|| now + IDLE);
        }
    }
}

/// A request to a thread, and the channel for its answer.
#[derive(Debug)]
pub struct Call<Q, A> {
    /// The request.
    pub asked: Q,
    reply: oneshot::Sender<A>,
}

impl<Q, A> Call<Q, A> {
    /// Whether the caller still waits for the answer.
    pub fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Sends the answer. A caller that is gone needs none.
    pub fn answer(self, answer: A) {
        let _ = self.reply.send(answer);
    }
}

/// The reason why a call was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The request was not carried out.
    #[error("too many calls wait for the disk")]
    TooMany,
    /// The request may have been carried out.
    #[error("its thread has ended")]
    Ended,
}

/// A handle of one thread, which ends when its handle is gone.
#[derive(Debug)]
pub struct Caller<Q, A>(SyncSender<Call<Q, A>>);

impl<Q: Send + 'static, A: Send + 'static> Caller<Q, A> {
    /// Starts a thread that runs until no more calls can come.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub fn start(
        name: &str,
        run: impl FnOnce(Receiver<Call<Q, A>>) + Send + 'static,
    ) -> io::Result<Self> {
        let (calls, asked) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(move || run(asked))?;
        Ok(Self(calls))
    }

    /// Starts a thread that answers one call after the other, and skips those that no caller
    /// awaits.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub fn one_by_one(name: &str, answer: impl Fn(&Q) -> A + Send + 'static) -> io::Result<Self> {
        Self::start(name, move |calls| {
            for call in calls {
                if call.is_awaited() {
                    let answer = answer(&call.asked);
                    call.answer(answer);
                }
            }
        })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// Fails if there is no answer.
    pub async fn ask(&self, asked: Q) -> Result<A, CallFailure> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.try_send(Call { asked, reply });
        sent.map_err(|error| match error {
            TrySendError::Full(_) => CallFailure::TooMany,
            TrySendError::Disconnected(_) => CallFailure::Ended,
        })?;
        answer.await.map_err(|_| CallFailure::Ended)
    }
}

#[cfg(test)]
mod tests;
