//! The PostgreSQL backend: queues in the layout of pgmq, beside the data of the application.
//!
//! `bucket` and `fleet` are what plugins and processes share in the same database.
//!
//! `server` is the connection, `install` is what `dispatcher postgres init` runs, and `queue` is
//! what can be done with a queue.

mod backend;
pub mod bucket;
pub mod fleet;
mod install;
pub mod queue;
pub mod server;
mod settings;

pub use backend::PostgresBackend;
