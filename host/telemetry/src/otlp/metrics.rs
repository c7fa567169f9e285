//! Exports metrics. They are cumulative: if a collector misses an export, the next one contains its
//! values.

use super::proto::metrics::{CountedFor, request};
use super::transport::OtlpTransport;
use super::{OtlpSignal, Resource, UnusableFile};
use crate::registry::Registry;
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::telemetry::log_throttle::LogThrottle;

/// The exporter of a process's metrics.
#[derive(Debug)]
pub struct MetricsExport {
    transport: OtlpTransport,
    resource: Resource,
    began: Timestamp,
    logged: LogThrottle,
    /// Whether the last log line said that metrics are not exported.
    is_failing: bool,
    /// The earliest time of the next export, if the collector requested one.
    not_before: Option<BootInstant>,
}

impl MetricsExport {
    /// Creates an exporter whose metrics count from now.
    ///
    /// # Errors
    /// Returns an error if the certificates for the collector cannot be used.
    pub fn new(signal: &OtlpSignal, resource: Resource) -> Result<Self, UnusableFile> {
        Ok(Self {
            transport: OtlpTransport::new(signal)?,
            resource,
            began: clock::wall_clock_now(),
            logged: LogThrottle::default(),
            is_failing: false,
            not_before: None,
        })
    }

    /// Sends every metric with its current value, unless the collector requested a pause. Logs a
    /// failure at most once a minute.
    pub async fn send(&mut self, registry: &Registry) {
        if self.not_before.is_none_or(|at| clock::now() >= at) {
            self.send_last(registry).await;
        }
    }

    /// Sends every metric even during a pause that the collector requested, because it is the last
    /// export.
    pub async fn send_last(&mut self, registry: &Registry) {
        let counted = CountedFor::new(self.began, clock::wall_clock_now());
        let resource = self.resource.clone();
        let body = registry
            .written(move |families, of_plugins| request(&resource, counted, families, of_plugins))
            .await;
        let Err(failure) = self.transport.send(body.into()).await else {
            self.not_before = None;
            if std::mem::take(&mut self.is_failing) {
                tracing::info!("metrics are exported again");
            }
            return;
        };
        self.not_before = failure.retry_after.map(|after| clock::now() + after);
        if self.logged.should_log(clock::now()) {
            self.is_failing = true;
            tracing::warn!(reason = failure.reason, "metrics are not exported");
        }
    }
}
