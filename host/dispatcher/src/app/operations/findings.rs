//! What `doctor` found last, for whoever asks within a minute: also that it could not look.

use super::within;
use crate::admin::operations::FindingView;
use crate::admin::problem::CallProblem;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::time::Duration;
use tokio::sync::Mutex;

/// For how long an answer is shown before it is looked for again.
const KEPT: Duration = Duration::from_secs(60);
/// How long a look may take, for which plugins are compiled.
const LOOKING: Duration = Duration::from_secs(50);
/// How long whoever asks waits, also for a look that somebody else began.
const PATIENCE: Duration = Duration::from_secs(60);

type Found = Result<Vec<FindingView>, CallProblem>;

/// The last answer, and when its look began.
pub(super) struct Findings {
    kept: Mutex<Option<(BootInstant, Found)>>,
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
    /// The last answer and its age in seconds, or that of `look`. Whoever asks meanwhile waits for the
    /// same answer, and no longer than for its own.
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
