//! `dispatcher doctor`: inspect the real queues and functions of a run and report problems; or
//! print the IAM policy of its role.

use super::{Typed, block_on, flags, output};
use crate::app::doctor;
use crate::app::doctor::{Finding, Level};
use crate::config::iam;
use crate::config::problem::Problem;
use crate::error::Failure;
use crate::telemetry::log;
use crate::{app, config};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  dispatcher doctor --config dispatcher.toml
  dispatcher doctor --function my-function --queues payments:3,default:1
  dispatcher doctor --config dispatcher.toml --iam > policy.json

One line per finding: ok, warn (a risk) or bad (it will not work). Receives no message and invokes
no function. Exits like `check`: with 0 unless something is bad. With --iam the policy is derived
from the settings; only SQS is called, to find queues that are encrypted with a key of AWS KMS, and
if that fails, stderr message so.

With --json: one array of {\"level\",\"about\",\"message\"}.";

/// Inspect the real queues and functions of a run and report problems
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Print the IAM policy that this run needs
    #[arg(long)]
    pub iam: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub run: flags::RunArgs,
}

/// Prints what was found, or the policy.
pub(super) fn run(args: &Args, typed: Typed) -> Result<(), Failure> {
    let flags = flags::with_classic(&typed.matches);
    let (settings, mut problems) = config::settings(&flags);
    problems.splice(0..0, typed.unknown);
    log::start(settings.log.format, &settings.log.level);
    flags::log_notices(&flags);
    if !problems.is_empty() {
        if !args.iam {
            problems.extend(block_on(app::check(&settings))?);
        }
        return Err(problems.into());
    }
    if args.iam {
        let keys = block_on(doctor::keys(&settings))?;
        return output::line(iam::policy(&settings, &keys));
    }
    let findings = block_on(doctor::look(&settings))?;
    match args.json {
        true => output::json(&findings.iter().map(as_json).collect())?,
        false => output::bytes(findings.iter().map(as_text).collect::<String>().as_bytes())?,
    }
    let bad: Vec<Problem> = findings
        .into_iter()
        .filter_map(|finding| match finding.level {
            Level::Bad(fault) => Some(Problem {
                fault,
                ..Problem::new(finding.about, finding.message, "")
            }),
            Level::Ok | Level::Warn => None,
        })
        .collect();
    match bad.is_empty() {
        true => Ok(()),
        // All has been said; what is left is the exit code.
        false => Err(Failure {
            lines: Vec::new(),
            ..Failure::from(bad)
        }),
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Warn => "warn",
        Level::Bad(_) => "bad",
    }
}

fn as_text(finding: &Finding) -> String {
    let Finding {
        level,
        about,
        message,
    } = finding;
    format!("{:<4}  {about}: {message}\n", word(*level))
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({
        "level": word(finding.level),
        "about": finding.about,
        "message": finding.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::problem::Fault;

    #[test]
    fn text_and_json_agree() {
        let finding = |level| Finding {
            level,
            about: "queue payments".into(),
            message: "it is there".into(),
        };
        assert_eq!(
            as_text(&finding(Level::Ok)),
            "ok    queue payments: it is there\n"
        );
        assert_eq!(
            as_json(&finding(Level::Bad(Fault::Settings))).to_string(),
            r#"{"about":"queue payments","level":"bad","message":"it is there"}"#
        );
    }
}
