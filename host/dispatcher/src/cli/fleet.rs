//! `dispatcher fleet`: lists all processes of the fleet of a running process, through its admin API.

use super::admin::AdminClient;
use super::{LooseArguments, block_on, flags, output};
use crate::error::{Exit, Failure};
use dispatcher_operate::fleet::FleetView;
use std::fmt::Write;

const EXAMPLES: &str = "\
Examples:
  dispatcher fleet --admin 127.0.0.1:9090
  dispatcher fleet --config dispatcher.toml --json | jq '.processes[].version'

The address is the setting `admin` of `dispatcher run`. With --json: the answer of GET /api/v1/fleet.";

/// Show all processes that share the store of [fleet], their queues and limits
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub file: flags::FileArgs,
}

/// Prints the fleet.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let client = AdminClient::required(typed)?;
    let answer: serde_json::Value = block_on(async { client.get("/api/v1/fleet").await?.json() })??;
    if args.json {
        return output::json(&answer);
    }
    let fleet: FleetView = serde_json::from_value(answer).map_err(|error| {
        let line = format!("the answer is not one of the admin API: {error}");
        Failure::new(Exit::Failed, line)
    })?;
    output::text(&text(&fleet))
}

/// Formats the fleet. Writing to a string does not fail.
fn text(fleet: &FleetView) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", fleet.scope_line());
    if let (Some(since), Some(why)) = (&fleet.old_since, &fleet.error) {
        let _ = writeln!(text, "old since {since}: {why}");
    }
    for difference in &fleet.differences {
        let _ = writeln!(text, "{}", difference.line());
    }
    let ids = fleet.processes.iter().map(|one| one.id.chars().count());
    let width = ids.max().unwrap_or_default().max(7);
    let _ = writeln!(
        text,
        "\n{:width$}  {:10}  {:12}  {:>7}  {:>7}  {:>8}  {:>8}",
        "PROCESS", "VERSION", "CONFIG", "RUNNING", "WAITING", "DONE/S", "FAILED/S"
    );
    for one in &fleet.processes {
        let _ = writeln!(
            text,
            "{:width$}  {:10}  {:12}  {:>7}  {:>7}  {:>8.1}  {:>8.1}",
            one.id, one.version, one.configuration, one.running, one.waiting, one.done, one.failed
        );
    }
    let _ = writeln!(
        text,
        "\n{:>9}  {:>7}  {:>8}  {:>8}  QUEUE",
        "PROCESSES", "RUNNING", "DONE/S", "FAILED/S"
    );
    for one in &fleet.queues {
        let paused = match one.paused.0 {
            0 => String::new(),
            paused => format!("  paused in {paused}"),
        };
        let _ = writeln!(
            text,
            "{:>9}  {:>7}  {:>8.1}  {:>8.1}  {}{paused}",
            one.processes, one.running, one.done, one.failed, one.queue
        );
    }
    if !fleet.limits.is_empty() {
        let _ = writeln!(
            text,
            "\n{:>7}  {:>7}  {:>7}  LIMIT",
            "USED", "OF", "WAITING"
        );
    }
    for one in &fleet.limits {
        let most = one
            .concurrency
            .map_or_else(|| "-".to_owned(), |most| most.to_string());
        let _ = writeln!(
            text,
            "{:>7}  {most:>7}  {:>7}  {}",
            one.used, one.waiting, one.limit
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_operate::fleet::{FleetLimit, FleetProcess, FleetQueue};

    #[test]
    fn text_has_processes_queues_and_limits() {
        let fleet = FleetView {
            store: "redis:default".to_owned(),
            scope: "all-processes".into(),
            old_since: Some("2026-11-28T10:00:00Z".to_owned()),
            error: Some("no answer".to_owned()),
            processes: vec![FleetProcess {
                id: "7@host".to_owned(),
                ..FleetProcess::default()
            }],
            queues: vec![FleetQueue {
                queue: "orders".to_owned(),
                paused: 2_u64.into(),
                ..FleetQueue::default()
            }],
            limits: vec![FleetLimit {
                limit: "api".to_owned(),
                used: 3_u64.into(),
                ..FleetLimit::default()
            }],
            ..FleetView::default()
        };
        let text = text(&fleet);
        for part in [
            "1 process of the fleet in redis:default",
            "old since 2026-11-28T10:00:00Z: no answer",
            "7@host",
            "orders  paused in 2",
            "3        -        0  api",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
