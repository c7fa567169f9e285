//! `dispatcher doctor`: inspects the real queues and functions of a run and reports problems, or
//! prints the IAM policy of its role.

use super::admin::AdminClient;
use super::{LooseArguments, block_on, flags, output};
use crate::app;
use crate::app::doctor;
use crate::app::doctor::{Finding, Level, RouteDurations};
use crate::error::{Exit, Failure};
use dispatcher_config::problem::Problem;
use dispatcher_config::{AdminPlace, Settings, SettingsSource, iam};
use dispatcher_operate::objects::{Queues, Routes, RunningList};
use dispatcher_operate::operations::{QueueView, RouteView, RunningView};
use dispatcher_telemetry::log;
use serde_json::json;
use std::time::Duration;

/// How long a process may take to report its durations.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  dispatcher doctor --config dispatcher.toml
  dispatcher doctor --function my-function --queues payments:3,default:1
  dispatcher doctor --config dispatcher.toml --iam > policy.json

One line per finding: ok, warn (a risk) or bad (it will not work). Receives no message and runs no
function: Lambda is only asked whether it may (DryRun). Exits like `check`: with 0 unless something
is bad; with --strict, with 1 if there is a warning. With --iam the policy is derived from the
settings; only SQS is called, to find queues that are encrypted with a key of AWS KMS. If that call
fails, stderr says so.

If a process answers at the settings' admin address, the findings about deploys are based on how
long its attempts take; otherwise on --timeout.

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
    /// Exit with 1 if there is a warning
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub run: flags::RunArgs,
}

/// Prints the findings, or the policy.
pub(super) fn run(args: &Args, typed: LooseArguments) -> Result<(), Failure> {
    let flags = flags::with_classic(&typed.matches);
    let source = SettingsSource::read(&flags);
    let (settings, mut problems) = source.written();
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
        // Who asks for a policy may have none yet.
        let (settings, _) = block_on(app::with_found_queues(source, settings))?;
        let keys = block_on(doctor::keys(&settings))?;
        return output::line(iam::policy(&settings, &keys));
    }
    let findings = block_on(async {
        let (settings, problems) = app::with_found_queues(source, settings).await;
        let measured = measured(&settings).await;
        let found = doctor::look(&settings, &measured).await;
        problems
            .into_iter()
            .map(Finding::from)
            .chain(found)
            .collect::<Vec<_>>()
    })?;
    if args.json {
        output::json(&findings.iter().map(as_json).collect())?
    } else {
        output::text(&findings.iter().map(as_text).collect::<String>())?
    }
    let warns = findings.iter().any(|finding| finding.level == Level::Warn);
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
    // Everything was printed; only the exit code is left.
    let exit = if !bad.is_empty() {
        Failure::from(bad).exit
    } else if args.strict && warns {
        Exit::Failed
    } else {
        return Ok(());
    };
    let lines = Vec::new();
    Err(Failure { exit, lines })
}

/// Returns the durations of attempts in the process at the settings' admin address, or nothing if
/// none answers there.
async fn measured(settings: &Settings) -> Vec<RouteDurations> {
    let Some(admin) = &settings.admin else {
        return Vec::new();
    };
    let place = AdminPlace {
        address: Some(admin.address.to_string()),
        token_file: admin.read_token_file.clone().or(admin.token_file.clone()),
    };
    let Ok(Some(client)) = AdminClient::of(&place) else {
        return Vec::new();
    };
    let client = client.within(PATIENCE);
    let asked = async {
        let routes: Routes = client.get("/api/v1/routes?limit=500").await?.read()?;
        let queues: Queues = client.get("/api/v1/queues?limit=500").await?.read()?;
        let running: RunningList = client.get("/api/v1/running?limit=500").await?.read()?;
        Ok::<_, Failure>(durations(&routes.items, &queues.items, &running.items))
    };
    asked.await.unwrap_or_else(|failure| {
        let error = failure.lines.join("; ");
        tracing::debug!(error, "no durations of a process");
        Vec::new()
    })
}

/// Returns the durations in the lists of the admin API.
fn durations(
    routes: &[RouteView],
    queues: &[QueueView],
    running: &[RunningView],
) -> Vec<RouteDurations> {
    let durations = routes.iter().map(|route| {
        let queues = queues.iter().filter(|queue| queue.route == route.route);
        let p99 = queues.filter_map(|queue| queue.recent.as_ref()?.attempt_p99_s);
        let running = running.iter().filter(|one| one.route == route.route);
        RouteDurations {
            route: route.route.clone(),
            median: route.median_attempt_s.and_then(seconds),
            p99: p99.filter_map(seconds).max(),
            oldest: running.filter_map(|one| seconds(one.age_s)).max(),
        }
    });
    durations.collect()
}

fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
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
    use dispatcher_config::problem::Fault;
    use dispatcher_operate::operations::RecentWork;

    fn route(name: &str, median_attempt_s: Option<f64>) -> RouteView {
        RouteView {
            route: name.to_owned(),
            median_attempt_s,
            ..RouteView::default()
        }
    }

    fn queue(route: &str, p99: Option<f64>) -> QueueView {
        QueueView {
            route: route.to_owned(),
            recent: p99.map(|p99| RecentWork {
                attempt_p99_s: Some(p99),
                ..RecentWork::default()
            }),
            ..QueueView::default()
        }
    }

    #[test]
    fn durations_of_a_process_are_read_by_route() {
        let routes = [route("a", Some(45.5)), route("b", None)];
        let queues = [
            queue("a", Some(50.0)),
            queue("a", Some(60.0)),
            queue("b", None),
        ];
        let running = [RunningView {
            route: "b".to_owned(),
            age_s: 3.0,
            ..RunningView::default()
        }];
        let wanted = [
            RouteDurations {
                route: "a".into(),
                median: Some(Duration::from_millis(45_500)),
                p99: Some(Duration::from_secs(60)),
                oldest: None,
            },
            RouteDurations {
                route: "b".into(),
                oldest: Some(Duration::from_secs(3)),
                ..RouteDurations::default()
            },
        ];
        assert_eq!(durations(&routes, &queues, &running), wanted);
        assert_eq!(durations(&[], &[], &[]), []);
    }

    #[test]
    fn text_and_json_agree() {
        let good = Finding {
            level: Level::Ok,
            about: "queue payments".into(),
            message: "it is there".into(),
        };
        assert_eq!(as_text(&good), "ok    queue payments: it is there\n");
        let bad = Finding {
            level: Level::Bad(Fault::Settings),
            ..good
        };
        assert_eq!(
            as_json(&bad).to_string(),
            r#"{"about":"queue payments","level":"bad","message":"it is there"}"#
        );
    }
}
