//! The DynamoDB backend: queues and schedules in tables.

pub mod queue;
pub mod schedule;
