//! `dispatcher queues`: shows how many messages queues hold.

use super::{LooseArguments, block_on, flags, output};
use crate::app::build::Backends;
use crate::app::live;
use crate::error::Failure;
use dispatcher_config::Places;
use dispatcher_config::backends;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_core::backend::Backend;
use dispatcher_core::queue::{Depth, ErrorKind};
use std::fmt::Write;

const EXAMPLES: &str = "\
Examples:
  dispatcher queues                       every queue of the embedded backend
  dispatcher queues payments default      these, on SQS
  dispatcher queues sqs: local:           every queue of both
  dispatcher queues --json | jq '.[].waiting'

With --json: one array of {\"queue\",\"waiting\",\"in_flight\",\"delayed\",\"oldest_s\",\"paused\"};
`paused` is null on SQS, which cannot store a pause.";

/// Show how many messages queues hold, the age of the oldest, and which are paused
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Queues; a bare `local:`, `redis:`, `dynamodb:` or `sqs:` means every queue there [default:
    /// local:]
    #[arg(value_name = "QUEUE")]
    pub queues: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// The data shown of a queue.
struct Row {
    name: QueueName,
    depth: Depth,
    /// Whether it is paused for all processes, if its backend stores that.
    paused: Option<bool>,
}

/// One queue, or all queues of a backend.
enum QueueChoice {
    One(QueueName),
    All(&'static dyn Backend),
}

/// Inspects every queue. A failing queue does not hide the others.
pub(super) fn run(args: Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, _screen, mut problems) = flags::places(&typed.matches);
    let mut wanted = Vec::new();
    for text in &args.queues {
        match which(text) {
            Ok(which) => wanted.push(which),
            Err(problem) => problems.push(problem),
        }
    }
    if args.queues.is_empty() {
        match backends::embedded() {
            Some(backend) => wanted.push(QueueChoice::All(backend)),
            None => problems.push(Problem::new("QUEUE", "no queue", "at least one")),
        }
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let (rows, problems) = block_on(look(&places, wanted))?;
    if args.json {
        output::json(&rows.iter().map(json).collect())?
    } else {
        output::text(&table(&rows))?
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.into())
    }
}

fn which(text: &str) -> Result<QueueChoice, Problem> {
    let backend = text
        .strip_suffix(':')
        .filter(|name| backends::is_name(name));
    match backend {
        Some(name) => backends::find(name)
            .map(QueueChoice::All)
            .map_err(|absent| Problem::new("QUEUE", format!("`{text}` names {absent}"), "")),
        None => text
            .parse()
            .map(QueueChoice::One)
            .map_err(|found| Problem::new("QUEUE", found, "")),
    }
}

async fn look(places: &Places, wanted: Vec<QueueChoice>) -> (Vec<Row>, Vec<Problem>) {
    let backends = Backends::new(places.stores.clone());
    let mut names = Vec::new();
    let mut problems = Vec::new();
    for which in wanted {
        match which {
            QueueChoice::One(name) => names.push(name),
            QueueChoice::All(backend) => match backends.list(backend).await {
                Ok(known) => names.extend(known),
                Err(error) => {
                    let at = format!("{}:", backend.name());
                    let problem = Problem::new(at, error.to_string(), "");
                    problems.push(match error.kind {
                        ErrorKind::Unreachable => problem.unreachable(),
                        _ => problem,
                    });
                }
            },
        }
    }
    let mut rows = Vec::new();
    let depths = backends.depths(&names).await;
    // If a backend does not answer, it remains unknown which queues are paused.
    let (controls, _) = live::shared(&backends, &names).await;
    for (name, depth) in names.into_iter().zip(depths) {
        match depth {
            Ok(depth) => rows.push(Row {
                paused: controls.get(&name.to_string()).map(|set| set.paused),
                name,
                depth,
            }),
            Err(error) => problems.push(backends.problem("QUEUE", &name, &error).await),
        }
    }
    (rows, problems)
}

fn json(row: &Row) -> serde_json::Value {
    let depth = &row.depth;
    serde_json::json!({
        "queue": row.name.to_string(),
        "waiting": depth.waiting,
        "in_flight": depth.in_flight,
        "delayed": depth.delayed,
        "oldest_s": depth.oldest.map(|age| age.as_secs()),
        "paused": row.paused,
    })
}

fn table(rows: &[Row]) -> String {
    let names: Vec<_> = rows.iter().map(|row| row.name.to_string()).collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .max(5);
    let mut text = String::new();
    let head = ("QUEUE", "WAITING", "IN FLIGHT", "DELAYED", "OLDEST");
    let (queue, waiting, in_flight, delayed, oldest) = head;
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{queue:width$}  {waiting:>9}  {in_flight:>9}  {delayed:>9}  {oldest}"
    );
    for (name, row) in names.iter().zip(rows) {
        let Depth {
            waiting,
            in_flight,
            delayed,
            oldest,
        } = row.depth;
        let oldest = oldest.map_or("-".to_owned(), |age| {
            humantime::format_duration(std::time::Duration::from_secs(age.as_secs())).to_string()
        });
        let paused = match row.paused {
            Some(true) => "  paused",
            Some(false) | None => "",
        };
        let _ = writeln!(
            text,
            "{name:width$}  {waiting:>9}  {in_flight:>9}  {delayed:>9}  {oldest}{paused}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn text_and_json_agree() {
        let name = "local:default".parse().expect("a name");
        let oldest = Some(Duration::from_millis(61_500));
        let depth = Depth {
            waiting: 3,
            in_flight: 2,
            delayed: 1,
            oldest,
        };
        let row = Row {
            name,
            depth,
            paused: Some(true),
        };
        assert_eq!(
            json(&row).to_string(),
            r#"{"delayed":1,"in_flight":2,"oldest_s":61,"paused":true,"queue":"local:default","waiting":3}"#
        );
        let table = table(&[row]);
        let words: Vec<_> = table
            .lines()
            .nth(1)
            .expect("a row")
            .split_whitespace()
            .collect();
        assert_eq!(
            words,
            ["local:default", "3", "2", "1", "1m", "1s", "paused"]
        );
    }
}
