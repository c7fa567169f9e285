//! `dispatcher tail`: follow how the messages of a queue end in a running process.

use super::admin::{AdminClient, in_path};
use super::{Typed, block_on, flags, output};
use crate::app::drain::{Signals, stop_at_signal};
use crate::error::{Exit, Failure};
use dispatcher_core::clock;
use dispatcher_core::telemetry::escape::escape_control_characters;
use serde_json::Value;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  dispatcher tail local:orders --admin 127.0.0.1:9090
  dispatcher tail payments --admin 127.0.0.1:9090 --admin-token-file token \\
                  --json | jq .reason

Prints one line for each delivery that ends in the process whose admin address is asked: time, message
id, outcome, attempt, duration, reason. The process must receive from the queue. Ends with a signal (exit
code 0), or when the process stops.";

/// A stream on which nothing happens says so every 15 seconds: a silent one is broken.
const SILENCE: Duration = Duration::from_secs(45);

/// Follow how the messages of a queue end in a running process
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue, as the process's configuration names it
    pub queue: String,
    /// Print each as JSON, as the stream of the admin API has it
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Why following ended.
enum FollowEnd {
    /// The process stops.
    Stopped,
    /// What came was too much for this reader; some was left out.
    TooSlow,
}

/// Prints until a signal, or until the process stops.
pub(super) fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let (place, mut problems) = flags::admin(&typed.matches);
    let queue = flags::queue(&args.queue, &mut problems);
    let Some(queue) = queue.filter(|_| problems.is_empty()) else {
        return Err(problems.into());
    };
    let Some(client) = AdminClient::of(&place)? else {
        let line = "--admin: no address; wanted that of the process, as in 127.0.0.1:9090, by the \
                    flag, DISPATCHER_ADMIN or the file of --config";
        return Err(Failure::new(Exit::Usage, line));
    };
    block_on(follow(&client, &queue.to_string(), args.json))?
}

async fn follow(client: &AdminClient, queue: &str, json: bool) -> Result<(), Failure> {
    let signals = Signals::listen(true)
        .map_err(|error| Failure::new(Exit::Failed, format!("signal handlers: {error}")))?;
    let cancel = CancellationToken::new();
    let name = in_path(queue);
    // A queue that the process does not have would be silent for ever.
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
                    output::note("too slow: some lines were left out");
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
                let line = format!("{}: nothing came for {} s", client.place(), SILENCE.as_secs());
                return Err(Failure::new(Exit::Unreachable, line));
            }
        };
        let Some(piece) = piece else {
            return Ok(FollowEnd::Stopped);
        };
        for StreamEvent { name, data } in events.read(&piece) {
            match name.as_str() {
                "outcome" if json => output::line(data)?,
                "outcome" => {
                    let outcome: Value = serde_json::from_str(&data).unwrap_or_default();
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

/// One outcome, for people.
fn text(outcome: &Value) -> String {
    let word = |name: &str| outcome[name].as_str().unwrap_or("-");
    let ids = outcome["ids"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let ids: Vec<&str> = ids.iter().filter_map(Value::as_str).collect();
    let messages = outcome["messages"].as_u64().unwrap_or_default();
    let more = match messages.saturating_sub(ids.len() as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let attempt = outcome["attempt"]
        .as_u64()
        .or(outcome["receive_count"].as_u64());
    let attempt = attempt.map_or_else(|| "-".to_owned(), |attempt| format!("#{attempt}"));
    let took = outcome["took_s"]
        .as_f64()
        .and_then(|took| Duration::try_from_secs_f64(took).ok());
    let took = took.map_or_else(
        || "-".to_owned(),
        |took| format!("{:.1}ms", took.as_secs_f64() * 1e3),
    );
    let reason = outcome["reason"]
        .as_str()
        .map(|reason| format!("  {reason}"));
    let line = format!(
        "{}  {}{more}  {}  {attempt}  {took}{}",
        word("at"),
        ids.join(","),
        word("event"),
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

/// Puts events together out of pieces of a stream.
#[derive(Debug, Default)]
struct EventReader {
    rest: Vec<u8>,
}

impl EventReader {
    /// The events that end in this piece.
    fn read(&mut self, piece: &[u8]) -> Vec<StreamEvent> {
        self.rest.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.rest.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event);
            let field = |name: &str| {
                let mut lines = event.lines();
                lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            };
            if let (Some(name), Some(data)) = (field("event"), field("data")) {
                events.push(StreamEvent {
                    name: name.to_owned(),
                    data: data.to_owned(),
                });
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let outcome = serde_json::json!({
            "at": "2026-11-23T10:00:00.000Z", "event": "retried", "ids": ["m-1"], "messages": 1,
            "receive_count": 2, "attempt": 3, "took_s": 0.0125, "reason": "bad\u{1b}[31m\nthing",
        });
        let line = text(&outcome);
        assert!(
            line.starts_with("2026-11-23T10:00:00.000Z  m-1  retried  #3  12.5ms  bad"),
            "{line}"
        );
        assert!(!line.contains(|one: char| one.is_control()), "{line}");
        let several = serde_json::json!({
            "at": "t", "event": "released", "ids": ["a", "b"], "messages": 30,
            "receive_count": null, "attempt": null, "took_s": null, "reason": null,
        });
        assert_eq!(text(&several), "t  a,b and 28 more  released  -  -");
    }
}
