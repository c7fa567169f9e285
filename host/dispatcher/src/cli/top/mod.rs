//! `dispatcher top`: shows a running process in a terminal, through its admin API. Requests the
//! data on the screen once a second.

mod draw;
mod model;
#[cfg(test)]
mod tests;

use super::admin::AdminClient;
use super::{LooseArguments, block_on, flags, output};
use crate::app::drain::Signals;
use crate::error::{Exit, Failure};
use dispatcher_core::clock;
use dispatcher_core::tasks::{self, Task};
use model::{Action, Step, Tab, TopModel};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;

const EXAMPLES: &str = "\
Examples:
  dispatcher top --admin 127.0.0.1:9090
  dispatcher top --admin 127.0.0.1:9090 --admin-token-file token
      to pause, cancel and stop, too

The address is the setting `admin` of `dispatcher run`. Capital letters change something and ask
first; ? shows all keys.";

/// How long a poll for a key waits, which also delays the end of the program.
const KEY_WAIT: Duration = Duration::from_millis(200);

/// How long the end of the program waits for the answer to an action.
const LAST_ANSWER: Duration = Duration::from_secs(5);
const WAITS: &str = "waiting for the answer to the last action";
const NO_ANSWER: &str =
    "the last action got no answer and may have been done: check before you repeat it";

/// Show a running process in the terminal: queues, attempts under way and outcomes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// How often to refresh
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub every: Duration,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub file: flags::FileArgs,
}

fn interval(text: &str) -> Result<Duration, String> {
    let parsed: Result<Duration, _> = humantime::parse_duration(text);
    let interval = parsed.ok().filter(|every| *every >= KEY_WAIT);
    interval.ok_or_else(|| "wanted a duration of at least 200ms, as in 2s".to_owned())
}

/// Runs until `q` or a signal.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let client = AdminClient::required(typed)?;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let line = "dispatcher top needs a terminal; programs get the same from GET \
                    /api/v1/overview and /api/v1/queues";
        return Err(Failure::new(Exit::Usage, line));
    }
    block_on(async {
        // A signal ends it as `q` does, so that the terminal is restored.
        let mut signals = Signals::listen(true)
            .map_err(|error| Failure::new(Exit::Failed, format!("signals: {error}")))?;
        // A failure of the first request is printed to the normal screen.
        let overview = tokio::select! {
            overview = get(&client, "/api/v1/overview") => overview?,
            _ = signals.next() => return Ok(()),
        };
        let mut model = TopModel::new(client.place());
        accept(model.take_overview(overview, clock::now()))?;
        let shown = on_screen(async |terminal| {
            show(terminal, &client, &mut model, args.every, &mut signals).await
        });
        match shown.await? {
            None => Ok(()),
            Some((text, false)) => output::line(text),
            Some((text, true)) => Err(Failure::new(Exit::Failed, text)),
        }
    })?
}

/// Runs `body` with the terminal in raw mode on its alternate screen, and restores the terminal,
/// also after a panic, by a panic hook.
async fn on_screen<T>(
    body: impl AsyncFnOnce(&mut DefaultTerminal) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut terminal = ratatui::try_init().map_err(|error| broken(&error))?;
    let ended = body(&mut terminal).await;
    ratatui::restore();
    ended
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the terminal: {error}"))
}

fn accept(taken: Result<(), serde_json::Error>) -> Result<(), Failure> {
    taken.map_err(|error| {
        let line = format!("the answer is not one of the admin API: {error}");
        Failure::new(Exit::Failed, line)
    })
}

/// A request that runs while keys are handled.
type UnderWay<'a, T> = Option<Pin<Box<dyn Future<Output = T> + 'a>>>;

