//! `dispatcher move`: take messages from one queue to another as they are.

use super::redrive::{MoveTask, destination, rate};
use super::{Typed, block_on, flags, output};
use crate::app::build::Backends;
use crate::app::redrive::open;
use crate::config::Places;
use crate::error::{Exit, Failure};
use crate::name::QueueName;
use dispatcher_core::redrive;
use dispatcher_core::redrive::{Marks, RedriveRequest};
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  dispatcher move local:old local:new             count, move nothing
  dispatcher move local:old local:new --apply
  dispatcher move orders redis:orders --first 100 --rate 50/s --apply

Body, attributes, group and trace header stay as they are. Takes what waits when it begins; what comes
later stays. Each message is sent, and deleted once the send is confirmed. Run it again to go on.";

/// What the two queues are called in problems.
const AT: [&str; 2] = ["FROM", "TO"];

/// Move messages from one queue to another
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue to take messages from
    pub from: String,
    /// The queue that they go to
    pub to: String,
    /// Only the first N
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub first: Option<u64>,
    /// At most so many, as in 10/s or 30/m
    #[arg(id = "pace", long = "rate", value_name = "RATE")]
    pub rate: Option<String>,
    /// Move them; without it nothing is done
    #[arg(long)]
    pub apply: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Moves, or says how many there are.
pub(super) fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let (places, screen, mut problems) = flags::places(&typed.matches);
    let from = destination("FROM", Some(&args.from), &mut problems);
    let to = destination("TO", Some(&args.to), &mut problems);
    let rate = rate(args.rate.as_deref(), &mut problems);
    let (Some(from), Some(to), true) = (from, to, problems.is_empty()) else {
        return Err(problems.into());
    };
    let request = RedriveRequest {
        first: args.first,
        rate,
        marks: Marks::Kept,
        apply: true,
        ..RedriveRequest::default()
    };
    if !args.apply {
        return block_on(announce(&places, (&from, &to), &request, args.json))?;
    }
    let task = MoveTask {
        from,
        to: Some(to),
        at: AT,
        request,
        edit: None,
        trial: None,
    };
    block_on(task.run(&places, &screen, args.json))?
}

/// Says how many there are, if `request` can be met at all.
async fn announce(
    places: &Places,
    (from, to): (&QueueName, &QueueName),
    request: &RedriveRequest,
    json: bool,
) -> Result<(), Failure> {
    let backends = Arc::new(Backends::new(places.stores.clone()));
    let redrive = open(backends.clone(), (from, Some(to)), AT, None).await?;
    if let Err(why) = redrive::check(&redrive, request) {
        return Err(Failure::new(Exit::Usage, why.to_string()));
    }
    let depth = match redrive.from.depth().await {
        Ok(depth) => depth,
        Err(error) => return Err(backends.problem("FROM", from, &error).await.into()),
    };
    let waiting = request
        .first
        .map_or(depth.waiting, |first| depth.waiting.min(first));
    if json {
        return output::json(&serde_json::json!({
            "queue": from.to_string(), "to": to.to_string(), "applied": false, "matched": waiting,
        }));
    }
    output::line(format!("{from}: {waiting} would go to {to}"))?;
    output::line("nothing was moved; add --apply to move them")
}
