//! The summary that each process of a fleet publishes for the others: numbers and names, no bodies
//! of messages. Pure.

use super::figures::LimitFigures;
use serde::{Deserialize, Serialize};

/// The format that this version writes, and the newest that it reads.
const FORMAT: u32 = 1;
/// The most bytes of a summary.
pub const LARGEST: usize = 4 << 10;
/// The bytes that are kept free for the numbers of what was left out.
const RESERVE: usize = 80;

/// The state of a process. Lists begin with the busiest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// The format, which `text` sets.
    pub format: u32,
    /// The version of the program.
    pub version: String,
    /// The digest of its configuration.
    pub configuration: String,
    /// When it started.
    pub started_at: String,
    /// The number of the last request in the control record that it has seen.
    pub requested: u64,
    /// Its answers to recent requests.
    pub answers: Vec<RequestAnswer>,
    /// Its routes.
    pub routes: Vec<RouteSummary>,
    /// Its queues.
    pub queues: Vec<QueueSummary>,
    /// Its limits.
    pub limits: Vec<LimitSummary>,
    /// How many routes, queues, limits and answers are left out.
    pub left_out: u64,
}

/// An attempt at a message that was looked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestAnswer {
    /// The number of the request.
    pub request: u64,
    /// The id of the attempt, unique in the process.
    pub attempt: String,
    /// The queue of the message.
    pub queue: String,
    /// The time since the start of the attempt, in seconds.
    pub age_s: f64,
    /// Whether the message is cancelled.
    pub is_cancelled: bool,
}

/// A route of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteSummary {
    /// The name.
    pub route: String,
    /// Attempts under way.
    pub running: u64,
    /// Messages that have not started.
    pub waiting: u64,
    /// Messages held, started or not.
    pub held: u64,
}

/// A queue of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSummary {
    /// The name in the configuration.
    pub queue: String,
    /// Whether the process receives nothing from it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_paused: bool,
    /// Messages in attempts.
    pub running: u64,
    /// Messages started per second.
    pub started: f64,
    /// Messages handled and deleted per second.
    pub done: f64,
    /// Messages per second whose attempt failed.
    pub failed: f64,
}

/// A limit, as one process uses it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitSummary {
    /// The name.
    pub limit: String,
    /// The most permits in use, for each key; `None` if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The starts per second, for each key; `None` if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Permits in use.
    pub used: u64,
    /// Messages that wait for it.
    pub waiting: u64,
    /// The keys for which most messages wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeySummary>,
}

/// A key of a limit, as one process uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeySummary {
    /// The key, without what the plugin's rules redact.
    pub key: String,
    /// Permits in use.
    pub used: u64,
    /// Messages that wait.
    pub waiting: u64,
}

impl From<LimitFigures> for LimitSummary {
    fn from(figures: LimitFigures) -> Self {
        let all = figures.keys.iter().chain([&figures.others]);
        let keys = figures.keys.iter().filter(|key| !key.key.is_empty());
        Self {
            concurrency: figures.numbers.concurrency,
            rate: figures.numbers.rate.map(|rate| rate.per_second),
            used: all.clone().map(|key| u64::from(key.in_use)).sum(),
            waiting: all.map(|key| u64::from(key.waiting)).sum(),
            keys: keys
                .map(|key| KeySummary {
                    key: key.key.clone(),
                    used: key.in_use.into(),
                    waiting: key.waiting.into(),
                })
                .collect(),
            limit: figures.name,
        }
    }
}

