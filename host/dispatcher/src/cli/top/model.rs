//! The state of `dispatcher top` and the effect of its keys: the last answers of the admin API, the
//! selected row, and a pending question. Pure: it neither draws nor makes requests.

use dispatcher_config::name::QueueName;
use dispatcher_core::backend::{Backend, DepthCost};
use dispatcher_core::clock::BootInstant;
use dispatcher_operate::fleet::FleetView;
use dispatcher_operate::objects::{MessageTotals, Overview};
use dispatcher_operate::operations::{OutcomeView, QueueView, RunningView, TenantView};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

use crate::cli::admin::in_path;

/// The maximum number of fetched rows of a list.
pub(super) const ROWS: usize = 200;
/// The time without an answer after which the screen says so.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a result is shown in place of the keys.
const NOTICE: Duration = Duration::from_secs(6);

/// One of the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Queues,
    Running,
    Outcomes,
    Fleet,
    Tenants,
}

impl Tab {
    pub(crate) const ALL: [Self; 5] = [
        Self::Queues,
        Self::Running,
        Self::Outcomes,
        Self::Fleet,
        Self::Tenants,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Queues => "Queues",
            Self::Running => "Running",
            Self::Outcomes => "Outcomes",
            Self::Fleet => "Fleet",
            Self::Tenants => "Tenants",
        }
    }
}

/// A change to request from the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    pub path: String,
    /// The text that is shown once it is done.
    pub done: String,
}

/// An action that must be confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub text: String,
    /// The affected messages: their number, or their ids.
    pub touches: String,
    action: Action,
}

/// The action of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Redraw,
    Fetch,
    Act(Action),
    Quit,
}

/// The messages per second of the whole process, between the last two answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProcessRates {
    pub received: f64,
    pub done: f64,
    pub failed: f64,
}

/// The selected row of a list. The selection follows its item when the item moves in the list.
#[derive(Debug, Clone, Default)]
struct SelectedRow {
    row: usize,
    /// The key of the item; `None` if the list has had no rows, or if the newest row is selected.
    key: Option<String>,
    /// Whether the item is no longer in the list.
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
    pub overview: Overview,
    pub rates: Option<ProcessRates>,
    pub queues: Vec<QueueView>,
    pub running: Vec<RunningView>,
    pub outcomes: Vec<OutcomeView>,
    pub fleet: FleetView,
    /// The tenants, each with its queue.
    pub tenants: Vec<(String, TenantView)>,
    /// The number of calls to queues for the last answer.
    pub calls: u64,
    pub question: Option<Question>,
    /// The reason why there is no newer answer.
    pub failure: Option<String>,
    /// Whether depths are fetched, if the user chose. By default they are not fetched if that is
    /// billed.
    depths: Option<bool>,
    selected: [SelectedRow; Tab::ALL.len()],
    notice: Option<Notice>,
    counted_at: Option<BootInstant>,
    /// The time of a request that has no answer yet.
    asked_at: Option<BootInstant>,
}

/// The messages in the listed queues.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Holdings {
    /// The number of queues whose depth is known.
    pub queues: usize,
    pub waiting: u64,
    pub oldest_s: Option<f64>,
    /// The number of dead letters; a shared dead-letter queue counts once.
    pub dead: u64,
    /// The number of messages done per second.
    pub done: f64,
}

