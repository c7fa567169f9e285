//! Samples and what is said of them. Pure.

use std::time::Duration;

/// Times in milliseconds, sorted.
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Sorts them; there must be one at least.
    pub(crate) fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        Self::of_ms(times.into_iter().map(|time| time.as_secs_f64() * 1e3))
    }

    /// The same of milliseconds, which may be negative.
    pub(crate) fn of_ms(times: impl IntoIterator<Item = f64>) -> Self {
        let mut times: Vec<f64> = times.into_iter().collect();
        assert!(!times.is_empty(), "nothing was measured");
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// The value below which so many in a hundred lie.
    pub(crate) fn at(&self, percent: usize) -> f64 {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}

impl std::fmt::Display for Samples {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms, of {}",
            self.at(50),
            self.at(99),
            self.at(100),
            self.0.len()
        )
    }
}
