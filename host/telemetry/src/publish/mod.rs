//! Publishes reports to a sink. Reports are drained on time, sent when the sink accepts them, and
//! dropped if there are too many. Knows the sinks, and uses meters and routes only to read their
//! values.

use super::routes::{CIRCUIT_OPEN, Routes};
use async_trait::async_trait;
use dispatcher_aws::cloudwatch::{CloudWatch, Datum, PutError};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_core::telemetry::metrics::queue::{CloudWatchUnit, Datapoint, datapoints};
use dispatcher_core::telemetry::metrics::{Meters, Report};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The maximum number of reports that are kept while the sink fails: a quarter of an hour at the
/// default interval.
const MOST_KEPT: usize = 15;

/// The time limit of the last report after the stop. The whole stop must take at most 28 s by
/// default.
const LAST: Duration = Duration::from_secs(3);

/// The time limit after the stop of a report that was already being sent.
const HUNG: Duration = Duration::from_secs(1);

/// The signals with which the owner of an export ends it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ExportEnd {
    /// No more items follow; the rest is sent.
    pub over: CancellationToken,
    /// The time is over; the rest is dropped.
    pub cut: CancellationToken,
}

impl ExportEnd {
    /// Waits until the time for the rest is over: `last` after `over`, or the cut.
    pub async fn is_late(&self, last: Duration) {
        self.over.cancelled().await;
        tokio::select! {
            () = self.cut.cancelled() => {}
            () = clock::sleep_until(Some(clock::now() + last)) => {}
        }
    }
}

/// The reason why a part was not sent. The text is one line for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The sink will never accept this part.
    Refused(String),
    /// The sink may accept it later.
    Failed(String),
}

/// The destination of reports.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// The unit that is sent at once, which arrives completely or not at all. A part without a
    /// response is sent again, so its values may be counted twice, but are never missing.
    type Part: Send + Sync;

    /// Splits a report into parts, in the order of sending.
    fn parts(&self, report: Report) -> Vec<Self::Part>;

    /// Sends one part. Returns within seconds.
    async fn send(&self, part: &Self::Part) -> Result<(), SendError>;
}

/// Returns the storage resolution of CloudWatch for an interval: a second (1) or a minute (60).
pub fn resolution_s(interval: Duration) -> u8 {
    if interval < Duration::from_secs(60) {
        1
    } else {
        60
    }
}

/// The published values of one queue, of one route, or of all together.
pub struct PublishedRow<'a> {
    /// The name and value of the dimension; `None` for all together.
    pub dimension: Option<(&'static str, &'a str)>,
    /// The values, at least one.
    pub points: Vec<Datapoint>,
}

/// Returns the rows of a report: each queue, each route, and all together.
pub fn rows(report: &Report) -> Vec<PublishedRow<'_>> {
    let queues = report.queues.iter().map(|(name, interval)| PublishedRow {
        dimension: Some(("Queue", &**name)),
        points: datapoints(interval),
    });
    let routes = report.circuits.iter().map(|(name, is_open)| PublishedRow {
        dimension: Some(("Route", &**name)),
        points: vec![circuit(usize::from(*is_open))],
    });
    let open = report.circuits.iter().filter(|(_, is_open)| *is_open);
    let of_all = (!report.circuits.is_empty()).then(|| circuit(open.count()));
    let all = PublishedRow {
        dimension: None,
        points: datapoints(&report.total)
            .into_iter()
            .chain(of_all)
            .collect(),
    };
    queues.chain(routes).chain([all]).collect()
}

fn circuit(open: usize) -> Datapoint {
    Datapoint {
        name: CIRCUIT_OPEN,
        unit: CloudWatchUnit::Count,
        values: vec![(open as f64, 1)],
    }
}

/// The sources of the published values.
#[derive(Debug, Clone, Default)]
pub struct ReportSources {
    /// The queues.
    pub meters: Arc<Meters>,
    /// The routes.
    pub routes: Arc<Routes>,
}

impl ReportSources {
    /// Returns the values since the last call. Only one reader may call it.
    fn drain(&self) -> Report {
        Report {
            circuits: self.routes.circuits(),
            ..self.meters.drain(clock::wall_clock_now())
        }
    }
}

/// A sink for CloudWatch.
#[derive(Debug)]
pub struct ToCloudWatch {
    /// The client for CloudWatch.
    pub client: CloudWatch,
    /// The storage resolution, 1 or 60; see `resolution_s`.
    pub resolution_s: u8,
}

#[async_trait]
impl Sink for ToCloudWatch {
    type Part = Vec<Datum>;

