//! Remembers which tasks this process has just tried to take: concurrent polls see the same page,
//! and all but one would fail, at the price of a write each. Pure: `now` is an argument.

use super::sweep::MARGIN;
use dispatcher_core::clock::BootInstant;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a try is remembered, unless the task is known to be free again: less than it takes
/// another process to put it back, which waits for the end of a lease (2 s at least) and a margin.
const REMEMBERED: Duration = MARGIN.saturating_mul(2);
/// So many are kept before old ones are sought.
const MANY: usize = 1_024;

/// The tries of the last few seconds.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<HashMap<String, BootInstant>>);

impl Recent {
    /// Whether nobody here tries this task, who then does.
    pub(super) fn begin(&self, task: &str, now: BootInstant) -> bool {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |at: &BootInstant| now.since(*at) < REMEMBERED;
        if tries.len() >= MANY {
            tries.retain(|_, at| fresh(at));
        }
        if tries.get(task).is_some_and(fresh) {
            return false;
        }
        tries.insert(task.to_owned(), now);
        true
    }

    /// The task may be taken again.
    pub(super) fn forget(&self, task: &str) {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tries.remove(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_task_is_not_retried_until_released_or_expired() {
        let at = |ms| BootInstant::from_boot(Duration::from_millis(ms));
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
        let kept = recent.0.lock().expect("nobody panicked").len();
        assert!(kept <= MANY, "{kept}");
    }
}
