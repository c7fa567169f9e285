//! Says when what a route's handler needs is busy, closed and open again: in the log, once a minute
//! while it lasts, and in the readiness. Decides nothing.

use crate::clock::Moment;
use crate::telemetry::readiness::Readiness;
use crate::telemetry::said::Said;
use crate::throttle::control::Showed;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The words about one route's downstream.
#[derive(Debug)]
pub struct Downstream {
    route: String,
    most: usize,
    readiness: Arc<Readiness>,
    /// Whether something was said that is to be taken back.
    troubled: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    busy: Said,
    closed: Said,
    is_closed: bool,
}

impl Downstream {
    /// Of a route that has at most so many attempts at once.
    pub fn new(route: &str, most: usize, readiness: Arc<Readiness>) -> Self {
        Self {
            route: route.to_owned(),
            most,
            readiness,
            troubled: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// An attempt has shown something, and `why`; since then so many attempts may be under way,
    /// or none.
    pub fn note(&self, showed: Showed, why: Option<&str>, limit: usize, closed: bool, now: Moment) {
        match showed {
            Showed::Nothing => {}
            Showed::Open if !self.troubled.load(Relaxed) => {}
            Showed::Open => self.take_back(limit, closed),
            Showed::Busy => {
                self.take_back(0, closed);
                self.troubled.store(true, Relaxed);
                if self.state().busy.again(now) {
                    let (route, why) = (&self.route, why.unwrap_or_default());
                    tracing::warn!(
                        route,
                        attempts = limit,
                        "downstream is busy, so fewer attempts are made at once; no receive is spent: {why}"
                    );
                }
            }
            Showed::Closed => {
                self.troubled.store(true, Relaxed);
                let why = why.unwrap_or_default();
                self.readiness.set(self.name(), why);
                let mut state = self.state();
                state.is_closed = true;
                if state.closed.again(now) {
                    let route = &self.route;
                    tracing::error!(
                        route,
                        "nothing more is received, since no message can be handled until somebody acts: {why}"
                    );
                }
            }
        }
    }

    /// Says that it is open again, if it is.
    fn take_back(&self, limit: usize, closed: bool) {
        let mut state = self.state();
        if state.is_closed && !closed {
            state.is_closed = false;
            state.closed = Said::default();
            self.readiness.clear(&self.name());
            tracing::info!(route = self.route, "messages can be handled again");
        }
        if limit >= self.most && !closed {
            self.troubled.store(false, Relaxed);
        }
    }

    fn name(&self) -> String {
        format!("route {}", self.route)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
