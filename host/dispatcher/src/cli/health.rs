//! `dispatcher health`: checks whether a process on this machine is alive or ready, for images
//! without curl.

use super::admin::AdminClient;
use super::{LooseArguments, block_on, flags, output};
use crate::error::{Exit, Failure};
use dispatcher_operate::operations::NotReady;
use serde::Deserialize;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  dispatcher health --admin 127.0.0.1:9090            is it alive?
  dispatcher health --ready --config dispatcher.toml  is it ready?

The address is the setting `admin` of `dispatcher run`: a flag, DISPATCHER_ADMIN, or in the file.
Exits with 0 if the process is alive or ready, with 1 if it is not or does not answer within 3
seconds, and with 2 if there is no address. Needs no token.";

/// The time limit of a probe.
const PATIENCE: Duration = Duration::from_secs(3);

/// Check whether a running process is alive, or with --ready whether it is ready
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Check whether it is ready, as /readyz does
    #[arg(long)]
    pub ready: bool,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// The answer of `/readyz` while the process is not ready.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Unready {
    why: Vec<NotReady>,
}

/// Probes the process, and prints one line.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let client = AdminClient::required_without_token(typed)?.within(PATIENCE);
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let asked = block_on(client.get(path))?;
    let answer = asked.map_err(|failure| Failure::new(Exit::Failed, failure.lines.join("; ")))?;
    match (answer.status, args.ready) {
        (200, true) => output::line("ready"),
        (200, false) => output::line("ok"),
        (status, _) => {
            let unready: Unready = serde_json::from_slice(&answer.body).unwrap_or_default();
            let why = unready.why.iter();
            let each: Vec<String> = why
                .map(|one| format!("{}: {}", one.what, one.reason))
                .collect();
            let words = if each.is_empty() {
                format!("{}{path} answered {status}", client.place())
            } else {
                format!("not ready: {}", each.join("; "))
            };
            Err(Failure::new(Exit::Failed, words))
        }
    }
}
