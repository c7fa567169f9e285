//! The life of one message.

mod envelopes;
mod filter;
mod first_id;
mod idempotency;
pub(crate) mod leases;
mod relay;
mod verdicts;
