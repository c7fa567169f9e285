//! What `dispatcher top` shows, and what its keys do: the last answers of the admin API, the selected
//! row, a question that waits for its answer. Pure: it draws nothing and asks nobody.

use crate::name::QueueName;
use dispatcher_core::backend::Backend;
use dispatcher_core::clock::BootInstant;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

use crate::cli::admin::in_path;

/// The most rows of a list that are fetched.
pub(super) const ROWS: usize = 200;
/// Without an answer for so long, that is shown.
const SILENCE: Duration = Duration::from_secs(2);
/// For how long a result is shown in place of the keys.
const NOTICE: Duration = Duration::from_secs(6);

/// The process at a glance, as `GET /api/v1/overview` has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct OverviewData {
    pub process: ProcessData,
    pub queues: u64,
    /// The first of the queues that are paused.
    pub paused: Vec<String>,
    pub running: u64,
    pub leases: u64,
    pub messages: MessageData,
    pub recent: Option<WorkData>,
}

/// Attempts and calls of the last minute.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WorkData {
    pub attempt_p50_s: Option<f64>,
    pub attempt_p99_s: Option<f64>,
    pub calls_per_second: f64,
    pub dollars_per_day: Option<f64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProcessData {
    pub id: String,
    pub version: String,
    pub uptime_s: f64,
    pub state: String,
    pub not_ready: Vec<NotReadyData>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NotReadyData {
    pub what: String,
    pub reason: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageData {
    pub received: u64,
    pub done: u64,
    pub retried: u64,
    pub dead_lettered: u64,
    pub lost: u64,
}

/// A queue, as `GET /api/v1/queues` has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct QueueData {
    pub queue: String,
    pub paused: bool,
    pub shared: bool,
    pub in_flight: u64,
    pub per_second: Option<RateData>,
    pub recent: Option<WorkData>,
    pub depth: Option<DepthData>,
    pub dead_letter_queue: Option<String>,
    pub dead_letter_depth: Option<DepthData>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RateData {
    pub received: f64,
    pub done: f64,
    pub failed: f64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct DepthData {
    pub waiting: Option<u64>,
    pub delayed: Option<u64>,
    pub oldest_s: Option<f64>,
    pub error: Option<String>,
}

/// An attempt under way, as `GET /api/v1/running` has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunningData {
    pub id: String,
    pub queue: String,
    pub age_s: f64,
    pub stuck: Option<String>,
    pub messages: Vec<RunningMessageData>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunningMessageData {
    pub id: String,
    pub attempt: u64,
    pub lease_left_s: Option<f64>,
    pub cancelled: bool,
}

/// A delivery that ended otherwise than done, as `GET /api/v1/outcomes` has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutcomeData {
    pub at: String,
    pub queue: String,
    pub event: String,
    pub reason: Option<String>,
    pub reason_kind: Option<String>,
    pub messages: u64,
    pub ids: Vec<String>,
}

/// One of the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Queues,
    Running,
    Outcomes,
}

impl Tab {
    pub(crate) const ALL: [Self; 3] = [Self::Queues, Self::Running, Self::Outcomes];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Queues => "Queues",
            Self::Running => "Running",
            Self::Outcomes => "Outcomes",
        }
    }
}

/// A change that the process is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    pub path: String,
    /// What is shown once it is done.
    pub done: String,
}

/// What must be confirmed before it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub text: String,
    /// The messages that it touches: how many, or which.
    pub touches: String,
    action: Action,
}

/// What a key asks the shell for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Redraw,
    Fetch,
    Act(Action),
    Quit,
}

/// Messages per second of the whole process, between the last two answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProcessRates {
    pub received: f64,
    pub done: f64,
    pub failed: f64,
}

/// The selected row of a list. It stays with what it shows, wherever that moves in the list.
#[derive(Debug, Clone, Default)]
struct SelectedRow {
    row: usize,
    /// What it shows; nothing in a list that has had no rows, and where the newest row is meant.
    key: Option<String>,
    /// The list does not have it any more.
    is_gone: bool,
}

struct Notice {
    text: String,
    is_error: bool,
    until: BootInstant,
}

