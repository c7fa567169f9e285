//! The one thread that writes. It takes all waiting requests, writes them in one transaction,
//! commits once, then answers all: they share the cost of one disk sync.

use super::schema::BucketFile;
use super::steps::{self, BucketChange};
use dispatcher_core::error_kind::CallError;
use dispatcher_sqlite::{Database, IDLE};
use rusqlite::TransactionBehavior;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Maximum jobs of one transaction: bounds how long the first waits for the last.
const GROUP: usize = 256;

/// A change, and where the answer goes.
pub(super) struct BucketWrite {
    /// What is written.
    pub write: BucketChange,
    /// Its bytes among those that may wait.
    pub _room: OwnedSemaphorePermit,
    /// What `steps::write` answers.
    pub reply: oneshot::Sender<Result<i64, CallError>>,
}

/// One for each job, in their order.
type Answers = Vec<Result<i64, CallError>>;

/// The state of the thread.
pub(super) struct BucketWriter {
    place: BucketFile,
    connection: Database,
    jobs: Receiver<BucketWrite>,
}

impl BucketWriter {
    /// A writer that has done nothing yet.
    pub(super) fn new(
        place: BucketFile,
        connection: Database,
        jobs: Receiver<BucketWrite>,
    ) -> Self {
        Self {
            place,
            connection,
            jobs,
        }
    }

    /// Runs until nobody can ask any more.
    pub(super) fn run(mut self) {
        let mut is_tidy = false;
        loop {
            let first = match is_tidy {
                true => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => self.jobs.recv_timeout(IDLE),
            };
            let mut jobs = match first {
                Ok(first) => vec![first],
                Err(RecvTimeoutError::Timeout) => {
                    is_tidy = self.connection.tidy();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            is_tidy = false;
            jobs.extend(self.jobs.try_iter().take(GROUP - 1));
            // What nobody waits for any more is not begun.
            jobs.retain(|job| !job.reply.is_closed());
            if jobs.is_empty() {
                continue;
            }
            let answers = match self.write(&jobs) {
                Ok(answers) => answers,
                Err(failed) => vec![Err(failed); jobs.len()],
            };
            for (job, answer) in jobs.into_iter().zip(answers) {
                // A caller who has gone needs no answer.
                let _ = job.reply.send(answer);
            }
        }
        self.connection.tidy();
    }

    /// One transaction, of which nobody is told unless the file is still there.
    fn write(&mut self, jobs: &[BucketWrite]) -> Result<Answers, CallError> {
        let damaged = |place: &BucketFile| {
            let place = place.clone();
            move |damage| place.damaged(&damage)
        };
        self.connection.check().map_err(damaged(&self.place))?;
        let (answers, number) = self.commit(jobs).map_err(|error| {
            self.connection.note_failure(&error);
            self.place.classify(&error)
        })?;
        self.connection.check().map_err(damaged(&self.place))?;
        self.connection.note_written(number);
        Ok(answers)
    }

    /// The answers, and the number that is acknowledged with them.
    fn commit(&mut self, jobs: &[BucketWrite]) -> rusqlite::Result<(Answers, Option<i64>)> {
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let written = jobs
            .iter()
            .map(|job| steps::write(&transaction, &job.write));
        let answers = written.collect::<rusqlite::Result<Answers>>()?;
        let number = self.connection.counter()?;
        transaction.commit()?;
        Ok((answers, number))
    }
}
