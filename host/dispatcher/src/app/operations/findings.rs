//! Caches the last result of `doctor` for a minute, including a failure.

use super::within;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_operate::operations::FindingView;
use dispatcher_operate::problem::CallProblem;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a result is cached.
const KEPT: Duration = Duration::from_secs(60);
/// The time limit of an inspection, which compiles plugins.
const LOOKING: Duration = Duration::from_secs(50);
/// How long a caller waits, also for an inspection that another caller started.
const PATIENCE: Duration = Duration::from_secs(60);

type FindingsResult = Result<Vec<FindingView>, CallProblem>;

/// The last result, and when its inspection began.
pub(super) struct Findings {
    kept: Mutex<Option<(BootInstant, FindingsResult)>>,
    looking: Duration,
    patience: Duration,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            looking: LOOKING,
            patience: PATIENCE,
        }
    }
}

impl Findings {
    /// Returns the last findings with their age in seconds, or those of `look`. Concurrent callers
    /// wait for the same result, each no longer than its own time limit.
    pub(super) async fn get(
        &self,
        look: impl Future<Output = Vec<FindingView>>,
    ) -> Result<(Vec<FindingView>, f64), CallProblem> {
        within(self.patience, self.kept_or(look)).await?
    }

    async fn kept_or(
        &self,
        look: impl Future<Output = Vec<FindingView>>,
    ) -> Result<(Vec<FindingView>, f64), CallProblem> {
        let mut kept = self.kept.lock().await;
        if let Some((at, found)) = &*kept {
            let age = clock::now().since(*at);
            if age < KEPT {
                return Ok((found.clone()?, age.as_secs_f64()));
            }
        }
        let found = within(self.looking, look).await;
        *kept = Some((clock::now(), found.clone()));
        Ok((found?, 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    fn hurried() -> Findings {
        Findings {
            looking: Duration::from_millis(1),
            patience: Duration::from_millis(50),
            ..Findings::default()
        }
    }

    #[tokio::test]
    async fn a_look_that_takes_too_long_is_not_repeated_at_once() {
        let findings = hurried();
        let failed = findings
            .get(pending())
            .await
            .expect_err("it takes for ever");
        let again = findings.get(ready(Vec::new())).await;
        assert_eq!(again.expect_err("the answer is kept"), failed);
    }

    #[tokio::test]
    async fn whoever_waits_for_the_look_of_another_does_not_wait_for_ever() {
        let findings = hurried();
        let look = findings.kept.lock().await;
        let waited = findings.get(ready(Vec::new())).await;
        assert!(waited.is_err(), "somebody else looks still");
        drop(look);
        let (found, age) = findings.get(ready(Vec::new())).await.expect("it is free");
        assert!(found.is_empty() && age.abs() < 1e-9);
    }
}
