//! The rules by which this process receives from a queue, as arguments of `share.lua`, and what they
//! count. Independent of the server, except to count.

use super::super::wire::ClaimAnswer;
use super::super::{item_errors, script};
use super::{MOST_COUNTED, NativeQueue, SharingRules, TenantBacklog};
use dispatcher_core::message::place::MessagePlace;
use dispatcher_core::queue::QueueError;
use dispatcher_core::queue::sharing::Priority;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The highest price of a message, which leaves room for a thousand such payments in a double.
const HIGHEST_PRICE: u64 = 1 << 43;
/// The maximum number of tenants that one call counts.
const COUNTED_AT_ONCE: usize = 100;
/// The maximum number of steps in which the server puts messages into lanes before it counts.
const STEPS_BEFORE_COUNT: usize = 20;

/// The rules of this process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClaimTerms {
    /// Whether messages are delivered in another order than usual.
    changes_delivery: bool,
    /// Whether each group is a tenant, and the place of the priority. All processes share them.
    lanes: (bool, String),
    /// The longest waits by priority, and the tenants that get nothing.
    limits: (Vec<String>, BTreeSet<String>),
    /// The arguments of `share.lua` after the first.
    pub(super) arguments: Vec<String>,
}

impl ClaimTerms {
    /// Encodes rules. Tenants that pay the usual price are left out.
    pub(super) fn of(sharing: &SharingRules) -> Self {
        let place = match &sharing.priority {
            None => String::new(),
            Some(MessagePlace::Attribute(name)) => format!("a{name}"),
            Some(MessagePlace::Pointer(pointer)) => format!("p{pointer}"),
        };
        let waits = Priority::all().map(|priority| {
            let wait = sharing.longest_wait(priority);
            wait.map_or_else(String::new, |wait| super::wire::ms(wait).to_string())
        });
        let waits: Vec<String> = waits.collect();
        let anyone = SharingRules {
            usual_time: sharing.usual_time,
            ..SharingRules::default()
        };
        let usual = anyone.price("").min(HIGHEST_PRICE);
        let named: BTreeSet<&String> = sharing.weights.keys().chain(sharing.times.keys()).collect();
        let prices: Vec<_> = named
            .into_iter()
            .filter(|name| has_tenant(sharing, name))
            .map(|tenant| (tenant, sharing.price(tenant).min(HIGHEST_PRICE)))
            .filter(|(_, price)| *price != usual)
            .collect();
        let mut arguments = vec![u8::from(sharing.by_group).to_string(), place.clone()];
        arguments.push(usual.to_string());
        arguments.extend_from_slice(&waits);
        arguments.push(prices.len().to_string());
        for (tenant, price) in prices {
            arguments.extend([tenant.clone(), price.to_string()]);
        }
        let parked: BTreeSet<String> = sharing
            .parked
            .iter()
            .filter(|name| has_tenant(sharing, name))
            .cloned()
            .collect();
        arguments.extend(parked.iter().cloned());
        Self {
            changes_delivery: sharing.changes_delivery(),
            lanes: (sharing.by_group, place),
            limits: (waits, parked),
            arguments,
        }
    }
}

/// Whether messages may be of this tenant.
fn has_tenant(sharing: &SharingRules, name: &str) -> bool {
    sharing.by_group || name.is_empty()
}

impl Default for ClaimTerms {
    fn default() -> Self {
        Self::of(&SharingRules::default())
    }
}

/// The rules of this process, and how far the server knows them.
#[derive(Debug, Default)]
pub(super) struct CurrentTerms(Mutex<TermsState>);

#[derive(Debug, Default)]
struct TermsState {
    of: Arc<ClaimTerms>,
    /// How far the server knows them.
    known: RulesState,
    /// Whether the server asked for a claim by rules.
    is_asked: bool,
}

/// How far the server knows the rules of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RulesState {
    /// Not yet how lanes are made.
    #[default]
    New,
    /// A claim has told it.
    Known,
    /// It was told, and a later claim found other rules or none.
    Gone,
}

