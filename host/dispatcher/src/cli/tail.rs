//! `dispatcher tail`: follows the outcomes of a queue's messages in a running process.

use super::admin::{AdminClient, in_path};
use super::{LooseArguments, block_on, flags, output};
use crate::app::drain::{Signals, stop_at_signal};
use crate::error::{Exit, Failure};
use dispatcher_core::clock;
use dispatcher_core::telemetry::escape::{escape_control_characters, escape_json};
use dispatcher_operate::operations::OutcomeView;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  dispatcher tail local:orders --admin 127.0.0.1:9090
  dispatcher tail payments --admin 127.0.0.1:9090 --admin-token-file token \\
                  --json | jq .reason

Prints one line for each delivery that ends in the process at the admin address: time, message id,
outcome, attempt, duration, reason. The process must receive from the queue. Ends at a signal (exit
code 0), or when the process stops.";

/// The time without data after which a stream counts as broken: an idle stream carries a comment
/// every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);

/// Follow the outcomes of a queue's messages in a running process
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue, as the process's configuration names it
    pub queue: String,
    /// Print each outcome as JSON, in the form of the admin API's stream
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// The reason why following ended.
enum FollowEnd {
    /// The process is stopping.
    Stopped,
    /// This reader was too slow, and some outcomes were left out.
    TooSlow,
}

/// Prints outcomes until a signal, or until the process stops.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (place, mut problems) = flags::admin(&typed.matches);
    let queue = flags::queue(&args.queue, &mut problems);
    let (Some(queue), true) = (queue, problems.is_empty()) else {
        return Err(problems.into());
    };
    let Some(client) = AdminClient::of(&place)? else {
        let line = "--admin: no address; wanted the address of the process, as in 127.0.0.1:9090, \
                    by the flag, DISPATCHER_ADMIN or the file of --config";
        return Err(Failure::new(Exit::Usage, line));
    };
    block_on(follow(&client, &queue.to_string(), args.json))?
}

async fn follow(client: &AdminClient, queue: &str, json: bool) -> Result<(), Failure> {
    let signals = Signals::listen(true)
        .map_err(|error| Failure::new(Exit::Failed, format!("signal handlers: {error}")))?;
    let cancel = CancellationToken::new();
    let name = in_path(queue);
    // A queue that the process does not have would stay silent forever.
    client
        .get(&format!("/api/v1/queues/{name}"))
        .await?
        .json()?;
    let printing = async {
        loop {
            match print(client, &name, json).await? {
                FollowEnd::Stopped => {
                    output::note("the process stops");
                    return Ok(());
                }
                FollowEnd::TooSlow => {
                    output::note("too slow: some lines were skipped");
                }
            }
        }
    };
    tokio::select! {
        ended = printing => ended,
        () = cancel.cancelled() => Ok(()),
        () = stop_at_signal(signals, &cancel) => Ok(()),
    }
}

/// Prints one stream to its end.
async fn print(client: &AdminClient, queue: &str, json: bool) -> Result<FollowEnd, Failure> {
    let mut stream = client
        .stream(&format!("/api/v1/events?queue={queue}"))
        .await?;
    let mut events = EventReader::default();
    loop {
        let piece = tokio::select! {
            piece = stream.next() => piece?,
            () = clock::sleep_until(Some(clock::now() + SILENCE)) => {
                let line = format!("{}: no data for {} s", client.place(), SILENCE.as_secs());
                return Err(Failure::new(Exit::Unreachable, line));
            }
        };
        let Some(piece) = piece else {
            return Ok(FollowEnd::Stopped);
        };
        for StreamEvent { name, data } in events.read(&piece) {
            match name.as_str() {
                "outcome" if json => output::line(escape_json(&data))?,
                "outcome" => {
                    let outcome: OutcomeView = serde_json::from_str(&data).unwrap_or_default();
                    output::line(text(&outcome))?;
                }
                "too-slow" => return Ok(FollowEnd::TooSlow),
                "stopped" => return Ok(FollowEnd::Stopped),
                "hello" => output::note(format!("following {}", client.place())),
                _ => {}
            }
        }
    }
}

/// Formats one outcome for people.
fn text(outcome: &OutcomeView) -> String {
    let more = match outcome.messages.0.saturating_sub(outcome.ids.len() as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let attempt = outcome
        .attempt
        .or(outcome.receive_count)
        .map_or_else(|| "-".to_owned(), |attempt| format!("#{attempt}"));
    let took = outcome
        .took_s
        .map_or_else(|| "-".to_owned(), |took| format!("{:.1}ms", took * 1e3));
    let reason = outcome.reason.as_ref().map(|reason| format!("  {reason}"));
    let line = format!(
        "{}  {}{more}  {}  {attempt}  {took}{}",
        outcome.at,
        outcome.ids.join(","),
        outcome.event,
        reason.unwrap_or_default()
    );
    escape_control_characters(&line).to_string()
}

/// A server-sent event.
#[derive(Debug, PartialEq, Eq)]
struct StreamEvent {
    name: String,
    data: String,
}

/// Assembles events from chunks of a stream.
#[derive(Debug, Default)]
struct EventReader {
    rest: Vec<u8>,
}

impl EventReader {
    /// Returns the events that end in this chunk.
    fn read(&mut self, piece: &[u8]) -> Vec<StreamEvent> {
        self.rest.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|two| two == b"\n\n") {
            let bytes: Vec<u8> = self.rest.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&bytes);
            if let (Some(name), Some(data)) = (field(&event, "event"), field(&event, "data")) {
                events.push(StreamEvent {
                    name: name.to_owned(),
                    data: data.to_owned(),
                });
            }
        }
        events
    }
}

fn field<'a>(event: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = event.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_operate::schema::Count;

    #[test]
    fn events_are_read_whatever_their_pieces_are() {
        let stream = b"event: hello\ndata: {}\n\n: alive\n\nevent: outcome\ndata: {\"a\":1}\n\n";
        for size in 1..stream.len() {
            let mut reader = EventReader::default();
            let events: Vec<StreamEvent> = stream
                .chunks(size)
                .flat_map(|piece| reader.read(piece))
                .collect();
            let names: Vec<&str> = events.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, ["hello", "outcome"], "{size}");
            assert_eq!(events[1].data, "{\"a\":1}");
        }
    }

    #[test]
    fn an_outcome_is_one_line_without_control_characters() {
        let outcome = OutcomeView {
            at: "2026-11-23T10:00:00.000Z".to_owned(),
            event: "retried".into(),
            ids: vec!["m-1".to_owned()],
            messages: Count(1),
            receive_count: Some(Count(2)),
            attempt: Some(Count(3)),
            took_s: Some(0.0125),
            reason: Some("bad\u{1b}[31m\nthing".to_owned()),
            ..OutcomeView::default()
        };
        let line = text(&outcome);
        assert!(
            line.starts_with("2026-11-23T10:00:00.000Z  m-1  retried  #3  12.5ms  bad"),
            "{line}"
        );
        assert!(!line.contains(|one: char| one.is_control()), "{line}");
        let several = OutcomeView {
            at: "t".to_owned(),
            event: "released".into(),
            ids: vec!["a".to_owned(), "b".to_owned()],
            messages: Count(30),
            ..OutcomeView::default()
        };
        assert_eq!(text(&several), "t  a,b and 28 more  released  -  -");
    }
}
