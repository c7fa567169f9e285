//! What one queue has waiting, and which groups are busy. Pure.

use std::collections::{HashSet, VecDeque};

/// Something that waits to be run.
pub trait Waiting {
    /// The group it must be kept in order with.
    fn group(&self) -> Option<&str>;
}

/// The waiting jobs of one queue.
#[derive(Debug)]
pub struct Ready<J> {
    waiting: VecDeque<J>,
    /// Groups with a job under way; empty unless the queue orders its groups.
    busy: HashSet<String>,
    ordered: bool,
}

impl<J: Waiting> Ready<J> {
    /// `ordered`: jobs of one group run one at a time and in order.
    pub fn new(ordered: bool) -> Self {
        Self {
            waiting: VecDeque::new(),
            busy: HashSet::new(),
            ordered,
        }
    }

    /// Adds a job behind the others.
    pub fn push(&mut self, job: J) {
        self.waiting.push_back(job);
    }

    /// How many wait, startable or not.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether `take` would give something.
    pub fn startable(&self) -> bool {
        self.waiting.iter().any(|job| self.may_start(job))
    }

    fn may_start(&self, job: &J) -> bool {
        !self.ordered || job.group().is_none_or(|group| !self.busy.contains(group))
    }

    /// The next jobs to run together, at most `max`, no two of one group. Their groups are busy
    /// until `freed`.
    pub fn take(&mut self, max: usize) -> Vec<J> {
        if !self.ordered {
            return self.waiting.drain(..max.min(self.waiting.len())).collect();
        }
        let mut taken = Vec::new();
        let mut at = 0;
        while taken.len() < max && at < self.waiting.len() {
            if !self.may_start(&self.waiting[at]) {
                at += 1;
                continue;
            }
            let job = self
                .waiting
                .remove(at)
                .expect("the index is below the length");
            if let Some(group) = job.group() {
                self.busy.insert(group.to_owned());
            }
            taken.push(job);
        }
        taken
    }

    /// A group's job has ended. After a failure what waits of the group is given back: it must
    /// not overtake the failed one, so it is to be released.
    #[must_use = "what is given back must be released"]
    pub fn freed(&mut self, group: &str, failed: bool) -> Vec<J> {
        if !self.ordered {
            return Vec::new();
        }
        self.busy.remove(group);
        if failed {
            self.extract(|job| job.group() == Some(group))
        } else {
            Vec::new()
        }
    }

    /// Takes all that wait out, for instance to release them.
    pub fn extract(&mut self, which: impl Fn(&J) -> bool) -> Vec<J> {
        let (out, kept) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|job| which(job));
        self.waiting = kept;
        Vec::from_iter::<VecDeque<J>>(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Job(u32, Option<&'static str>);

    impl Waiting for Job {
        fn group(&self) -> Option<&str> {
            self.1
        }
    }

    fn ready(jobs: &[(u32, Option<&'static str>)]) -> Ready<Job> {
        let mut ready = Ready::new(true);
        for (n, group) in jobs {
            ready.push(Job(*n, *group));
        }
        ready
    }

    #[test]
    fn one_of_a_group_at_a_time_and_in_order() {
        let mut ready = ready(&[(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, None)]);
        let numbers = |jobs: Vec<Job>| jobs.into_iter().map(|job| job.0).collect::<Vec<_>>();
        assert_eq!(numbers(ready.take(10)), [1, 3, 4]);
        assert!(!ready.startable());
        assert!(ready.freed("a", false).is_empty());
        assert_eq!(numbers(ready.take(10)), [2]);
    }

    #[test]
    fn lesson_19_a_failure_stops_its_group() {
        let mut ready = ready(&[
            (1, Some("a")),
            (2, Some("a")),
            (3, Some("a")),
            (4, Some("b")),
        ]);
        assert_eq!(ready.take(1), [Job(1, Some("a"))]);
        assert_eq!(
            ready.freed("a", true),
            [Job(2, Some("a")), Job(3, Some("a"))]
        );
        assert_eq!(ready.take(9), [Job(4, Some("b"))]);
    }
}
