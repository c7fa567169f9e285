//! Tests of the embedded queue.

mod core;
mod declare;
mod model;
mod sending;
mod service;
mod store;
mod time;
