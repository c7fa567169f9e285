//! Sends waiting items in batches. If the collector is unavailable, slow or broken, only one batch
//! is kept in addition to the waiting items, and one line per minute is logged; items that do not
//! fit are dropped and counted. Knows no signal.

use super::transport::OtlpTransport;
use crate::publish::ExportEnd;
use bytes::Bytes;
use dispatcher_core::backoff;
use dispatcher_core::clock;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The first and the longest delay before a batch is sent again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The maximum number of times that a batch is sent.
const TRIES: u32 = 5;
/// The time limit of the last batches after the stop. The whole stop must take at most 28 s by
/// default.
pub const LAST: Duration = Duration::from_secs(3);
/// The time limit of the last log lines, since the log continues until everything else has ended.
pub(super) const LAST_LINES: Duration = Duration::from_secs(1);

/// The batch settings of spans and log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// The maximum number of waiting items.
    pub capacity: usize,
    /// The maximum number of items in one request.
    pub most: usize,
    /// The longest time that an item waits for others.
    pub delay: Duration,
}

impl Batches {
    /// Returns the defaults of the specification with this delay, which differs between signals.
    pub const fn within(delay: Duration) -> Self {
        Self {
            capacity: 2_048,
            most: 512,
            delay,
        }
    }
}

/// The items that wait for export.
pub(super) trait WaitingItems {
    /// Returns when at least half of the capacity is used.
    async fn half_full(&self);

    /// Returns the next items as the body of a request, with their number; `None` if no item waits.
    fn take(&mut self, most: usize) -> Option<(Bytes, u64)>;

    /// Returns how many items did not fit since the last call.
    fn take_dropped(&mut self) -> u64;

    /// Removes all waiting items and returns their number.
    fn clear(&mut self) -> u64;

    /// Logs the number of items that will never arrive, with the reason if it is known.
    fn log_lost(&self, reason: Option<&str>, lost: u64);
}

/// Exports waiting items until `end`, and then the rest, which may take up to `last`.
pub(super) async fn export(
    waiting: impl WaitingItems,
    transport: OtlpTransport,
    batches: Batches,
    end: ExportEnd,
    last: Duration,
) {
    let mut export = BatchExport {
        waiting,
        transport,
        most: batches.most.max(1),
        logged: LogThrottle::default(),
        pending: 0,
        lost: 0,
    };
    tokio::select! {
        biased;
        () = export.run(batches.delay, &end.over) => {}
        () = end.is_late(last) => {}
    }
    export.log_rest();
}

struct BatchExport<W> {
    waiting: W,
    transport: OtlpTransport,
    most: usize,
    logged: LogThrottle,
    /// The number of items in the current request.
    pending: u64,
    /// The number of lost items since the last log line.
    lost: u64,
}

impl<W: WaitingItems> BatchExport<W> {
    /// Sends batches as they fill, and returns when the last ones are sent after `over`.
    async fn run(&mut self, delay: Duration, over: &CancellationToken) {
        loop {
            tokio::select! {
                () = over.cancelled() => {}
                () = self.waiting.half_full() => {}
                () = clock::sleep_until(Some(clock::now() + delay)) => {}
            }
            let is_last = over.is_cancelled();
            self.send_all(over).await;
            if is_last {
                return;
            }
        }
    }

    /// Sends all waiting items, batch by batch.
    async fn send_all(&mut self, over: &CancellationToken) {
        while let Some((batch, count)) = self.waiting.take(self.most) {
            self.pending = count;
            let arrived = self.send(batch, over).await;
            self.pending = 0;
            self.lost += self.waiting.take_dropped();
            if self.lost > 0 && arrived {
                self.log_failure("the collector accepts less than there is to send");
            }
        }
    }

    /// Sends one batch, and again after a temporary failure, but not before the collector's
    /// `Retry-After`. Returns whether the whole batch arrived; counts the lost items.
    async fn send(&mut self, body: Bytes, over: &CancellationToken) -> bool {
        let mut tries = 0;
        loop {
            let Err(failure) = self.transport.send(body.clone()).await else {
                return true;
            };
            tries += 1;
            if !failure.may_pass || tries == TRIES || over.is_cancelled() {
                let pending = std::mem::take(&mut self.pending);
                let rejected = failure.rejected.map(|rejected| rejected.min(pending));
                self.lost += rejected.unwrap_or(pending);
                self.log_failure(&failure.reason);
                return false;
            }
            self.log_failure(&failure.reason);
            let pause = failure
                .retry_after
                .unwrap_or_else(|| backoff::ceiling(AGAIN.0, AGAIN.1, tries));
            tokio::select! {
                () = over.cancelled() => {}
                () = clock::sleep_until(Some(clock::now() + pause)) => {}
            }
        }
    }

    fn log_failure(&mut self, reason: &str) {
        if self.logged.should_log(clock::now()) {
            self.lost += self.waiting.take_dropped();
            let lost = std::mem::take(&mut self.lost);
            self.waiting.log_lost(Some(reason), lost);
        }
    }

    /// Logs the number of items that never arrived, at the end.
    fn log_rest(&mut self) {
        let waiting = self.waiting.clear();
        let lost = self.lost + self.pending + waiting + self.waiting.take_dropped();
        if lost > 0 {
            self.waiting.log_lost(None, lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::OtlpSignal;
    use dispatcher_core::tasks;
    use std::sync::{Arc, Mutex};
    use tokio::net::TcpListener;

    /// One batch of three, and what is logged as lost.
    struct Three {
        left: Option<Bytes>,
        lost: Arc<Mutex<Vec<u64>>>,
    }

    impl WaitingItems for Three {
        async fn half_full(&self) {
            std::future::pending().await
        }

        fn take(&mut self, _: usize) -> Option<(Bytes, u64)> {
            Some((self.left.take()?, 3))
        }

        fn take_dropped(&mut self) -> u64 {
            0
        }

        fn clear(&mut self) -> u64 {
            0
        }

        fn log_lost(&self, _: Option<&str>, lost: u64) {
            self.lost.lock().expect("no panic").push(lost);
        }
    }

    #[tokio::test]
    async fn cut_ends_a_last_batch_that_is_never_answered_and_counts_it() {
        let collector = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = collector.local_addr().expect("it is bound");
        let transport = OtlpTransport::new(&OtlpSignal {
            url: format!("http://{address}/v1/traces"),
            headers: Default::default(),
            timeout: Duration::from_secs(3_600),
            is_compressed: false,
            ca_file: None,
            identity: None,
        });
        let lost = Arc::default();
        let waiting = Three {
            left: Some(Bytes::from_static(b"spans")),
            lost: Arc::clone(&lost),
        };
        let end = ExportEnd::default();
        let hour = Duration::from_secs(3_600);
        let exporting = tasks::spawn(export(
            waiting,
            transport.expect("plain HTTP"),
            Batches::within(hour),
            end.clone(),
            hour,
        ));
        end.over.cancel();
        // The request is under way, and nobody will answer it.
        let _connection = collector.accept().await.expect("it connects");
        end.cut.cancel();
        exporting.finished().await;
        assert_eq!(*lost.lock().expect("no panic"), [3]);
    }
}