/// Waits for its end; forever if there is none.
async fn end_of<T>(work: &mut UnderWay<'_, T>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

/// Shows the process until the user quits. Returns the result of an action that was still running.
async fn show(
    terminal: &mut DefaultTerminal,
    client: &AdminClient,
    model: &mut TopModel,
    every: Duration,
    signals: &mut Signals,
) -> Result<Option<ActionResult>, Failure> {
    let (sender, mut events) = mpsc::channel(16);
    let _reading = keys(sender);
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Requests run concurrently, so that keys work even if the process hangs.
    let mut asking: UnderWay<'_, ScreenAnswers> = None;
    let mut acting: UnderWay<'_, ActionResult> = None;
    loop {
        let step = tokio::select! {
            _ = signals.next() => Step::Quit,
            event = events.recv() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => model.press(key),
                Some(Ok(_)) => Step::Redraw,
                Some(Err(error)) => return Err(broken(&error)),
                None => Step::Quit,
            },
            _ = ticks.tick() => if asking.is_none() { Step::Fetch } else { Step::Redraw },
            asked = end_of(&mut asking) => {
                asking = None;
                take(model, asked);
                Step::Redraw
            }
            (text, is_error) = end_of(&mut acting) => {
                acting = None;
                model.notify(text, is_error, clock::now());
                Step::Fetch
            }
        };
        match step {
            Step::Quit if acting.is_none() => return Ok(None),
            Step::Quit => {
                model.notify(WAITS.to_owned(), false, clock::now());
                let drawn = terminal.draw(|frame| draw::draw(frame, model, clock::now()));
                drawn.map_err(|error| broken(&error))?;
                return Ok(Some(last_answer(&mut acting, signals).await));
            }
            Step::Redraw => {}
            Step::Fetch => {
                model.asks(clock::now());
                asking = Some(Box::pin(ask(client, model.tab, model.path())));
            }
            Step::Act(action) if acting.is_none() => {
                acting = Some(Box::pin(act(client, action)));
            }
            Step::Act(_) => {
                let why = "the previous action has no answer yet; nothing was done".to_owned();
                model.notify(why, true, clock::now());
            }
        }
        let drawn = terminal.draw(|frame| draw::draw(frame, model, clock::now()));
        drawn.map_err(|error| broken(&error))?;
    }
}

/// Returns the result of an action that was still running when the user quit. A second signal ends
/// the wait.
async fn last_answer(
    acting: &mut UnderWay<'_, ActionResult>,
    signals: &mut Signals,
) -> ActionResult {
    tokio::select! {
        acted = end_of(acting) => acted,
        () = clock::sleep_until(Some(clock::now() + LAST_ANSWER)) => (NO_ANSWER.to_owned(), true),
        _ = signals.next() => (NO_ANSWER.to_owned(), true),
    }
}

/// Sends keys and changes of size, until the receiver is dropped or an error occurs.
fn keys(sender: mpsc::Sender<io::Result<Event>>) -> Task<()> {
    tasks::blocking(move || {
        while !sender.is_closed() {
            let found = event::poll(KEY_WAIT).and_then(|found| found.then(event::read).transpose());
            let Some(found) = found.transpose() else {
                continue;
            };
            let is_last = found.is_err();
            if sender.blocking_send(found).is_err() || is_last {
                return;
            }
        }
    })
}

/// The answers with the overview and a list.
struct ScreenAnswers {
    tab: Tab,
    answers: Result<(Value, Value), Failure>,
}

/// Requests the data on the screen.
async fn ask(client: &AdminClient, tab: Tab, path: String) -> ScreenAnswers {
    let answers = async { tokio::try_join!(get(client, "/api/v1/overview"), get(client, &path)) };
    ScreenAnswers {
        tab,
        answers: answers.await,
    }
}

/// Updates the model. If the process does not answer, the model shows the error with its last data.
fn take(model: &mut TopModel, ScreenAnswers { tab, answers }: ScreenAnswers) {
    let taken = answers.and_then(|(overview, list)| {
        accept(model.take_overview(overview, clock::now()))?;
        accept(model.take_list(tab, list))
    });
    model.take_failure(taken.err().map(|failure| failure.lines.join("; ")));
}

async fn get(client: &AdminClient, path: &str) -> Result<Value, Failure> {
    client.get(path).await?.json()
}

/// The result of an action, and whether it is an error.
type ActionResult = (String, bool);

async fn act(client: &AdminClient, action: Action) -> ActionResult {
    let answer = client.post(&action.path, &Action::body()).await;
    match answer.and_then(|answer| answer.json()) {
        Ok(_) => (action.done, false),
        Err(failure) => (failure.lines.join("; "), true),
    }
}
