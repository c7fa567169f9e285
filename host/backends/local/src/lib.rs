//! The embedded backend: queues, schedules, key-value buckets and idempotency records in SQLite
//! files of one data folder.

mod backend;
pub mod fleet;
pub mod idempotency;
pub mod keyvalue;
pub mod queue;
pub mod schedule;

pub use backend::{LocalBackend, client_of};
