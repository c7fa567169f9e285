//! `dispatcher workers`: lists the processes that receive from a Redis server.

use super::{LooseArguments, block_on, flags, output};
use crate::app::build::Backends;
use crate::error::Failure;
use dispatcher_config::Places;
use dispatcher_config::backends;
use dispatcher_config::problem::Problem;
use dispatcher_core::backend::Backend;
use dispatcher_core::queue::ErrorKind;
use std::fmt::Write;

const EXAMPLES: &str = "\
Examples:
  dispatcher workers redis:
  dispatcher workers redis: --json | jq '.[].process'

With --json: one array of {\"worker\",\"process\",\"queues\":[{\"queue\",\"in_flight\"}]}.";

/// Show which processes receive from Redis, and what each has in flight
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The backend: redis:
    #[arg(value_name = "BACKEND", value_parser = listing)]
    pub backend: &'static dyn Backend,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub servers: flags::BackendArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// One process: the name of its worker, its id and machine, and its queues with their messages in
/// flight.
type Row = (String, String, Vec<(String, u64)>);

/// Prints the processes.
pub(super) fn run(args: Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, _screen, problems) = flags::places(&typed.matches);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let rows = block_on(look(&places, args.backend))??;
    if args.json {
        output::json(&rows.iter().map(json).collect())
    } else {
        output::text(&table(&rows))
    }
}

/// Parses the name of a backend that lists its workers, as `NAME:`.
fn listing(text: &str) -> Result<&'static dyn Backend, String> {
    let named = text.strip_suffix(':');
    let backend = match named.map(backends::find) {
        Some(Err(absent)) if absent.is_left_out() => return Err(absent.to_string()),
        Some(Ok(backend)) => Some(backend).filter(|backend| backend.facts().lists_workers),
        Some(Err(_)) | None => None,
    };
    backend.ok_or_else(|| {
        let able: Vec<String> = backends::those(|backend| backend.facts().lists_workers)
            .iter()
            .map(|name| format!("{name}:"))
            .collect();
        format!("wanted {}", able.join(" or "))
    })
}

async fn look(places: &Places, backend: &'static dyn Backend) -> Result<Vec<Row>, Failure> {
    let opened = Backends::new(places.stores.clone());
    let known = opened.workers(backend).await.map_err(|error| {
        let problem = Problem::new("BACKEND", error.to_string(), "");
        Failure::from(vec![match error.kind {
            ErrorKind::Unreachable | ErrorKind::Transient => problem.unreachable(),
            _ => problem,
        }])
    })?;
    let rows = known.into_iter().map(|worker| {
        let queues = worker.queues.into_iter();
        let named =
            queues.map(|(queue, in_flight)| (format!("{}:{queue}", backend.name()), in_flight));
        (worker.id, worker.label, named.collect())
    });
    Ok(rows.collect())
}

fn json((worker, process, queues): &Row) -> serde_json::Value {
    let queues: Vec<_> = queues
        .iter()
        .map(|(queue, in_flight)| serde_json::json!({ "queue": queue, "in_flight": in_flight }))
        .collect();
    serde_json::json!({ "worker": worker, "process": process, "queues": queues })
}

fn table(rows: &[Row]) -> String {
    let longest = rows.iter().map(|(_, process, _)| process.chars().count());
    let width = longest.max().unwrap_or_default().max(7);
    let mut text = format!("{:width$}  {:>9}  QUEUE\n", "PROCESS", "IN FLIGHT");
    for (_, process, queues) in rows {
        for (queue, in_flight) in queues {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{process:width$}  {in_flight:>9}  {queue}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_agree() {
        let row = (
            "w1".to_owned(),
            "7@host".to_owned(),
            vec![("redis:q".to_owned(), 3)],
        );
        assert_eq!(
            json(&row).to_string(),
            r#"{"process":"7@host","queues":[{"in_flight":3,"queue":"redis:q"}],"worker":"w1"}"#
        );
        let table = table(&[row]);
        let words: Vec<_> = table
            .lines()
            .nth(1)
            .expect("a row")
            .split_whitespace()
            .collect();
        assert_eq!(words, ["7@host", "3", "redis:q"]);
    }
}
