//! What a function's answer says about the messages it was given. Knows nothing of invocations
//! and of what a failure leads to.
//!
//! These are the rules of Lambda's own `ReportBatchItemFailures`. An answer that is JSON and no
//! object (a text, a number, a list) names no failure, so it is a success, as the empty ones are.
//! An object whose `batchItemFailures` is neither a list nor null meant to name one and did not
//! succeed: all failed.

use crate::split::Slip;
use serde_json::Value;

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
    let answer: Value = serde_json::from_slice(payload)
        .map_err(|error| format!("its answer is not JSON: {error}"))?;
    let items = match answer.get("batchItemFailures") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err("batchItemFailures in its answer is not a list".into()),
    };
    let id = |(at, item): (usize, &Value)| match item.get("itemIdentifier") {
        Some(Value::String(id)) if !id.is_empty() => Ok(id.clone()),
        _ => Err(format!(
            "batchItemFailures[{at}] in its answer has no itemIdentifier with a message's id"
        )),
    };
    items.iter().enumerate().map(id).collect()
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
#[path = "answer/tests.rs"]
mod tests;
