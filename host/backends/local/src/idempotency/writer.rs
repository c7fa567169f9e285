//! The one thread that writes. It takes all waiting requests, writes them in one transaction,
//! commits once, then answers all: they share the cost of one disk sync. In between it deletes
//! expired records, in steps so small that nobody waits for them.

use super::{schema, steps};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::idempotency::RecordsError;
use dispatcher_sqlite::{Database, IDLE};
use rusqlite::{Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum jobs of one transaction: bounds how long the first waits for the last.
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
pub(super) struct RecordsWrite {
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
pub(super) struct RecordsWriter {
    folder: PathBuf,
    connection: Database,
    jobs: Receiver<RecordsWrite>,
    /// When to look for expired records next.
    sweep_at: BootInstant,
    /// When to empty the write-ahead log, if something was written since.
    tidy_at: Option<BootInstant>,
}

impl RecordsWriter {
    /// A writer that has done nothing yet.
    pub(super) fn new(folder: PathBuf, connection: Database, jobs: Receiver<RecordsWrite>) -> Self {
        Self {
            folder,
            connection,
            jobs,
            sweep_at: clock::now(),
            tidy_at: None,
        }
    }

    /// Runs until nobody can ask any more.
    pub(super) fn run(mut self) {
        while let Some(jobs) = self.gather() {
            let now = clock::now();
            if self.tidy_at.is_some_and(|at| at <= now) {
                let is_done = self.connection.tidy();
                self.tidy_at = (!is_done).then(|| now + IDLE);
            }
            if jobs.is_empty() && now < self.sweep_at {
                continue;
            }
            let answer = self.write_checked(&jobs);
            for job in jobs {
                // A caller who has gone needs no answer.
                let _ = job.reply.send(answer.clone());
            }
        }
        self.connection.tidy();
    }

    /// Writes, and answers only if the file is still there.
    fn write_checked(&mut self, jobs: &[RecordsWrite]) -> Result<(), RecordsError> {
        let lost = |folder: &Path, damage| Err(schema::failed(folder, damage));
        // A sweep that fails rests as well.
        let now = clock::now();
        if let Err(damage) = self.connection.check() {
            self.sweep_at = now + LATER;
            return lost(&self.folder, damage);
        }
        // A lock is waited for so shortly that one failure says little: the guard counts them.
        let written = self.write(jobs, now, clock::wall_clock_now());
        let number = written.map_err(|error| schema::classify(&self.folder, &error))?;
        if let Err(damage) = self.connection.check() {
            return lost(&self.folder, damage);
        }
        self.connection.note_written(number);
        self.tidy_at = Some(clock::now() + IDLE);
        Ok(())
    }

    /// Everything that waits; nothing when it is time to look for expired records. None at the end.
    fn gather(&self) -> Option<Vec<RecordsWrite>> {
        let next = self
            .tidy_at
            .map_or(self.sweep_at, |at| at.min(self.sweep_at));
        let first = self.jobs.recv_timeout(next.since(clock::now()));
        let mut jobs = match first {
            Ok(job) => vec![job],
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        jobs.extend(self.jobs.try_iter().take(GROUP - 1));
        Some(jobs)
    }

    /// One transaction: the records, then a step of what has expired. Returns the number that is
    /// acknowledged with it.
    fn write(
        &mut self,
        jobs: &[RecordsWrite],
        now: BootInstant,
        today: Timestamp,
    ) -> rusqlite::Result<Option<i64>> {
        let fresh: usize = jobs.iter().map(|job| job.ids.len()).sum();
        let step = if now < self.sweep_at { 0 } else { STEP };
        let most = step.max(PACE * fresh);
        if step > 0 {
            self.sweep_at = now + LATER;
        }
        let transaction =
            Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        for job in jobs {
            steps::remember(&transaction, &job.queue, &job.ids, job.until)?;
        }
        let expired = steps::expire(&transaction, today, most)?;
        if fresh > 0 {
            let count = "UPDATE written SET number = number + 1";
            self.connection.prepare_cached(count)?.execute([])?;
        }
        let number = self.connection.counter()?;
        transaction.commit()?;
        if expired == most && most > 0 {
            self.sweep_at = now + SOON;
        }
        Ok(number)
    }
}
