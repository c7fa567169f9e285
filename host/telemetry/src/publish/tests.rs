//! Publishing to a sink that does what a test says.

use super::*;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::scheduler::figures::Figures;
use dispatcher_core::tasks;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Short, since nothing here depends on its length.
const TICK: Duration = Duration::from_millis(1);

/// The parts that a sink was given, and its next answers; it takes everything once these are used up.
#[derive(Debug, Default)]
struct Script {
    answers: VecDeque<Result<(), SendError>>,
    tried: Vec<u64>,
    taken: Vec<u64>,
}

/// Parts of a report are its messages, one part per queue.
#[derive(Debug, Default, Clone)]
struct FakeSink {
    script: Arc<Mutex<Script>>,
    sent: Arc<Notify>,
    hangs: bool,
}

impl FakeSink {
    fn answering(answers: impl IntoIterator<Item = Result<(), SendError>>) -> Self {
        let fake = Self::default();
        fake.script().answers.extend(answers);
        fake
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock()
    }
}

#[async_trait]
impl Sink for FakeSink {
    type Part = u64;

    fn parts(&self, report: Report) -> Vec<u64> {
        let queues = report.queues.iter();
        queues
            .map(|(_, interval)| interval.counts.received)
            .collect()
    }

    async fn send(&self, part: &u64) -> Result<(), SendError> {
        self.script().tried.push(*part);
        self.sent.notify_one();
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let mut script = self.script();
        let answer = script.answers.pop_front().unwrap_or(Ok(()));
        if answer.is_ok() {
            script.taken.push(*part);
        }
        answer
    }
}

fn failed() -> Result<(), SendError> {
    Err(SendError::Failed("no answer".into()))
}

fn measured_by(meters: Arc<Meters>) -> ReportSources {
    ReportSources {
        meters,
        ..ReportSources::default()
    }
}

fn measured(meters: &Meters, counts: [usize; 2]) -> Report {
    for (count, (_, meter)) in counts.into_iter().zip(meters.all()) {
        meter.received.many(count);
    }
    meters.drain(Timestamp(0))
}

#[tokio::test]
async fn unpublished_values_come_with_the_next_report_without_duplicates() {
    let meters = Meters::new(["a", "b"]);
    let fake = FakeSink::answering([Ok(()), failed(), failed()]);
    let mut backlog = Backlog::new(fake.clone());
    backlog.keep(measured(&meters, [1, 2]));
    backlog.send().await;
    assert_eq!(fake.script().taken, [1]);
    backlog.keep(measured(&meters, [3, 4]));
    backlog.send().await;
    assert_eq!(
        fake.script().tried,
        [1, 2, 2],
        "one failure is enough to know"
    );
    backlog.keep(measured(&meters, [5, 6]));
    backlog.send().await;
    assert_eq!(fake.script().taken, [1, 2, 3, 4, 5, 6]);
    assert!(backlog.reports.is_empty() && backlog.lost == 0);
}

#[tokio::test]
async fn oldest_report_is_dropped_first() {
    let meters = Meters::new(["a", "b"]);
    let fake = FakeSink::default();
    let mut backlog = Backlog::new(fake.clone());
    for count in 0..MOST_KEPT + 2 {
        backlog.keep(measured(&meters, [count, 0]));
    }
    assert_eq!((backlog.reports.len(), backlog.lost), (MOST_KEPT, 2));
    backlog.send().await;
    assert_eq!(fake.script().taken.len(), 2 * MOST_KEPT);
    assert_eq!(fake.script().taken[0], 2);
}

#[tokio::test]
async fn refused_part_does_not_block_the_others() {
    let meters = Meters::new(["a", "b"]);
    let fake = FakeSink::answering([Err(SendError::Refused("bad name".into()))]);
    let mut backlog = Backlog::new(fake.clone());
    backlog.keep(measured(&meters, [1, 2]));
    backlog.send().await;
    assert_eq!(fake.script().taken, [2]);
    assert!(backlog.reports.is_empty());
}

