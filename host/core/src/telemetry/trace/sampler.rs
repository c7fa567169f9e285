//! Decides which traces are exported, like the samplers of OpenTelemetry. Pure.

use super::context::{RemoteContext, TraceId};

/// A sampler, which decides which traces are exported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The share of traces that are exported, from 0 to 1. All samplers with the same share choose
    /// the same traces.
    pub share: f64,
    /// Whether the decision of a parent span is followed, if it has decided.
    pub follows_parent: bool,
}

impl Default for Sampler {
    /// `parentbased_always_on`.
    fn default() -> Self {
        Self {
            share: 1.0,
            follows_parent: true,
        }
    }
}

/// The number of possible values of the part of a trace id that decides: 2 to the power of 63.
const VALUES: f64 = 9_223_372_036_854_775_808.0;

impl Sampler {
    /// Whether a span of this trace is exported. `parent` is the future parent of the span.
    pub fn samples(&self, parent: Option<&RemoteContext>, trace_id: TraceId) -> bool {
        let decided = parent.filter(|parent| self.follows_parent && parent.is_decided);
        if let Some(parent) = decided {
            return parent.sampled;
        }
        if self.share >= 1.0 {
            return true;
        }
        let [.., a, b, c, d, e, f, g, h] = trace_id.0;
        let value = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        #[expect(
            clippy::cast_precision_loss,
            reason = "the share has no more digits than a float"
        )]
        let value = value as f64;
        value < self.share * VALUES
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::SpanId;
    use super::*;

    fn parent(sampled: bool, is_decided: bool) -> RemoteContext {
        RemoteContext {
            trace_id: TraceId([1; 16]),
            parent: Some(SpanId([1; 8])),
            sampled,
            is_decided,
        }
    }

    #[test]
    fn parent_that_has_decided_is_followed_only_where_that_is_wanted() {
        let id = TraceId([7; 16]);
        let never = Sampler {
            share: 0.0,
            follows_parent: true,
        };
        assert!(never.samples(Some(&parent(true, true)), id));
        assert!(!never.samples(Some(&parent(true, false)), id));
        assert!(!Sampler::default().samples(Some(&parent(false, true)), id));
        let alone = Sampler {
            follows_parent: false,
            ..Sampler::default()
        };
        assert!(alone.samples(Some(&parent(false, true)), id));
    }

    #[test]
    fn share_is_about_the_share_of_ids() {
        let sampler = Sampler {
            share: 0.25,
            follows_parent: true,
        };
        let mut random = fastrand::Rng::with_seed(20);
        let ids = std::iter::repeat_with(|| TraceId(random.u128(..).to_be_bytes()));
        let sampled = ids.take(10_000).filter(|id| sampler.samples(None, *id));
        assert!((2_300..2_700).contains(&sampled.count()));
        let ids = [TraceId([0; 16]), TraceId([0xff; 16])];
        assert_eq!(ids.map(|id| sampler.samples(None, id)), [true, false]);
    }
}