pub(super) struct TopModel {
    pub place: String,
    pub tab: Tab,
    pub shows_help: bool,
    pub overview: OverviewData,
    pub rates: Option<ProcessRates>,
    pub queues: Vec<QueueData>,
    pub running: Vec<RunningData>,
    pub outcomes: Vec<OutcomeData>,
    /// The calls to queues that the last answer took.
    pub calls: u64,
    pub question: Option<Question>,
    /// Why there is no newer answer.
    pub failure: Option<String>,
    /// How much queues hold is fetched: not by itself where that is billed.
    depths: Option<bool>,
    selected: [SelectedRow; Tab::ALL.len()],
    notice: Option<Notice>,
    counted_at: Option<BootInstant>,
    /// When that was asked which has no answer yet.
    asked_at: Option<BootInstant>,
}

/// What the queues hold that are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Holdings {
    /// Of so many it is known.
    pub queues: usize,
    pub waiting: u64,
    pub oldest_s: Option<f64>,
    /// Dead letters, of a queue that several share once.
    pub dead: u64,
    /// Messages that are done in a second.
    pub done: f64,
}

impl TopModel {
    pub(crate) fn new(place: &str) -> Self {
        Self {
            place: place.to_owned(),
            tab: Tab::Queues,
            shows_help: false,
            overview: OverviewData::default(),
            rates: None,
            queues: Vec::new(),
            running: Vec::new(),
            outcomes: Vec::new(),
            calls: 0,
            question: None,
            failure: None,
            depths: None,
            selected: Default::default(),
            notice: None,
            counted_at: None,
            asked_at: None,
        }
    }

    /// Whether how much queues hold is fetched: unless somebody chose, where that costs nothing.
    pub(crate) fn fetches_depths(&self) -> bool {
        let is_free = |queue: &QueueData| {
            queue
                .backend()
                .is_some_and(|backend| backend.has_cheap_depth())
        };
        self.depths
            .unwrap_or_else(|| !self.queues.is_empty() && self.queues.iter().all(is_free))
    }

    /// What the list that is shown is fetched from.
    pub(crate) fn path(&self) -> String {
        match self.tab {
            Tab::Queues => format!(
                "/api/v1/queues?limit={ROWS}&depth={}",
                self.fetches_depths()
            ),
            Tab::Running => format!("/api/v1/running?limit={ROWS}"),
            Tab::Outcomes => format!("/api/v1/outcomes?limit={ROWS}"),
        }
    }

    /// Takes an overview.
    ///
    /// # Errors
    /// It is of another form than the API has.
    pub(crate) fn take_overview(
        &mut self,
        answer: Value,
        now: BootInstant,
    ) -> Result<(), serde_json::Error> {
        let next: OverviewData = serde_json::from_value(answer)?;
        let before = self.overview.messages.clone();
        self.rates = self.counted_at.map(|then| {
            let seconds = now.since(then).as_secs_f64().max(0.001);
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            let failures =
                |messages: &MessageData| messages.retried + messages.dead_lettered + messages.lost;
            ProcessRates {
                received: rate(next.messages.received, before.received),
                done: rate(next.messages.done, before.done),
                failed: rate(failures(&next.messages), failures(&before)),
            }
        });
        self.counted_at = Some(now);
        self.overview = next;
        self.failure = None;
        Ok(())
    }

    /// The process is asked now.
    pub(crate) fn asks(&mut self, now: BootInstant) {
        self.asked_at.get_or_insert(now);
    }

    /// It has answered, or it is known why it does not.
    pub(crate) fn take_failure(&mut self, failure: Option<String>) {
        self.asked_at = None;
        self.failure = failure;
    }

    /// Why the figures are old, where they are.
    pub(crate) fn trouble(&self, now: BootInstant) -> Option<String> {
        let silence = now.since(self.asked_at.unwrap_or(now));
        if silence >= SILENCE {
            let seconds = silence.as_secs();
            return Some(format!("{}: no answer for {seconds}s", self.place));
        }
        self.failure.clone()
    }

    /// What the listed queues hold together; nothing where that was not asked.
    pub(crate) fn holdings(&self) -> Option<Holdings> {
        let mut all = Holdings::default();
        // Queues may share a dead-letter queue.
        let mut dead_letters = HashMap::new();
        for queue in &self.queues {
            let dead = queue.dead_letter_depth.as_ref();
            if let Some(dead) = dead.and_then(|depth| depth.waiting) {
                let name = queue.dead_letter_queue.as_ref();
                dead_letters.insert(name.unwrap_or(&queue.queue), dead);
            }
            let Some(depth) = &queue.depth else { continue };
            let Some(waiting) = depth.waiting else {
                continue;
            };
            let ages = [all.oldest_s, depth.oldest_s].into_iter().flatten();
            all = Holdings {
                queues: all.queues + 1,
                waiting: all.waiting.saturating_add(waiting),
                oldest_s: ages.reduce(f64::max),
                dead: 0,
                done: all.done + queue.per_second.as_ref().map_or(0.0, |rates| rates.done),
            };
        }
        all.dead = dead_letters.into_values().fold(0, u64::saturating_add);
        (all.queues > 0).then_some(all)
    }

