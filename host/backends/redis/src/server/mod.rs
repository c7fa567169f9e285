//! A Redis server, for everything that is stored there: `address` parses addresses, `dial` opens a
//! connection, `topology` decides which server gets a call (`slots` of a cluster), `link` and
//! `call` make the calls, `notifier` passes on messages of the server, and `errors` classifies its
//! errors. Independent of queues, schedules and scripts.

pub mod address;
mod call;
pub(crate) mod dial;
pub mod errors;
pub mod link;
pub mod notifier;
mod slots;
mod topology;

pub use slots::slot;

/// The maximum number of bytes of one message, attributes included: half of what a line of 100
/// Mbit/s carries in the five seconds that a call may take.
pub const LONGEST: usize = 32_000_000;
/// The maximum number of bytes of the messages of one call, unless it has only one.
pub const CALL: usize = 8_000_000;
