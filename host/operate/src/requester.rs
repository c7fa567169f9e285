//! The requester of an operation.

use serde::{Deserialize, Serialize};

/// The user who started a job, and the request. It is stored with the job and logged when the job
/// ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    /// The method of the request.
    pub method: String,
    /// The path of the request.
    pub path: String,
    /// The address that it came from.
    pub peer: Option<String>,
    /// The role of the user.
    pub role: Option<String>,
    /// The user.
    pub user: String,
}

impl Requester {
    /// Returns whether the operation runs in a command: its user sees the output.
    fn is_command(&self) -> bool {
        self.method.is_empty()
    }

    /// Logs that a job was started. Its result is logged at its end.
    pub fn log_start(&self, target: &str, job: &str) {
        if self.is_command() {
            return;
        }
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

    /// Logs the end of a job, with the number of messages that it moved or removed.
    pub fn log_end(&self, target: &str, job: &str, count: u64, state: &str) {
        if self.is_command() {
            return;
        }
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
