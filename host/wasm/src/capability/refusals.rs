//! Counts denials, and logs each denied name once a minute. Does not depend on capabilities.

use super::description::Description;
use dispatcher_core::clock;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The maximum number of denied names that are remembered. If a plugin invents more, as many again
/// are logged per minute, and the others are only counted.
const NAMES: usize = 100;
/// The maximum number of characters of a refused name.
const SHOWN: usize = 200;

/// Something that a capability refuses.
#[derive(Debug)]
pub(crate) struct Denial {
    pub(super) capability: &'static Description,
    /// The denied action, such as `send HTTP requests to this host`.
    what: &'static str,
    is_grantable: bool,
}

impl Denial {
    /// Creates a denial for a missing grant.
    pub(crate) const fn ungranted(capability: &'static Description, what: &'static str) -> Self {
        Self {
            capability,
            what,
            is_grantable: true,
        }
    }

    /// Creates a denial that no grant lifts.
    pub(crate) const fn always(capability: &'static Description, what: &'static str) -> Self {
        Self {
            capability,
            what,
            is_grantable: false,
        }
    }
}

/// A function that is called at every refusal, to count it.
#[derive(Clone, Default)]
pub struct Count(Option<Arc<CountFn>>);

/// A function that receives the key of the capability.
type CountFn = dyn Fn(&'static str) + Send + Sync;

impl Count {
    /// Calls `count` with the key of the capability that refused.
    pub fn by(count: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(count)))
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Count")
    }
}

/// The refusals of one plugin.
#[derive(Default)]
pub(crate) struct Refusals {
    /// The plugin's name in the log.
    plugin: String,
    count: Count,
    said: Mutex<Names>,
}

/// The logged names.
#[derive(Default)]
struct Names {
    said: HashMap<(&'static str, String), LogThrottle>,
    /// Limits how often `said` is cleared.
    forgotten: LogThrottle,
}

impl Refusals {
    pub(crate) fn new(plugin: &str, count: Count) -> Self {
        Self {
            plugin: plugin.to_owned(),
            count,
            said: Mutex::default(),
        }
    }

    /// Counts a denial of `name`, which the plugin may have invented, and logs it with the flag
    /// that grants it. Returns the name as it was logged.
    pub(crate) fn refuse(&self, refusal: &Denial, name: &str) -> String {
        let Denial {
            capability,
            what,
            is_grantable,
        } = *refusal;
        if let Some(count) = &self.count.0 {
            count(capability.key);
        }
        let name: String = name.escape_debug().take(SHOWN).collect();
        let mut names = self.said.lock();
        let Names { said, forgotten } = &mut *names;
        let (key, now) = ((what, name.clone()), clock::now());
        if said.len() >= NAMES && !said.contains_key(&key) {
            if !forgotten.should_log(now) {
                return name;
            }
            said.clear();
        }
        if said.entry(key).or_default().should_log(now) {
            let plugin = self.plugin.as_str();
            let granted_by = is_grantable.then(|| capability.flag_for(&name));
            tracing::warn!(plugin, what, name, granted_by, "capability denied");
        }
        name
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Refusals")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static STORE: Description = Description {
        name: "keys and values",
        key: "store",
        value: "NAME=WHERE",
        value_for: Some(str::to_owned),
        requested_by: &[],
        interfaces: &[],
        suspends: &[],
        documented_as: "",
        without_grant: "",
    };

    #[test]
    fn denied_name_is_truncated_and_every_denial_counts() {
        let counted = Arc::new(AtomicUsize::new(0));
        let counter = counted.clone();
        let count = Count::by(move |capability| {
            assert_eq!(capability, "store");
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let refusals = Refusals::new("tested", count);
        let what = Denial::ungranted(&STORE, "open this store");
        for _ in 0..3 {
            let said = refusals.refuse(&what, &"\n".repeat(1_000_000));
            assert_eq!(said.len(), SHOWN);
        }
        for number in 0..NAMES * 5 {
            refusals.refuse(&what, &number.to_string());
        }
        assert_eq!(counted.load(Ordering::Relaxed), 3 + NAMES * 5);
        let names = refusals.said.lock();
        assert_eq!(names.said.len(), NAMES);
        // The last of them were counted, and not said.
        let last = (what.what, (NAMES * 5 - 1).to_string());
        assert!(!names.said.contains_key(&last));
    }
}
