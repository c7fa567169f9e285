//! `dispatcher` runs between queues and the code that handles their messages. This crate is the
//! program: command line, configuration, wiring, stop, reload, admin pages and exporters; `main.rs`
//! only calls it. `host/README.md` is the map.

pub mod app;
pub mod cli;
mod error;
mod registry;
