//! `dispatcher pause`, `resume` and `limit`: change what a queue's processes do while they run, by way
//! of the queue's store or, where the backend has none, of one process's admin address.

use super::admin::{AdminClient, in_path};
use super::{Typed, block_on, flags, output};
use crate::app::build::Backends;
use crate::config::{AdminPlace, Places};
use crate::error::{Exit, Failure};
use crate::name::QueueName;
use dispatcher_core::control::{ControlChange, is_rate};
use serde_json::{Map, Value, json};

const SHARED: &str = "\
On Redis, DynamoDB and local queues it is kept beside the queue: all processes that read the queue
obey it within 5 seconds, also those that start later, until it is changed again. On SQS, which has
no place for it, it holds for one process until that ends: name the process by --admin.";

const PAUSE: &str = "\
Examples:
  dispatcher pause redis:payments
  dispatcher pause payments --admin 127.0.0.1:9090 --admin-token-file token
      one process, on SQS

Nothing more is received. What runs is finished, what waits is given back, and no attempt is counted
for it.";

const LIMIT: &str = "\
Examples:
  dispatcher limit redis:payments --rate 5
  dispatcher limit local:mail --concurrency 2 --prefetch 0
  dispatcher limit redis:payments --reset

Each process that reads the queue has these limits, in place of the configured ones.";

/// Stop receiving from a queue, while processes go on running
#[derive(Debug, clap::Args)]
#[command(after_help = PAUSE, after_long_help = format!("{PAUSE}\n\n{SHARED}"))]
pub(super) struct PauseArgs {
    #[command(flatten)]
    pub of: ControlArgs,
}

/// Receive from a queue again that was paused
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dispatcher resume redis:payments")]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    pub of: ControlArgs,
}

/// Change limits of a queue while processes go on running
#[derive(Debug, clap::Args)]
#[command(after_help = LIMIT, after_long_help = format!("{LIMIT}\n\n{SHARED}"))]
#[group(id = "limits", required = true, multiple = true)]
pub(super) struct LimitArgs {
    /// The most attempts at its messages at once, besides the route's
    #[arg(long = "concurrency", id = "live-concurrency", value_name = "N")]
    #[arg(value_parser = at_least_one, group = "limits")]
    pub concurrency: Option<usize>,
    /// The most messages of it that are started in a second
    #[arg(long = "rate", id = "live-rate", value_name = "R", value_parser = rate, group = "limits")]
    pub rate: Option<f64>,
    /// The most messages that its route holds beyond what runs
    #[arg(
        long = "prefetch",
        id = "live-prefetch",
        value_name = "N",
        group = "limits"
    )]
    pub prefetch: Option<usize>,
    /// All limits as configured again; those that are named beside it hold
    #[arg(long, group = "limits")]
    pub reset: bool,
    #[command(flatten)]
    pub of: ControlArgs,
}

/// What the three have in common.
#[derive(Debug, clap::Args)]
pub(super) struct ControlArgs {
    /// The queue
    pub queue: String,
    /// Print JSON: {"target","affects","until","within_s","process"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "wanted a whole number of at least 1; to start nothing, pause".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| is_rate(*rate));
    rate.ok_or_else(|| {
        "wanted messages a second, greater than 0; to start nothing, pause".to_owned()
    })
}

pub(super) fn pause(args: &PauseArgs, typed: &Typed) -> Result<(), Failure> {
    set(&args.of, typed, &paused(true), "pause", "paused")
}

pub(super) fn resume(args: &ResumeArgs, typed: &Typed) -> Result<(), Failure> {
    set(&args.of, typed, &paused(false), "resume", "resumed")
}

fn paused(paused: bool) -> ControlChange {
    ControlChange {
        paused: Some(paused),
        ..ControlChange::default()
    }
}

pub(super) fn limit(args: &LimitArgs, typed: &Typed) -> Result<(), Failure> {
    let below = if args.reset {
        ControlChange::RESET
    } else {
        ControlChange::default()
    };
    let change = ControlChange {
        paused: None,
        concurrency: args.concurrency.map(Some).or(below.concurrency),
        rate: args.rate.map(Some).or(below.rate),
        prefetch: args.prefetch.map(Some).or(below.prefetch),
    };
    set(&args.of, typed, &change, "limits", "limited")
}

/// Changes it, and prints who obeys.
fn set(
    args: &ControlArgs,
    typed: &Typed,
    change: &ControlChange,
    action: &str,
    done: &str,
) -> Result<(), Failure> {
    let (places, name) = flags::place_of(&typed.matches, &args.queue)?;
    let result = if name.backend.shares_controls() {
        block_on(share(&places, &name, change))??
    } else {
        let (place, problems) = flags::admin(&typed.matches);
        if !problems.is_empty() {
            return Err(problems.into());
        }
        block_on(ask(&place, &name, change, action))??
    };
    if args.json {
        return output::json(&result);
    }
    let queue = &args.queue;
    let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    output::line(match text("affects").as_str() {
        "all-processes" => format!(
            "{queue} {done} for all processes that read it, within {} s, until it is changed",
            result["within_s"]
        ),
        _ => format!(
            "{queue} {done} for process {} alone, until it ends",
            text("process")
        ),
    })
}

async fn share(
    places: &Places,
    name: &QueueName,
    change: &ControlChange,
) -> Result<Value, Failure> {
    let backends = Backends::new(places.stores.clone());
    let changed = async {
        let client = backends.client(name.backend).await?;
        if !client.exists(&name.name).await? {
            return Err(dispatcher_core::backend::not_made_yet());
        }
        client.change_control(&name.name, change).await
    };
    if let Err(error) = changed.await {
        return Err(backends.problem("QUEUE", name, &error).await.into());
    }
    Ok(json!({
        "target": name.to_string(),
        "affects": "all-processes",
        "until": "changed",
        "within_s": 5,
        "process": null,
    }))
}

async fn ask(
    place: &AdminPlace,
    name: &QueueName,
    change: &ControlChange,
    action: &str,
) -> Result<Value, Failure> {
    let Some(client) = AdminClient::of(place)? else {
        let line = format!(
            "--admin: queue `{name}` is on {}, where processes share no pauses and limits; wanted \
             the admin address of the process that is to obey, as in 127.0.0.1:9090",
            name.backend.name()
        );
        return Err(Failure::new(Exit::Usage, line));
    };
    let path = format!("/api/v1/queues/{}/{action}", in_path(&name.to_string()));
    let answer = client.post(&path, &body(change)).await?.json()?;
    let keep = ["target", "affects", "until", "within_s", "process"];
    let kept = keep.map(|key| (key.to_owned(), answer[key].clone()));
    Ok(Value::Object(kept.into_iter().collect()))
}

/// The limits of a change, as the API has them.
fn body(change: &ControlChange) -> Value {
    let mut body = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    add("concurrency", change.concurrency.map(|limit| json!(limit)));
    add("rate", change.rate.map(|limit| json!(limit)));
    add("prefetch", change.prefetch.map(|limit| json!(limit)));
    Value::Object(body)
}
