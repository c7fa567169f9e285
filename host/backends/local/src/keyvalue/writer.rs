//! The only thread that writes, many changes in one transaction.

use super::schema::BucketFile;
use super::steps::{self, BucketChange};
use dispatcher_core::error_kind::CallError;
use dispatcher_sqlite::{Call, Database, GroupWriter, Synchronous};
use std::sync::mpsc::Receiver;
use tokio::sync::OwnedSemaphorePermit;

/// The maximum number of changes in one transaction. It bounds how long the first waits for the
/// last.
const GROUP: usize = 256;

/// A change that waits to be written.
pub(super) struct BucketWrite {
    /// The change to write.
    pub write: BucketChange,
    /// The permit for its bytes, which count among those that wait.
    pub _room: OwnedSemaphorePermit,
}

/// The result of `steps::write`.
pub(super) type BucketAnswer = Result<i64, CallError>;

/// Writes until the last caller is gone.
pub(super) fn run(
    place: &BucketFile,
    database: Database,
    calls: Receiver<Call<BucketWrite, BucketAnswer>>,
) {
    let mut writer = GroupWriter::new(database, calls, GROUP);
    while let Some(mut calls) = writer.gather(None) {
        // Skips changes that no caller awaits any more.
        calls.retain(Call::is_awaited);
        if calls.is_empty() {
            continue;
        }
        let written = writer.transact(Synchronous::Full, |transaction| {
            let changes = calls.iter().map(|call| &call.asked.write);
            let written = changes.map(|change| steps::write(transaction, change));
            written.collect::<rusqlite::Result<Vec<BucketAnswer>>>()
        });
        let answers = written.unwrap_or_else(|error| {
            let error = place.not_committed(&error);
            vec![Err(error); calls.len()]
        });
        for (call, answer) in calls.into_iter().zip(answers) {
            call.answer(answer);
        }
    }
}
