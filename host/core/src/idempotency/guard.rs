//! Keeps done messages from being run again, as far as the store allows. A failing or hanging store
//! is reported and costs a bounded time: the queue remains the authority, so messages flow without
//! it. Knows no store by name and no stage.

use super::{Records, RecordsError};
use crate::clock;
use crate::clock::BootInstant;
use crate::telemetry::counters::Counters;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::readiness::Readiness;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a write may hold the delete up that comes after it.
const WRITE: Duration = Duration::from_secs(2);
/// How long a lookup may delay what was received, and the share of its visibility at most.
const LOOKUP: Duration = Duration::from_secs(1);
const LOOKUP_SHARE: u32 = 8;
/// After a call without an answer the store is left alone for this long.
const REST: Duration = Duration::from_secs(5);
/// This many failures in a row are more than a hiccup.
const LASTING: u32 = 3;

/// The idempotency of one route.
pub struct Guard {
    records: Arc<dyn Records>,
    ttl: Duration,
    lookups: FailureWatch,
    writes: FailureWatch,
    counters: Arc<Counters>,
    readiness: Arc<Readiness>,
}

/// The failures of one kind of call in a row.
struct FailureWatch {
    /// Its name in `/readyz`.
    name: String,
    /// What happens to messages meanwhile.
    effect: &'static str,
    state: Mutex<GuardState>,
}

#[derive(Default)]
struct GuardState {
    failures: u32,
    said: LogThrottle,
    rests_until: BootInstant,
}

impl Guard {
    /// Remembers for `ttl` what the route of this name has done.
    pub fn new(
        records: Arc<dyn Records>,
        ttl: Duration,
        route: &str,
        counters: Arc<Counters>,
        readiness: Arc<Readiness>,
    ) -> Self {
        let watch = |what: &str, effect| FailureWatch {
            name: format!("idempotency {what} of route {route}"),
            effect,
            state: Mutex::default(),
        };
        Self {
            records,
            ttl,
            lookups: watch("lookups", "redelivered messages run again"),
            writes: watch(
                "records",
                "what is done is deleted and not remembered; redelivered messages run again",
            ),
            counters,
            readiness,
        }
    }

    /// Returns which of these messages, received with this visibility timeout, are done: one
    /// answer per id, in order. Unknown messages count as not done.
    pub async fn known(&self, queue: &str, ids: &[&str], visibility: Duration) -> Vec<bool> {
        let patience = LOOKUP.min(visibility / LOOKUP_SHARE);
        let asked = self.records.known(queue, ids);
        let mut known = match ids.is_empty() {
            true => Vec::new(),
            false => self
                .call(&self.lookups, patience, asked)
                .await
                .unwrap_or_default(),
        };
        known.resize(ids.len(), false);
        known
    }

    /// These messages are done. Whether they are remembered.
    pub async fn remember(&self, queue: &str, ids: &[&str]) -> bool {
        let until = clock::wall_clock_now() + self.ttl;
        let asked = self.records.remember(queue, ids, until);
        let written = self.call(&self.writes, WRITE, asked).await.is_some();
        if written {
            self.counters.remembered.many(ids.len());
        }
        written
    }

    /// Makes a call of the store within a time limit. Reports its failure.
    async fn call<T>(
        &self,
        watch: &FailureWatch,
        patience: Duration,
        call: impl Future<Output = Result<T, RecordsError>>,
    ) -> Option<T> {
        let begun = clock::now();
        if begun < watch.state().rests_until {
            self.counters.idempotency_failures.one();
            return None;
        }
        let answer = tokio::select! {
            biased; // for simulations
            answer = call => answer.map_err(|error| (error, Duration::ZERO)),
            () = clock::sleep_until(Some(begun + patience)) => {
                let words = format!("no answer within {} ms", patience.as_millis());
                Err((RecordsError(words), REST))
            }
        };
        match answer {
            Ok(value) => {
                self.passed(watch);
                Some(value)
            }
            Err((error, rest)) => {
                self.failed(watch, &error, rest);
                None
            }
        }
    }

    fn passed(&self, watch: &FailureWatch) {
        let mut state = watch.state();
        if state.failures > 0 {
            let failures = state.failures;
            tracing::info!(what = watch.name, failures, "idempotency store works again");
            *state = GuardState::default();
            self.readiness.clear(&watch.name);
        }
    }

    fn failed(&self, watch: &FailureWatch, error: &RecordsError, rest: Duration) {
        self.counters.idempotency_failures.one();
        let now = clock::now();
        let mut state = watch.state();
        state.failures = state.failures.saturating_add(1);
        state.rests_until = now + rest;
        if state.said.should_log(now) {
            let (what, failures, effect) = (&watch.name, state.failures, watch.effect);
            tracing::error!(what, failures, %error, effect, "idempotency store failed");
        }
        if state.failures >= LASTING {
            self.readiness.set(watch.name.clone(), error.to_string());
        }
    }
}

impl FailureWatch {
    fn state(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
