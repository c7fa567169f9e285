//! Runs one attempt, from its messages to their verdicts.

use crate::attempt::{limit, retry_all};
use crate::instance::{LiveInstance, NotInstantiated};
use crate::plugin::LoadedPlugin;
use crate::{admission, ahead, failure_reason, instance, report};
use dispatcher_core::clock;
use dispatcher_core::handler::{Attempt, Handler, Usage};
use dispatcher_core::message::{FailureReason, Verdict};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

impl Handler for LoadedPlugin {
    fn batch(&self) -> usize {
        self.loaded.pre.batch()
    }

    fn reaches_out(&self) -> bool {
        let granted = &self.loaded.settings.granted;
        let http = granted.http.as_ref();
        granted.lambda.is_some() || http.is_some_and(|http| http.reaches_out())
    }

    fn usage(&self) -> Usage {
        self.loaded.settings.tally.usage()
    }

    /// May be polled on any thread: the timers of the runtime are available while the guest runs.
    ///
    /// This is the code that `async_trait` would generate, written out so that an attempt that only
    /// waits for a shared instance does not take the several KiB that it would need with its own
    /// instance.
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
            return Box::pin(std::future::ready(retry_all(
                &attempt,
                FailureReason::Host(why),
            )));
        }
        match &self.loaded.shared {
            Some(shared) => Box::pin(shared.handle(attempt)),
            None => Box::pin(async move {
                let work = self.attempt(&attempt);
                let verdicts = self.loaded.runtime.host(work).await;
                // There may be room now for instances that could not be created ahead before.
                ahead::refill(&self.loaded);
                verdicts
            }),
        }
    }
}

impl LoadedPlugin {
    async fn attempt(&self, attempt: &Arc<Attempt>) -> Vec<Verdict> {
        let loaded = &*self.loaded;
        let limit = limit(attempt);
        let kept = loaded.idle.as_ref().and_then(|idle| idle.take(attempt));
        ahead::refill(&self.loaded);
        let made = match kept {
            Some(live) => Ok(live),
            None => instance::fresh(&loaded.runtime, &loaded.pre, &loaded.settings, attempt).await,
        };
        let live = match made {
            Ok(live) => live,
            Err(NotInstantiated::Full(why)) => return admission::turned_away(attempt, why),
            Err(NotInstantiated::Stillborn(stillborn)) => {
                let guest = stillborn.store.data();
                let why = failure_reason::of_birth(&stillborn.error, guest, limit);
                report::broke(&stillborn.error, guest, attempt, &why);
                return retry_all(attempt, report::with_last_line(why, guest));
            }
        };
        let mut watched = WatchedInstance {
            live: Some(live),
            attempt,
            limit,
        };
        let Some(live) = &mut watched.live else {
            unreachable!("taken below");
        };
        let answer = live.call(attempt).await;
        let Some(mut live) = watched.live.take() else {
            unreachable!("given above");
        };
        let guest = live.store.data_mut();
        match answer {
            Ok(mut verdicts) => {
                guest.end();
                let is_lost = loaded.drops_coroutines && guest.has_lost_coroutine();
                if is_lost {
                    verdicts = retry_all(attempt, failure_reason::of_lost_coroutine());
                }
                report::ended(guest, attempt, &verdicts);
                guest.explain(attempt, &mut verdicts);
                report::explain(guest, &mut verdicts);
                // A fresh interpreter prints the warning again.
                if let Some(idle) = &loaded.idle
                    && !is_lost
                    && (!loaded.is_async || live.is_quiet().await)
                {
                    idle.give(live, &loaded.runtime.admission);
                }
                verdicts
            }
            Err(error) => {
                let why = failure_reason::of(&error, guest, limit);
                report::broke(&error, guest, attempt, &why);
                retry_all(attempt, report::with_last_line(why, guest))
            }
        }
    }
}

/// An instance whose attempt is running. It is dropped when the attempt is stopped from outside. If
/// this happens at the deadline, the guest was waiting.
struct WatchedInstance<'a> {
    live: Option<LiveInstance>,
    attempt: &'a Attempt,
    limit: Duration,
}

impl Drop for WatchedInstance<'_> {
    fn drop(&mut self) {
        if let Some(live) = &self.live
            && self.attempt.deadline.is_over(clock::now())
        {
            let guest = live.store.data();
            let why = failure_reason::timed_out(guest, self.limit);
            report::waited(guest, self.attempt, &why);
        }
    }
}
