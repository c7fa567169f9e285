//! `dispatcher redrive`: move dead letters back to where they came from.

use super::plugin::sandbox;
use super::selecting::SelectArgs;
use super::{Typed, block_on, flags, output};
use crate::app::build::Backends;
use crate::app::drain::{Signals, stop_at_signal};
use crate::app::redrive::{Editor, open};
use crate::app::sandbox::Sandbox;
use crate::app::traces;
use crate::config::Places;
use crate::config::problem::Problem;
use crate::config::section::Given;
use crate::config::value;
use crate::error::{Exit, Failure};
use crate::name::QueueName;
use crate::telemetry::log::Screen;
use dispatcher_core::message::Message;
use dispatcher_core::redrive::{
    self, MOST_SCANNED, Marks, Redrive, RedriveError, RedriveReport, RedriveRequest, Review,
    SCANNED,
};
use dispatcher_core::telemetry::escape::escape_control_characters;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  dispatcher redrive local:orders.dead                      count, move nothing
  dispatcher redrive local:orders.dead --apply
  dispatcher redrive orders-dlq --reason 'time.?out' --first 10 --apply
  dispatcher redrive orders-dlq --where /customer/country=CH --older 1h \\
                     --rate 10/s --apply
  dispatcher redrive redis:orders.dead --edit 'jq -c .version=2' \\
                     --try handler.wasm --apply

Without --apply nothing is moved: the messages are counted by reason and destination. A message goes to
--to, else to the queue that its attribute dispatcher-dead-letter-source names, else to the queue whose
redrive policy brought it. It is sent, and deleted once the send is confirmed; what a crash interrupts is
sent twice at most, and never lost. Run it again to go on.

SQS cannot list messages: to look at them they are received, up to --scan of them, which counts as a
receive, and given back at the end.

Exits with 1 if a selected message stays, or the run ended early.";

/// Move dead letters back to where they came from
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The dead-letter queue
    pub queue: String,
    /// Send all of them to this queue
    #[arg(long, value_name = "QUEUE")]
    pub to: Option<String>,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Only the first N that are selected
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub first: Option<u64>,
    /// At most so many, as in 10/s or 30/m
    #[arg(id = "pace", long = "rate", value_name = "RATE")]
    pub rate: Option<String>,
    /// Look at so many at most where the queue cannot be listed
    #[arg(long, value_name = "N", default_value_t = SCANNED)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST_SCANNED))]
    pub scan: u64,
    /// Pass each body through a shell command, whose output is the new one
    #[arg(long, value_name = "COMMAND")]
    pub edit: Option<String>,
    /// Run a plugin, which is granted nothing, on each message first; only what it is done with is moved
    #[arg(long, value_name = "PLUGIN")]
    pub r#try: Option<PathBuf>,
    /// Stop when more redriven messages failed again than this share of what was moved, as in 20% or 0.2
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    pub stop_at: String,
    /// Move them; without it they are only counted
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

/// Counts or moves, and prints the report.
pub(super) fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let (places, screen, mut problems) = flags::places(&typed.matches);
    let from = flags::queue(&args.queue, &mut problems);
    let to = destination("--to", args.to.as_deref(), &mut problems);
    let request = RedriveRequest {
        selection: args.select.selection(&mut problems),
        first: args.first,
        rate: rate(args.rate.as_deref(), &mut problems),
        scan: args.scan,
        stop_at: share(&args.stop_at, &mut problems),
        marks: Marks::Redriven,
        apply: args.apply,
    };
    let Some(from) = from.filter(|_| problems.is_empty()) else {
        return Err(problems.into());
    };
    let task = MoveTask {
        from,
        to,
        at: ["QUEUE", "--to"],
        request,
        edit: args.edit.clone(),
        trial: args.r#try.clone(),
    };
    block_on(task.run(&places, &screen, args.json))?
}

/// A queue that messages go to, unless it is none.
pub(super) fn destination(
    at: &str,
    text: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Option<QueueName> {
    let read = text?.parse();
    read.map_err(|found| problems.push(Problem::new(at, found, "")))
        .ok()
}

/// Messages a second.
pub(super) fn rate(text: Option<&str>, problems: &mut Vec<Problem>) -> Option<f64> {
    let read = value::rate(&Given::new("--rate", text?));
    read.map_err(|problem| problems.push(problem)).ok()
}

fn share(text: &str, problems: &mut Vec<Problem>) -> f64 {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|number| number / 100.0),
        None => text.trim().parse(),
    };
    match number {
        Ok(share) if (0.0..=1.0).contains(&share) => share,
        _ => {
            let found = format!("`{text}` is not a share");
            problems.push(Problem::new("--stop-at", found, "0% to 100%, or 0 to 1"));
            0.0
        }
    }
}