impl TopModel {
    pub(crate) fn new(place: &str) -> Self {
        Self {
            place: place.to_owned(),
            tab: Tab::Queues,
            shows_help: false,
            overview: Overview::default(),
            rates: None,
            queues: Vec::new(),
            running: Vec::new(),
            outcomes: Vec::new(),
            fleet: FleetView::default(),
            tenants: Vec::new(),
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

    /// Returns whether depths are fetched: as the user chose, otherwise if that is free.
    pub(crate) fn fetches_depths(&self) -> bool {
        self.depths.unwrap_or_else(|| {
            !self.queues.is_empty()
                && self.queues.iter().all(|queue: &QueueView| {
                    backend(queue)
                        .is_some_and(|backend| backend.facts().depth_cost == DepthCost::Free)
                })
        })
    }

    /// Returns the path of the list on the screen.
    pub(crate) fn path(&self) -> String {
        match self.tab {
            Tab::Queues | Tab::Tenants => format!(
                "/api/v1/queues?limit={ROWS}&depth={}",
                self.fetches_depths()
            ),
            Tab::Running => format!("/api/v1/running?limit={ROWS}"),
            Tab::Outcomes => format!("/api/v1/outcomes?limit={ROWS}"),
            Tab::Fleet => "/api/v1/fleet".to_owned(),
        }
    }

    /// Updates the overview.
    ///
    /// # Errors
    /// Fails if the answer does not have the form of the API.
    pub(crate) fn take_overview(
        &mut self,
        answer: Value,
        now: BootInstant,
    ) -> Result<(), serde_json::Error> {
        let next: Overview = serde_json::from_value(answer)?;
        let before = self.overview.messages.clone();
        self.rates = self.counted_at.map(|then| {
            let seconds = now.since(then).as_secs_f64().max(0.001);
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            ProcessRates {
                received: rate(next.messages.received.0, before.received.0),
                done: rate(next.messages.done.0, before.done.0),
                failed: rate(failures(&next.messages), failures(&before)),
            }
        });
        self.counted_at = Some(now);
        self.overview = next;
        self.failure = None;
        Ok(())
    }

    /// Records a request to the process.
    pub(crate) fn asks(&mut self, now: BootInstant) {
        self.asked_at.get_or_insert(now);
    }

    /// Records an answer, or the reason why there was none.
    pub(crate) fn take_failure(&mut self, failure: Option<String>) {
        self.asked_at = None;
        self.failure = failure;
    }

    /// Returns why the numbers are outdated, if they are.
    pub(crate) fn trouble(&self, now: BootInstant) -> Option<String> {
        let silence = now.since(self.asked_at.unwrap_or(now));
        if silence >= SILENCE {
            let seconds = silence.as_secs();
            return Some(format!("{}: no answer for {seconds}s", self.place));
        }
        self.failure.clone()
    }

    /// Returns the messages in the listed queues together, or `None` if depths were not requested.
    pub(crate) fn holdings(&self) -> Option<Holdings> {
        let mut all = Holdings::default();
        // Queues may share a dead-letter queue.
        let mut dead_letters = HashMap::new();
        for queue in &self.queues {
            let dead = queue.dead_letter_depth.as_ref();
            if let Some(dead) = dead.and_then(|depth| depth.waiting) {
                let name = queue.dead_letter_queue.as_ref();
                dead_letters.insert(name.unwrap_or(&queue.queue), dead.0);
            }
            let Some(depth) = &queue.depth else { continue };
            let Some(waiting) = depth.waiting else {
                continue;
            };
            let ages = [all.oldest_s, depth.oldest_s].into_iter().flatten();
            all = Holdings {
                queues: all.queues + 1,
                waiting: all.waiting.saturating_add(waiting.0),
                oldest_s: ages.reduce(f64::max),
                dead: 0,
                done: all.done + queue.per_second.as_ref().map_or(0.0, |rates| rates.done),
            };
        }
        all.dead = dead_letters.into_values().fold(0, u64::saturating_add);
        (all.queues > 0).then_some(all)
    }

    /// Updates the list of `tab` from an answer.
    ///
    /// # Errors
    /// Fails if the answer does not have the form of the API.
    pub(crate) fn take_list(
        &mut self,
        tab: Tab,
        mut answer: Value,
    ) -> Result<(), serde_json::Error> {
        if tab == Tab::Fleet {
            self.fleet = serde_json::from_value(answer)?;
            self.follow_selected(tab);
            return Ok(());
        }
        let items = answer["items"].take();
        match tab {
            Tab::Queues | Tab::Tenants => {
                self.queues = serde_json::from_value(items)?;
                self.calls = answer["calls"].as_u64().unwrap_or_default();
                let queues = self.queues.iter();
                let tenants = queues.flat_map(|queue| {
                    let tenants = queue.tenants.iter().cloned();
                    tenants.map(|tenant| (queue.queue.clone(), tenant))
                });
                self.tenants = tenants.collect();
            }
            Tab::Running => self.running = serde_json::from_value(items)?,
            Tab::Outcomes => self.outcomes = serde_json::from_value(items)?,
            Tab::Fleet => {}
        }
        self.follow_selected(tab);
        Ok(())
    }

    /// Finds the selected item in a list that changed.
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
        // The newest outcome stays selected until the user selects another.
        if selection.key.is_none() && tab != Tab::Outcomes {
            selection.key = keys.into_iter().nth(selection.row);
        }
    }

    /// Returns the keys that identify the rows of a list.
    fn keys(&self, tab: Tab) -> Vec<String> {
        match tab {
            Tab::Queues => self.queues.iter().map(|one| one.queue.clone()).collect(),
            Tab::Running => self.running.iter().map(|one| one.id.clone()).collect(),
            Tab::Outcomes => {
                let key =
                    |one: &OutcomeView| format!("{} {} {}", one.at, one.queue, one.ids.join(" "));
                self.outcomes.iter().map(key).collect()
            }
            Tab::Fleet => {
                let processes = self.fleet.processes.iter();
                processes.map(|one| one.id.clone()).collect()
            }
            Tab::Tenants => {
                let tenants = self.tenants.iter();
                let keys = tenants.map(|(queue, one)| format!("{queue} {}", one.tenant));
                keys.collect()
            }
        }
    }

    /// Returns the number of rows of the list on the screen.
    pub(crate) fn rows(&self) -> usize {
        match self.tab {
            Tab::Queues => self.queues.len(),
            Tab::Running => self.running.len(),
            Tab::Outcomes => self.outcomes.len(),
            Tab::Fleet => self.fleet.processes.len(),
            Tab::Tenants => self.tenants.len(),
        }
    }

    /// Returns the selected row of the list on the screen, or `None` if its item is no longer
    /// listed.
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

    /// Returns the result to show, and whether it is an error.
    pub(crate) fn notice(&self, now: BootInstant) -> Option<(&str, bool)> {
        let notice = self.notice.as_ref().filter(|notice| now < notice.until)?;
        Some((&notice.text, notice.is_error))
    }

    /// Handles a key.
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
            KeyCode::Char(digit @ '1'..='5') => {
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

    /// Moves the selection down by `rows`. If the selected item is gone, selects the row in its
    /// place.
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
            key: if !means_newest {
                keys.into_iter().nth(row)
            } else {
                None
            },
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
            "on this machine only"
        };
        Some(Question {
            text: format!("{verb} {name} {reach}?"),
            touches: touched(queue),
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
            touches: named_messages(attempt),
            action: Action {
                path: format!("/api/v1/running/{}/cancel", in_path(&attempt.id)),
                done: format!("attempt {} cancelled", attempt.id),
            },
        })
    }

