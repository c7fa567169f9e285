//! A Redis server, for all that keep something there: `address` is where it is, `dial` how a
//! connection is made, `topology` which server a call goes to (`slots` of a cluster), `link` and
//! `call` the calls, `notifier` the messages of the server, `errors` the meaning of its errors.
//! Knows no queue and no schedule, and no script.

pub mod address;
mod call;
pub(crate) mod dial;
pub mod errors;
pub mod link;
pub mod notifier;
mod slots;
mod topology;

pub use slots::slot;

/// Maximum bytes of one message, attributes included: half of what a line of 100 Mbit/s carries
/// in the five seconds that a call may take.
pub const LONGEST: usize = 32_000_000;
/// Maximum bytes of the messages of one call, unless it is one alone.
pub const CALL: usize = 8_000_000;
