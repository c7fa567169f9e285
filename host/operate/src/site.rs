//! The port on which operations run. A run, `dispatcher local`, and a command with the stores of
//! queues implement it. Another process runs whole operations over HTTP.

use crate::fleet::{FoundMessages, LogLevelResult};
use crate::messages::MessageOperations;
use crate::objects::{ReloadResult, ReloadedSettings};
use crate::operations::{CancelResult, ControlResult, ScheduleResult};
use crate::problem::{CallProblem, StatusCode};
use dispatcher_core::control::ControlChange;
use dispatcher_core::fleet::control::{FleetRequest, LimitChange};

/// The site where operations run. It refuses operations that it does not support. All calls may run
/// concurrently; those that are not `async` answer from memory.
#[async_trait::async_trait]
pub trait Site: Send + Sync + 'static {
    /// Returns the operations on messages of its queues.
    fn messages(&self) -> &dyn MessageOperations;

    /// Pauses a queue, or changes its limits.
    async fn change_queue(
        &self,
        queue: &str,
        change: &ControlChange,
    ) -> Result<ControlResult, CallProblem>;

    /// Cancels a message by its id: in this process if it runs here, otherwise through its queue if
    /// the queue supports that.
    async fn cancel_message(&self, queue: &str, id: &str) -> Result<CancelResult, CallProblem>;

    /// Makes a scheduled message due at once.
    async fn run_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem>;

    /// Cancels a scheduled message.
    async fn cancel_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem>;

    /// Pauses a route, or changes its concurrency or prefetch.
    async fn change_route(
        &self,
        _route: &str,
        _change: &ControlChange,
    ) -> Result<ControlResult, CallProblem> {
        Err(no_routes("ask one that does"))
    }

    /// Changes the weight of a tenant of a route; `None` resets it to the configured one.
    async fn change_weight(
        &self,
        _route: &str,
        _tenant: &str,
        _weight: Option<u32>,
    ) -> Result<ControlResult, CallProblem> {
        Err(no_routes("ask one that does"))
    }

    /// Changes the numbers of a limit, or of one of its keys, for all processes of the fleet.
    async fn change_limit(
        &self,
        _limit: &str,
        _key: Option<String>,
        _change: &LimitChange,
    ) -> Result<ControlResult, CallProblem> {
        Err(no_routes("ask one that does"))
    }

    /// Changes the log level of all processes of the fleet, or resets it to the configured one.
    async fn change_log_level(
        &self,
        _level: Option<String>,
    ) -> Result<LogLevelResult, CallProblem> {
        Err(no_routes("ask one that does"))
    }

    /// Asks all processes of the fleet for a message that runs, and cancels it if requested.
    async fn find_message(&self, _request: FleetRequest) -> Result<FoundMessages, CallProblem> {
        Err(no_routes("ask one that does"))
    }

    /// Stops an attempt. Its messages are deleted.
    fn cancel_attempt(&self, _id: &str) -> Result<CancelResult, CallProblem> {
        Err(no_routes("it has no attempts"))
    }

    /// Checks the files of all plugins, and runs new versions. Returns how many were replaced, with
    /// a report on each.
    async fn reload_plugins(&self) -> Result<(u64, ReloadResult), CallProblem> {
        Err(CallProblem::not_found("No plugin can be replaced here."))
    }

    /// Reads the settings again and applies them, as SIGHUP does.
    async fn reload(&self) -> Result<ReloadedSettings, CallProblem> {
        let why = "This process has no --config file to reload.";
        Err(CallProblem::new(StatusCode::CONFLICT, why))
    }

    /// Rolls back the canary of a route. Returns its name.
    async fn roll_back(&self, _route: &str) -> Result<String, CallProblem> {
        Err(CallProblem::not_found("No plugin runs here."))
    }

    /// Begins the stop of this process, as SIGTERM does. Returns false if it had already begun.
    fn drain(&self) -> bool {
        false
    }
}

/// Returns the problem of an operation that needs a process with routes.
fn no_routes(what: &str) -> CallProblem {
    let why = format!("This process runs no route: {what}.");
    CallProblem::new(StatusCode::CONFLICT, why)
}
