//! A checker of order: is told of attempts as they begin, and what each will come to, and says what
//! speaks against one message of a group at a time and in the order of sending. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What an attempt comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFate {
    /// The message is done.
    Done,
    /// It is redelivered.
    Failed,
    /// It was the last: the message is dead.
    DeadLettered,
}

/// One message of an attempt: its group, its number within the group from 1 on, its fate.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its group.
    pub group: String,
    /// Its number.
    pub number: u32,
    /// Its fate, for its own sake: what follows a failure in its group shares its lot.
    pub fate: AttemptFate,
}

/// What is known of one group.
#[derive(Debug, Clone, Default)]
struct Group {
    /// How many have ended.
    ended: u32,
    busy_until: Option<Instant>,
}

/// Everything so far.
#[derive(Debug, Clone, Default)]
pub struct OrderLog {
    groups: BTreeMap<String, Group>,
    /// What speaks against the order; the first are enough.
    pub problems: Vec<String>,
    /// The most groups that were running at once.
    pub at_once: usize,
    /// Messages that are done or dead.
    pub ended: usize,
    /// Attempts that failed.
    pub failed: usize,
}

impl OrderLog {
    /// An attempt began that lasts at least so long, with these messages in this order.
    pub fn began(&mut self, at: Instant, lasts: Duration, members: &[Member]) {
        // Of each group that stops in this attempt, how many stay before what comes next.
        let mut stopped: BTreeMap<&str, u32> = BTreeMap::new();
        for (place, member) in members.iter().enumerate() {
            let Member {
                group,
                number,
                fate,
            } = member;
            let known = self.groups.entry(group.clone()).or_default();
            let first = members[..place].iter().all(|other| other.group != *group);
            if first && known.busy_until.is_some_and(|until| at < until) {
                self.problems
                    .push(format!("{group}: {number} begins beside another"));
            }
            // Of what follows a failure only the order counts: it has not ended.
            let behind = stopped.get(&**group).copied();
            let expected = known.ended + 1 + behind.unwrap_or_default();
            if *number != expected {
                let problem = format!("{group}: {number} begins when it is {expected}'s turn");
                self.problems.push(problem);
            }
            known.busy_until = Some(at + lasts);
            if behind.is_none() && *fate != AttemptFate::Failed {
                known.ended = (*number).max(known.ended);
                self.ended += 1;
            } else {
                self.failed += 1;
            }
            match (behind, fate) {
                (None, AttemptFate::Done) => {}
                (None, AttemptFate::DeadLettered) => drop(stopped.insert(group, 0)),
                (behind, _) => drop(stopped.insert(group, behind.unwrap_or_default() + 1)),
            }
        }
        let busy = |group: &&Group| group.busy_until.is_some_and(|until| at < until);
        self.at_once = self.at_once.max(self.groups.values().filter(busy).count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(1);

    fn member(group: &str, number: u32, fate: AttemptFate) -> Member {
        let group = group.to_owned();
        Member {
            group,
            number,
            fate,
        }
    }

    /// What speaks against attempts so many seconds after the first.
    fn problems(attempts: &[(u64, &[Member])]) -> Vec<String> {
        let start = Instant::now();
        let mut order = OrderLog::default();
        for (after, members) in attempts {
            order.began(start + Duration::from_secs(*after), LASTS, members);
        }
        order.problems
    }

    #[test]
    fn order_violations_are_detected() {
        use AttemptFate::{DeadLettered, Done, Failed};
        let [first, again] = [member("a", 1, Failed), member("a", 1, Done)];
        let [second, third] = [member("a", 2, DeadLettered), member("a", 3, Done)];
        let other = member("b", 1, Done);
        let good: [(u64, &[Member]); 5] = [
            (0, &[first.clone(), other.clone(), second.clone()]),
            (1, std::slice::from_ref(&again)),
            (2, &[second.clone(), third.clone()]),
            (3, std::slice::from_ref(&third)),
            (9, &[member("a", 4, Done)]),
        ];
        assert_eq!(problems(&good), Vec::<String>::new());
        assert_eq!(
            problems(&[
                (0, std::slice::from_ref(&first)),
                (1, std::slice::from_ref(&second))
            ])
            .len(),
            1
        );
        assert_eq!(
            problems(&[(0, std::slice::from_ref(&again)), (0, &[second])]).len(),
            1
        );
        assert_eq!(
            problems(&[
                (0, std::slice::from_ref(&again)),
                (1, std::slice::from_ref(&again))
            ])
            .len(),
            1
        );
        assert_eq!(problems(&[(0, &[third])]).len(), 1);
    }
}
