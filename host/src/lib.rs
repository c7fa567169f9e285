//! `dispatcher` sits between queues and the code that handles their messages. This library holds
//! the whole program; `main.rs` only calls it. `host/README.md` is the map.

pub mod admin;
pub mod app;
pub mod aws;
pub mod backoff;
pub mod cli;
pub mod clock;
pub mod config;
pub mod error;
pub mod executor;
pub mod files;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod http;
pub mod idempotency;
pub mod image;
pub mod intake;
pub mod job;
pub mod keyvalue;
pub mod lease;
pub mod memory;
pub mod message;
pub mod plugin;
pub mod queue;
pub mod recording;
pub mod redis;
pub mod rollout;
pub mod schedule;
pub mod scheduler;
pub mod served;
pub mod settlement;
pub mod sqlite;
pub mod tasks;
pub mod telemetry;
pub mod throttle;
pub mod trouble;
