//! A connection and its permit: limits those of one plugin and of all. Knows neither hosts nor
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

/// Guests' connections may use this fraction of the files that the process may open: the rest is
/// for queues, stores and files of guests.
const SHARE: u64 = 4;
/// And no more of them in any case: each takes some 35 KiB.
const MOST: u64 = 4_096;

/// How many connections there may be: of all plugins, and of one among them half as many.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimit {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

/// The place of one connection, released when dropped.
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

    /// Limits the connections of one plugin to this many, beside those of the others: the
    /// configuration says how many it needs.
    pub(crate) fn of_this_many(most: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(most)),
            own: Arc::new(Semaphore::new(most)),
        }
    }

    /// Room for one more, if there is any.
    pub(super) fn take(&self) -> Option<ConnectionPermits> {
        let own = Arc::clone(&self.own).try_acquire_owned().ok()?;
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some([own, all])
    }

    /// Whether there is none.
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
