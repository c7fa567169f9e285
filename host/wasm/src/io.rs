//! The tokio runtime on which guests wait: their timers, their connections, and the threads that
//! read their files and resolve names. It is separate from the runtime of polls, leases and the
//! stop, because a file that never opens or a name that is never resolved holds a thread until the
//! system answers. Does not depend on guests.

use std::io;
use tokio::runtime::{Builder, Handle, Runtime};

/// The maximum number of threads that the guests of all plugins may block together, by opening and
/// reading files and by looking up names. Further calls wait, but no longer than their attempt.
const BLOCKING: usize = 64;

/// The runtime. Dropping it ends it without waiting.
pub(super) struct GuestIo(Option<Runtime>);

impl GuestIo {
    /// Starts its only thread for timers and connections. Blocking threads start on demand.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING)
            .thread_name("guest-io")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    pub(super) fn handle(&self) -> &Handle {
        let runtime = self.0.as_ref();
        runtime.expect("it is taken by the drop alone").handle()
    }
}

impl Drop for GuestIo {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
