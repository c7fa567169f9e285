//! The tokio runtime on which guests wait: their timers, their connections, the threads that read
//! their files and resolve names. Separate from that of polls, leases and the stop, because a file
//! that never opens or a name that nobody resolves holds a thread for as long as the system likes.
//! Knows no guest.

use std::io;
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads that guests may block, those of all plugins together: by opening and reading files and by
/// lookups of names. Whoever wants one beyond these waits, no longer than its attempt.
const BLOCKING: usize = 64;

/// The runtime. Ends when dropped, and waits for nobody.
pub(super) struct GuestIo(Option<Runtime>);

impl GuestIo {
    /// Starts its one thread for timers and connections; those that block come as they are needed.
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
