//! The controls that operators set on a queue while it runs: a pause, and limits that replace the
//! configured ones. Stores keep them as named texts. Pure; knows neither stores nor stages.

/// The names of the texts that stores keep.
const PAUSED: &str = "paused";
const CONCURRENCY: &str = "concurrency";
const RATE: &str = "rate";
const PREFETCH: &str = "prefetch";

/// The controls of one queue. A limit that is `None` is as configured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueueControl {
    /// Whether the queue is paused: nothing is received from it.
    pub paused: bool,
    /// The maximum number of concurrent attempts at its messages in one process; at least 1.
    pub concurrency: Option<usize>,
    /// The maximum number of messages started per second in one process; finite and greater than 0.
    pub rate: Option<f64>,
    /// The maximum number of messages that its route holds in one process in addition to the
    /// running ones.
    pub prefetch: Option<usize>,
}

/// A change of the controls. A field that is `None` stays; `Some(None)` resets it to the
/// configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of `QueueControl`")]
pub struct ControlChange {
    pub paused: Option<bool>,
    pub concurrency: Option<Option<usize>>,
    pub rate: Option<Option<f64>>,
    pub prefetch: Option<Option<usize>>,
}

impl ControlChange {
    /// The reset of all limits to the configuration; a pause stays.
    pub const RESET: Self = Self {
        paused: None,
        concurrency: Some(None),
        rate: Some(None),
        prefetch: Some(None),
    };

    /// Returns the texts that a store must set, or remove if the value is `None`.
    pub fn fields(&self) -> Vec<(&'static str, Option<String>)> {
        let paused = self.paused.map(|paused| paused.then(|| "true".to_owned()));
        let fields = [
            (PAUSED, paused),
            (CONCURRENCY, self.concurrency.map(text)),
            (RATE, self.rate.map(text)),
            (PREFETCH, self.prefetch.map(text)),
        ];
        let changed = fields.into_iter();
        changed
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

fn text<T: ToString>(limit: Option<T>) -> Option<String> {
    limit.map(|limit| limit.to_string())
}

impl QueueControl {
    /// Reads the texts of a store. A text that cannot be read, or comes from a newer version,
    /// counts as not set.
    pub fn of_fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut control = Self::default();
        for (name, value) in fields {
            match name {
                PAUSED => control.paused = value == "true",
                CONCURRENCY => control.concurrency = value.parse().ok().filter(|most| *most > 0),
                RATE => control.rate = value.parse().ok().filter(|rate| is_rate(*rate)),
                PREFETCH => control.prefetch = value.parse().ok(),
                _ => {}
            }
        }
        control
    }

    /// Returns the controls of two stores together: a pause of either, and the limits of the other
    /// where this one has none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            paused: self.paused || other.paused,
            concurrency: self.concurrency.or(other.concurrency),
            rate: self.rate.or(other.rate),
            prefetch: self.prefetch.or(other.prefetch),
        }
    }

    /// Returns the controls after a change.
    #[must_use]
    pub fn changed(self, change: &ControlChange) -> Self {
        Self {
            paused: change.paused.unwrap_or(self.paused),
            concurrency: change.concurrency.unwrap_or(self.concurrency),
            rate: change.rate.unwrap_or(self.rate),
            prefetch: change.prefetch.unwrap_or(self.prefetch),
        }
    }
}

/// Returns whether this is a valid number of messages per second.
pub fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn number() -> impl Strategy<Value = Option<Option<usize>>> {
        proptest::option::of(proptest::option::of(1_usize..10_000))
    }

    fn change() -> impl Strategy<Value = ControlChange> {
        let rate = proptest::option::of(proptest::option::of(0.001_f64..1e6));
        let paused = proptest::option::of(proptest::bool::ANY);
        (paused, number(), rate, number()).prop_map(|(paused, concurrency, rate, prefetch)| {
            ControlChange {
                paused,
                concurrency,
                rate,
                prefetch,
            }
        })
    }

    proptest! {
        #[test]
        fn a_store_of_texts_holds_what_the_changes_made(changes in prop::collection::vec(change(), 0..8)) {
            let mut control = QueueControl::default();
            let mut store: BTreeMap<&str, String> = BTreeMap::new();
            for change in changes {
                control = control.changed(&change);
                for (name, value) in change.fields() {
                    match value {
                        Some(value) => store.insert(name, value),
                        None => store.remove(name),
                    };
                }
                let read = QueueControl::of_fields(store.iter().map(|(name, value)| (*name, value.as_str())));
                prop_assert_eq!(read, control);
            }
        }
    }

    #[test]
    fn what_cannot_be_obeyed_counts_as_not_set() {
        let texts = [
            ("concurrency", "0"),
            ("rate", "-1"),
            ("rate", "NaN"),
            ("prefetch", "many"),
            ("colour", "blue"),
        ];
        assert_eq!(QueueControl::of_fields(texts), QueueControl::default());
    }

    #[test]
    fn a_pause_of_either_store_counts() {
        let paused = QueueControl {
            paused: true,
            rate: Some(2.0),
            ..QueueControl::default()
        };
        let limited = QueueControl {
            rate: Some(1.0),
            prefetch: Some(0),
            ..QueueControl::default()
        };
        let both = limited.or(paused);
        assert_eq!(
            (both.paused, both.rate, both.prefetch),
            (true, Some(1.0), Some(0))
        );
        assert_eq!(QueueControl::default().or(paused), paused);
    }

    #[test]
    fn a_reset_keeps_the_pause() {
        let control = QueueControl {
            paused: true,
            concurrency: Some(1),
            rate: Some(2.0),
            prefetch: Some(0),
        };
        let reset = control.changed(&ControlChange::RESET);
        let paused = QueueControl {
            paused: true,
            ..QueueControl::default()
        };
        assert_eq!(reset, paused);
    }
}
