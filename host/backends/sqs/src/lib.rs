//! The SQS backend.

mod backend;
mod iam;
pub mod queue;

pub use backend::SqsBackend;
