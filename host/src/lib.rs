//! `dispatcher` sits between queues and the code that handles their messages. This library holds
//! the whole program; `main.rs` only calls it. `host/README.md` is the map.

pub mod aws;
pub mod clock;
pub mod message;
pub mod plugin;
pub mod queue;
