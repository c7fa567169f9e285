//! Limits derived from the downstream: concurrent attempts, messages per second, messages held for
//! it. Pure: `now` is an argument; does not depend on queues or jobs.

pub mod bucket;
pub mod control;
pub mod median;
pub mod pace;

/// The rounding tolerance: sums of fractions that should make a whole number fall short of it by
/// less than this.
const ROUNDING: f64 = 1e-6;

#[expect(
    clippy::cast_precision_loss,
    reason = "batches and limits are far below the 2^52 where it begins"
)]
fn as_float(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate, and less than none is none"
)]
fn whole(number: f64) -> usize {
    (number + ROUNDING) as usize
}
