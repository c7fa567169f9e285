//! Parses the list of a route's queues with their weights, and its dead-letter queue. Pure.

use super::WeightedQueue;
use super::discovery::{FoundQueues, QueuePattern};
use super::problem::Problem;
use super::section::WrittenValue;
use crate::name::QueueName;
use std::collections::HashSet;
use std::num::NonZeroU32;

/// The queue of a run that names none.
pub(super) const DEFAULT_QUEUE: &str = "local:default";
const MOST_WEIGHT: u32 = 1_000_000;

/// The queues of a route.
#[derive(Debug, Default)]
pub(super) struct RouteQueues {
    /// The queues that are named, and those that patterns found.
    pub queues: Vec<WeightedQueue>,
    pub patterns: Vec<QueuePattern>,
}

/// Parses a list such as `payments:3,default:1`, as one text or as items. The queues that a pattern
/// found follow it. A pattern is listed like a queue until all settings are checked, because what
/// holds for it holds for what it finds. Adds its problems to `problems`.
pub(super) fn read(
    list: &[WrittenValue],
    found: &FoundQueues,
    problems: &mut Vec<Problem>,
) -> RouteQueues {
    let mut queues = Vec::<WeightedQueue>::new();
    let mut patterns = Vec::<QueuePattern>::new();
    let mut seen = HashSet::new();
    let mut weighted = None;
    let mut plain = None;
    let items = list.iter().flat_map(|given| {
        let texts = given.text.split(',');
        texts.map(move |text| (text.trim(), given))
    });
    for (text, given) in items {
        let (name, weight) = QueueName::split_weight(text);
        match weight {
            Some(_) => weighted = weighted.or(Some(text)),
            None => plain = plain.or(Some((text, given))),
        }
        let weight = match weight.map(|weight| read_weight(given, name, weight)) {
            Some(Ok(weight)) => Some(weight),
            Some(Err(problem)) => {
                problems.push(problem);
                None
            }
            None => None,
        };
        let parsed = if QueuePattern::is_pattern(name) {
            QueuePattern::parse(name, &given.at)
                .map(|pattern| (pattern.as_queue().clone(), Some(pattern)))
        } else {
            name.parse::<QueueName>().map(|name| (name, None))
        };
        let (name, pattern) = match parsed {
            Ok(parsed) => parsed,
            Err(found) => {
                problems.push(Problem::new(&given.at, found, ""));
                continue;
            }
        };
        if let Some(queue) = name.dead_letters_of() {
            let found = format!("`{name}` holds dead letters and is not received from");
            let wanted = format!("`{queue}`, to which `dispatcher redrive {name}` moves them back");
            problems.push(Problem::new(&given.at, found, wanted));
            continue;
        }
        if !seen.insert(name.clone()) {
            let found = format!("`{name}` appears twice");
            problems.push(Problem::new(&given.at, found, "each queue once"));
            continue;
        }
        let text = pattern.as_ref().map(ToString::to_string);
        let of_pattern = text.as_ref().and_then(|text| found.get(text));
        let names = std::iter::once(name).chain(of_pattern.into_iter().flatten().cloned());
        queues.extend(names.map(|name| WeightedQueue {
            name,
            weight,
            rate: None,
            concurrency: None,
            found_by: text.clone(),
            at: given.at.clone(),
        }));
        patterns.extend(pattern);
    }
    if let (Some(weighted), Some((plain, given))) = (weighted, plain) {
        let found = format!("`{weighted}` has a weight and `{plain}` has none");
        let wanted = "weights on all queues, or on none for strict order";
        problems.push(Problem::new(&given.at, found, wanted));
    }
    RouteQueues { queues, patterns }
}

fn read_weight(given: &WrittenValue, name: &str, weight: &str) -> Result<NonZeroU32, Problem> {
    let number = weight.parse::<NonZeroU32>().ok();
    number
        .filter(|number| number.get() <= MOST_WEIGHT)
        .ok_or_else(|| {
            let found = format!("`{weight}` is not a weight for the queue `{name}`");
            Problem::new(&given.at, found, "a whole number from 1 to 1,000,000")
        })
}

