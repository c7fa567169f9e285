//! The real program on a table where tasks arrive five times as fast as it can handle them: how old
//! what it serves is, and what becomes of the rest. Everything is read from the table and the
//! program's log.

use super::chart::{self, Axes, ChartLine, Panel};
use super::support::program::{Program, dispatcher, plugin};
use super::tables::{configuration, create};
use super::{Options, open};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

const TABLE: &str = "overload";
/// A slow downstream: two at once, each a fifth of a second.
const CAPACITY: f64 = 10.0;
const BODY: &str = "sleep:200";
const CONCURRENCY: &str = "2";
const ARRIVALS: f64 = 50.0;
/// How long they arrive so, then half as fast as can be handled, then not at all.
const PHASES: [(&str, Duration, f64); 3] = [
    (
        "arrivals at 5 × capacity",
        Duration::from_secs(40),
        ARRIVALS,
    ),
    ("arrivals at half of capacity", Duration::from_secs(20), 5.0),
    ("no arrivals", Duration::from_secs(15), 0.0),
];
/// How long a task may wait. The sample gives an hour; a run of an hour shows nothing more.
const LIFE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);

/// One task as the table has it after the run, in seconds since its beginning.
struct TableTask {
    created: f64,
    /// When it was done.
    done: Option<f64>,
    expires: f64,
}

pub(crate) fn run(runtime: &Runtime, url: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    runtime.block_on(create(url, TABLE));
    let queue = format!("dynamodb:{TABLE}");
    let component = plugin("verdicts");
    let words = [
        "run",
        "--log-format",
        "json",
        "--queues",
        &queue,
        "--plugin",
        &component,
        "--endpoint-url",
        url,
        "--concurrency",
        CONCURRENCY,
        "--reuse",
        "1000",
    ];
    let mut program = Program::start(dispatcher(folder.path(), &words));
    program.line("\"running\"");
    let options = Options {
        time_to_live: LIFE,
        ..Options::default()
    };
    let sender = runtime.block_on(open(url, TABLE, options));
    let began = clock::wall_clock_now();
    runtime.block_on(arrivals(&sender));
    let end = seconds(clock::wall_clock_now(), began);
    let counted = counted_by(&program);
    program.stop();
    let tasks = runtime.block_on(tasks(url, began));
    report(&tasks, counted);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dynamodb-overload.svg");
    draw(&tasks, end, &path);
    println!("drawn: {}", path.display());
}

fn seconds(at: Timestamp, began: Timestamp) -> f64 {
    at.since(began).as_secs_f64()
}

/// Sends as the phases say, a few at a time.
async fn arrivals(queue: &impl Queue) {
    for (_, lasts, rate) in PHASES {
        let start = clock::now();
        let mut sent = 0.0;
        while clock::now().since(start) < lasts {
            let due = rate * clock::now().since(start).as_secs_f64();
            let mut batch = Vec::new();
            while sent + 1.0 <= due && batch.len() < 10 {
                sent += 1.0;
                batch.push(OutgoingMessage {
                    body: BODY.to_owned(),
                    ..OutgoingMessage::default()
                });
            }
            let answers = queue.send(&batch).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            if batch.len() < 10 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// How many expired tasks the program has counted, by its log.
fn counted_by(program: &Program) -> u64 {
    let lines = program.lines_so_far().into_iter();
    let totals = lines.filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line).ok()?;
        let message = line["message"].as_str()?;
        let about = message.contains("tasks expired before they were received");
        about.then(|| line["total"].as_u64())?
    });
    totals.max().unwrap_or_default()
}

async fn tasks(url: &str, began: Timestamp) -> Vec<TableTask> {
    let client = Client::new(&configuration(url).await);
    let mut tasks = Vec::new();
    let mut start = None;
    loop {
        let page = client
            .scan()
            .table_name(TABLE)
            .set_exclusive_start_key(start);
        let page = page.send().await.expect("the table is there");
        tasks.extend(page.items().iter().map(|item| task(item, began)));
        start = page.last_evaluated_key;
        if start.is_none() {
            return tasks;
        }
    }
}

fn task(item: &HashMap<String, AttributeValue>, began: Timestamp) -> TableTask {
    let number = |name: &str| -> u64 {
        let number = item.get(name).and_then(|value| value.as_n().ok());
        number.and_then(|n| n.parse().ok()).expect("a number")
    };
    let status = item["taskStatus"].as_s().expect("a status");
    let at = |ms| seconds(Timestamp(ms), began);
    TableTask {
        created: at(number("taskCreated")),
        done: (status == "SUCCESS").then(|| at(number("taskUpdated"))),
        expires: at(number("ttl") * 1_000),
    }
}