/// One run of `redrive` or `move`.
pub(super) struct MoveTask {
    /// The queue to take messages from.
    pub from: QueueName,
    /// Where they all go.
    pub to: Option<QueueName>,
    /// What the two queues are called in problems.
    pub at: [&'static str; 2],
    /// Which, and how.
    pub request: RedriveRequest,
    /// What edits bodies.
    pub edit: Option<String>,
    /// What must be done with a message before it is moved.
    pub trial: Option<PathBuf>,
}

/// A command that edits each message, and a plugin that it is tried on then.
struct EditAndTry {
    editor: Option<Editor>,
    sandbox: Option<Sandbox>,
}

#[async_trait::async_trait]
impl Review for EditAndTry {
    async fn review(
        &self,
        message: &Message,
        cancel: &CancellationToken,
    ) -> Result<String, String> {
        let body = match &self.editor {
            Some(editor) => editor.review(message, cancel).await?,
            None => message.body.clone(),
        };
        if let Some(sandbox) = &self.sandbox {
            let edited = Message {
                body: body.clone(),
                ..message.clone()
            };
            let passed = sandbox.passes(edited, cancel).await;
            passed.map_err(|answer| format!("--try answered {answer}"))?;
        }
        Ok(body)
    }
}

impl MoveTask {
    /// Runs to its end or to a signal.
    pub(super) async fn run(
        self,
        places: &Places,
        screen: &Screen,
        json: bool,
    ) -> Result<(), Failure> {
        let signals = Signals::listen(true);
        let signals = signals
            .map_err(|error| Failure::new(Exit::Failed, format!("signal handlers: {error}")))?;
        let cancel = CancellationToken::new();
        let backends = Arc::new(Backends::new(places.stores.clone()));
        let sandbox = match &self.trial {
            Some(file) => Some(sandbox("--try", file, &places.stores.data).await?),
            None => None,
        };
        let editor = self.edit.map(|command| Editor { command });
        let is_reviewed = editor.is_some() || sandbox.is_some();
        let review = EditAndTry { editor, sandbox };
        let review = is_reviewed.then(|| Arc::new(review) as Arc<dyn Review>);
        let (tracer, exporting) = traces::start(&places.otlp)?;
        backends.trace(tracer);
        let redrive = open(backends, (&self.from, self.to.as_ref()), self.at, review).await?;
        let report = tokio::select! {
            biased; // a run that has ended is reported
            report = moved(&redrive, &self.request, &cancel, screen) => report,
            () = stop_at_signal(signals, &cancel) => return Ok(()),
        };
        exporting.finish(None).await;
        let (report, failed) = match report {
            Ok(report) => (report, None),
            Err(RedriveError::Refused(why)) => {
                return Err(Failure::new(Exit::Usage, why.to_string()));
            }
            Err(RedriveError::Source { error, report }) => {
                (*report, Some(format!("queue `{}`: {error}", self.from)))
            }
        };
        match json {
            true => output::json(&serde_json::json!(report))?,
            false => lines(&report, &redrive).iter().try_for_each(output::line)?,
        }
        let is_clean = failed.is_none() && (report.is_clean() || !report.applied);
        match is_clean {
            true => Ok(()),
            false => Err(Failure {
                exit: Exit::Failed,
                lines: failed.into_iter().collect(),
            }),
        }
    }
}

/// Runs with a bar of what was moved or, where nothing is, of what was looked at.
async fn moved(
    redrive: &Redrive,
    request: &RedriveRequest,
    cancel: &CancellationToken,
    screen: &Screen,
) -> Result<RedriveReport, RedriveError> {
    let total = redrive.from.depth().await.map_or(0, |depth| depth.waiting);
    let most = request.first.filter(|_| request.apply);
    let bar = screen.bar(most.map_or(total, |first| total.min(first)));
    let shown = AtomicU64::new(0);
    let progress = |report: &RedriveReport| {
        let done = if request.apply {
            report.moved
        } else {
            report.scanned
        };
        let before = shown.swap(done, Ordering::Relaxed);
        bar.advance(done.saturating_sub(before));
    };
    redrive::run(redrive, request, cancel, &progress).await
}

/// What the run did, in a line.
fn summary(report: &RedriveReport) -> String {
    let queue = &report.queue;
    let end = report.end.map_or("a call failed", |end| end.words());
    match report.applied {
        true => format!(
            "{queue}: {} looked at, {} moved, {} stay ({end})",
            report.scanned,
            report.moved,
            report.left + report.blocked
        ),
        false => format!(
            "{queue}: {} looked at, {} selected ({end})",
            report.scanned, report.matched
        ),
    }
}

/// The report for people.
fn lines(report: &RedriveReport, redrive: &Redrive) -> Vec<String> {
    let mut lines = vec![summary(report)];
    for kind in &report.messages {
        let reason = kind.reason.as_deref().unwrap_or("(no reason)");
        let to = kind.to.as_deref().unwrap_or("(nowhere)");
        let samples = kind.samples.join(", ");
        let text = format!("{:>8}  {reason}  -> {to}  e.g. {samples}", kind.messages);
        lines.push(escape_control_characters(&text).to_string());
    }
    let stay = if report.applied { "stay" } else { "would stay" };
    for kind in &report.failures {
        let samples = kind.samples.join(", ");
        let text = format!(
            "{:>8}  {stay}: {}  e.g. {samples}",
            kind.messages, kind.error
        );
        lines.push(escape_control_characters(&text).to_string());
    }
    lines.extend(notes(report));
    if !redrive.from.can_browse() {
        let given_back = match report.received {
            0 => String::new(),
            count => {
                format!("; messages were given back after {count} receives, each of which counts")
            }
        };
        lines.push(format!(
            "{} receive calls{given_back}",
            report.receive_calls
        ));
        if redrive.is_fifo && !report.applied {
            lines.push(
                "of each group of a FIFO queue only the first messages can be looked at".into(),
            );
        }
    }
    if !report.applied {
        lines.push("nothing was moved; add --apply to move them".into());
    }
    lines
}

/// A line for each of these counts that is not 0.
fn notes(report: &RedriveReport) -> impl Iterator<Item = String> {
    let notes = [
        (report.arrived, "came after this run began, and stay"),
        (
            report.taken,
            "were received or removed by others before this run came to them",
        ),
        (
            report.blocked,
            "wait behind a message of their group that stays",
        ),
        (
            report.returned,
            "were redriven, by this run or another, and failed again while it ran",
        ),
        (
            report.not_deleted,
            "were sent and could not be deleted: they are in both queues",
        ),
        (
            report.missing,
            "were asked for and not found: in flight, delayed, or gone",
        ),
        (
            report.uncertain,
            "were sent without a clear answer and stay: they may be in both queues",
        ),
        (
            report.not_released,
            "could not be given back: they are invisible until their lease ends",
        ),
        (
            report.uncounted,
            "have no room for the attribute dispatcher-redriven beside the sender's own",
        ),
    ];
    let notes = notes.into_iter().filter(|(count, _)| *count > 0);
    notes.map(|(count, what)| format!("{count:>8}  {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::redrive::End;

    #[test]
    fn the_report_says_how_many_messages_were_looked_at() {
        let mut report = RedriveReport {
            queue: "orders-dlq".to_owned(),
            scanned: 100,
            matched: 12,
            moved: 10,
            left: 2,
            end: Some(End::ScanLimit),
            ..RedriveReport::default()
        };
        let counted = summary(&report);
        assert!(counted.starts_with("orders-dlq: 100 looked at, 12 selected ("));
        report.applied = true;
        let moved = summary(&report);
        assert!(moved.starts_with("orders-dlq: 100 looked at, 10 moved, 2 stay ("));
    }

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        for (text, wanted) in [
            ("20%", Some(0.2)),
            ("0.2", Some(0.2)),
            ("100%", Some(1.0)),
            ("2", None),
            ("-1%", None),
            ("x", None),
        ] {
            let mut problems = Vec::new();
            let read = share(text, &mut problems);
            match wanted {
                Some(wanted) => assert!(
                    (read - wanted).abs() < 1e-9 && problems.is_empty(),
                    "{text}"
                ),
                None => assert_eq!(problems.len(), 1, "{text}"),
            }
        }
    }
}
