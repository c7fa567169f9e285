//! Limits that hold for all processes together.

pub mod ledger;
pub mod limit;
