//! The one thread that writes: many calls in one transaction. Between times it deletes what has
//! expired, in steps so small that nobody waits for them.

use super::{schema, steps};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::idempotency::RecordsError;
use dispatcher_sqlite::{Call, CommitError, Database, GroupWriter, Synchronous};
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

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
}

/// Whether they were.
pub(super) type RecordsAnswer = Result<(), RecordsError>;

/// The state of the thread.
pub(super) struct RecordsWriter {
    folder: PathBuf,
    writer: GroupWriter<Call<RecordsWrite, RecordsAnswer>>,
    /// When to look for expired records next.
    sweep_at: BootInstant,
}

impl RecordsWriter {
    /// A writer that has done nothing yet.
    pub(super) fn new(
        folder: PathBuf,
        database: Database,
        calls: Receiver<Call<RecordsWrite, RecordsAnswer>>,
    ) -> Self {
        Self {
            folder,
            writer: GroupWriter::new(database, calls, GROUP),
            sweep_at: clock::now(),
        }
    }

    /// Runs until nobody can ask any more.
    pub(super) fn run(mut self) {
        while let Some(calls) = self.writer.gather(Some(self.sweep_at.since(clock::now()))) {
            let written = self.write(&calls);
            for call in calls {
                call.answer(written.clone());
            }
        }
    }

    /// One transaction: the records, then a step of what has expired.
    fn write(&mut self, calls: &[Call<RecordsWrite, RecordsAnswer>]) -> RecordsAnswer {
        let now = clock::now();
        let fresh: usize = calls.iter().map(|call| call.asked.ids.len()).sum();
        let step = if now < self.sweep_at { 0 } else { STEP };
        let most = step.max(PACE * fresh);
        if step > 0 {
            // A sweep that fails rests as well.
            self.sweep_at = now + LATER;
        }
        let written = self.writer.transact(Synchronous::Full, |transaction| {
            write(transaction, calls, most)
        });
        match written {
            Ok(expired) => {
                if expired == most && most > 0 {
                    self.sweep_at = now + SOON;
                }
                Ok(())
            }
            Err(CommitError::Lost(damage)) => {
                self.sweep_at = now + LATER;
                Err(schema::failed(&self.folder, damage))
            }
            Err(CommitError::Begin(error) | CommitError::Within(error)) => {
                Err(schema::classify(&self.folder, &error))
            }
        }
    }
}

/// How many have expired, of `most`.
fn write(
    transaction: &Connection,
    calls: &[Call<RecordsWrite, RecordsAnswer>],
    most: usize,
) -> rusqlite::Result<usize> {
    for RecordsWrite { queue, ids, until } in calls.iter().map(|call| &call.asked) {
        steps::remember(transaction, queue, ids, *until)?;
    }
    let expired = steps::expire(transaction, clock::wall_clock_now(), most)?;
    if calls.iter().any(|call| !call.asked.ids.is_empty()) {
        let count = "UPDATE written SET number = number + 1";
        transaction.prepare_cached(count)?.execute([])?;
    }
    Ok(expired)
}
