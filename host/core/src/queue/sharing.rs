//! How a route shares its messages out among tenants, and which of them go first. The scheduler
//! keeps to it among the messages that a process holds; a queue whose index is ours also keeps to
//! it when it delivers. Pure.

use crate::message::Message;
use crate::message::place::{MessageKey, MessagePlace, bounded};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The greatest weight of a tenant.
pub const MOST_WEIGHT: u32 = 1_000;
/// The number of priorities.
pub const PRIORITIES: usize = 5;
/// The price of one microsecond for a tenant of weight 1. Prices are divided by the weight.
const PRICE: u64 = 1_000;
/// The time that an attempt is taken to last while none was measured.
const USUAL: Duration = Duration::from_millis(1);

/// The priority of a message, from 1 to 5. A message of a lower number goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The most urgent one.
    pub const FIRST: Self = Self(1);

    /// Returns all priorities, the most urgent first.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=5).map(Self)
    }

    /// Returns the priority of this number, if there is one.
    pub fn new(number: u64) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (1..=5).contains(&number).then_some(Self(number))
    }

    /// Returns the priority that a message names at this place. A message that names none has the
    /// middle one.
    pub fn of(place: &MessagePlace, message: &Message) -> Self {
        let text = place.text(message).unwrap_or_default();
        let number = text.trim().parse().ok();
        number.and_then(Self::new).unwrap_or_default()
    }

    /// Returns its number, from 1 to 5.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns its position among all priorities, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0) - 1
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(3)
    }
}

/// Where the messages of a route name their tenant and their priority.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SharingPlaces {
    /// Where a message names its tenant, if tenants share the route.
    pub tenant: Option<MessageKey>,
    /// Where a message names its priority, if some go before others.
    pub priority: Option<MessagePlace>,
    /// The time for which a message waits until it goes first, by priority.
    pub longest_waits: [Option<Duration>; PRIORITIES],
    /// Whether messages name them inside an envelope, where no queue looks.
    pub is_wrapped: bool,
    /// Whether an attempt has messages of one tenant only.
    pub one_tenant: bool,
}

impl SharingPlaces {
    /// Whether messages go in another order than that of their queue.
    pub fn share_out(&self) -> bool {
        self.tenant.is_some() || self.priority.is_some()
    }

    /// Returns the rules for a queue, with these weights of tenants.
    pub fn rules(&self, weights: BTreeMap<String, u32>) -> SharingRules {
        SharingRules {
            by_group: self.tenant == Some(MessageKey::Group),
            priority: if self.is_wrapped {
                None
            } else {
                self.priority.clone()
            },
            longest_waits: self.longest_waits,
            weights,
            one_tenant: self.one_tenant,
            ..SharingRules::default()
        }
    }

    /// Returns the tenant of a message of this group, if it belongs to one. A group keeps the name
    /// that its queue knows; any other long name is replaced by its hash.
    pub fn tenant(&self, message: &Message, group: Option<&str>) -> Option<String> {
        let key = self.tenant.as_ref()?;
        let name = key.text(message, group);
        if *key == MessageKey::Group {
            name
        } else {
            name.map(bounded)
        }
    }

    /// Returns the priority of a message.
    pub fn priority(&self, message: &Message) -> Priority {
        let place = self.priority.as_ref();
        place.map_or_else(Priority::default, |place| Priority::of(place, message))
    }
}

/// The rules by which messages are shared out. A tenant pays for each message that it is given: the
/// time that its attempts take, divided by its weight. Among the tenants that have messages of the
/// most urgent priority, the one that has paid least goes first. A tenant that had no messages has
/// no claim on the time that it did not use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SharingRules {
    /// Whether each message group is a tenant. Then groups are not kept in order. Messages without a
    /// group are of one tenant, named by the empty text. Otherwise, for the queue, all messages are
    /// of that tenant.
    pub by_group: bool,
    /// The place in messages that names their priority, if the queue is to look there.
    pub priority: Option<MessagePlace>,
    /// The time for which a message waits until it goes before all others, by priority.
    pub longest_waits: [Option<Duration>; PRIORITIES],
    /// The weights of tenants. A tenant that is not named has weight 1.
    pub weights: BTreeMap<String, u32>,
    /// The measured durations of attempts, by tenant. As many tenants as are known well.
    pub times: BTreeMap<String, Duration>,
    /// The median duration of an attempt, over all tenants.
    pub usual_time: Option<Duration>,
    /// The tenants of which the queue should deliver nothing for now, because enough of their
    /// messages wait here for a limit.
    pub parked: BTreeSet<String>,
    /// Whether an attempt has messages of one tenant only.
    pub one_tenant: bool,
}

