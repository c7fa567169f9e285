//! The SQS backend.

pub mod queue;
