//! Tests of the idempotency records.

mod model;
mod store;
