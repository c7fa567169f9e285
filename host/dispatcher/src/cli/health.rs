//! `dispatcher health`: whether a process on this machine is alive or ready, for images without curl.

use super::admin::AdminClient;
use super::{Typed, block_on, flags, output};
use crate::error::{Exit, Failure};
use serde_json::Value;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  dispatcher health --admin 127.0.0.1:9090            is it alive?
  dispatcher health --ready --config dispatcher.toml  can it do its work?

The address is the setting `admin` of `dispatcher run`: a flag, DISPATCHER_ADMIN, or in the file.
Exits with 0 if it is well and with 1 if it is not or does not answer within 3 seconds; with 2 if
there is no address to ask. Needs no token.";

/// The longest that a probe waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// Ask whether a running process is alive, or with --ready whether it can do its work
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Ask whether it can do its work, as /readyz does
    #[arg(long)]
    pub ready: bool,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Asks, and prints one line.
pub(super) fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let (place, problems) = flags::admin(&typed.matches);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let place = crate::config::AdminPlace {
        // Probes are for everybody.
        token_file: None,
        ..place
    };
    let Some(client) = AdminClient::of(&place)? else {
        let line = "--admin: no address; wanted ADDRESS:PORT, as in 127.0.0.1:9090, by the flag, \
                    DISPATCHER_ADMIN or the file of --config";
        return Err(Failure::new(Exit::Usage, line));
    };
    let client = client.within(PATIENCE);
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let unwell = |line: String| Failure::new(Exit::Failed, line);
    let answer = block_on(client.get(path))?;
    let answer = answer.map_err(|failure| unwell(failure.lines.join("; ")))?;
    match (answer.status, args.ready) {
        (200, true) => output::line("ready"),
        (200, false) => output::line("ok"),
        (status, _) => {
            let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let why = body["why"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let each = why
                .iter()
                .map(|one| format!("{}: {}", text(&one["what"]), text(&one["reason"])));
            let each: Vec<String> = each.collect();
            let words = if each.is_empty() {
                format!("{}{path} answered {status}", client.place())
            } else {
                format!("not ready: {}", each.join("; "))
            };
            Err(unwell(words))
        }
    }
}
