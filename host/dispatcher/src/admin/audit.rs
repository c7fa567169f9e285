//! One log line for every action that is taken or refused: who, what, on what, how many.

use super::access::Caller;
use super::api::Audited;
use dispatcher_core::clock;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub method: String,
    pub path: String,
    pub peer: Option<String>,
}

/// Who started a job, and by which request; kept with the job, which is logged when it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requester {
    method: String,
    path: String,
    peer: Option<String>,
    role: Option<String>,
    user: String,
}

impl Requester {
    pub(super) fn new(asked: &Asked, caller: &Caller) -> Self {
        Self {
            method: asked.method.clone(),
            path: asked.path.clone(),
            peer: asked.peer.clone(),
            role: caller.role_name().map(str::to_owned),
            user: caller.name().to_owned(),
        }
    }

    /// What to call it.
    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    /// A job was started. What it did is logged at its end.
    pub(crate) fn log_start(&self, target: &str, job: &str) {
        let Self {
            method,
            path,
            peer,
            role,
            user,
        } = self;
        tracing::info!(
            method,
            path,
            peer,
            role,
            user,
            target_name = target,
            job,
            "admin job started"
        );
    }

    /// A job has ended: the action with how many messages it moved or removed.
    pub(crate) fn log_end(&self, target: &str, job: &str, count: u64, state: &str) {
        let Self {
            method,
            path,
            peer,
            role,
            user,
        } = self;
        tracing::info!(
            method,
            path,
            peer,
            role,
            user,
            target_name = target,
            count,
            job,
            state,
            "admin action"
        );
    }
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
