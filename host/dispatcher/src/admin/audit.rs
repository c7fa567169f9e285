//! One log line for every action that is taken or refused: who, what, on what, how many.

use super::access::Caller;
use super::api::Audited;
use dispatcher_core::clock;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use std::sync::{Mutex, PoisonError};

/// What was asked for.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub method: String,
    pub path: String,
    pub peer: Option<String>,
}

/// Logs actions.
#[derive(Debug, Default)]
pub(super) struct Audit(Mutex<Strangers>);

/// Whoever reaches the address can be refused as often as he likes: then a line a minute says how
/// often.
#[derive(Debug, Default)]
struct Strangers {
    throttle: LogThrottle,
    unlogged: u64,
}

impl Audit {
    /// An action was taken.
    pub(super) fn taken(&self, asked: &Asked, caller: &Caller, status: u16, audited: &Audited) {
        let Asked { method, path, peer } = asked;
        let (role, user) = (caller.role_name(), caller.name());
        let Audited { target, count } = audited;
        tracing::info!(
            method,
            path,
            peer,
            role,
            user,
            target_name = target,
            count,
            status,
            "admin action"
        );
    }

    /// Somebody who may ask for it was refused an action, or it was not understood.
    pub(super) fn refused(&self, asked: &Asked, caller: &Caller, status: u16) {
        let Asked { method, path, peer } = asked;
        let (role, user) = (caller.role_name(), caller.name());
        tracing::warn!(
            method,
            path,
            peer,
            role,
            user,
            status,
            "admin action refused"
        );
    }

    /// Somebody was refused who is not known.
    pub(super) fn refused_stranger(&self, asked: &Asked, status: u16) {
        let unlogged = {
            let mut strangers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !strangers.throttle.should_log(clock::now()) {
                strangers.unlogged += 1;
                return;
            }
            std::mem::take(&mut strangers.unlogged)
        };
        let Asked { method, path, peer } = asked;
        tracing::warn!(method, path, peer, status, unlogged, "admin action refused");
    }
}
