//! The PostgreSQL backend: queues in the layout of pgmq, beside the data of the application.
//!
//! `server` is the connection, `install` is what `dispatcher postgres init` runs, and `queue` is
//! what can be done with a queue.

mod backend;
mod install;
pub mod queue;
pub mod server;
mod settings;

pub use backend::PostgresBackend;