    /// Takes the answer to what `path` named for `tab`.
    ///
    /// # Errors
    /// It is of another form than the API has.
    pub(crate) fn take_list(
        &mut self,
        tab: Tab,
        mut answer: Value,
    ) -> Result<(), serde_json::Error> {
        let items = answer["items"].take();
        match tab {
            Tab::Queues => {
                self.queues = serde_json::from_value(items)?;
                self.calls = answer["calls"].as_u64().unwrap_or_default();
            }
            Tab::Running => self.running = serde_json::from_value(items)?,
            Tab::Outcomes => self.outcomes = serde_json::from_value(items)?,
        }
        self.follow_selected(tab);
        Ok(())
    }

    /// Finds what is selected in a list that has changed.
    fn follow_selected(&mut self, tab: Tab) {
        let keys = self.keys(tab);
        let selection = &mut self.selected[tab as usize];
        let found = match &selection.key {
            Some(key) => keys.iter().position(|one| one == key),
            None => Some(selection.row),
        };
        selection.is_gone = found.is_none();
        let last = keys.len().saturating_sub(1);
        selection.row = found.unwrap_or(selection.row).min(last);
        // The newest outcome stays selected until another is.
        if selection.key.is_none() && tab != Tab::Outcomes {
            selection.key = keys.into_iter().nth(selection.row);
        }
    }

    /// What tells the rows of a list apart.
    fn keys(&self, tab: Tab) -> Vec<String> {
        match tab {
            Tab::Queues => self.queues.iter().map(|one| one.queue.clone()).collect(),
            Tab::Running => self.running.iter().map(|one| one.id.clone()).collect(),
            Tab::Outcomes => {
                let key =
                    |one: &OutcomeData| format!("{} {} {}", one.at, one.queue, one.ids.join(" "));
                self.outcomes.iter().map(key).collect()
            }
        }
    }

    /// How many rows the list that is shown has.
    pub(crate) fn rows(&self) -> usize {
        match self.tab {
            Tab::Queues => self.queues.len(),
            Tab::Running => self.running.len(),
            Tab::Outcomes => self.outcomes.len(),
        }
    }

    /// The selected row of the list that is shown; nothing if what was selected is not in it any more.
    pub(crate) fn selected(&self) -> Option<usize> {
        let selection = &self.selected[self.tab as usize];
        (!selection.is_gone).then_some(selection.row)
    }

    /// Shows the result of an action for a while.
    pub(crate) fn notify(&mut self, text: String, is_error: bool, now: BootInstant) {
        self.notice = Some(Notice {
            text,
            is_error,
            until: now + NOTICE,
        });
    }

    /// The result to show, and whether it is an error.
    pub(crate) fn notice(&self, now: BootInstant) -> Option<(&str, bool)> {
        let notice = self.notice.as_ref().filter(|notice| now < notice.until)?;
        Some((&notice.text, notice.is_error))
    }

