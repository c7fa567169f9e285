//! Exports metrics. They are cumulative: what a collector misses is in the next export.

use super::proto::metrics::{CountedFor, request};
use super::transport::OtlpTransport;
use super::{OtlpSignal, Resource, UnusableFile};
use crate::telemetry::registry::Registry;
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::telemetry::log_throttle::LogThrottle;

/// What exports metrics, for one process.
#[derive(Debug)]
pub(crate) struct MetricsExport {
    transport: OtlpTransport,
    resource: Resource,
    began: Timestamp,
    logged: LogThrottle,
    /// When the collector wants the next, where it said so.
    not_before: Option<BootInstant>,
}

impl MetricsExport {
    /// Begins to count now.
    ///
    /// # Errors
    /// The certificates for the collector cannot be used.
    pub(crate) fn new(signal: &OtlpSignal, resource: Resource) -> Result<Self, UnusableFile> {
        Ok(Self {
            transport: OtlpTransport::new(signal)?,
            resource,
            began: clock::wall_clock_now(),
            logged: LogThrottle::default(),
            not_before: None,
        })
    }

    /// Sends every metric with its value now, unless the collector wants to be left alone. A failure
    /// is logged at most once a minute.
    pub(crate) async fn send(&mut self, registry: &Registry) {
        if self.not_before.is_none_or(|at| clock::now() >= at) {
            self.send_last(registry).await;
        }
    }

    /// The same whatever the collector wants: there is no later.
    pub(crate) async fn send_last(&mut self, registry: &Registry) {
        let counted = CountedFor::new(self.began, clock::wall_clock_now());
        let resource = self.resource.clone();
        let write = move |families, of_plugins| request(&resource, counted, families, of_plugins);
        let body = registry.written(write).await;
        let Err(failure) = self.transport.send(body.into()).await else {
            return;
        };
        self.not_before = failure.retry_after.map(|after| clock::now() + after);
        if self.logged.should_log(clock::now()) {
            tracing::warn!(reason = failure.reason, "metrics are not exported");
        }
    }
}
