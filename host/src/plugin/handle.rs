//! One attempt, from its messages to their verdicts.

use super::load::Plugin;
use super::{Attempt, Handler, instance, mishap};
use crate::clock;
use crate::message::{Mishap, Verdict};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

impl Handler for Plugin {
    fn batch(&self) -> usize {
        self.loaded.pre.batch()
    }

    fn reaches_out(&self) -> bool {
        self.loaded.settings.lambda.is_some()
    }

    /// May be polled on any thread: the timers of the runtime are at hand while the guest runs.
    ///
    /// Spelt out what `async_trait` would make of it, so that an attempt that only waits for a
    /// shared instance takes no room for what it would need in one of its own: several KiB.
    fn handle<'a, 'b>(
        &'a self,
        attempt: Arc<Attempt>,
    ) -> Pin<Box<dyn Future<Output = Vec<Verdict>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        if attempt.messages.len() > self.batch() {
            let why = format!(
                "{} messages for a plugin that takes {}",
                attempt.messages.len(),
                self.batch()
            );
            return Box::pin(std::future::ready(retry_all(&attempt, Mishap::Host(why))));
        }
        match &self.loaded.shared {
            Some(shared) => Box::pin(shared.handle(attempt)),
            None => Box::pin(async move {
                let work = self.attempt(&attempt);
                self.loaded.runtime.host(work).await
            }),
        }
    }
}

impl Plugin {
    async fn attempt(&self, attempt: &Arc<Attempt>) -> Vec<Verdict> {
        let loaded = &*self.loaded;
        let limit = limit(attempt);
        let kept = loaded.idle.as_ref().and_then(|idle| idle.take(attempt));
        let made = match kept {
            Some(live) => Ok(live),
            None => instance::fresh(&loaded.runtime, &loaded.pre, &loaded.settings, attempt).await,
        };
        let mut live = match made {
            Ok(live) => live,
            Err(stillborn) => {
                let why = mishap::of_birth(&stillborn.error, stillborn.store.data(), limit);
                return retry_all(attempt, why);
            }
        };
        let answer = live.call(attempt).await;
        live.store.data().end();
        match answer {
            Ok(verdicts) => {
                if let Some(idle) = &loaded.idle {
                    idle.give(live);
                }
                verdicts
            }
            Err(error) => retry_all(attempt, mishap::of(&error, live.store.data(), limit)),
        }
    }
}

pub(super) fn retry_all(attempt: &Attempt, why: Mishap) -> Vec<Verdict> {
    let verdict = Verdict::Retry { after: None, why };
    vec![verdict; attempt.messages.len()]
}

/// How long an attempt may run from now on. Rounded up, since a little of the time that the attempt was given has passed already.
pub(super) fn limit(attempt: &Attempt) -> Duration {
    let time = attempt.deadline.since(clock::now());
    let ms = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)
}
