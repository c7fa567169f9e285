//! Limits that hold for all processes together. The port to the store that the processes share; each
//! store is in the crate of its backend. A store only keeps records: what they mean is decided here,
//! the same for every store.

pub mod control;
pub mod exchange;
pub mod figures;
pub mod hand;
pub mod keeper;
pub mod ledger;
pub mod limit;
pub mod summary;

use crate::error_kind::CallError;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The most records of one call.
pub const MOST_RECORDS: usize = hand::MOST_ACCOUNTS;
/// The most bytes of a record or a summary.
pub const MOST_BYTES: usize = 64 << 10;

/// The behaviour of a process while the store of the limits is away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenAway {
    /// It starts nothing that is limited once its permits have ended.
    #[default]
    Closed,
    /// It goes on with its part of each limit, so that the processes together may exceed the limit
    /// while they disagree about their number.
    Share,
}

/// How long to keep a record that outlives all processes.
pub const FOREVER: Duration = Duration::MAX;

/// The records of a store at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The time of the store in milliseconds when they were read. It never goes back by much, and its
    /// beginning does not matter.
    pub now: u64,
    /// The text of each record; `None` for one that does not exist or has ended.
    pub records: Vec<Option<String>>,
}

/// The change of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// The record.
    pub name: String,
    /// The text that it must have now; `None` if it must not exist.
    pub stands: Option<String>,
    /// The new text.
    pub text: String,
    /// The time after which the store may forget the record.
    pub keep_for: Duration,
}

/// A store that the processes of a fleet share. All calls may run concurrently. The caller limits
/// the duration of a call, and keeps to the limits above. A call that is dropped, or fails as
/// `Unreachable`, may have been carried out.
#[async_trait::async_trait]
pub trait FleetStore: Send + Sync + 'static {
    /// Returns up to `MOST_RECORDS` records, with the time. No record is older than the last change
    /// that was carried out before the call.
    async fn read(&self, names: &[String]) -> Result<Snapshot, CallError>;

    /// Changes up to `MOST_RECORDS` records, each once: all of them, or none if one does not have
    /// the text that it must have. Returns whether they were changed.
    async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError>;

    /// Writes the summary of a process in place of its last one.
    async fn publish(
        &self,
        process: &str,
        summary: &str,
        keep_for: Duration,
    ) -> Result<(), CallError>;

    /// Returns how often a process publishes its summary: less often where that is billed.
    fn interval(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// Returns the summaries that have not ended, each with its process.
    async fn published(&self) -> Result<Vec<(String, String)>, CallError>;
}

/// Reads a record of this format.
///
/// # Errors
/// The text says why it cannot be read: it is damaged, or a newer version wrote it.
fn read_record<T: DeserializeOwned>(text: &str, format: u32) -> Result<T, String> {
    let record: serde_json::Value =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    if record["format"].as_u64() != Some(u64::from(format)) {
        return Err(format!(
            "a newer version of dispatcher wrote it; this version knows format {format}"
        ));
    }
    serde_json::from_value(record).map_err(|error| error.to_string())
}
