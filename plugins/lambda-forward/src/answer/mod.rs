//! What a function's answer says about the messages it was given. Knows nothing of invocations
//! and of what a failure leads to.
//!
//! These are the rules of Lambda's own `ReportBatchItemFailures`. An answer that is JSON and no
//! object (a text, a number, a list) names no failure, so it is a success, as the empty ones are.
//! An object whose `batchItemFailures` is neither a list nor null meant to name one and did not
//! succeed: all failed.

use crate::members::{Members, member};
use crate::split::Slip;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What a function says of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Of each whether it failed.
    Each(Vec<bool>),
    /// Nothing that could be understood, and why: all failed.
    Unreadable(String),
}

/// Reads the answer of a function that may name the messages that failed.
pub fn read(payload: &[u8], slips: &[Slip]) -> Reading {
    match named(payload) {
        Err(why) => Reading::Unreadable(why),
        Ok(ids) => mark(&ids, slips),
    }
}

/// The ids that the answer names.
fn named(payload: &[u8]) -> Result<Vec<String>, String> {
    if payload.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let not_json = |error| format!("its answer is not JSON: {error}");
    if !payload.trim_ascii_start().starts_with(b"{") {
        return match serde_json::from_slice::<IgnoredAny>(payload) {
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(not_json(error)),
        };
    }
    let answer: Members<'_> = serde_json::from_slice(payload).map_err(not_json)?;
    let Some(list) = member(&answer, "batchItemFailures") else {
        return Ok(Vec::new());
    };
    let items: Vec<&RawValue> = serde_json::from_slice(list)
        .map_err(|_| "batchItemFailures in its answer is not a list".to_owned())?;
    let id = |(at, item): (usize, &&RawValue)| {
        let id = identifier(item).filter(|id| !id.is_empty());
        id.ok_or_else(|| {
            format!(
                "batchItemFailures[{at}] in its answer has no itemIdentifier with a message's id"
            )
        })
    };
    items.iter().enumerate().map(id).collect()
}

fn identifier(item: &RawValue) -> Option<String> {
    let item: Members<'_> = serde_json::from_slice(item.get().as_bytes()).ok()?;
    serde_json::from_slice(member(&item, "itemIdentifier")?).ok()
}

fn mark(ids: &[String], slips: &[Slip]) -> Reading {
    let mut failed = vec![false; slips.len()];
    for id in ids {
        let mut known = false;
        for (slip, failed) in slips.iter().zip(&mut failed) {
            if slip.id == *id {
                known = true;
                *failed = true;
            }
        }
        if !known {
            let id: String = id.chars().take(100).collect();
            return Reading::Unreadable(format!(
                "its answer names {id:?}, which is no message of the batch"
            ));
        }
    }
    Reading::Each(failed)
}

#[cfg(test)]
mod tests;