    /// What a key does.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Step {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Step::Quit;
        }
        if let Some(question) = self.question.take() {
            return match key.code {
                KeyCode::Char('y' | 'Y') => Step::Act(question.action),
                _ => Step::Redraw,
            };
        }
        if self.shows_help {
            self.shows_help = false;
            return Step::Redraw;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char(digit @ '1'..='3') => {
                return self.show(Tab::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Tab | KeyCode::Right => {
                return self.show(Tab::ALL[(self.tab as usize + 1) % Tab::ALL.len()]);
            }
            KeyCode::BackTab | KeyCode::Left => {
                let before = self.tab as usize + Tab::ALL.len() - 1;
                return self.show(Tab::ALL[before % Tab::ALL.len()]);
            }
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(10),
            KeyCode::PageUp => self.step(-10),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Char('d') => {
                self.depths = Some(!self.fetches_depths());
                return Step::Fetch;
            }
            KeyCode::Char('P') => self.question = self.ask_pause(),
            KeyCode::Char('C') => self.question = self.ask_cancel(),
            KeyCode::Char('D') => self.question = Some(self.ask_drain()),
            _ => {}
        }
        Step::Redraw
    }

    fn show(&mut self, tab: Tab) -> Step {
        self.tab = tab;
        Step::Fetch
    }

    /// Selects so many rows further down; where what was selected is gone, the row at its place.
    fn step(&mut self, rows: isize) {
        let SelectedRow { row, is_gone, .. } = self.selected[self.tab as usize];
        self.select(if is_gone {
            row
        } else {
            row.saturating_add_signed(rows)
        });
    }

    fn select(&mut self, row: usize) {
        let keys = self.keys(self.tab);
        let row = row.min(keys.len().saturating_sub(1));
        let means_newest = self.tab == Tab::Outcomes && row == 0;
        self.selected[self.tab as usize] = SelectedRow {
            row,
            key: keys.into_iter().nth(row).filter(|_| !means_newest),
            is_gone: false,
        };
    }

    fn ask_pause(&self) -> Option<Question> {
        if self.tab != Tab::Queues {
            return None;
        }
        let queue = self.queues.get(self.selected()?)?;
        let name = &queue.queue;
        let (verb, done) = if queue.paused {
            ("resume", "resumed")
        } else {
            ("pause", "paused")
        };
        let reach = if queue.shared {
            "for all processes that read it"
        } else {
            "in this process"
        };
        Some(Question {
            text: format!("{verb} {name} {reach}?"),
            touches: queue.touched(),
            action: Action {
                path: format!("/api/v1/queues/{}/{verb}", in_path(name)),
                done: format!("{name} {done} {reach}"),
            },
        })
    }

    fn ask_cancel(&self) -> Option<Question> {
        if self.tab != Tab::Running {
            return None;
        }
        let attempt = self.running.get(self.selected()?)?;
        let messages = match attempt.messages.len() {
            1 => "its message".to_owned(),
            count => format!("its {count} messages"),
        };
        Some(Question {
            text: format!(
                "cancel attempt {} of {} and delete {messages}?",
                attempt.id, attempt.queue
            ),
            touches: attempt.named_messages(),
            action: Action {
                path: format!("/api/v1/running/{}/cancel", in_path(&attempt.id)),
                done: format!("attempt {} cancelled", attempt.id),
            },
        })
    }

    fn ask_drain(&self) -> Question {
        Question {
            text: format!(
                "stop process {}? What runs ({}) is finished first.",
                self.overview.process.id, self.overview.running
            ),
            touches: format!(
                "{} held; what is not started is given back.",
                messages(self.overview.leases)
            ),
            action: Action {
                path: "/api/v1/process/drain".to_owned(),
                done: "the process stops".to_owned(),
            },
        }
    }
}

impl QueueData {
    /// Its backend, if this program has it.
    fn backend(&self) -> Option<&'static dyn Backend> {
        let name = self.queue.parse::<QueueName>().ok()?;
        Some(name.backend)
    }

    /// The messages that a pause or its end touches.
    fn touched(&self) -> String {
        let running = format!("{} in attempts here", messages(self.in_flight));
        let waiting = self.depth.as_ref().and_then(|depth| depth.waiting);
        let counts_exactly = self
            .backend()
            .is_some_and(|backend| backend.counts_exactly());
        match waiting {
            Some(waiting) if counts_exactly => format!("{running}; {} waiting.", messages(waiting)),
            Some(waiting) => format!("{running}; about {} waiting.", messages(waiting)),
            None => format!("{running}; d asks how many wait."),
        }
    }
}

/// How many messages a question names.
const NAMED: usize = 2;

impl RunningData {
    /// Its first messages by their ids, and how many more it has.
    fn named_messages(&self) -> String {
        let ids = self.messages.iter().take(NAMED).map(|one| &*one.id);
        let ids = ids.collect::<Vec<_>>().join(", ");
        match self.messages.len().saturating_sub(NAMED) {
            0 => ids,
            more => format!("{ids} and {more} more"),
        }
    }
}

fn messages(count: u64) -> String {
    match count {
        1 => "1 message".to_owned(),
        count => format!("{count} messages"),
    }
}

impl Action {
    /// The body of its request.
    pub(crate) fn body() -> Value {
        json!({})
    }
}
