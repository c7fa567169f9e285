//! The guest pool's sources compiled by themselves, so that they can be checked by other means
//! than the program: it must not know anything else of the program.
//!
//! - `cargo test`: the pool's unit tests, in seconds.
//! - `RUSTFLAGS="--cfg loom" cargo test --release`: every interleaving, within bounds, of the
//!   models in `whole.rs` (the pool as it is) and `parts.rs` (its protocols by themselves).
//! - `cargo miri test`: the unit tests, which are smaller there.

#[path = "../../../host/core/src/executor/pool/mod.rs"]
pub mod pool;

#[cfg(loom)]
mod queue;

#[cfg(all(test, loom))]
mod parts;
#[cfg(all(test, loom))]
mod whole;
