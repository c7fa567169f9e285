//! One thread for many calls: it takes everything that waits, so that one commit answers all and
//! the cost of reaching the disk is shared. Knows no table.

use super::database::IDLE;
use super::{CommitError, Database, Synchronous};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use rusqlite::Connection;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// So many calls may wait for a thread. More is only asked for if the disk hangs.
const WAITING: usize = 4_096;

/// A connection that is written to by one thread, and what waits to be written. After a second
/// without a write it empties the write-ahead log.
#[derive(Debug)]
pub struct GroupWriter<J> {
    database: Database,
    jobs: Receiver<J>,
    most: usize,
    /// When to empty the log, if something may be in it.
    tidy_at: Option<BootInstant>,
}

impl<J> GroupWriter<J> {
    /// Takes `most` jobs in one group: that bounds how long the first waits for the last.
    pub fn new(database: Database, jobs: Receiver<J>, most: usize) -> Self {
        Self {
            database,
            jobs,
            most,
            // What an earlier process left in the log.
            tidy_at: Some(clock::now() + IDLE),
        }
    }

    /// The connection, to read from.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Everything that waits, as soon as something does; nothing when `calm` has passed. `None` once
    /// nobody can ask any more; the log is empty then.
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

    /// One transaction, as `Database::transact`.
    ///
    /// # Errors
    /// Nothing was written, or it is lost.
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

/// Something that a thread is asked, and where the answer goes.
#[derive(Debug)]
pub struct Call<Q, A> {
    /// What is asked.
    pub asked: Q,
    reply: oneshot::Sender<A>,
}

impl<Q, A> Call<Q, A> {
    /// Whether somebody still waits for the answer.
    pub fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Answers. A caller who has gone needs no answer.
    pub fn answer(self, answer: A) {
        let _ = self.reply.send(answer);
    }
}

/// Why a call was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// Nothing was done.
    #[error("too many calls wait for the disk")]
    TooMany,
    /// What was asked may have been done.
    #[error("its thread has ended")]
    Ended,
}

/// Asks one thread, which ends when its caller is gone.
#[derive(Debug)]
pub struct Caller<Q, A>(SyncSender<Call<Q, A>>);

impl<Q: Send + 'static, A: Send + 'static> Caller<Q, A> {
    /// Starts a thread that runs until it is asked no more.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn start(
        name: &str,
        run: impl FnOnce(Receiver<Call<Q, A>>) + Send + 'static,
    ) -> io::Result<Self> {
        let (calls, asked) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(move || run(asked))?;
        Ok(Self(calls))
    }

    /// Starts a thread that answers one call after the other, and none that nobody waits for.
    ///
    /// # Errors
    /// If the system starts no thread.
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

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// If there is none.
    pub async fn ask(&self, asked: Q) -> Result<A, Unanswered> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.try_send(Call { asked, reply });
        sent.map_err(|error| match error {
            TrySendError::Full(_) => Unanswered::TooMany,
            TrySendError::Disconnected(_) => Unanswered::Ended,
        })?;
        answer.await.map_err(|_| Unanswered::Ended)
    }
}

#[cfg(test)]
mod tests;
