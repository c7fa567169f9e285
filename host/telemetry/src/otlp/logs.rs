//! Exports log lines: each is a record with the same fields as in JSON, and with the ids of its
//! span. Records wait in memory, within a limit; logging never waits for the export.

use super::batches::{self, Batches, LAST_LINES, WaitingItems};
use super::proto::logs::{LogRecord, request};
use super::proto::{AnyValueKind, KeyValue, entry};
use super::transport::OtlpTransport;
use super::{OtlpSignal, Resource, UnusableFile};
use crate::fields::{list, map};
use crate::publish::ExportEnd;
use bytes::Bytes;
use dispatcher_core::clock;
use dispatcher_core::telemetry::trace;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The maximum size of the waiting records in bytes.
const MOST_BYTES: usize = 8 << 20;

/// The records that wait for export. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LogRecords(Arc<SharedRecords>);

#[derive(Debug)]
struct SharedRecords {
    capacity: usize,
    waiting: Mutex<WaitingRecords>,
    dropped: AtomicU64,
    half_full: Notify,
}

#[derive(Debug, Default)]
struct WaitingRecords {
    records: VecDeque<LogRecord>,
    bytes: usize,
}

impl LogRecords {
    /// Creates a buffer for `capacity` records.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(SharedRecords {
            capacity,
            waiting: Mutex::default(),
            dropped: AtomicU64::default(),
            half_full: Notify::default(),
        }))
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingRecords> {
        self.0.waiting.lock()
    }

    fn push(&self, record: LogRecord) {
        let SharedRecords {
            capacity,
            dropped,
            half_full,
            ..
        } = &*self.0;
        let mut waiting = self.waiting();
        let bytes = waiting.bytes + record.size();
        if waiting.records.len() >= *capacity || bytes > MOST_BYTES {
            dropped.fetch_add(1, Relaxed);
            return;
        }
        waiting.bytes = bytes;
        waiting.records.push_back(record);
        let is_half_full = waiting.records.len() * 2 >= *capacity || bytes * 2 >= MOST_BYTES;
        drop(waiting);
        if is_half_full {
            half_full.notify_one();
        }
    }

    /// Exports records until `end`, and then the rest within 1 s.
    ///
    /// # Errors
    /// Returns an error if the certificates for the collector cannot be used.
    pub fn export(
        self,
        signal: &OtlpSignal,
        resource: Resource,
        batches: Batches,
        end: ExportEnd,
    ) -> Result<impl Future<Output = ()> + use<>, UnusableFile> {
        let transport = OtlpTransport::new(signal)?;
        let records = self;
        let waiting = WaitingLogs { records, resource };
        Ok(batches::export(
            waiting, transport, batches, end, LAST_LINES,
        ))
    }
}

impl<S: Subscriber> Layer<S> for LogRecords {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let (severity, level) = severity(*metadata.level());
        let target = AnyValueKind::Text(metadata.target().to_owned());
        fields.attributes.push(entry("target", target));
        let now = clock::wall_clock_now().0.saturating_mul(1_000_000);
        let context = trace::active_context();
        self.push(LogRecord::new(
            now,
            severity,
            level,
            fields.message,
            fields.attributes,
            (metadata.target(), context),
        ));
    }
}

/// Returns the number of a level in OTLP, and its name.
fn severity(level: Level) -> (i32, &'static str) {
    let number = match level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    };
    (number, level.as_str())
}

#[derive(Default)]
struct LogFields {
    message: String,
    attributes: Vec<KeyValue>,
}

impl LogFields {
    fn add(&mut self, field: &Field, value: AnyValueKind) {
        match (field.name(), value) {
            ("message", AnyValueKind::Text(message)) => self.message = message,
            (name, value) => self.attributes.push(entry(name, value)),
        }
    }
}

impl Visit for LogFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, AnyValueKind::Fraction(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, AnyValueKind::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.add(field, AnyValueKind::Number(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, AnyValueKind::Flag(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, AnyValueKind::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        let value = if let Some(list) = list(field, &text) {
            AnyValueKind::list(list)
        } else if let Some(map) = map(field, &text) {
            AnyValueKind::map(map)
        } else {
            AnyValueKind::Text(text)
        };
        self.add(field, value);
    }
}

struct WaitingLogs {
    records: LogRecords,
    resource: Resource,
}

impl WaitingItems for WaitingLogs {
    async fn half_full(&self) {
        self.records.0.half_full.notified().await;
    }

    fn take(&mut self, most: usize) -> Option<(Bytes, u64)> {
        let mut waiting = self.records.waiting();
        let count = waiting.records.len().min(most);
        let records: Vec<LogRecord> = waiting.records.drain(..count).collect();
        waiting.bytes -= records.iter().map(LogRecord::size).sum::<usize>();
        drop(waiting);
        (count > 0).then(|| (request(&self.resource, records).into(), count as u64))
    }

    fn take_dropped(&mut self) -> u64 {
        self.records.0.dropped.swap(0, Relaxed)
    }

    fn clear(&mut self) -> u64 {
        let cleared = std::mem::take(&mut *self.records.waiting());
        cleared.records.len() as u64
    }

    fn log_lost(&self, reason: Option<&str>, lost: u64) {
        match reason {
            Some(reason) => tracing::warn!(reason, lost, "logs are not exported"),
            None => tracing::warn!(lost, "logs were not exported before the stop"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn records_that_do_not_fit_are_counted() {
        let records = LogRecords::new(2);
        let subscriber = tracing_subscriber::registry().with(records.clone());
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..5 {
                tracing::info!(number, "a line");
            }
        });
        let mut waiting = WaitingLogs {
            records: records.clone(),
            resource: Resource::new(),
        };
        assert_eq!(waiting.take_dropped(), 3);
        assert_eq!(waiting.take(10).map(|(_, count)| count), Some(2));
        assert_eq!((waiting.take(10), records.waiting().bytes), (None, 0));
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(records.clone()),
            || {
                tracing::info!(text = "x".repeat(MOST_BYTES), "too long");
            },
        );
        assert_eq!((waiting.take_dropped(), waiting.clear()), (1, 0));
    }
}
