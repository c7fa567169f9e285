//! The Redis backend: queues, schedules and key-value buckets.

pub mod keyvalue;
pub mod queue;
pub mod schedule;
pub mod server;