fn report(tasks: &[TableTask], counted: u64) {
    println!(
        "{:<30} {:>6} {:>6} {:>8} {:>10} {:>10} {:>10}",
        "tasks sent in", "sent", "done", "expired", "p50 s", "p99 s", "most s"
    );
    let mut begin = 0.0;
    for (name, lasts, rate) in PHASES {
        let end = begin + lasts.as_secs_f64();
        let of_phase = |task: &&TableTask| task.created >= begin && task.created < end;
        let sent: Vec<&TableTask> = tasks.iter().filter(of_phase).collect();
        begin = end;
        if rate == 0.0 {
            continue;
        }
        let mut ages: Vec<f64> = sent.iter().filter_map(|task| age(task)).collect();
        ages.sort_by(f64::total_cmp);
        let at = |percent: usize| ages[(ages.len() * percent / 100).min(ages.len() - 1)];
        println!(
            "{name:<30} {:>6} {:>6} {:>8} {:>10.2} {:>10.2} {:>10.2}",
            sent.len(),
            ages.len(),
            sent.len() - ages.len(),
            at(50),
            at(99),
            at(100)
        );
    }
    let lost = tasks.iter().filter(|task| task.done.is_none()).count();
    println!("never handled, by the table: {lost}; counted as expired by the program: {counted}");
    println!(
        "capacity {CAPACITY}/s, arrivals {ARRIVALS}/s, time to live {} s",
        LIFE.as_secs()
    );
}

fn age(task: &TableTask) -> Option<f64> {
    Some(task.done? - task.created)
}

fn draw(tasks: &[TableTask], end: f64, path: &Path) {
    let bins = 0..PHASES
        .iter()
        .map(|(_, lasts, _)| lasts.as_secs())
        .sum::<u64>();
    let within = |at: f64, bin: u64| at >= bin as f64 && at < (bin + 1) as f64;
    let count = |of: &dyn Fn(&TableTask) -> Option<f64>| -> Vec<(f64, f64)> {
        let in_bin = |bin: u64| {
            let count = tasks.iter().filter_map(of).filter(|at| within(*at, bin));
            (bin as f64 + 0.5, count.count() as f64)
        };
        bins.clone().map(in_bin).collect()
    };
    let ages = |percent: usize| -> Vec<(f64, f64)> {
        let in_bin = |bin: u64| {
            let done = |task: &&TableTask| task.done.is_some_and(|at| within(at, bin));
            let mut ages: Vec<f64> = tasks.iter().filter(done).filter_map(age).collect();
            ages.sort_by(f64::total_cmp);
            let last = ages.len().checked_sub(1)?;
            Some((
                bin as f64 + 0.5,
                ages[(ages.len() * percent / 100).min(last)],
            ))
        };
        bins.clone().filter_map(in_bin).collect()
    };
    let expires = |task: &TableTask| task.done.is_none().then_some(task.expires);
    let standing = |of: &dyn Fn(&TableTask, f64) -> bool| -> Vec<(f64, f64)> {
        let at = |bin: u64| {
            (
                bin as f64,
                tasks.iter().filter(|task| of(task, bin as f64)).count() as f64,
            )
        };
        bins.clone().map(at).collect()
    };
    let waiting = |task: &TableTask, at: f64| {
        let left = task
            .done
            .unwrap_or(f64::MAX)
            .min(task.expires.max(task.done.unwrap_or(0.0)));
        task.created <= at && left > at
    };
    let gone = |task: &TableTask, at: f64| expires(task).is_some_and(|end| end <= at);
    let line = |name, points| ChartLine { name, points };
    let panels = [
        Panel {
            title: "tasks a second",
            lines: vec![
                line("handled", count(&|task| task.done)),
                line("sent", count(&|task| Some(task.created))),
                line("expired", count(&expires)),
            ],
        },
        Panel {
            title: "from sending to done, of what was handled, s",
            lines: vec![line("median", ages(50)), line("most", ages(100))],
        },
        Panel {
            title: "tasks",
            lines: vec![
                line("waiting", standing(&waiting)),
                line("expired so far", standing(&gone)),
            ],
        },
    ];
    let marks = marks();
    chart::draw(path, &panels, &Axes::Time(&marks, end)).expect("drawn");
}

/// When each phase begins.
fn marks() -> Vec<(f64, &'static str)> {
    let mut begin = 0.0;
    let mut marks = Vec::new();
    for (name, lasts, _) in PHASES {
        marks.push((begin, name));
        begin += lasts.as_secs_f64();
    }
    marks
}