impl RulesState {
    /// Returns the word for it in a claim.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::New => "set",
            Self::Known => "keep",
            Self::Gone => "gone",
        }
    }
}

/// The rules of one claim.
#[derive(Debug)]
pub(super) struct NextTerms {
    pub(super) of: Arc<ClaimTerms>,
    /// Whether messages are chosen by rules, or put in order after there were rules.
    pub(super) is_shared: bool,
    /// How far the server knows these rules.
    pub(super) known: RulesState,
}

impl CurrentTerms {
    /// Replaces the rules. Returns whether receives that wait may now get messages.
    pub(super) fn replace(&self, terms: ClaimTerms) -> bool {
        let mut state = self.0.lock();
        let is_known = state.of.lanes == terms.lanes;
        let may_get = !is_known || state.of.limits != terms.limits;
        if !is_known {
            state.known = RulesState::New;
        }
        state.of = Arc::new(terms);
        may_get
    }

    /// Returns the rules of the next claim.
    pub(super) fn next(&self) -> NextTerms {
        let state = self.0.lock();
        NextTerms {
            of: state.of.clone(),
            is_shared: state.of.changes_delivery || state.is_asked,
            known: state.known,
        }
    }

    /// Records the answer of a claim. Returns whether it is the first that says that the rules are
    /// gone.
    pub(super) fn note(&self, terms: &NextTerms, answer: &ClaimAnswer) -> bool {
        if matches!(answer, ClaimAnswer::Stranger) {
            return false;
        }
        let mut state = self.0.lock();
        state.is_asked = matches!(answer, ClaimAnswer::Again);
        // Without rules, a claim that found rules has not replaced them.
        let has_replaced = terms.is_shared || !state.is_asked;
        if state.of.lanes != terms.of.lanes {
            return false;
        }
        let before = state.known;
        if matches!(answer, ClaimAnswer::RulesGone) {
            state.known = RulesState::Gone;
        } else if has_replaced && before == RulesState::New {
            state.known = RulesState::Known;
        }
        before != RulesState::Gone && state.known == RulesState::Gone
    }
}

impl NativeQueue {
    /// Counts the waiting messages of tenants.
    pub(super) async fn count_backlogs(
        &self,
        tenants: &[String],
    ) -> Result<Vec<TenantBacklog>, QueueError> {
        if !self.terms.next().of.changes_delivery {
            return Ok(Vec::new());
        }
        let mut counted = Vec::with_capacity(tenants.len());
        let mut steps = STEPS_BEFORE_COUNT;
        for part in tenants.chunks(COUNTED_AT_ONCE) {
            loop {
                let mut call = script::BACKLOGS.key(&self.base);
                call.arg(MOST_COUNTED).arg(part);
                let numbers: Vec<i64> = self.lines.link.run(&call).await?;
                let Some((more, numbers)) = numbers.split_first() else {
                    // No process has received by rules.
                    counted.extend(part.iter().map(|_| TenantBacklog::default()));
                    break;
                };
                steps = steps.saturating_sub(1);
                if *more == 1 && steps > 0 {
                    continue;
                }
                if numbers.len() != 2 * part.len() {
                    let place = self.lines.link.place();
                    return Err(item_errors::unexpected_answer(place, "the backlogs"));
                }
                counted.extend(numbers.chunks_exact(2).map(backlog));
                break;
            }
        }
        Ok(counted)
    }
}