impl Summary {
    /// Returns the text to publish. What does not fit is left out and counted: the least busy of
    /// each kind.
    #[must_use]
    pub fn text(mut self) -> String {
        self.format = FORMAT;
        self.limits
            .sort_by_key(|one| std::cmp::Reverse((one.waiting, one.used)));
        self.routes
            .sort_by_key(|one| std::cmp::Reverse((one.held, one.running)));
        self.queues
            .sort_by(|one, other| other.importance().total_cmp(&one.importance()));
        let lists = Self {
            answers: std::mem::take(&mut self.answers),
            limits: std::mem::take(&mut self.limits),
            routes: std::mem::take(&mut self.routes),
            queues: std::mem::take(&mut self.queues),
            ..Self::default()
        };
        let mut room = LARGEST.saturating_sub(json(&self).len() + RESERVE);
        // Each kind may take a share of the room that is left.
        self.answers = fitting(lists.answers, &mut room, 2, &mut self.left_out);
        self.limits = fitting(lists.limits, &mut room, 3, &mut self.left_out);
        self.routes = fitting(lists.routes, &mut room, 2, &mut self.left_out);
        self.queues = fitting(lists.queues, &mut room, 1, &mut self.left_out);
        json(&self)
    }

    /// Reads a summary; `None` if it is of a newer format or cannot be read.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        let summary: Self = serde_json::from_str(text).ok()?;
        (summary.format == FORMAT).then_some(summary)
    }
}

impl QueueSummary {
    /// A paused queue comes before any other.
    fn importance(&self) -> f64 {
        let rates = self.started + self.done + self.failed;
        let pause = if self.is_paused { 1e12 } else { 0.0 };
        pause + self.running as f64 + rates
    }
}

/// Returns the first items that fit into a part of the room.
fn fitting<T: Serialize>(
    items: Vec<T>,
    room: &mut usize,
    part: usize,
    left_out: &mut u64,
) -> Vec<T> {
    let mut share = *room / part;
    *room -= share;
    let before = items.len();
    let mut kept = Vec::new();
    for item in items {
        // With the comma.
        let bytes = json(&item).len() + 1;
        if bytes > share {
            break;
        }
        share -= bytes;
        kept.push(item);
    }
    *left_out += (before - kept.len()) as u64;
    *room += share;
    kept
}

fn json(value: &impl Serialize) -> String {
    // Numbers and texts always become JSON.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(number: u32, started: f64) -> QueueSummary {
        QueueSummary {
            queue: format!("local:queue-{number}"),
            started,
            ..QueueSummary::default()
        }
    }

    #[test]
    fn small_summary_is_whole() {
        let summary = Summary {
            version: "1.2.3".to_owned(),
            requested: 7,
            queues: vec![queue(1, 0.5)],
            limits: vec![LimitSummary::default()],
            answers: vec![RequestAnswer::default()],
            routes: vec![RouteSummary::default()],
            ..Summary::default()
        };
        let read = Summary::of_text(&summary.clone().text()).expect("readable");
        assert_eq!(
            read,
            Summary {
                format: FORMAT,
                ..summary
            }
        );
    }

    #[test]
    fn large_summary_leaves_out_the_least_busy_and_says_how_many() {
        let mut queues: Vec<_> = (0..1_000)
            .map(|number| queue(number, f64::from(number)))
            .collect();
        queues[3].is_paused = true;
        let routes = (0..500).map(|number| RouteSummary {
            route: format!("route-{number}"),
            held: number,
            ..RouteSummary::default()
        });
        let summary = Summary {
            queues,
            routes: routes.collect(),
            ..Summary::default()
        };
        let text = summary.text();
        assert!(
            (LARGEST - 200..=LARGEST).contains(&text.len()),
            "{}",
            text.len()
        );
        let read = Summary::of_text(&text).expect("readable");
        assert_eq!(read.queues[0].queue, "local:queue-3", "it is paused");
        assert_eq!(read.queues[1].queue, "local:queue-999");
        assert_eq!(read.routes[0].route, "route-499");
        let shown = (read.queues.len() + read.routes.len()) as u64;
        assert_eq!(read.left_out, 1_500 - shown);
    }

    #[test]
    fn newer_or_foreign_summary_is_not_read() {
        for text in ["", "{}", "null", r#"{"format":2}"#] {
            assert_eq!(Summary::of_text(text), None, "{text}");
        }
    }
}