    fn ask_drain(&self) -> Question {
        Question {
            text: format!(
                "stop process {}? Running attempts ({}) finish first.",
                self.overview.process.id, self.overview.running
            ),
            touches: format!(
                "{} held; those not started are given back.",
                messages(self.overview.leases.0)
            ),
            action: Action {
                path: "/api/v1/process/drain".to_owned(),
                done: "the process stops".to_owned(),
            },
        }
    }
}

fn failures(messages: &MessageTotals) -> u64 {
    messages.retried.0 + messages.dead_lettered.0 + messages.lost.0
}

/// Returns the backend of a queue, if this program includes it.
fn backend(queue: &QueueView) -> Option<&'static dyn Backend> {
    let name = queue.queue.parse::<QueueName>().ok()?;
    Some(name.backend)
}

/// Describes the messages that pausing or resuming a queue affects.
fn touched(queue: &QueueView) -> String {
    let running = format!("{} in attempts here", messages(queue.in_flight.0));
    let waiting = queue.depth.as_ref().and_then(|depth| depth.waiting);
    let counts_exactly = backend(queue).is_some_and(|backend| backend.facts().counts_exactly);
    match waiting {
        Some(waiting) if counts_exactly => {
            format!("{running}; {} waiting.", messages(waiting.0))
        }
        Some(waiting) => format!("{running}; about {} waiting.", messages(waiting.0)),
        None => format!("{running}; d shows how many wait."),
    }
}

/// The maximum number of messages that a question names.
const NAMED: usize = 2;

/// Returns the ids of the first messages of an attempt, and how many more it has.
fn named_messages(attempt: &RunningView) -> String {
    let ids = attempt
        .messages
        .iter()
        .take(NAMED)
        .map(|one| &*one.id)
        .collect::<Vec<_>>()
        .join(", ");
    match attempt.messages.len().saturating_sub(NAMED) {
        0 => ids,
        more => format!("{ids} and {more} more"),
    }
}

fn messages(count: u64) -> String {
    match count {
        1 => "1 message".to_owned(),
        count => format!("{count} messages"),
    }
}

impl Action {
    /// Returns the body of its request.
    pub(crate) fn body() -> Value {
        json!({})
    }
}
