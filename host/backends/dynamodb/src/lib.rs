//! The DynamoDB backend: queues and schedules in tables.

mod backend;
pub mod queue;
pub mod schedule;

pub use backend::DynamoDbBackend;
