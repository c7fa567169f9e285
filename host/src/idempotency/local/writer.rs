//! The one thread that writes. It takes everything that waits, writes it in one transaction,
//! commits once, then answers all: the cost of reaching the disk is shared. Between times it
//! deletes what has expired, in steps so small that nobody waits for them.

use super::{schema, steps};
use crate::clock::{self, Moment, Timestamp};
use crate::idempotency::RecordsError;
use rusqlite::{Connection, TransactionBehavior};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The most jobs of one transaction: bounds how long the first waits for the last.
const GROUP: usize = 256;
/// So many expired records at a time, when nothing is written.
const STEP: usize = 500;
/// With every record that is written up to so many expired ones are deleted, so that the file
/// stops growing where as many expire as are written.
const PACE: usize = 2;
/// How soon to look for expired records again: where more may be left, and where none is.
const SOON: Duration = Duration::from_millis(50);
const LATER: Duration = Duration::from_secs(60);

/// Records to be written.
pub struct Job {
    /// The queue's own name.
    pub queue: String,
    /// What is done.
    pub ids: Vec<String>,
    /// When it may be forgotten.
    pub until: Timestamp,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<(), RecordsError>>,
}

/// The state of the thread.
pub struct Writer {
    folder: PathBuf,
    connection: Connection,
    jobs: Receiver<Job>,
    /// When to look for expired records next.
    sweep_at: Moment,
}

impl Writer {
    /// A writer that has done nothing yet.
    pub fn new(folder: PathBuf, connection: Connection, jobs: Receiver<Job>) -> Self {
        Self {
            folder,
            connection,
            jobs,
            sweep_at: clock::now(),
        }
    }

    /// Runs until nobody can ask any more.
    pub fn run(mut self) {
        while let Some(jobs) = self.gather() {
            let written = self.write(&jobs, clock::now(), clock::today());
            let answer = written.map_err(|error| schema::failed(&self.folder, error));
            for job in jobs {
                // A caller who has gone needs no answer.
                let _ = job.reply.send(answer.clone());
            }
        }
    }

    /// Everything that waits; nothing when it is time to look for expired records. None at the end.
    fn gather(&self) -> Option<Vec<Job>> {
        let first = self.jobs.recv_timeout(self.sweep_at.since(clock::now()));
        let mut jobs = match first {
            Ok(job) => vec![job],
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        jobs.extend(self.jobs.try_iter().take(GROUP - 1));
        Some(jobs)
    }

    /// One transaction: the records, then a step of what has expired.
    fn write(&mut self, jobs: &[Job], now: Moment, today: Timestamp) -> rusqlite::Result<()> {
        let fresh: usize = jobs.iter().map(|job| job.ids.len()).sum();
        let step = if now < self.sweep_at { 0 } else { STEP };
        let most = step.max(PACE * fresh);
        if step > 0 {
            self.sweep_at = now + LATER;
        }
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        for job in jobs {
            steps::remember(&transaction, &job.queue, &job.ids, job.until)?;
        }
        let expired = steps::expire(&transaction, today, most)?;
        transaction.commit()?;
        if expired == most && most > 0 {
            self.sweep_at = now + SOON;
        }
        Ok(())
    }
}
