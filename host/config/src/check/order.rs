//! Checks whether queues can deliver messages in the configured order. Opens nothing.

use super::Check;
use crate::declared::RouteSettings;
use crate::name::QueueName;
use crate::problem::Problem;
use crate::section::{Layers, WrittenValue};
use crate::{StoreConfig, WeightedQueue};
use dispatcher_core::envelope::Envelope;
use dispatcher_core::message::place::MessageKey;
use dispatcher_core::scheduler::ready::Sequence;

impl Check {
    /// Checks that these queues can be received from in the configured order.
    pub(super) fn ordering(
        &mut self,
        layers: Layers<'_>,
        settings: &RouteSettings,
        queues: &[WeightedQueue],
        stores: &StoreConfig,
    ) {
        let fifo = queues.iter().find(|queue| is_fifo(&queue.name));
        if let (Some(given), Some(queue)) = (layers.one("group-by"), fifo) {
            let found = format!("`{}` already has groups", queue.name);
            self.problems
                .push(Problem::new(&given.at, found, "queues that are not FIFO"));
        }
        if let (Some(given), Sequence::Lifo) = (layers.one("order"), settings.sequence) {
            let problem = newest_first(given, settings, queues, fifo);
            self.problems.extend(problem);
        }
        for key in ["tenant", "priority"] {
            if let Some(given) = layers.one(key) {
                let queues = (queues, fifo);
                let problem = not_shared_out(key, given, settings, queues, stores);
                self.problems.extend(problem);
            }
        }
        for (key, needed, problem) in [
            ("weight", "tenant", "weights without tenants"),
            ("max-wait", "priority", "longest waits without priorities"),
        ] {
            let first = layers.entries(key).into_values().next();
            if let (Some(given), None) = (first, layers.one(needed)) {
                let wanted = format!("a `{needed}` as well");
                self.problems.push(Problem::new(&given.at, problem, wanted));
            }
        }
    }

    /// Refuses `shed` without a maximum age, since no message is too old.
    pub(super) fn shedding(&mut self, layers: Layers<'_>) {
        if let (Some(given), None) = (layers.one("shed"), layers.one("max-age")) {
            let found = "`shed` without a maximum age";
            self.problems
                .push(Problem::new(&given.at, found, "a max-age as well"));
        }
    }

    /// Refuses `unmatched` without a filter.
    pub(super) fn filtering(&mut self, layers: Layers<'_>) {
        if let (Some(given), None) = (layers.one("unmatched"), layers.list("filter")) {
            let found = "`unmatched` without a filter";
            self.problems
                .push(Problem::new(&given.at, found, "a filter as well"));
        }
    }
}

fn is_fifo(name: &QueueName) -> bool {
    name.backend.is_fifo(&name.name)
}

/// Returns the reason why tenants or priorities, whichever `key` sets, cannot share the queues.
fn not_shared_out(
    key: &str,
    given: &WrittenValue,
    settings: &RouteSettings,
    (queues, fifo): (&[WeightedQueue], Option<&WeightedQueue>),
    stores: &StoreConfig,
) -> Option<Problem> {
    // `dispatcher local` has FIFO queues on a backend that keeps all groups in order.
    let by_name = queues
        .iter()
        .find(|queue| queue.name.name.ends_with(".fifo"));
    if let Some(queue) = fifo.or(by_name) {
        let found = format!(
            "`{key}` on `{}`, which keeps its groups in order",
            queue.name
        );
        return Some(Problem::new(&given.at, found, "queues that are not FIFO"));
    }
    if settings.group_by.is_some() {
        let found = format!("`{key}` together with `group-by`, which keeps the order of sending");
        return Some(Problem::new(&given.at, found, "one of them"));
    }
    let by_group = key == "tenant" && settings.tenant == Some(MessageKey::Group);
    // An envelope has attributes of its own.
    let by_attribute =
        !by_group && !given.text.starts_with('/') && settings.envelope == Envelope::None;
    for WeightedQueue { name, .. } in queues {
        let facts = stores.facts_of(name);
        let lacks = if by_group && !facts.has_groups {
            "groups"
        } else if by_attribute && !facts.has_attributes {
            "attributes"
        } else {
            continue;
        };
        let found = format!("messages of `{name}` have no {lacks}");
        let wanted = if facts.has_attributes {
            "the name of an attribute, or a JSON pointer such as /customer"
        } else {
            "a JSON pointer such as /customer"
        };
        return Some(Problem::new(&given.at, found, wanted));
    }
    if settings.prefetch > 0 {
        return None;
    }
    // The queue can look for a group or a priority, but not for another tenant, nor in an envelope.
    let is_seen = by_group || (key == "priority" && settings.envelope == Envelope::None);
    let unshared = queues
        .iter()
        .find(|queue| !is_seen || !stores.facts_of(&queue.name).shares_out)?;
    let found = format!(
        "`{}` does not deliver by this `{key}`, which can only choose among held messages, and none \
         are held",
        unshared.name
    );
    Some(Problem::new(&given.at, found, "a `prefetch` as well"))
}

/// Returns the reason why the newest message cannot be taken first.
fn newest_first(
    given: &WrittenValue,
    settings: &RouteSettings,
    queues: &[WeightedQueue],
    fifo: Option<&WeightedQueue>,
) -> Option<Problem> {
    if let Some(queue) = fifo {
        let found = format!("`lifo` on `{}`, which is FIFO", queue.name);
        return Some(Problem::new(&given.at, found, "queues that are not FIFO"));
    }
    if settings.group_by.is_some() {
        let found = "`lifo` together with `group-by`, which keeps the order of sending";
        return Some(Problem::new(&given.at, found, "one of them"));
    }
    let unsorted = queues
        .iter()
        .find(|queue| !queue.name.backend.facts().can_choose_newest)?;
    let found = format!(
        "`{}` has no order: `lifo` can only choose among held messages, and none are held",
        unsorted.name
    );
    let alone = settings.prefetch == 0;
    alone.then(|| Problem::new(&given.at, found, "a `prefetch` as well"))
}
