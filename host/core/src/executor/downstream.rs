//! Reports when a route's downstream is busy, closed or open again: in the log, once a minute while
//! it lasts, and in the readiness. Makes no decision.

use crate::clock::BootInstant;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::readiness::Readiness;
use crate::throttle::control::Signal;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The limits of a route that its downstream's state imposes.
#[derive(Debug, Clone, Copy)]
pub struct DownstreamState {
    /// The maximum number of concurrent attempts.
    pub limit: usize,
    /// Whether that is fewer than the configuration allows.
    pub lowered: bool,
    /// Whether the downstream accepts no messages at all.
    pub closed: bool,
}

/// The log of one route's downstream.
#[derive(Debug)]
pub struct Downstream {
    route: String,
    readiness: Arc<Readiness>,
    /// Whether a problem was logged that has not been resolved.
    troubled: AtomicBool,
    said: Mutex<DownstreamLog>,
}

#[derive(Debug, Default)]
struct DownstreamLog {
    busy: LogThrottle,
    closed: LogThrottle,
    is_closed: bool,
}

impl Downstream {
    /// Creates the log of the downstream of a route with this number of queues.
    pub fn new(route: &str, queues: usize, readiness: Arc<Readiness>) -> Self {
        readiness.add_route(route, queues);
        Self {
            route: route.to_owned(),
            readiness,
            troubled: AtomicBool::new(false),
            said: Mutex::default(),
        }
    }

    /// Records what an attempt showed about the downstream, and `why`; `now_is` is the state that
    /// follows.
    pub fn note(
        &self,
        showed: Signal,
        why: Option<&str>,
        now_is: DownstreamState,
        now: BootInstant,
    ) {
        match showed {
            Signal::Nothing => {}
            Signal::Open if !self.troubled.load(Relaxed) => {}
            Signal::Open => self.take_back(now_is),
            Signal::Busy => {
                self.take_back(now_is);
                self.troubled.store(true, Relaxed);
                if self.lock_log().busy.should_log(now) {
                    tracing::warn!(
                        route = self.route,
                        attempts = now_is.limit,
                        reason = why,
                        "downstream busy: fewer concurrent attempts, no receive is spent"
                    );
                }
            }
            Signal::Closed => {
                self.troubled.store(true, Relaxed);
                let why = why.unwrap_or_default();
                let mut said = self.lock_log();
                let is_new = !std::mem::replace(&mut said.is_closed, true);
                self.readiness.close_route(&self.route, why, is_new);
                if said.closed.should_log(now) {
                    tracing::error!(
                        route = self.route,
                        reason = why,
                        "circuit open: nothing is received until the cause is fixed"
                    );
                }
            }
        }
    }

    /// Logs that the downstream is open again, if it is.
    fn take_back(&self, now_is: DownstreamState) {
        let mut said = self.lock_log();
        if said.is_closed && !now_is.closed {
            said.is_closed = false;
            said.closed = LogThrottle::default();
            self.readiness.reopen_route(&self.route);
            tracing::info!(
                route = self.route,
                "circuit closed: messages are handled again"
            );
        }
        self.troubled
            .store(now_is.lowered || now_is.closed, Relaxed);
    }

    fn lock_log(&self) -> parking_lot::MutexGuard<'_, DownstreamLog> {
        self.said.lock()
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        if self.said.get_mut().is_closed {
            self.readiness.reopen_route(&self.route);
        }
        self.readiness.remove_route(&self.route);
    }
}
