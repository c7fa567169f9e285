//! Carries out a request of a process at the store: reads the records, decides, and writes them
//! unless another process was faster.

use super::ledger::{self, FORMAT, Grant, LimitAccount, LimitRecord, Request};
use super::{FleetStore, RecordChange, read_record};
use crate::clock;
use crate::error_kind::{CallError, ErrorKind};
use std::time::Duration;

/// How often a request is decided anew because other processes were faster.
const TRIES: u32 = 12;
/// The longest wait before the second try; it doubles with each, up to the longest of all.
const WAITS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// Carries out a request. If it fails, it may have been carried out.
///
/// # Errors
/// Fails if the store fails, if a record was written by a newer version, or if other processes
/// were faster each time.
pub async fn exchange(store: &dyn FleetStore, request: &Request) -> Result<Grant, CallError> {
    let names = request
        .accounts
        .iter()
        .map(|account| account.record.clone());
    let names: Vec<String> = names.collect();
    let mut longest = WAITS.0;
    for _ in 0..TRIES {
        let snapshot = store.read(&names).await?;
        let accounts = request.accounts.iter().zip(&snapshot.records);
        let read = accounts.clone().map(|(account, text)| read(account, text));
        let records = read.collect::<Result<Vec<_>, _>>()?;
        let (written, grant) = ledger::decide(request, &records, snapshot.now);
        let changes = accounts.zip(&written).map(|((account, text), record)| {
            let keep_for = record.keep_for(&account.numbers);
            change(account, text.clone(), record, keep_for)
        });
        if store.replace(&changes.collect::<Vec<_>>()).await? {
            return Ok(grant);
        }
        let wait = longest.mul_f64(fastrand::f64());
        clock::sleep_until(Some(clock::now() + wait)).await;
        longest = (2 * longest).min(WAITS.1);
    }
    Err(CallError {
        kind: ErrorKind::Transient,
        message: format!("other processes changed the limits {TRIES} times in between"),
    })
}

fn change(
    account: &LimitAccount,
    stands: Option<String>,
    record: &LimitRecord,
    keep_for: Duration,
) -> RecordChange {
    RecordChange {
        name: account.record.clone(),
        stands,
        // Maps with texts as keys, numbers and texts always become JSON.
        text: serde_json::to_string(record).unwrap_or_default(),
        keep_for,
    }
}

fn read(account: &LimitAccount, text: &Option<String>) -> Result<Option<LimitRecord>, CallError> {
    let Some(text) = text else { return Ok(None) };
    let record = read_record(text, FORMAT).map_err(|why| CallError {
        kind: ErrorKind::Invalid,
        message: format!("the record of the limit {}: {why}", account.record),
    })?;
    Ok(Some(record))
}
