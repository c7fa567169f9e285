//! The only thread that writes, many calls in one transaction. It also deletes expired records, in
//! steps so small that no caller waits long.

use super::{schema, steps};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::idempotency::RecordsError;
use dispatcher_sqlite::{Call, CommitError, Database, GroupWriter, Synchronous};
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The maximum number of calls in one transaction. It bounds how long the first waits for the last.
const GROUP: usize = 256;
/// The maximum number of expired records that a sweep deletes when nothing is written.
const STEP: usize = 500;
/// The maximum number of expired records that are deleted for each record written. It keeps the
/// file from growing once as many records expire as are written.
const PACE: usize = 2;
/// The time until the next sweep: `SOON` if expired records may be left, `LATER` if not.
const SOON: Duration = Duration::from_millis(50);
const LATER: Duration = Duration::from_secs(60);

/// Records to write.
pub(super) struct RecordsWrite {
    /// The queue's name.
    pub queue: String,
    /// The ids of the messages that are done.
    pub ids: Vec<String>,
    /// The date until which the records are kept.
    pub until: Timestamp,
}

/// The result of a write.
pub(super) type RecordsAnswer = Result<(), RecordsError>;

/// The state of the writer thread.
pub(super) struct RecordsWriter {
    folder: PathBuf,
    writer: GroupWriter<Call<RecordsWrite, RecordsAnswer>>,
    /// The time of the next sweep for expired records.
    sweep_at: BootInstant,
}

impl RecordsWriter {
    /// Creates a writer that has not written yet.
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

    /// Runs until the last caller is gone.
    pub(super) fn run(mut self) {
        while let Some(calls) = self.writer.gather(Some(self.sweep_at.since(clock::now()))) {
            let written = self.write(&calls);
            for call in calls {
                call.answer(written.clone());
            }
        }
    }

    /// Writes the records and deletes a step of expired ones, in one transaction.
    fn write(&mut self, calls: &[Call<RecordsWrite, RecordsAnswer>]) -> RecordsAnswer {
        let now = clock::now();
        let fresh: usize = calls.iter().map(|call| call.asked.ids.len()).sum();
        let step = if now < self.sweep_at { 0 } else { STEP };
        let most = step.max(PACE * fresh);
        if step > 0 {
            // A failed sweep also waits for `LATER`.
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

/// Writes the records and deletes up to `most` expired ones. Returns how many it deleted.
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
