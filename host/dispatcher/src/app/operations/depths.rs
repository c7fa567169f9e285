//! The depths of queues, requested when a caller needs them, a few at a time, and cached for some
//! seconds.

use super::super::build::schedule::Schedules;
use super::within;
use dispatcher_config::name::QueueName;
use dispatcher_config::prices::Prices;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::{Depth, Queue};
use dispatcher_core::tasks;
use dispatcher_operate::operations::{DepthView, QueueView};
use dispatcher_telemetry::depths::{DeadLetters, QueueDepths};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a depth is cached.
const KEPT: Duration = Duration::from_secs(5);
/// How long a depth is cached if calls are billed: the interval of the dashboard's requests while a
/// page is open.
const KEPT_WHERE_BILLED: Duration = Duration::from_secs(15);
/// The number of concurrent requests.
pub(super) const ABREAST: usize = 16;
/// The maximum number of queues in one call, if a call can ask several. The limit keeps calls for
/// messages from waiting long.
const AT_ONCE: usize = 256;
/// The time limit of a request.
const PATIENCE: Duration = Duration::from_secs(3);
/// The number of calls that opening a queue takes if its name must be looked up.
const OPENING: usize = 2;

/// An answer, and when it was requested.
type KeptDepth = (BootInstant, Result<Depth, String>);

/// The last depths of queues.
pub(super) struct Depths {
    schedules: Arc<Schedules>,
    /// The depths that metrics show.
    shown: Arc<QueueDepths>,
    prices: Prices,
    kept: Mutex<HashMap<String, KeptDepth>>,
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

    /// Adds the depths of queues in `opened` and of their dead-letter queues. Returns how many
    /// calls it made.
    pub(super) async fn add(
        &self,
        queues: &mut [QueueView],
        opened: impl Fn(&str) -> Option<Arc<dyn Queue>>,
    ) -> usize {
        let of_views = queues
            .iter()
            .map(|view| (&*view.queue, view.dead_letter_queue.as_deref()));
        let mut names = each_once(of_views);
        names.retain(|name| !self.is_kept(name));
        let (mut at_once, mut singly) = (Vec::new(), Vec::new());
        for name in names {
            match name.parse::<QueueName>() {
                Ok(parsed) if parsed.backend.facts().counts_at_once => {
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
            let dead = view
                .dead_letter_queue
                .as_ref()
                .and_then(|name| Some((name, kept.get(name)?)));
            view.dead_letter_depth = dead.map(|(_, known)| shown(known));
            if let Some((asked, depth)) = kept.get(&view.queue) {
                let dead = dead.and_then(|(name, (_, depth))| {
                    let depth = depth.as_ref().ok()?;
                    Some(DeadLetters {
                        queue: name.clone(),
                        messages: depth.waiting + depth.in_flight + depth.delayed,
                    })
                });
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

    /// Returns whether the last depth of a queue is recent enough to be shown.
    fn is_kept(&self, name: &str) -> bool {
        let asked = self.kept().get(name).map(|(asked, _)| *asked);
        asked.is_some_and(|asked| clock::now().since(asked) < self.kept_for(name))
    }

    /// Counts queues of one backend in one call.
    async fn ask_at_once(&self, names: &[(String, QueueName)]) {
        let asked = clock::now();
        let parsed: Vec<QueueName> = names.iter().map(|(_, name)| name.clone()).collect();
        let in_time = within(PATIENCE, self.schedules.backends().depths(&parsed)).await;
        let answers: Vec<Result<Depth, String>> = match in_time {
            Ok(depths) => depths
                .into_iter()
                .map(|depth| depth.map_err(|error| error.to_string()))
                .collect(),
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
        let answer = within(PATIENCE, answer)
            .await
            .unwrap_or_else(|_| Err(late()));
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
        let opened = self
            .schedules
            .backends()
            .open_existing(&parsed)
            .await
            .map_err(|error| error.to_string())?;
        let mut queues = self.dead_letter_queues();
        queues.insert(name.to_owned(), opened.clone());
        Ok(opened)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, KeptDepth>> {
        self.kept.lock()
    }

    fn dead_letter_queues(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn Queue>>> {
        self.dead_letter_queues.lock()
    }
}

/// Returns the error of a queue that did not answer in time.
fn late() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

/// Returns the names of queues and their dead-letter queues, each once. Several queues may share a
/// dead-letter queue.
fn each_once<'a>(queues: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Vec<&'a str> {
    let names = queues.flat_map(|(queue, dead)| std::iter::once(queue).chain(dead));
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

fn shown((asked, answer): &KeptDepth) -> DepthView {
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
