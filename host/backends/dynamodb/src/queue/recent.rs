//! Remembers the tasks that this process has just tried to take. Concurrent polls see the same
//! page; without this, all but one of them would fail, and each failed write costs units. Pure:
//! `now` is an argument.

use super::sweep::MARGIN;
use dispatcher_core::clock::BootInstant;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// The time for which a try is remembered, unless the task is known to be free again. It is shorter
/// than the time after which another process puts the task back: the rest of a lease (at least 2 s)
/// plus a margin.
const REMEMBERED: Duration = MARGIN.saturating_mul(2);
/// The number of tries above which old ones are removed.
const MANY: usize = 1_024;

/// The tries of the last few seconds.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<HashMap<String, BootInstant>>);

impl Recent {
    /// Registers a try of this task; returns false if this process already tries it.
    pub(super) fn begin(&self, task: &str, now: BootInstant) -> bool {
        let mut tries = self.0.lock();
        if tries.len() >= MANY {
            tries.retain(|_, at| now.since(*at) < REMEMBERED);
        }
        let before = tries.get(task);
        if before.is_some_and(|at| now.since(*at) < REMEMBERED) {
            return false;
        }
        tries.insert(task.to_owned(), now);
        true
    }

    /// Forgets a task, so that it may be tried again.
    pub(super) fn forget(&self, task: &str) {
        let mut tries = self.0.lock();
        tries.remove(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn recent_task_is_not_retried_until_released_or_expired() {
        let recent = Recent::default();
        assert!(recent.begin("a", at(0)));
        assert!(!recent.begin("a", at(3_999)));
        assert!(recent.begin("b", at(0)));
        assert!(recent.begin("a", at(4_000)));
        recent.forget("a");
        assert!(recent.begin("a", at(4_001)));
    }

    #[test]
    fn expired_tries_are_forgotten() {
        let recent = Recent::default();
        for n in 0..10_000_u64 {
            recent.begin(
                &n.to_string(),
                BootInstant::from_boot(Duration::from_secs(n)),
            );
        }
        let kept = recent.0.lock().len();
        assert!(kept <= MANY, "{kept}");
    }
}
