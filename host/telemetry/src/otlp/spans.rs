//! Exports spans.

use super::batches::{self, Batches, LAST, WaitingItems};
use super::transport::OtlpTransport;
use super::{Resource, proto};
use crate::publish::ExportEnd;
use bytes::Bytes;
use dispatcher_core::telemetry::trace::SpanReceiver;

/// Exports spans until `end`, and then the rest within 3 s.
pub async fn export_spans(
    receiver: SpanReceiver,
    transport: OtlpTransport,
    resource: Resource,
    batches: Batches,
    end: ExportEnd,
) {
    let waiting = WaitingSpans { receiver, resource };
    batches::export(waiting, transport, batches, end, LAST).await;
}

struct WaitingSpans {
    receiver: SpanReceiver,
    resource: Resource,
}

impl WaitingItems for WaitingSpans {
    async fn half_full(&self) {
        self.receiver.half_full().await;
    }

    fn take(&mut self, most: usize) -> Option<(Bytes, u64)> {
        let spans = self.receiver.take(most);
        let count = spans.len() as u64;
        (count > 0).then(|| {
            let body = proto::traces::request(&self.resource, spans);
            (body.into(), count)
        })
    }

    fn take_dropped(&mut self) -> u64 {
        self.receiver.take_dropped()
    }

    fn clear(&mut self) -> u64 {
        self.receiver.take(usize::MAX).len() as u64
    }

    fn log_lost(&self, reason: Option<&str>, lost: u64) {
        match reason {
            Some(reason) => tracing::warn!(reason, lost, "traces are not exported"),
            None => tracing::warn!(lost, "traces were not exported before the stop"),
        }
    }
}
