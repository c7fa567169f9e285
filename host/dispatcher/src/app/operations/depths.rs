//! How much queues hold: asked when somebody wants to know, a few at a time, and kept for some seconds.

use super::super::build::schedule::Schedules;
use super::within;
use crate::admin::operations::{DepthView, QueueView};
use crate::config::prices::Prices;
use crate::name::QueueName;
use crate::telemetry::depths::QueueDepths;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::{Depth, Queue};
use dispatcher_core::tasks;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For how long an answer is shown before it is asked for again.
const KEPT: Duration = Duration::from_secs(5);
/// The same where calls are billed: as often as the dashboard asks while somebody looks.
const KEPT_WHERE_BILLED: Duration = Duration::from_secs(15);
/// How many queues are asked at a time.
const ABREAST: usize = 16;
/// How many are asked in one call, where one call can ask several: no call for work waits long.
const AT_ONCE: usize = 256;
/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Opening a queue takes so many calls where its name must be looked up.
const OPENING: usize = 2;

/// An answer, and when it was asked for.
type Kept = (BootInstant, Result<Depth, String>);

/// What queues answered last.
pub(super) struct Depths {
    schedules: Arc<Schedules>,
    /// What metrics show.
    shown: Arc<QueueDepths>,
    prices: Prices,
    kept: Mutex<HashMap<String, Kept>>,
    dead_letter_queues: Mutex<HashMap<String, Arc<dyn Queue>>>,
}

impl Depths {
    pub(super) fn new(schedules: Arc<Schedules>, shown: Arc<QueueDepths>, prices: Prices) -> Self {
        Self {
            schedules,
            shown,
            prices,
            kept: Mutex::default(),
            dead_letter_queues: Mutex::default(),
        }
    }

    /// Adds the depths of queues, which `opened` has, and of their dead-letter queues. How many calls
    /// it made.
    pub(super) async fn add(
        &self,
        queues: &mut [QueueView],
        opened: impl Fn(&str) -> Option<Arc<dyn Queue>>,
    ) -> usize {
        let names = queues
            .iter()
            .map(|view| (&*view.queue, view.dead_letter_queue.as_deref()));
        let mut names = each_once(names);
        names.retain(|name| !self.is_kept(name));
        let (mut at_once, mut singly) = (Vec::new(), Vec::new());
        for name in names {
            match name.parse::<QueueName>() {
                Ok(parsed) if parsed.backend.counts_at_once() => {
                    at_once.push((name.to_owned(), parsed));
                }
                _ => singly.push((name.to_owned(), opened(name))),
            }
        }
        let mut calls = 0;
        let of_backends = at_once.chunk_by(|(_, one), (_, next)| one.backend == next.backend);
        for some in of_backends.flat_map(|names| names.chunks(AT_ONCE)) {
            self.ask_at_once(some).await;
            calls += 1;
        }
        for some in singly.chunks(ABREAST) {
            let asked = some
                .iter()
                .map(|(name, queue)| self.ask(name, queue.clone()));
            calls += tasks::all(asked.collect()).await.into_iter().sum::<usize>();
        }
        let kept = self.kept();
        for view in queues {
            view.depth = kept.get(&view.queue).map(shown);
            let dead = view.dead_letter_queue.as_ref();
            let dead = dead.and_then(|name| kept.get(name));
            view.dead_letter_depth = dead.map(shown);
            if let Some((asked, depth)) = kept.get(&view.queue) {
                let dead = dead.and_then(|(_, depth)| depth.as_ref().ok());
                let dead = dead.map(|depth| depth.waiting + depth.in_flight + depth.delayed);
                let depth = depth.as_ref().ok().copied();
                self.shown.record(&view.queue, *asked, depth, dead);
            }
        }
        calls
    }

    fn kept_for(&self, name: &str) -> Duration {
        match self.prices.dollars_per_million_calls(name) {
            Some(_) => KEPT_WHERE_BILLED,
            None => KEPT,
        }
    }

    /// Whether what a queue answered last is not too old to be shown.
    fn is_kept(&self, name: &str) -> bool {
        let asked = self.kept().get(name).map(|(asked, _)| *asked);
        asked.is_some_and(|asked| clock::now().since(asked) < self.kept_for(name))
    }

    /// Counts queues of one backend in one call.
    async fn ask_at_once(&self, names: &[(String, QueueName)]) {
        let asked = clock::now();
        let parsed: Vec<QueueName> = names.iter().map(|(_, name)| name.clone()).collect();
        let answers = within(PATIENCE, self.schedules.backends().depths(&parsed)).await;
        let answers: Vec<Result<Depth, String>> = match answers {
            Ok(answers) => {
                let answers = answers.into_iter();
                let answers = answers.map(|answer| answer.map_err(|error| error.to_string()));
                answers.collect()
            }
            Err(_) => vec![Err(late()); names.len()],
        };
        let mut kept = self.kept();
        for ((name, _), answer) in names.iter().zip(answers) {
            self.shown.count_calls(name, 1);
            kept.insert(name.clone(), (asked, answer));
        }
    }

    async fn ask(&self, name: &str, queue: Option<Arc<dyn Queue>>) -> usize {
        let asked = clock::now();
        let mut calls = 1;
        let answer = async {
            let queue = match queue {
                Some(queue) => queue,
                None => self.dead_letter_queue(name, &mut calls).await?,
            };
            queue.depth().await.map_err(|error| error.to_string())
        };
        let answer = within(PATIENCE, answer).await;
        let answer = answer.unwrap_or_else(|_| Err(late()));
        self.shown.count_calls(name, calls);
        self.kept().insert(name.to_owned(), (asked, answer));
        calls
    }

    async fn dead_letter_queue(
        &self,
        name: &str,
        calls: &mut usize,
    ) -> Result<Arc<dyn Queue>, String> {
        let known = self.dead_letter_queues().get(name).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let parsed: QueueName = name.parse()?;
        *calls += OPENING;
        let opened = self.schedules.backends().open_existing(&parsed).await;
        let opened = opened.map_err(|error| error.to_string())?;
        let mut queues = self.dead_letter_queues();
        queues.insert(name.to_owned(), opened.clone());
        Ok(opened)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dead_letter_queues(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn Queue>>> {
        let queues = self.dead_letter_queues.lock();
        queues.unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is shown of a queue that did not answer in time.
fn late() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

/// The names of queues and of their dead-letter queues. Several may share one.
fn each_once<'a>(queues: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Vec<&'a str> {
    let names = queues.flat_map(|(queue, dead)| std::iter::once(queue).chain(dead));
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

fn shown((asked, answer): &Kept) -> DepthView {
    let asked_s_ago = clock::now().since(*asked).as_secs_f64();
    DepthView::of(answer.as_ref().map_err(Clone::clone), asked_s_ago)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_letter_queue_that_queues_share_is_asked_once() {
        let queues = [("a", Some("dlq")), ("b", Some("dlq")), ("dlq", None)];
        assert_eq!(each_once(queues.into_iter()), ["a", "dlq", "b"]);
    }
}
