//! Exports spans in batches. A collector that is away, slow or broken costs one batch beside what the
//! queue holds, and one log line a minute; what does not fit is dropped and counted.

use super::transport::OtlpTransport;
use super::{Resource, proto};
use crate::telemetry::publish::SendError;
use dispatcher_core::backoff;
use dispatcher_core::clock;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_core::telemetry::trace::SpanReceiver;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The first and the longest pause before a batch is sent again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How often a batch is sent.
const TRIES: u32 = 5;
/// How long the last spans may take after the stop, which is to be over within 28 s by default.
const LAST: Duration = Duration::from_secs(3);

/// How spans are batched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanBatches {
    /// Maximum spans that wait.
    pub capacity: usize,
    /// Maximum spans of one request.
    pub most: usize,
    /// How long a span waits for others.
    pub delay: Duration,
}

impl Default for SpanBatches {
    /// As the specification has it.
    fn default() -> Self {
        Self {
            capacity: 2_048,
            most: 512,
            delay: Duration::from_secs(5),
        }
    }
}

/// Exports spans until `over`, and then those that are left, for which there are 3 s.
pub async fn export_spans(
    receiver: SpanReceiver,
    transport: OtlpTransport,
    resource: Resource,
    batches: SpanBatches,
    over: CancellationToken,
) {
    let mut export = SpanExport {
        receiver,
        transport,
        resource,
        most: batches.most.max(1),
        logged: LogThrottle::default(),
        pending: 0,
        lost: 0,
    };
    let end = async {
        over.cancelled().await;
        clock::sleep_until(Some(clock::now() + LAST)).await;
    };
    tokio::select! {
        biased;
        () = export.run(batches.delay, &over) => {}
        () = end => {}
    }
    export.log_rest();
}

struct SpanExport {
    receiver: SpanReceiver,
    transport: OtlpTransport,
    resource: Resource,
    most: usize,
    logged: LogThrottle,
    /// Spans on their way.
    pending: u64,
    /// Spans that no collector will get, since that was last logged.
    lost: u64,
}

impl SpanExport {
    /// Sends spans as they come, and returns when the last are sent after `over`.
    async fn run(&mut self, delay: Duration, over: &CancellationToken) {
        loop {
            tokio::select! {
                () = over.cancelled() => {}
                () = self.receiver.half_full() => {}
                () = clock::sleep_until(Some(clock::now() + delay)) => {}
            }
            let is_last = over.is_cancelled();
            self.send_all(over).await;
            if is_last {
                return;
            }
        }
    }

    /// Sends what waits, batch by batch.
    async fn send_all(&mut self, over: &CancellationToken) {
        loop {
            let spans = self.receiver.take(self.most);
            if spans.is_empty() {
                return;
            }
            self.pending = spans.len() as u64;
            let arrived = self.send(proto::traces(&self.resource, spans), over).await;
            let pending = std::mem::take(&mut self.pending);
            if !arrived {
                self.lost += pending;
            }
            self.lost += self.receiver.take_dropped();
            if self.lost > 0 && arrived {
                self.log_failure("the collector takes fewer spans than there are");
            }
        }
    }

    /// Sends one batch, again after a failure that may pass. Whether it arrived.
    async fn send(&mut self, body: Vec<u8>, over: &CancellationToken) -> bool {
        for tries in 1..=TRIES {
            let (reason, may_pass) = match self.transport.send(body.clone()).await {
                Ok(()) => return true,
                Err(SendError::Failed(reason)) => (reason, tries < TRIES),
                Err(SendError::Refused(reason)) => (reason, false),
            };
            self.log_failure(&reason);
            if !may_pass || over.is_cancelled() {
                return false;
            }
            let pause = backoff::ceiling(AGAIN.0, AGAIN.1, tries);
            tokio::select! {
                () = over.cancelled() => {}
                () = clock::sleep_until(Some(clock::now() + pause)) => {}
            }
        }
        false
    }

    fn log_failure(&mut self, reason: &str) {
        if self.logged.should_log(clock::now()) {
            self.lost += self.receiver.take_dropped();
            let lost = std::mem::take(&mut self.lost);
            tracing::warn!(reason, lost, "traces are not exported");
        }
    }

    /// Logs what never arrived. For the end.
    fn log_rest(&mut self) {
        let waiting = self.receiver.take(usize::MAX).len() as u64;
        let lost = self.lost + self.pending + waiting + self.receiver.take_dropped();
        if lost > 0 {
            tracing::warn!(lost, "traces were not exported before the stop");
        }
    }
}
