//! The DynamoDB backend: queues and schedules in tables.

mod backend;
pub mod fleet;
pub mod queue;
pub mod schedule;
mod settings;

pub use backend::DynamoDbBackend;
