//! Checks that the body is a well-formed order: `{"id": "o-1", "amount": 250, "ready": true}`.
//! A malformed order is rejected, one that is not ready yet is tried again.

use dispatcher_guest::{Failure, Message, OrFailure, handler};
use serde_json::Value;
use std::time::Duration;

/// How long an order may take to become ready, where it does not say itself.
const PATIENCE: Duration = Duration::from_secs(2);

fn check(message: Message) -> Result<(), Failure> {
    let order: Value = serde_json::from_str(&message.body).or_reject()?;
    let id = order["id"]
        .as_str()
        .ok_or("`id`: wanted a string")
        .or_reject()?;
    let amount = order["amount"]
        .as_u64()
        .ok_or("`amount`: wanted a whole number of cents");
    let amount = amount.or_reject()?;
    if amount == 0 {
        return Err(Failure::reject("`amount`: wanted more than nothing"));
    }
    match &order["ready"] {
        Value::Null | Value::Bool(true) => {}
        Value::Bool(false) => return Err(Failure::retry_after(patience(&order))),
        _ => return Err(Failure::reject("`ready`: wanted true or false")),
    }
    println!("order {id}: {amount} cents");
    Ok(())
}

fn patience(order: &Value) -> Duration {
    order["ready_in_ms"]
        .as_u64()
        .map_or(PATIENCE, Duration::from_millis)
}

handler!(check);

#[cfg(test)]
mod tests;
