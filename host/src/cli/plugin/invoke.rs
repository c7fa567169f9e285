//! `dispatcher plugin invoke`: one attempt on one made-up message, without any queue.

use super::super::flags::{GuestArgs, LogArgs, StoreArgs};
use super::super::input::MessageArgs;
use super::super::{Typed, block_on, output};
use super::settings;
use crate::app::build::grants::Buckets;
use crate::app::{self, build::plugins};
use crate::clock;
use crate::config::problem::Problem;
use crate::config::{Code, Plugin, Settings, Source};
use crate::error::{Exit, Failure};
use crate::message::{Message, Mishap, Receipt, Verdict};
use crate::plugin::runtime::{Runtime, RuntimeOptions};
use crate::plugin::{Attempt, Handler};
use clap::builder::FalseyValueParser;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin invoke handler.wasm 'hello'
  dispatcher plugin invoke handler.wasm --file order.json --attribute kind=order
  echo hello | dispatcher plugin invoke handler.wasm - --json

Prints the verdict: done, retry or reject. What the plugin prints is logged to stderr. Exits with 0
if the plugin answered, whatever it answered, and with 1 if it did not: a trap, a time-out, too
much memory.";

/// Run a plugin once on a body and print its verdict
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The component
    #[arg(value_name = "FILE")]
    pub plugin_file: PathBuf,
    #[command(flatten)]
    pub message: MessageArgs,
    /// Print JSON: {"verdict","after_ms","why"}
    #[arg(long, env = "DISPATCHER_JSON", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub json: bool,
    #[command(flatten)]
    pub guest: GuestArgs,
    #[command(flatten)]
    pub stores: StoreArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Prints the verdict.
pub fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let (settings, plugin, mut problems) = settings(typed, &args.plugin_file);
    let attributes = args.message.attributes(&mut problems);
    let body = args.message.body().unwrap_or_else(|problem| {
        problems.push(problem);
        String::new()
    });
    let Some(plugin) = plugin.filter(|_| problems.is_empty()) else {
        return Err(problems.into());
    };
    let message = Message {
        id: uuid::Uuid::now_v7().to_string(),
        queue: "invoke".into(),
        body,
        source: "invoke".into(),
        receipt: Receipt("invoke".into()),
        receive_count: 1,
        sent_at: Some(clock::today()),
        first_received_at: Some(clock::today()),
        group: None,
        system_attributes: Vec::new(),
        attributes,
        body_md5: None,
        attributes_md5: None,
    };
    let verdict = block_on(attempt(&plugin, &settings, message))??;
    match args.json {
        true => output::json(&as_json(&verdict))?,
        false => output::line(as_text(&verdict))?,
    }
    match verdict {
        Verdict::Retry {
            why: Mishap::Asked | Mishap::AskedFor(_),
            ..
        } => Ok(()),
        Verdict::Retry { .. } => Err(Failure {
            exit: Exit::Failed,
            lines: Vec::new(),
        }),
        _ => Ok(()),
    }
}

async fn attempt(
    plugin: &Plugin,
    settings: &Settings,
    message: Message,
) -> Result<Verdict, Failure> {
    let Code::Component(Source::File(file)) = &plugin.code else {
        return Err(Failure::new(Exit::Usage, "no component to invoke"));
    };
    let timeout = plugin.timeout.unwrap_or(app::TIMEOUT);
    let options = |cache| RuntimeOptions {
        instances: 1,
        max_memory: plugin.max_memory,
        cache,
    };
    // Compiling anew is slower, and no reason not to try a plugin.
    let runtime = Runtime::start(
        options(Some(plugins::cache(&settings.stores.data))),
        Handle::current(),
        Arc::new(drop),
    )
    .or_else(|_| Runtime::start(options(None), Handle::current(), Arc::new(drop)))
    .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let mut alone = plugins::options_by_hand(settings, plugin, timeout).await;
    let mut problems = Vec::new();
    alone.stores = Buckets::default().of(settings, plugin, &mut problems).await;
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let loaded = runtime.load(file, alone).map_err(|error| {
        let at = error.file.display().to_string();
        let problems = error.problems.iter();
        Failure::from(
            problems
                .map(|why| Problem::new(&at, why.to_string(), ""))
                .collect::<Vec<_>>(),
        )
    })?;
    let attempt = Attempt {
        messages: vec![message],
        cancelled: vec![CancellationToken::new()],
        deadline: clock::now() + timeout,
        deadline_date: clock::today() + timeout,
    };
    let verdicts = loaded.handle(Arc::new(attempt)).await;
    verdicts
        .into_iter()
        .next()
        .ok_or_else(|| Failure::new(Exit::Failed, "the plugin host gave no verdict"))
}

fn as_json(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Done => json!({ "verdict": "done" }),
        Verdict::Retry { after, why } => json!({
            "verdict": "retry",
            "after_ms": after.map(milliseconds),
            "why": why.to_string(),
        }),
        Verdict::Reject(why) => json!({ "verdict": "reject", "why": why }),
        Verdict::Busy { after, why } => json!({
            "verdict": "busy",
            "after_ms": after.map(milliseconds),
            "why": why,
        }),
        Verdict::Closed(why) => json!({ "verdict": "closed", "why": why }),
    }
}

fn as_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Done => "done".to_owned(),
        Verdict::Retry {
            after: Some(after),
            why,
        } => {
            format!("retry after {}: {why}", humantime::format_duration(*after))
        }
        Verdict::Retry { after: None, why } => format!("retry: {why}"),
        Verdict::Reject(why) => format!("reject: {why}"),
        Verdict::Busy { after, why } => match after {
            Some(after) => format!("busy for {}: {why}", humantime::format_duration(*after)),
            None => format!("busy: {why}"),
        },
        Verdict::Closed(why) => format!("closed: {why}"),
    }
}

fn milliseconds(after: std::time::Duration) -> u64 {
    u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn verdicts_read_well_in_both_forms() {
        let retry = Verdict::Retry {
            after: Some(Duration::from_secs(90)),
            why: Mishap::Asked,
        };
        assert_eq!(
            as_text(&retry),
            "retry after 1m 30s: the handler asked for a retry"
        );
        assert_eq!(as_json(&retry)["after_ms"], 90_000);
        assert_eq!(as_text(&Verdict::Reject("no".into())), "reject: no");
        assert_eq!(as_json(&Verdict::Done).to_string(), r#"{"verdict":"done"}"#);
    }
}
