//! The audit log: one line for every action that was taken or refused, with who, what, the target
//! and the number of messages.

use super::access::Caller;
use dispatcher_core::clock;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_operate::requester::Requester;
use dispatcher_operate::verbs::ActionEntry;
use parking_lot::Mutex;

/// The request that asks for an action.
#[derive(Debug, Clone, Default)]
pub(super) struct ActionRequest {
    pub method: String,
    pub path: String,
    pub peer: Option<String>,
}

/// Marks the answer of an action that starts a job. The job logs the action when it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuditedByJob;

impl ActionRequest {
    /// Returns the requester, for a job that outlives the request.
    pub(super) fn requester(&self, caller: &Caller) -> Requester {
        Requester {
            method: self.method.clone(),
            path: self.path.clone(),
            peer: self.peer.clone(),
            role: caller.role_name().map(str::to_owned),
            user: caller.name().into_owned(),
        }
    }
}

/// Logs actions.
#[derive(Debug, Default)]
pub(super) struct Audit(Mutex<Strangers>);

/// The refused requests of unknown callers that were not logged. Anyone who reaches the address can
/// be refused any number of times, so one line a minute gives their number.
#[derive(Debug, Default)]
struct Strangers {
    throttle: LogThrottle,
    unlogged: u64,
}

impl Audit {
    /// Logs an action that was taken.
    pub(super) fn taken(
        &self,
        asked: &ActionRequest,
        caller: &Caller,
        status: u16,
        done: &ActionEntry,
    ) {
        let ActionRequest { method, path, peer } = asked;
        let (role, user) = (caller.role_name(), &*caller.name());
        let ActionEntry { target, count, .. } = done;
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

    /// Logs an action that was refused to a known caller, or that could not be parsed.
    pub(super) fn refused(&self, asked: &ActionRequest, caller: &Caller, status: u16) {
        let ActionRequest { method, path, peer } = asked;
        let (role, user) = (caller.role_name(), &*caller.name());
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

    /// Logs an action that was refused to an unknown caller.
    pub(super) fn refused_stranger(&self, asked: &ActionRequest, status: u16) {
        let unlogged = {
            let mut strangers = self.0.lock();
            if !strangers.throttle.should_log(clock::now()) {
                strangers.unlogged += 1;
                return;
            }
            std::mem::take(&mut strangers.unlogged)
        };
        let ActionRequest { method, path, peer } = asked;
        tracing::warn!(method, path, peer, status, unlogged, "admin action refused");
    }
}