impl SharingRules {
    /// Whether a queue that keeps to these rules delivers in another order than usual.
    pub fn changes_delivery(&self) -> bool {
        self.by_group || self.priority.is_some()
    }

    /// Returns what a tenant pays for one message; at least 1.
    pub fn price(&self, tenant: &str) -> u64 {
        let usual = self.usual_time.unwrap_or(USUAL);
        let time = self.times.get(tenant).copied().unwrap_or(usual);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let weight = self.weights.get(tenant).copied().unwrap_or(1).max(1);
        (micros.saturating_mul(PRICE) / u64::from(weight)).max(1)
    }

    /// Returns how long a message of this priority waits until it goes first.
    pub fn longest_wait(&self, priority: Priority) -> Option<Duration> {
        self.longest_waits[priority.index()]
    }
}

/// The waiting messages of one tenant in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantBacklog {
    /// The messages that could be received now, counted up to `MOST_COUNTED`.
    pub waiting: u64,
    /// How long the first of them has waited.
    pub oldest: Option<Duration>,
}

/// The most messages of a tenant that a queue counts.
pub const MOST_COUNTED: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Attribute, samples};

    #[test]
    fn priority_is_a_number_from_one_to_five() {
        let place = MessagePlace::Attribute("priority".into());
        for (text, wanted) in [
            ("1", 1),
            (" 5 ", 5),
            ("0", 3),
            ("6", 3),
            ("high", 3),
            ("", 3),
        ] {
            let mut message = samples::message("m");
            message.attributes = vec![Attribute::text("priority", text)];
            assert_eq!(Priority::of(&place, &message).number(), wanted, "{text}");
        }
        let mut message = samples::message("m");
        message.body = r#"{"urgency":2}"#.into();
        let pointer = MessagePlace::Pointer("/urgency".into());
        assert_eq!(Priority::of(&pointer, &message).number(), 2);
        assert_eq!(Priority::of(&place, &message), Priority::default());
    }

    #[test]
    fn long_name_of_a_tenant_is_replaced_by_its_hash_unless_it_is_a_group() {
        fn tenant(key: MessageKey, name: &str) -> String {
            let places = SharingPlaces {
                tenant: Some(key),
                ..SharingPlaces::default()
            };
            let mut message = samples::message("m");
            message.attributes = vec![Attribute::text("customer", name)];
            let found = places.tenant(&message, Some(name));
            found.expect("it names a tenant")
        }
        fn by_place(name: &str) -> String {
            let place = MessagePlace::Attribute("customer".into());
            tenant(MessageKey::Place(place), name)
        }
        let (short, long) = ("ä".repeat(64), "ä".repeat(100_000));
        assert_eq!(by_place(&short), short);
        let bounded = by_place(&long);
        assert!(
            bounded.starts_with("sha256:") && bounded.len() < 128,
            "{bounded}"
        );
        assert_eq!(by_place(&long), bounded);
        assert_ne!(by_place(&format!("{long}b")), bounded);
        assert_eq!(
            tenant(MessageKey::Group, &long),
            long,
            "as its queue names it"
        );
    }

    #[test]
    fn tenant_pays_for_its_time_by_its_weight() {
        let mut sharing = SharingRules::default();
        assert_eq!(sharing.price("a"), sharing.price("b"));
        sharing.usual_time = Some(Duration::from_millis(2));
        sharing.times = BTreeMap::from([("slow".into(), Duration::from_millis(20))]);
        sharing.weights = BTreeMap::from([("slow".into(), 5)]);
        assert_eq!(sharing.price("slow"), 2 * sharing.price("a"));
        sharing.weights = BTreeMap::from([("b".into(), u32::MAX)]);
        assert!(sharing.price("b") >= 1);
    }
}
