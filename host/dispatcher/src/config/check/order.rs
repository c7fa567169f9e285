//! Which of a queue's messages goes first, which are kept in order, which are not wanted any
//! longer. Opens nothing.

use super::Check;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::config::value;
use crate::config::value::Bare;
use crate::config::{Shed, Shedding, WeightedQueue};
use crate::name::QueueName;
use dispatcher_core::intake::group::GroupBy;
use dispatcher_core::scheduler::ready::Sequence;
use std::time::Duration;

const MOST_PREFETCH: usize = 100_000;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(31_557_600);

/// What a route says of the order of its messages.
pub(super) struct Ordering {
    pub sequence: Sequence,
    pub group_by: Option<GroupBy>,
    pub prefetch: usize,
}

impl Check {
    /// Which goes first, and among how many.
    pub(super) fn ordering(&mut self, layers: Layers<'_>, queues: &[WeightedQueue]) -> Ordering {
        let words = [("fifo", Sequence::Fifo), ("lifo", Sequence::Lifo)];
        let sequence = self.read(layers.one("order"), |given| value::choice(given, &words));
        let group_by = self.read(layers.one("group-by"), group_by);
        let prefetch = self.read(layers.one("prefetch"), |given| {
            value::number(given, &(0..=MOST_PREFETCH))
        });
        let ordering = Ordering {
            sequence: sequence.unwrap_or_default(),
            group_by,
            prefetch: prefetch.unwrap_or_default(),
        };
        let fifo = queues.iter().find(|queue| is_fifo(&queue.name));
        if let (Some(given), Some(queue)) = (layers.one("group-by"), fifo) {
            let found = format!("`{}` has groups of its own", queue.name);
            self.problems
                .push(Problem::new(&given.at, found, "queues that are not FIFO"));
        }
        if let (Some(given), Sequence::Lifo) = (layers.one("order"), ordering.sequence) {
            let problem = newest_first(given, &ordering, queues, fifo);
            self.problems.extend(problem);
        }
        ordering
    }

    /// What happens to messages that are too old.
    pub(super) fn shedding(&mut self, layers: Layers<'_>) -> Option<Shedding> {
        let words = [("dead-letter", Shed::DeadLetter), ("drop", Shed::Drop)];
        let shed = self.read(layers.one("shed"), |given| value::choice(given, &words));
        let max_age = self.read(layers.one("max-age"), |given| {
            value::duration(given, Bare::Refused, &(SHORTEST..=LONGEST))
        });
        if let (Some(given), None) = (layers.one("shed"), layers.one("max-age")) {
            let found = "nothing is too old where no age is";
            self.problems
                .push(Problem::new(&given.at, found, "a max-age as well"));
        }
        Some(Shedding {
            max_age: max_age?,
            shed: shed.unwrap_or_default(),
        })
    }

    /// How long what is done is remembered beyond the process.
    pub(super) fn idempotency(&mut self, layers: Layers<'_>) -> Option<Duration> {
        self.read(layers.one("idempotency"), |given| {
            value::duration(given, Bare::Refused, &(SHORTEST..=LONGEST))
        })
    }
}

fn is_fifo(name: &QueueName) -> bool {
    name.backend.is_fifo(&name.name)
}

fn group_by(given: &Given) -> Result<GroupBy, Problem> {
    let wanted =
        "the name of an attribute, or a JSON pointer into the body such as /order/customer";
    let text = value::text(given, wanted)?;
    Ok(match text.starts_with('/') {
        true => GroupBy::Pointer(text),
        false => GroupBy::Attribute(text),
    })
}

/// What speaks against taking the newest first.
fn newest_first(
    given: &Given,
    ordering: &Ordering,
    queues: &[WeightedQueue],
    fifo: Option<&WeightedQueue>,
) -> Option<Problem> {
    let problem = |found: String, wanted| Some(Problem::new(&given.at, found, wanted));
    if let Some(queue) = fifo {
        let found = format!("`lifo` on `{}`, which is FIFO", queue.name);
        return problem(found, "queues that are not FIFO");
    }
    if ordering.group_by.is_some() {
        let found = "`lifo` beside `group-by`, which keeps the order of sending";
        return problem(found.to_owned(), "one of them");
    }
    let unsorted = queues
        .iter()
        .find(|queue| !queue.name.backend.can_choose_newest())?;
    let found = format!(
        "`{}` gives what it likes, so the newest can only be chosen among what is at hand, which is nothing",
        unsorted.name
    );
    let alone = ordering.prefetch == 0;
    alone.then(|| Problem::new(&given.at, found, "a `prefetch` as well"))
}
