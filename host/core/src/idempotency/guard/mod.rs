//! Keeps messages that were handled from running again, as far as the store allows. A failing or
//! hanging store is reported and costs a bounded time: the queue remains the authority, so messages
//! flow even without the store. Knows no store by name and no stage.

use super::{Records, RecordsError};
use crate::clock;
use crate::clock::BootInstant;
use crate::telemetry::counters::Counters;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::readiness::Readiness;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// The time limit of a write, which delays the delete that follows it.
const WRITE: Duration = Duration::from_secs(2);
/// The time limit of a lookup, which delays the received messages. It is also at most one part in
/// `LOOKUP_SHARE` of their visibility timeout.
const LOOKUP: Duration = Duration::from_secs(1);
const LOOKUP_SHARE: u32 = 8;
/// The time for which the guard makes no more calls of a kind after one without an answer.
const REST: Duration = Duration::from_secs(5);
/// The number of failures in a row after which the process is not ready.
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

/// The failures in a row of one kind of call.
struct FailureWatch {
    /// Its name in `/readyz`.
    name: String,
    /// The effect on messages while the calls fail.
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
    /// Makes a guard that remembers the handled messages of this route for `ttl`.
    pub fn new(
        records: Arc<dyn Records>,
        ttl: Duration,
        route: &str,
        counters: Arc<Counters>,
        readiness: Arc<Readiness>,
    ) -> Self {
        Self {
            records,
            ttl,
            lookups: FailureWatch::new("lookups", route, "redelivered messages run again"),
            writes: FailureWatch::new(
                "records",
                route,
                "what is done is deleted and not remembered; redelivered messages run again",
            ),
            counters,
            readiness,
        }
    }

    /// Returns which of these messages were handled: one answer per id, in order. Unknown messages
    /// count as not handled. `visibility` is the visibility timeout with which they were received.
    pub async fn known(&self, queue: &str, ids: &[&str], visibility: Duration) -> Vec<bool> {
        let patience = LOOKUP.min(visibility / LOOKUP_SHARE);
        let asked = self.records.known(queue, ids);
        let mut known = if ids.is_empty() {
            Vec::new()
        } else {
            self.call(&self.lookups, patience, asked)
                .await
                .unwrap_or_default()
        };
        known.resize(ids.len(), false);
        known
    }

    /// Records that these messages were handled. Returns whether the store has recorded them.
    pub async fn remember(&self, queue: &str, ids: &[&str]) -> bool {
        let until = clock::wall_clock_now() + self.ttl;
        let asked = self.records.remember(queue, ids, until);
        let written = self.call(&self.writes, WRITE, asked).await.is_some();
        if written {
            self.counters.remembered.many(ids.len());
        }
        written
    }

    /// Calls the store within a time limit. Reports its failure.
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

impl Drop for Guard {
    fn drop(&mut self) {
        for watch in [&self.lookups, &self.writes] {
            if watch.state().failures >= LASTING {
                self.readiness.clear(&watch.name);
            }
        }
    }
}

impl FailureWatch {
    fn new(what: &str, route: &str, effect: &'static str) -> Self {
        Self {
            name: format!("idempotency {what} of route {route}"),
            effect,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests;
