//! A limit that holds for all processes together: its numbers, and what of a message counts under
//! it. Pure.

use super::control::LiveLimit;
use crate::message::Message;
use crate::message::place::{HASH, MessageKey, MessagePlace, bounded, hash};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The key of messages that have none.
pub const NO_KEY: &str = "(none)";

/// A limit on starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// The starts per second; finite and greater than 0.
    pub per_second: f64,
    /// The starts that may follow each other at once after a pause; at least 1.
    pub burst: u32,
}

/// The numbers of a limit. At least one is set.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LimitNumbers {
    /// The most permits in use.
    pub concurrency: Option<u32>,
    /// The most starts.
    pub rate: Option<Rate>,
}

impl LimitNumbers {
    /// Whether a start of this weight can ever be granted.
    #[must_use]
    pub fn fits(&self, weight: u32) -> bool {
        let permits = self.concurrency.is_none_or(|most| weight <= most);
        permits && self.rate.is_none_or(|rate| weight <= rate.burst)
    }

    /// Returns how many messages all processes together can start per second if each runs for
    /// `each`; `None` if that is not limited or not known.
    #[must_use]
    pub fn most_per_second(&self, each: Option<Duration>) -> Option<f64> {
        let each_s = each
            .map(|each| each.as_secs_f64())
            .filter(|each| *each > 0.0);
        let permits = self.concurrency.map(f64::from);
        let by_permits = permits.zip(each_s).map(|(most, each_s)| most / each_s);
        let by_rate = self.rate.map(|rate| rate.per_second);
        by_permits.into_iter().chain(by_rate).min_by(f64::total_cmp)
    }
}

/// How many permits or tokens a message takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitWeight {
    /// A number for all messages.
    Fixed(u32),
    /// The whole number at a place in the message; 1 if there is none.
    Place(MessagePlace),
}

/// A limit that holds for all processes together.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// Its name in the configuration.
    pub name: String,
    /// Its numbers, for each key.
    pub numbers: LimitNumbers,
    /// Where messages have their keys, each of which has its own count; `None` if all messages count
    /// together.
    pub key: Option<MessageKey>,
    /// The numbers of some keys.
    pub overrides: HashMap<String, LimitNumbers>,
    /// How much a message takes.
    pub weight: LimitWeight,
    /// Whether it only counts, and stops nothing.
    pub shadow: bool,
    /// Whether keys are kept and shown as their hashes, because they are private.
    pub hides_keys: bool,
}

/// The need of a message for one limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LimitNeed {
    /// The index of the limit.
    pub limit: usize,
    /// The key; `None` for a limit without keys.
    pub key: Option<Arc<str>>,
    /// The permits and tokens, at least 1.
    pub weight: u32,
}

impl Limit {
    /// Returns what a message takes of this limit, whose index is `limit`. `group` is the message's
    /// group.
    #[must_use]
    pub fn need(&self, limit: usize, message: &Message, group: Option<&str>) -> LimitNeed {
        let key = self.key.as_ref().map(|key| {
            let found = key.text(message, group).filter(|key| !key.is_empty());
            Arc::from(found.map_or_else(|| NO_KEY.to_owned(), |key| self.kept(key)))
        });
        let weight = match &self.weight {
            LimitWeight::Fixed(weight) => *weight,
            LimitWeight::Place(place) => {
                let number = place.text(message).and_then(|text| text.parse().ok());
                number.unwrap_or(1)
            }
        };
        // A message that takes more than there is would never start.
        let most = self.numbers_of(key.as_deref()).heaviest();
        LimitNeed {
            limit,
            key,
            weight: weight.clamp(1, most),
        }
    }

    /// Returns the limit with its live numbers and those of its keys, as a control record has them.
    #[must_use]
    pub fn with_live(&self, live: &BTreeMap<String, LiveLimit>) -> Self {
        let mut limit = self.clone();
        if let Some(own) = live.get(&self.name) {
            limit.numbers = own.over(self.numbers);
        }
        for (name, own) in live {
            let key = name
                .strip_prefix(&self.name)
                .and_then(|rest| rest.strip_prefix('/'));
            if let Some(key) = key {
                let numbers = own.over(limit.numbers_of(Some(key)));
                limit.overrides.insert(key.to_owned(), numbers);
            }
        }
        limit
    }

    /// Returns the name of its record for a key, or of its only record.
    #[must_use]
    pub fn record(&self, key: Option<&str>) -> String {
        key.map_or_else(|| self.name.clone(), |key| format!("{}/{key}", self.name))
    }

    /// Returns a key, which people may have copied from where it is shown, as it is kept.
    #[must_use]
    pub fn own_key(&self, key: String) -> String {
        if key.starts_with(HASH) {
            key
        } else {
            self.kept(key)
        }
    }

    /// Returns the key as it is kept and shown.
    fn kept(&self, key: String) -> String {
        if self.hides_keys {
            hash(&key)
        } else {
            bounded(key)
        }
    }

    /// Keeps and shows keys only as their hashes.
    #[must_use]
    pub fn hiding_keys(mut self) -> Self {
        self.hides_keys = true;
        let overrides = self.overrides.into_iter();
        self.overrides = overrides
            .map(|(key, numbers)| (hash(&key), numbers))
            .collect();
        self
    }

