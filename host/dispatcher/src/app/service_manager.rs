//! Reports the states of a run to a service manager such as systemd (`Type=notify`): ready,
//! reloading, stopping. Does nothing if `NOTIFY_SOCKET` is not set.

use super::stop::StopPlan;
use sd_notify::NotifyState;
use std::time::Duration;

/// The time beyond the plan of a stop that is requested for the process to end.
const ENDING: Duration = Duration::from_secs(5);

/// The status while messages are handled.
pub(crate) const RUNNING: &str = "handling messages";
/// The status after a reload that changed nothing.
pub(crate) const NOT_RELOADED: &str = "handling messages; settings not reloaded, see the log";

/// Reports that every queue is open, every plugin is compiled, and messages are received.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the settings are being read again. `ready` ends this state.
pub(crate) fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now());
    send(&states);
}

/// Reports that nothing more is received. The service manager then waits at least as long as the
/// stop may take, even if its own limit is shorter.
pub(crate) fn stopping(plan: StopPlan) {
    let longest = plan.total().saturating_add(ENDING);
    let at_most = u32::try_from(longest.as_micros()).unwrap_or(u32::MAX);
    send(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(at_most),
        NotifyState::Status("finishing running attempts"),
    ]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "service manager not notified");
    }
}
