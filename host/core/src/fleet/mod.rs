//! Limits that hold for all processes together.

pub mod hand;
pub mod ledger;
pub mod limit;
