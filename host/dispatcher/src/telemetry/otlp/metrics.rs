//! Exports metrics. They are cumulative: what a collector misses is in the next export.

use super::proto::metrics::{CountedFor, request};
use super::transport::OtlpTransport;
use super::{OtlpSignal, Resource};
use crate::telemetry::publish::SendError;
use crate::telemetry::registry::Registry;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::telemetry::log_throttle::LogThrottle;

/// What exports metrics, for one process.
#[derive(Debug)]
pub(crate) struct MetricsExport {
    transport: OtlpTransport,
    resource: Resource,
    began: Timestamp,
    logged: LogThrottle,
}

impl MetricsExport {
    /// Begins to count now.
    ///
    /// # Errors
    /// The certificates or headers for the collector cannot be used.
    pub(crate) fn new(signal: &OtlpSignal, resource: Resource) -> Result<Self, String> {
        Ok(Self {
            transport: OtlpTransport::new(signal)?,
            resource,
            began: clock::wall_clock_now(),
            logged: LogThrottle::default(),
        })
    }

    /// Sends every metric with its value now. A failure is logged at most once a minute.
    pub(crate) async fn send(&mut self, registry: &Registry) {
        let counted = CountedFor::new(self.began, clock::wall_clock_now());
        let of_plugins = registry.counters.of_plugins.all();
        let body = request(&self.resource, counted, registry.families(), of_plugins);
        let Err(SendError::Failed(reason) | SendError::Refused(reason)) =
            self.transport.send(body.into()).await
        else {
            return;
        };
        if self.logged.should_log(clock::now()) {
            tracing::warn!(reason, "metrics are not exported");
        }
    }
}
