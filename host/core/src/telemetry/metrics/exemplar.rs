//! Exemplars: the last value of each histogram bucket that belongs to a sampled trace, so that a
//! chart of durations leads to the traces of slow messages. Knows no header and no format.

use super::histogram::ATTEMPT_EDGES_S;
use crate::clock::Timestamp;
use crate::telemetry::trace::{SpanId, TraceId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// The trace of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExemplarTrace {
    /// The id of the trace.
    pub trace_id: TraceId,
    /// The id of the span in the trace, if it is known.
    pub span_id: Option<SpanId>,
}

/// A value and its trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    /// Its trace.
    pub trace: ExemplarTrace,
    /// The value, in seconds.
    pub value_s: f64,
    /// The time at which it was measured.
    pub at: Timestamp,
}

impl Exemplar {
    /// Returns the index in `ATTEMPT_EDGES_S` of the first edge that the value does not exceed, or
    /// the number of edges if it exceeds all.
    pub fn bucket(&self) -> usize {
        ATTEMPT_EDGES_S.partition_point(|edge| *edge < self.value_s)
    }
}

/// The exemplars of one histogram.
#[derive(Debug, Default)]
pub(super) struct Exemplars(Mutex<BTreeMap<usize, Exemplar>>);

impl Exemplars {
    /// Keeps a value as the exemplar of its bucket. Never waits: of two concurrent values, one may
    /// be dropped.
    pub(super) fn keep(&self, value: Duration, trace: ExemplarTrace, at: Timestamp) {
        let exemplar = Exemplar {
            trace,
            value_s: value.as_secs_f64(),
            at,
        };
        if let Some(mut kept) = self.0.try_lock() {
            kept.insert(exemplar.bucket(), exemplar);
        }
    }

    /// Returns the exemplars, in the order of their buckets.
    pub(super) fn all(&self) -> Vec<Exemplar> {
        let kept = self.0.lock();
        kept.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "5759e988bd862e3fe1be46a994272793";

    #[test]
    fn each_bucket_keeps_its_last_exemplar() {
        let exemplars = Exemplars::default();
        let trace = ExemplarTrace {
            trace_id: TraceId::read(TRACE).expect("an id"),
            span_id: None,
        };
        for (ms, at) in [(5, 1), (4, 2), (100_000_000, 3)] {
            exemplars.keep(Duration::from_millis(ms), trace, Timestamp(at));
        }
        let all = exemplars.all();
        let values: Vec<(f64, u64)> = all.iter().map(|one| (one.value_s, one.at.0)).collect();
        assert_eq!(values, [(0.004, 2), (100_000.0, 3)]);
        assert_eq!(ATTEMPT_EDGES_S[all[0].bucket()], 0.005);
        assert_eq!(all[1].bucket(), ATTEMPT_EDGES_S.len());
    }
}