#[tokio::test]
async fn reports_are_sent_every_interval_and_once_at_the_end() {
    let meters = Arc::new(Meters::new(["a"]));
    let meter = meters.of("a").expect("a");
    let fake = FakeSink::default();
    let end = ExportEnd::default();
    meter.received.many(7);
    let publishing = publish(fake.clone(), measured_by(meters), TICK, end.clone());
    let publishing = tasks::spawn(publishing);
    fake.sent.notified().await;
    assert_eq!(fake.script().tried[0], 7);
    meter.received.many(3);
    end.over.cancel();
    publishing.finished().await;
    let taken: u64 = fake.script().taken.iter().sum();
    assert_eq!(taken, 10, "the last interval is sent as well");
}

#[tokio::test]
async fn hanging_sink_does_not_delay_the_stop() {
    let meters = Arc::new(Meters::new(["a"]));
    let fake = FakeSink {
        hangs: true,
        ..FakeSink::default()
    };
    let end = ExportEnd::default();
    let publishing = publish_with(fake.clone(), measured_by(meters), TICK, end.clone(), TICK);
    let publishing = tasks::spawn(publishing);
    fake.sent.notified().await;
    end.over.cancel();
    publishing.finished().await;
    assert!(fake.script().taken.is_empty());
}

#[test]
fn missed_ticks_are_skipped() {
    let at = |seconds| BootInstant::from_boot(Duration::from_secs(seconds));
    let interval = Duration::from_secs(10);
    assert_eq!(after(at(10), interval, at(11)), at(20));
    assert_eq!(after(at(10), interval, at(34)), at(44));
}

#[test]
fn cloudwatch_gets_every_queue_and_the_total() {
    let meters = Meters::new(["a", "b"]);
    let config = dispatcher_aws::SdkConfig::builder()
        .behavior_version(dispatcher_aws::BehaviorVersion::latest())
        .build();
    let sink = ToCloudWatch {
        client: CloudWatch::connect(&config, "Dispatcher-test"),
        resolution_s: resolution_s(Duration::from_secs(10)),
    };
    let parts = sink.parts(measured(&meters, [1, 2]));
    assert_eq!(parts.len(), 1);
    let messages = parts[0].iter().filter(|datum| datum.name == "Messages");
    let rows: Vec<(Option<&str>, f64)> = messages
        .map(|datum| {
            (
                datum.dimension.as_ref().map(|(_, value)| &**value),
                datum.values[0].0,
            )
        })
        .collect();
    assert_eq!(rows, [(Some("a"), 1.0), (Some("b"), 2.0), (None, 3.0)]);
    assert!(parts[0].iter().all(|datum| datum.resolution_s == 1));
}

#[test]
fn cloudwatch_gets_dead_letters_of_queues_and_circuits_of_routes() {
    let measured = ReportSources {
        meters: Arc::new(Meters::new(["a"])),
        ..ReportSources::default()
    };
    measured.meters.of("a").expect("a").dead.many(4);
    for (route, circuit_open) in [("quick", false), ("slow", true)] {
        measured.routes.add(route, move || Figures {
            circuit_open,
            ..Figures::default()
        });
    }
    let report = measured.drain();
    let mut shown = Vec::new();
    for row in rows(&report) {
        let of = row
            .dimension
            .map_or_else(String::new, |(name, value)| format!("{name} {value} "));
        let points = row.points.iter();
        let points = points.filter(|one| ["DeadLetters", CIRCUIT_OPEN].contains(&one.name));
        shown.extend(points.map(|one| format!("{of}{} {:?}", one.name, one.values)));
    }
    let wanted = [
        "Queue a DeadLetters [(4.0, 1)]",
        "Route quick CircuitOpen [(0.0, 1)]",
        "Route slow CircuitOpen [(1.0, 1)]",
        "DeadLetters [(4.0, 1)]",
        "CircuitOpen [(1.0, 1)]",
    ];
    assert_eq!(shown, wanted);
}
