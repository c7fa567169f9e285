//! Publishes reports to a sink: drained on time, sent when the sink can, dropped when there are too
//! many. Knows the sinks, and of meters only that they can be drained.

use async_trait::async_trait;
use dispatcher_aws::cloudwatch::{CloudWatch, Datum, PutError};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_core::telemetry::metrics::{Meters, Report, queue as queue_metrics};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// This many reports are kept while the sink fails: a quarter of an hour at the usual interval.
const MOST_KEPT: usize = 15;

/// How long the last report may take after the stop, which is to be over within 28 s by default.
const LAST: Duration = Duration::from_secs(3);

/// How long a report may take after the stop that was running before.
const HUNG: Duration = Duration::from_secs(1);

/// How the owner of an export ends it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExportEnd {
    /// Nothing more comes: what is left is sent.
    pub over: CancellationToken,
    /// Time is up: what is still left is dropped.
    pub cut: CancellationToken,
}

impl ExportEnd {
    /// Waits until the rest may take no longer: `last` after `over`, or the cut.
    pub(crate) async fn is_late(&self, last: Duration) {
        self.over.cancelled().await;
        tokio::select! {
            () = self.cut.cancelled() => {}
            () = clock::sleep_until(Some(clock::now() + last)) => {}
        }
    }
}

/// Why a part was not sent. The text is one line for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The sink will never take this part.
    Refused(String),
    /// It may take it later.
    Failed(String),
}

/// Where reports go.
#[async_trait]
pub(crate) trait Sink: Send + Sync + 'static {
    /// What is sent at once: it arrives whole or not at all. One that got no answer is sent again,
    /// so what it holds may be counted twice, and is not left out.
    type Part: Send + Sync;

    /// A report as parts, in the order in which they are to be sent.
    fn parts(&self, report: Report) -> Vec<Self::Part>;

    /// Sends one part. Comes back within seconds.
    async fn send(&self, part: &Self::Part) -> Result<(), SendError>;
}

/// How finely CloudWatch is to keep what is published so often: by the second (1) or the minute (60).
pub(crate) fn resolution_s(interval: Duration) -> u8 {
    if interval < Duration::from_secs(60) {
        1
    } else {
        60
    }
}

/// CloudWatch as a sink.
#[derive(Debug)]
pub(crate) struct ToCloudWatch {
    /// Where to.
    pub client: CloudWatch,
    /// 1 or 60, see `resolution_s`.
    pub resolution_s: u8,
}

#[async_trait]
impl Sink for ToCloudWatch {
    type Part = Vec<Datum>;

    fn parts(&self, report: Report) -> Vec<Self::Part> {
        let rows = report.rows();
        let data = rows.flat_map(|(queue, interval)| {
            let metrics = queue_metrics::datapoints(interval).into_iter();
            metrics.map(move |metric| Datum {
                name: metric.name,
                unit: metric.unit.name(),
                queue: queue.map(|name| (**name).to_owned()),
                at_ms: report.at.0,
                resolution_s: self.resolution_s.into(),
                values: metric.values,
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

/// Publishes a report every `interval` until `end`, and then a last one, for which there are 3 s.
/// A sink that fails is retried with the next report; what it has not taken is kept, with its
/// own date, for 15 reports, and then given up from the oldest on. Nothing waits for it but the
/// next report, which then covers a longer time. Wakes once an interval.
pub(crate) async fn publish<S: Sink>(
    sink: S,
    meters: Arc<Meters>,
    interval: Duration,
    end: ExportEnd,
) {
    publish_with(sink, meters, interval, end, LAST).await;
}

/// Publishes with this much time, `last`, for the last report.
async fn publish_with<S: Sink>(
    sink: S,
    meters: Arc<Meters>,
    interval: Duration,
    end: ExportEnd,
    last: Duration,
) {
    let mut backlog = Backlog::new(sink);
    let mut late = pin!(end.is_late(last));
    // A sink that hangs at the stop already is not going to take another report.
    let mut hung = pin!(end.is_late(last.min(HUNG)));
    let mut next = clock::now() + interval;
    while !end.over.is_cancelled() {
        tokio::select! {
            () = clock::sleep_until(Some(next)) => {}
            () = end.over.cancelled() => break,
        }
        next = after(next, interval, clock::now());
        backlog.keep(meters.drain(clock::wall_clock_now()));
        tokio::select! {
            biased;
            () = backlog.send() => {}
            () = &mut hung => return backlog.log_lost(),
        }
    }
    backlog.keep(meters.drain(clock::wall_clock_now()));
    tokio::select! {
        biased;
        () = backlog.send() => {}
        () = &mut late => {}
    }
    backlog.log_lost();
}

/// The next tick after `now`: ticks that were missed are left out, the rhythm is kept.
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
    /// Oldest first; of each what is left of it.
    reports: VecDeque<VecDeque<S::Part>>,
    /// How many were dropped or refused since that was last logged.
    lost: usize,
    said: LogThrottle,
}

impl<S: Sink> Backlog<S> {
    fn new(sink: S) -> Self {
        Self {
            sink,
            reports: VecDeque::new(),
            lost: 0,
            said: LogThrottle::default(),
        }
    }

    fn keep(&mut self, report: Report) {
        self.reports.push_back(self.sink.parts(report).into());
        if self.reports.len() > MOST_KEPT {
            self.reports.pop_front();
            self.lost += 1;
        }
    }

    /// Sends what it can, oldest first, up to the first failure. Safe to drop: a part leaves the
    /// backlog only once it is sent.
    async fn send(&mut self) {
        while let Some(report) = self.reports.front_mut() {
            let Some(part) = report.front() else {
                self.reports.pop_front();
                continue;
            };
            match self.sink.send(part).await {
                Ok(()) => drop(report.pop_front()),
                Err(SendError::Refused(reason)) => {
                    report.pop_front();
                    self.lost += 1;
                    self.log_failure(&reason);
                }
                Err(SendError::Failed(reason)) => return self.log_failure(&reason),
            }
        }
    }

    fn log_failure(&mut self, reason: &str) {
        if self.said.should_log(clock::now()) {
            let (waiting, lost) = (self.reports.len(), std::mem::take(&mut self.lost));
            tracing::warn!(reason, waiting, lost, "metrics are not published");
        }
    }

    /// Says what will never arrive. For the end.
    fn log_lost(&self) {
        let lost = self.lost + self.reports.len();
        if lost > 0 {
            tracing::warn!(lost, "metrics were not published before the stop");
        }
    }
}

#[cfg(test)]
mod tests;