    /// Returns the numbers for a key, as `need` has it.
    #[must_use]
    pub fn numbers_of(&self, key: Option<&str>) -> LimitNumbers {
        let own = key.and_then(|key| self.overrides.get(key));
        *own.unwrap_or(&self.numbers)
    }
}

impl LimitNumbers {
    /// Returns the most that one start can take.
    fn heaviest(&self) -> u32 {
        let burst = self.rate.map_or(u32::MAX, |rate| rate.burst);
        self.concurrency.unwrap_or(u32::MAX).min(burst).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::samples;

    fn limit(key: Option<MessageKey>, weight: LimitWeight) -> Limit {
        Limit {
            name: "api".to_owned(),
            numbers: LimitNumbers {
                concurrency: Some(5),
                rate: None,
            },
            key,
            overrides: HashMap::from([(
                "acme".to_owned(),
                LimitNumbers {
                    concurrency: Some(50),
                    rate: None,
                },
            )]),
            weight,
            shadow: false,
            hides_keys: false,
        }
    }

    #[test]
    fn message_counts_under_its_key_with_its_weight() {
        let mut message = samples::message("m");
        message.body = r#"{"customer":"acme","size":9}"#.into();
        for (key, size, found, weight) in [
            (Some("/customer"), "/size", Some("acme"), 9),
            (Some("/none"), "/size", Some(NO_KEY), 5),
            (None, "/none", None, 1),
        ] {
            let key =
                key.map(|pointer: &str| MessageKey::Place(MessagePlace::Pointer(pointer.into())));
            let size = MessagePlace::Pointer(size.to_owned());
            let need = limit(key, LimitWeight::Place(size)).need(3, &message, None);
            let wanted = LimitNeed {
                limit: 3,
                key: found.map(Arc::from),
                weight,
            };
            assert_eq!(need, wanted);
        }
        let by_group = limit(Some(MessageKey::Group), LimitWeight::Fixed(2));
        let need = by_group.need(0, &message, Some(&"g".repeat(500)));
        let key = need.key.expect("it has a group");
        assert!(key.starts_with("sha256:") && key.len() < 128, "{key}");
    }

    #[test]
    fn rate_and_concurrency_bound_the_starts_per_second() {
        let rate = Rate {
            per_second: 30.0,
            burst: 1,
        };
        let half = Some(Duration::from_millis(500));
        for (concurrency, rate, each, most) in [
            (None, None, half, None),
            (Some(10), None, half, Some(20.0)),
            (Some(10), Some(rate), half, Some(20.0)),
            (Some(40), Some(rate), half, Some(30.0)),
            (Some(10), None, None, None),
            (Some(10), Some(rate), Some(Duration::ZERO), Some(30.0)),
        ] {
            let numbers = LimitNumbers { concurrency, rate };
            assert_eq!(numbers.most_per_second(each), most, "{numbers:?}");
        }
    }

    #[test]
    fn live_numbers_of_a_key_come_before_its_own_and_those_of_the_limit() {
        fn of(concurrency: u32) -> LiveLimit {
            LiveLimit {
                concurrency: Some(concurrency),
                ..LiveLimit::default()
            }
        }
        fn most(live: &[(&str, u32)], key: &str) -> Option<u32> {
            let group = limit(Some(MessageKey::Group), LimitWeight::Fixed(1));
            let numbers = live
                .iter()
                .copied()
                .map(|(name, most)| (name.to_owned(), of(most)));
            let limited = group.with_live(&numbers.collect());
            limited.numbers_of(Some(key)).concurrency
        }
        assert_eq!(most(&[("api", 3)], "other"), Some(3));
        assert_eq!(most(&[("api", 3)], "acme"), Some(50), "its override");
        assert_eq!(most(&[("api", 3), ("api/acme", 1)], "acme"), Some(1));
        assert_eq!(most(&[("api/a/b", 2)], "a/b"), Some(2));
        assert_eq!(most(&[("api/a", 2), ("api-two/b", 9)], "b"), Some(5));
        let burst = LiveLimit {
            burst: Some(7),
            ..LiveLimit::default()
        };
        let live = BTreeMap::from([("api/acme".to_owned(), burst)]);
        let group = limit(Some(MessageKey::Group), LimitWeight::Fixed(1));
        let numbers = group.with_live(&live).numbers_of(Some("acme"));
        assert_eq!(numbers.concurrency, Some(50), "what it leaves out");
    }

    #[test]
    fn hidden_key_is_kept_as_its_hash_with_its_own_numbers() {
        let mut message = samples::message("m");
        message.body = r#"{"customer":"acme"}"#.into();
        let key = MessageKey::Place(MessagePlace::Pointer("/customer".to_owned()));
        let hiding = limit(Some(key), LimitWeight::Fixed(1)).hiding_keys();
        let key = hiding.need(0, &message, None).key.expect("it has a key");
        assert!(key.starts_with("sha256:"), "{key}");
        assert_eq!(hiding.numbers_of(Some(&key)).concurrency, Some(50));
        for written in ["acme", &*key] {
            assert_eq!(hiding.own_key(written.to_owned()), *key);
        }
    }
}
