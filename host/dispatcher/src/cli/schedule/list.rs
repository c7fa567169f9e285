//! `dispatcher schedule list`: lists scheduled messages.

use super::{failure, schedules};
use crate::app::build::schedule::ListedJob;
use crate::cli::{LooseArguments, block_on, flags, output};
use crate::error::Failure;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::schedule::{decide, when};
use std::fmt::Write;

const EXAMPLES: &str = "\
Examples:
  dispatcher schedule list                 jobs of the embedded queues
  dispatcher schedule list payments        jobs of this queue, on SQS
  dispatcher schedule list redis:default
  dispatcher schedule list --schedule-table jobs
  dispatcher schedule list --json | jq '.[].id'

With --json: one array of {\"id\",\"queue\",\"due\",\"due_ms\",\"cron\",\"tz\",\"group\",\"body\",\"sending\"}.";

/// The maximum number of characters of a body in the table.
const SHOWN: usize = 40;

/// List scheduled messages
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The queue [default: every embedded queue, and every queue of --schedule-table]
    pub queue: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub table: flags::TableArgs,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Prints a table, or JSON.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, name) = flags::place_of_any(&typed.matches, args.queue.as_deref())?;
    let schedules = schedules(&places);
    let listed = block_on(schedules.list(name.as_ref()))?;
    let entries = listed.map_err(|error| failure("schedule", &error))?;
    let now = clock::wall_clock_now();
    if args.json {
        output::json(&entries.iter().map(|entry| json(entry, now)).collect())?
    } else {
        output::text(&table(&entries, now))?
    }
    let is_local = name.is_none_or(|name| name.backend.facts().is_embedded);
    if is_local && args.queue.is_none() && places.schedule_table.is_none() && !args.json {
        output::note(
            "for queues of SQS, Redis and PostgreSQL, name the queue, or the table with --schedule-table",
        );
    }
    Ok(())
}

fn json(ListedJob { id, job }: &ListedJob, now: Timestamp) -> serde_json::Value {
    let zone = job.every.as_ref().map(|every| every.zone.as_str());
    serde_json::json!({
        "id": id,
        "queue": job.queue,
        "due": when::write(job.due, zone),
        "due_ms": job.due.0,
        "cron": job.every.as_ref().map(|every| &every.pattern),
        "tz": zone,
        "group": job.message.group,
        "body": job.message.body,
        "sending": decide::is_claimed(job, now),
    })
}

fn table(entries: &[ListedJob], now: Timestamp) -> String {
    let width = entries
        .iter()
        .map(|entry| entry.id.chars().count())
        .max()
        .unwrap_or(0)
        .max(2);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:width$}  {:29}  {:24}  BODY", "ID", "DUE", "WHEN");
    for ListedJob { id, job } in entries {
        let every = job.every.as_ref();
        let due = when::write(job.due, every.map(|every| every.zone.as_str()));
        let when = match every {
            Some(every) => format!("{} {}", every.pattern, every.zone),
            None if decide::is_claimed(job, now) => "being sent".to_owned(),
            None => when::distance(now, job.due),
        };
        let body: String = job.message.body.escape_debug().take(SHOWN).collect();
        let _ = writeln!(text, "{id:width$}  {due:29}  {when:24}  {body}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::schedule::cron::Periodic;
    use dispatcher_core::schedule::samples;

    #[test]
    fn table_and_json_show_due_time_and_body() {
        let mut job = samples::job("7", Timestamp(129_600_000));
        job.message.body = "two\nlines".into();
        let once = ListedJob {
            id: "q/7".into(),
            job: job.clone(),
        };
        job.every = Some(Periodic::new("0 9 * * *", "Europe/Berlin").expect("a pattern"));
        let entries = [
            once,
            ListedJob {
                id: "q/8".into(),
                job,
            },
        ];
        let text = table(&entries, Timestamp(0));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("q/7  1970-01-02T12:00:00+00:00"),
            "{text}"
        );
        assert!(
            lines[1].contains("in 1day 12h") && lines[1].ends_with(r"two\nlines"),
            "{text}"
        );
        assert!(
            lines[2].contains("13:00:00+01:00") && lines[2].contains("0 9 * * * Europe/Berlin"),
            "{text}"
        );
        let json = json(&entries[1], Timestamp(0));
        assert_eq!(
            (json["cron"].as_str(), json["sending"].as_bool()),
            (Some("0 9 * * *"), Some(false))
        );
    }
}
