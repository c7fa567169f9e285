//! Limits the connections of one plugin, and of all plugins together. Does not depend on hosts or
//! requests.

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect;
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The divisor of the number of files that the process may open that gives the maximum number of
/// guests' connections. The rest is for queues, stores and files of guests.
const SHARE: u64 = 4;
/// The maximum number of guests' connections in any case. Each takes about 35 KiB.
const MOST: u64 = 4_096;

/// The maximum number of connections of all plugins, and half as many of one of them.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimit {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

/// The permits of one connection, released when dropped.
pub(super) type ConnectionPermits = [OwnedSemaphorePermit; 2];

impl ConnectionLimit {
    /// Limits the connections of all plugins of a process that may open this many files.
    pub(crate) fn of_process(files: u64) -> Self {
        let most = usize::try_from((files / SHARE).clamp(2, MOST)).unwrap_or(usize::MAX);
        Self {
            all: Arc::new(Semaphore::new(most)),
            own: Arc::new(Semaphore::new(most / 2)),
        }
    }

    /// Limits the connections of one plugin among them.
    pub(crate) fn of_plugin(&self) -> Self {
        let most = self.own.available_permits();
        Self {
            all: Arc::clone(&self.all),
            own: Arc::new(Semaphore::new(most)),
        }
    }

    /// Limits the connections of one plugin to this many, separately from those of the other
    /// plugins: the configuration says how many it needs.
    pub(crate) fn of_this_many(most: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(most)),
            own: Arc::new(Semaphore::new(most)),
        }
    }

    /// Takes permits for one more connection, if they are available.
    pub(super) fn take(&self) -> Option<ConnectionPermits> {
        let own = Arc::clone(&self.own).try_acquire_owned().ok()?;
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some([own, all])
    }

    /// Whether no further connection is possible.
    pub(super) fn is_used_up(&self) -> bool {
        self.own.available_permits() == 0 || self.all.available_permits() == 0
    }
}

/// A connection that counts as long as it is open.
pub(super) struct CountedConnection {
    pub(super) stream: TokioIo<TcpStream>,
    pub(super) _taken: ConnectionPermits,
}

impl connect::Connection for CountedConnection {
    fn connected(&self) -> connect::Connected {
        self.stream.connected()
    }
}

impl Read for CountedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl Write for CountedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_follow_the_open_file_limit_and_are_shared_between_plugins() {
        for (files, most) in [(0, 1), (1_024, 128), (u64::MAX, 2_048)] {
            let process = ConnectionLimit::of_process(files);
            let (one, other) = (process.of_plugin(), process.of_plugin());
            let mut taken: Vec<_> = std::iter::from_fn(|| one.take()).collect();
            assert_eq!((taken.len(), one.is_used_up()), (most, true));
            assert!(!other.is_used_up());
            taken.extend(std::iter::from_fn(|| other.take()));
            assert_eq!(taken.len(), 2 * most);
            assert!(process.of_plugin().take().is_none());
            taken.pop();
            assert!(!other.is_used_up() && one.is_used_up());
        }
    }

    #[test]
    fn plugin_with_a_number_of_its_own_takes_nothing_from_the_others() {
        let process = ConnectionLimit::of_process(0);
        let own = ConnectionLimit::of_this_many(3);
        let taken: Vec<_> = std::iter::from_fn(|| own.take()).collect();
        assert_eq!((taken.len(), own.is_used_up()), (3, true));
        assert!(process.of_plugin().take().is_some());
    }
}
