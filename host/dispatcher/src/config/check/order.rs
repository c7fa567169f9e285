//! Checks whether queues can deliver messages in the configured order. Opens nothing.

use super::Check;
use crate::config::WeightedQueue;
use crate::config::declared::RouteSettings;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::name::QueueName;
use dispatcher_core::scheduler::ready::Sequence;

impl Check {
    /// Whether these queues can be taken from in the order that is wanted.
    pub(super) fn ordering(
        &mut self,
        layers: Layers<'_>,
        settings: &RouteSettings,
        queues: &[WeightedQueue],
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
    }

    /// What becomes of messages that are too old matters only where some are.
    pub(super) fn shedding(&mut self, layers: Layers<'_>) {
        if let (Some(given), None) = (layers.one("shed"), layers.one("max-age")) {
            let found = "`shed` without a maximum age";
            self.problems
                .push(Problem::new(&given.at, found, "a max-age as well"));
        }
    }

    /// What becomes of messages that no filter matches matters only where there are filters.
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

/// What speaks against taking the newest first.
fn newest_first(
    given: &Given,
    settings: &RouteSettings,
    queues: &[WeightedQueue],
    fifo: Option<&WeightedQueue>,
) -> Option<Problem> {
    let problem = |found: String, wanted| Some(Problem::new(&given.at, found, wanted));
    if let Some(queue) = fifo {
        let found = format!("`lifo` on `{}`, which is FIFO", queue.name);
        return problem(found, "queues that are not FIFO");
    }
    if settings.group_by.is_some() {
        let found = "`lifo` beside `group-by`, which keeps the order of sending";
        return problem(found.to_owned(), "one of them");
    }
    let unsorted = queues
        .iter()
        .find(|queue| !queue.name.backend.can_choose_newest())?;
    let found = format!(
        "`{}` has no order, so the newest can only be chosen among held messages, and none are held",
        unsorted.name
    );
    let alone = settings.prefetch == 0;
    alone.then(|| Problem::new(&given.at, found, "a `prefetch` as well"))
}
