//! Each backend as its users see it.

mod backup;
mod bodies;
mod data_files;
mod disk_full;
pub(crate) mod dynamodb;
mod missing_counts;
mod postgres;
pub(crate) mod redis;
pub(crate) mod sqs;
mod transactions;
