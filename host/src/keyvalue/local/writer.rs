//! The one thread that writes. It takes everything that waits, writes it in one transaction,
//! commits once, then answers all: the cost of reaching the disk is shared.

use super::schema::Place;
use super::steps::{self, Write};
use crate::trouble::Failed;
use rusqlite::{Connection, TransactionBehavior};
use std::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// The most jobs of one transaction: bounds how long the first waits for the last.
const GROUP: usize = 256;

/// A change, and where the answer goes.
pub struct Job {
    /// What is written.
    pub write: Write,
    /// Its bytes among those that may wait.
    pub _room: OwnedSemaphorePermit,
    /// What `steps::write` answers.
    pub reply: oneshot::Sender<Result<i64, Failed>>,
}

/// The state of the thread.
pub struct Writer {
    place: Place,
    connection: Connection,
    jobs: Receiver<Job>,
}

impl Writer {
    /// A writer that has done nothing yet.
    pub fn new(place: Place, connection: Connection, jobs: Receiver<Job>) -> Self {
        Self {
            place,
            connection,
            jobs,
        }
    }

    /// Runs until nobody can ask any more.
    pub fn run(mut self) {
        while let Ok(first) = self.jobs.recv() {
            let mut jobs = vec![first];
            jobs.extend(self.jobs.try_iter().take(GROUP - 1));
            // What nobody waits for any more is not begun.
            jobs.retain(|job| !job.reply.is_closed());
            if jobs.is_empty() {
                continue;
            }
            let answers = match self.write(&jobs) {
                Ok(answers) => answers,
                Err(error) => {
                    let failed = self.place.trouble(&error);
                    vec![Err(failed); jobs.len()]
                }
            };
            for (job, answer) in jobs.into_iter().zip(answers) {
                // A caller who has gone needs no answer.
                let _ = job.reply.send(answer);
            }
        }
    }

    /// One transaction.
    fn write(&mut self, jobs: &[Job]) -> rusqlite::Result<Vec<Result<i64, Failed>>> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let written = jobs
            .iter()
            .map(|job| steps::write(&transaction, &job.write));
        let answers = written.collect::<rusqlite::Result<Vec<_>>>()?;
        transaction.commit()?;
        Ok(answers)
    }
}