/// Parses the queue that the messages of these queues are sent to.
pub(super) fn target(given: &WrittenValue, queues: &[WeightedQueue]) -> Result<QueueName, Problem> {
    let parsed = given.text.trim().parse::<QueueName>();
    let name = parsed.map_err(|found| Problem::new(&given.at, found, ""))?;
    if name.dead_letters_of().is_some() {
        let found = format!("nothing is sent to `{name}`");
        return Err(Problem::new(&given.at, found, "the name of one queue"));
    }
    let wanted = "a queue that the route does not read: its messages would never leave it";
    unread(given, name, queues, wanted)
}

/// Returns the queue `name` unless it is one of these.
fn unread(
    given: &WrittenValue,
    name: QueueName,
    queues: &[WeightedQueue],
    wanted: &str,
) -> Result<QueueName, Problem> {
    match queues.iter().find(|queue| queue.name == name) {
        None => Ok(name),
        Some(queue) => {
            let found = format!("`{name}` is one of the route's queues too");
            Err(Problem::new(&given.at, found, wanted).of_queue(queue))
        }
    }
}

/// Parses the dead-letter queue of these queues.
pub(super) fn dead_letter(
    given: &WrittenValue,
    queues: &[WeightedQueue],
) -> Result<QueueName, Problem> {
    let name = given
        .text
        .trim()
        .parse::<QueueName>()
        .map_err(|found| Problem::new(&given.at, found, ""))?;
    if let Some(queue) = name.dead_letters_of() {
        let found = format!("nothing is sent to `{name}`");
        let wanted = format!("another queue, or none: dead letters then stay in `{queue}`");
        return Err(Problem::new(&given.at, found, wanted));
    }
    let wanted = "a dead-letter queue that the route does not read";
    let name = unread(given, name, queues, wanted)?;
    match queues
        .iter()
        .find(|queue| queue.name.backend != name.backend)
    {
        None => Ok(name),
        Some(queue) => {
            let found = format!("`{name}` is on another backend than `{}`", queue.name);
            let wanted = "a dead-letter queue on the same backend as every queue of the route";
            Err(Problem::new(&given.at, found, wanted))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(list: &str) -> Vec<String> {
        let list = [WrittenValue::new("--queues", list)];
        let mut problems = Vec::new();
        read(&list, &FoundQueues::new(), &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn valid_queue_lists_are_parsed() {
        for list in [
            "a",
            "a,b",
            "payments:3, submissions:2,default:1",
            "local:a:1000000",
        ] {
            assert_eq!(problems(list), [""; 0], "{list}");
        }
    }

    #[test]
    fn invalid_queue_lists_name_the_problem() {
        for (list, wanted) in [
            ("a:0", "`0` is not a weight for the queue `a`"),
            ("a:1000001", "1 to 1,000,000"),
            ("a:-1", "1 to 1,000,000"),
            ("a:x", "`x` is not a weight"),
            ("a:", "`` is not a weight"),
            ("a:3,b", "`a:3` has a weight and `b` has none"),
            ("a,a", "`a` appears twice"),
            ("a:1,sqs:a:2", "`a` appears twice"),
            ("a,,b", "`` is not a queue name"),
            (
                "dynamodb:Tasks/FAILURE",
                "`dynamodb:Tasks/FAILURE` holds dead letters",
            ),
        ] {
            let found = problems(list);
            assert_eq!(found.len(), 1, "{list}: {found:?}");
            assert!(found[0].contains(wanted), "{list}: {found:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn queue_list_parser_never_panics(items in proptest::collection::vec(".{0,12}", 0..5)) {
            let list: Vec<_> = items.into_iter().map(|item| WrittenValue::new("x", item)).collect();
            read(&list, &FoundQueues::new(), &mut Vec::new());
        }
    }
}
