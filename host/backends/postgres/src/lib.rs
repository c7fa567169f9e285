//! The PostgreSQL backend: queues in the layout of pgmq, beside the data of the application.
//!
//! `bucket`, `fleet` and `schedule` are what plugins and processes keep in the same database.
//!
//! `server` is the connection, `install` is what `dispatcher postgres init` runs, and `queue` is
//! what can be done with a queue.

mod backend;
pub mod bucket;
pub mod fleet;
mod install;
pub mod queue;
pub mod schedule;
pub mod server;
mod settings;

pub use backend::PostgresBackend;
