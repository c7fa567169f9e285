//! The SQS backend.

mod backend;
mod host;
mod iam;
pub mod queue;

pub use backend::SqsBackend;