/// Reads the count of a tenant, and the ms that its first message has waited.
fn backlog(numbers: &[i64]) -> TenantBacklog {
    let [waiting, oldest] = [0, 1].map(|at| {
        let number = numbers.get(at).copied().unwrap_or(-1);
        u64::try_from(number).ok()
    });
    TenantBacklog {
        waiting: waiting.unwrap_or_default(),
        oldest: oldest.map(Duration::from_millis),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn sharing() -> SharingRules {
        let mut sharing = SharingRules {
            by_group: true,
            priority: Some(MessagePlace::Pointer("/p".into())),
            weights: BTreeMap::from([("a".into(), 2), ("usual".into(), 1)]),
            times: BTreeMap::from([("b".into(), Duration::from_millis(3))]),
            parked: BTreeSet::from(["c".to_owned()]),
            ..SharingRules::default()
        };
        sharing.longest_waits[1] = Some(Duration::from_secs(2));
        sharing
    }

    #[test]
    fn only_tenants_with_another_price_are_arguments() {
        let terms = ClaimTerms::of(&sharing());
        let wanted = "1 p/p 1000000  2000    2 a 500000 b 3000000 c";
        assert_eq!(terms.arguments.join(" "), wanted);
        let terms = ClaimTerms::of(&SharingRules {
            by_group: false,
            ..sharing()
        });
        assert_eq!(terms.arguments.join(" "), "0 p/p 1000000  2000    0");
    }

    #[test]
    fn prices_leave_room_in_a_double() {
        let mut sharing = sharing();
        sharing.usual_time = Some(Duration::MAX);
        sharing.times.clear();
        let highest = HIGHEST_PRICE.to_string();
        assert_eq!(ClaimTerms::of(&sharing).arguments[2], highest);
    }

    #[test]
    fn waiting_receives_look_again_only_if_they_may_get_more() {
        let current = CurrentTerms::default();
        assert!(current.replace(ClaimTerms::of(&sharing())));
        assert!(!current.replace(ClaimTerms::of(&sharing())));
        let mut other = sharing();
        other.weights.clear();
        assert!(!current.replace(ClaimTerms::of(&other)));
        other.parked.clear();
        assert!(current.replace(ClaimTerms::of(&other)));
        other.longest_waits[0] = Some(Duration::ZERO);
        assert!(current.replace(ClaimTerms::of(&other)));
        other.by_group = false;
        assert!(current.replace(ClaimTerms::of(&other)));
    }

    #[test]
    fn lanes_are_declared_until_a_claim_has_told_the_server() {
        let current = CurrentTerms::default();
        let first = current.next();
        assert!(first.known == RulesState::New && !first.is_shared);
        // There were rules: the next claim removes them.
        current.note(&first, &ClaimAnswer::Again);
        let second = current.next();
        assert!(second.known == RulesState::New && second.is_shared);
        current.note(&second, &ClaimAnswer::Again);
        let third = current.next();
        assert!(third.known == RulesState::Known && third.is_shared);
        current.note(&third, &ClaimAnswer::Nothing(None));
        let fourth = current.next();
        assert!(fourth.known == RulesState::Known && !fourth.is_shared);
        current.replace(ClaimTerms::of(&sharing()));
        let fifth = current.next();
        assert!(fifth.known == RulesState::New && fifth.is_shared);
        current.note(&fifth, &ClaimAnswer::Stranger);
        assert_eq!(current.next().known, RulesState::New);
        // The answer to a claim by other rules says nothing about these.
        current.note(&fourth, &ClaimAnswer::Nothing(None));
        assert_eq!(current.next().known, RulesState::New);
        current.note(&fifth, &ClaimAnswer::Nothing(None));
        assert_eq!(current.next().known, RulesState::Known);
        current.replace(ClaimTerms::of(&SharingRules {
            weights: BTreeMap::new(),
            ..sharing()
        }));
        assert_eq!(current.next().known, RulesState::Known);
        assert!(current.note(&fifth, &ClaimAnswer::RulesGone));
        assert!(
            !current.note(&fifth, &ClaimAnswer::RulesGone),
            "it is known"
        );
        current.note(&fifth, &ClaimAnswer::Nothing(None));
        assert_eq!(current.next().known, RulesState::Gone);
        current.replace(ClaimTerms::of(&SharingRules::default()));
        assert_eq!(current.next().known, RulesState::New);
    }
}
