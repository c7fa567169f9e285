//! The Redis backend: queues, schedules and key-value buckets.

mod backend;
pub mod fleet;
pub mod keyvalue;
pub mod queue;
pub mod schedule;
pub mod server;
mod settings;

pub use backend::RedisBackend;