    fn parts(&self, report: Report) -> Vec<Self::Part> {
        let data = rows(&report).into_iter().flat_map(|row| {
            row.points.into_iter().map(move |point| Datum {
                name: point.name,
                unit: point.unit.name(),
                dimension: row.dimension.map(|(name, value)| (name, value.to_owned())),
                at_ms: report.at.0,
                resolution_s: self.resolution_s.into(),
                values: point.values,
            })
        });
        CloudWatch::parts(data.collect())
    }

    async fn send(&self, part: &Self::Part) -> Result<(), SendError> {
        self.client.put(part).await.map_err(|error| match error {
            PutError::Refused(words) => SendError::Refused(words),
            PutError::Failed(words) => SendError::Failed(words),
        })
    }
}

/// Publishes a report every `interval` until `end`, and then a last one within 3 s. After a
/// failure, it retries with the next report. Unsent reports are kept with their own dates, up to
/// 15; then the oldest are dropped. A slow sink delays only the next report, which then covers a
/// longer time. Wakes up once per interval.
pub async fn publish<S: Sink>(
    sink: S,
    measured: ReportSources,
    interval: Duration,
    end: ExportEnd,
) {
    publish_with(sink, measured, interval, end, LAST).await;
}

/// Publishes with the time limit `last` for the last report.
async fn publish_with<S: Sink>(
    sink: S,
    measured: ReportSources,
    interval: Duration,
    end: ExportEnd,
    last: Duration,
) {
    let mut backlog = Backlog::new(sink);
    let mut late = pin!(end.is_late(last));
    // A sink that already hangs at the stop will not accept another report.
    let mut hung = pin!(end.is_late(last.min(HUNG)));
    let mut next = clock::now() + interval;
    while !end.over.is_cancelled() {
        tokio::select! {
            () = clock::sleep_until(Some(next)) => {}
            () = end.over.cancelled() => break,
        }
        next = after(next, interval, clock::now());
        backlog.keep(measured.drain());
        tokio::select! {
            biased;
            () = backlog.send() => {}
            () = &mut hung => return backlog.log_lost(),
        }
    }
    backlog.keep(measured.drain());
    tokio::select! {
        biased;
        () = backlog.send() => {}
        () = &mut late => {}
    }
    backlog.log_lost();
}

/// Returns the next tick. If it was missed, returns one interval after `now`.
fn after(tick: BootInstant, interval: Duration, now: BootInstant) -> BootInstant {
    let mut next = tick + interval;
    if next <= now {
        next = now + interval;
    }
    next
}

/// Reports that have not been sent.
#[derive(Debug)]
struct Backlog<S: Sink> {
    sink: S,
    /// The unsent parts of each report, the oldest first.
    reports: VecDeque<VecDeque<S::Part>>,
    /// The number of dropped and refused items since the last log line.
    lost: usize,
    said: LogThrottle,
    /// Whether the last log line said that metrics are not published.
    is_failing: bool,
}

impl<S: Sink> Backlog<S> {
    fn new(sink: S) -> Self {
        Self {
            sink,
            reports: VecDeque::new(),
            lost: 0,
            said: LogThrottle::default(),
            is_failing: false,
        }
    }

    fn keep(&mut self, report: Report) {
        self.reports.push_back(self.sink.parts(report).into());
        if self.reports.len() > MOST_KEPT {
            self.reports.pop_front();
            self.lost += 1;
        }
    }

    /// Sends parts, the oldest first, up to the first failure. Cancel-safe: a part leaves the
    /// backlog only after it is sent.
    async fn send(&mut self) {
        let mut took_all = true;
        while let Some(report) = self.reports.front_mut() {
            let Some(part) = report.front() else {
                self.reports.pop_front();
                continue;
            };
            match self.sink.send(part).await {
                Ok(()) => drop(report.pop_front()),
                Err(SendError::Refused(reason)) => {
                    report.pop_front();
                    took_all = false;
                    self.lost += 1;
                    self.log_failure(&reason);
                }
                Err(SendError::Failed(reason)) => return self.log_failure(&reason),
            }
        }
        if took_all {
            self.log_recovery();
        }
    }

    fn log_failure(&mut self, reason: &str) {
        if self.said.should_log(clock::now()) {
            let (waiting, lost) = (self.reports.len(), std::mem::take(&mut self.lost));
            self.is_failing = true;
            tracing::warn!(reason, waiting, lost, "metrics are not published");
        }
    }

    /// Logs that the sink accepts metrics again, if a failure was logged.
    fn log_recovery(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            let lost = std::mem::take(&mut self.lost);
            tracing::info!(lost, "metrics are published again");
        }
    }

    /// Logs the number of reports that will never arrive, at the end.
    fn log_lost(&self) {
        let lost = self.lost + self.reports.len();
        if lost > 0 {
            tracing::warn!(lost, "metrics were not published before the stop");
        }
    }
}

#[cfg(test)]
mod tests;
