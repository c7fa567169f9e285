//! Takes tasks: reads pages of the index, the newest first, and changes `PENDING` to `TAKEN` under
//! a condition on the item itself, because the index may be out of date.

use super::item::{self, CREATED, Readiness, SECONDS_END, STATUS, TASK_ID, TaskItem};
use super::receipt::TaskDelivery;
use super::status::{self, PENDING, TAKEN};
use super::table::{ConditionalStep, IndexPage, Seek, StepResult, side_by_side, steps};
use super::{BATCH, DynamoQueue};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::message::Message;
use dispatcher_core::queue::{ErrorKind, QueueError, VISIBILITY_CEILING};
use parking_lot::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The size of the pages after the first one. It is large, so that a pass gets past delayed tasks
/// quickly.
const WIDE: usize = 100;
/// The maximum number of rounds of pages that a pass reads if it finds no task.
const MOST_PAGES: usize = 20;

/// The condition for taking a task. The time to live is a number of seconds or, as the sample
/// writes it, of milliseconds; with any other value the task never expires.
const CONDITION: &str = "#status = :from \
    AND (attribute_not_exists(#not_before) OR #not_before <= :now) \
    AND ((NOT attribute_type(#ttl, :kind)) OR #ttl > :now OR #ttl BETWEEN :seconds AND :turn) \
    AND ((NOT attribute_type(#expires, :kind)) OR #expires > :now \
        OR #expires BETWEEN :seconds AND :turn)";

const UPDATE: &str = "SET #status = :taken, #updated = :date, #token = :token, #until = :until, \
    #first = if_not_exists(#first, :now) REMOVE #not_before ADD #receives :one";
/// The update of a task whose `ttl` could pass before its lease ends.
const UPDATE_AND_KEEP: &str = "SET #status = :taken, #updated = :date, #token = :token, \
    #until = :until, #first = if_not_exists(#first, :now), \
    #expires = if_not_exists(#expires, #ttl), #ttl = :kept REMOVE #not_before ADD #receives :one";

/// The distance from now to the `ttl` of a taken task. No lease is longer than the ceiling, and
/// after a lease expires another process has an hour to take the task over.
const KEPT: Duration = VISIBILITY_CEILING.saturating_add(Duration::from_secs(3_600));

const NAMES: &[(&str, &str)] = &[
    ("#not_before", item::NOT_BEFORE),
    ("#ttl", item::TTL),
    ("#expires", item::EXPIRES),
    ("#token", item::TOKEN),
    ("#until", item::UNTIL),
    ("#first", item::FIRST),
    ("#receives", item::RECEIVES),
];

/// The result of one pass over the table.
#[derive(Debug, Default)]
pub(super) struct ClaimPass {
    pub messages: Vec<Message>,
    /// Whether the pass read all pages and took all tasks.
    pub drained: bool,
    /// The time just before the first task was taken.
    pub taken: Option<BootInstant>,
    /// The earliest time at which a delayed task may be taken.
    pub next: Option<Timestamp>,
}

/// The width of the choice among the newest tasks: 1 takes the very newest. If many dispatchers
/// share a table, all would try the same ten tasks, and only one of them would succeed.
#[derive(Debug)]
pub(super) struct Spread(AtomicUsize);

const WIDEST: usize = 8;

impl Default for Spread {
    fn default() -> Self {
        Self(AtomicUsize::new(1))
    }
}

impl Spread {
    fn width(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adjusts the width: `tried` steps were made, and `lost` of them found the task already taken.
    fn learn(&self, tried: usize, lost: usize) {
        let width = self.width();
        if lost * 2 >= tried.max(1) {
            self.0.store((width * 2).min(WIDEST), Ordering::Relaxed);
        } else if lost == 0 && tried > 0 {
            self.0.store((width / 2).max(1), Ordering::Relaxed);
        }
    }
}

/// Whether this delivery took the task and still holds it.
fn is_ours(item: &TaskItem, delivery: &TaskDelivery) -> bool {
    let is_taken = item::string(item, STATUS).is_some_and(|key| status::is(key, TAKEN));
    let has_token = item::string(item, item::TOKEN) == Some(&delivery.token);
    is_taken && has_token && item.contains_key(item::UNTIL)
}

/// A task that may be taken according to the index.
#[derive(Debug)]
pub(super) struct Candidate {
    task: String,
    key: String,
    created: Option<Timestamp>,
    /// The time at which DynamoDB may delete it, in seconds. DynamoDB ignores a `ttl` in
    /// milliseconds.
    ttl: Option<u64>,
}

impl DynamoQueue {
    /// Takes up to `max` of the newest tasks that may be taken. It takes fewer if the first pages
    /// with such tasks have fewer, since a taken task does not wait for further pages. If a pass
    /// finds only expired and delayed tasks, the next pass continues where it ended. If `hurry` is
    /// cancelled, the pass ends after the current page. Fails only if it took no task.
    pub(super) async fn look(
        &self,
        max: usize,
        visibility: Duration,
        hurry: &CancellationToken,
    ) -> Result<ClaimPass, QueueError> {
        self.sweeper.run().await?;
        let width = self.spread.width();
        let keys = self.table.shards.keys(PENDING).into_iter();
        let mut seeks: Vec<Seek> = keys.map(|key| Seek::newest(key, BATCH * width)).collect();
        let mut look = ClaimPass::default();
        let (mut read, mut skipped) = (0, false);
        while !seeks.is_empty() && look.messages.is_empty() && read < MOST_PAGES {
            let pages = match self.pages(&seeks).await {
                Ok(pages) => pages,
                Err(error) if look.messages.is_empty() => return Err(error),
                Err(_) => return Ok(look),
            };
            let mut candidates = self.sort_out(&seeks, &pages, &mut look);
            if width > 1 {
                fastrand::shuffle(&mut candidates);
            }
            if let Err(error) = self.take(candidates, max, visibility, &mut look).await {
                return if look.messages.is_empty() {
                    Err(error)
                } else {
                    Ok(look)
                };
            }
            seeks = following(seeks, pages);
            read = if hurry.is_cancelled() {
                MOST_PAGES
            } else {
                read + 1
            };
            if read == 1
                && look.messages.is_empty()
                && let Some(rest) = self.rest().take()
            {
                (seeks, skipped) = (rest, true);
            }
        }
        if look.messages.is_empty() && !seeks.is_empty() {
            self.rest().get_or_insert(seeks);
            return Ok(look);
        }
        look.drained = seeks.is_empty() && !skipped && look.messages.len() < max;
        Ok(look)
    }

    /// Returns the position after the last pass that found nothing and did not read all pages.
    fn rest(&self) -> MutexGuard<'_, Option<Vec<Seek>>> {
        self.rest.lock()
    }

    async fn pages(&self, seeks: &[Seek]) -> Result<Vec<IndexPage>, QueueError> {
        let futures = seeks.iter().cloned().map(|seek| {
            let table = self.table.clone();
            async move { table.page(&seek).await }
        });
        side_by_side(futures.collect()).await.into_iter().collect()
    }

    /// Returns the tasks of these pages that may be taken, the newest first.
    fn sort_out(
        &self,
        seeks: &[Seek],
        pages: &[IndexPage],
        look: &mut ClaimPass,
    ) -> Vec<Candidate> {
        let today = clock::wall_clock_now();
        let mut candidates = Vec::new();
        for (seek, page) in seeks.iter().zip(pages) {
            for item in &page.items {
                match item::readiness(item, today) {
                    Readiness::Ready => candidates.extend(candidate(item, &seek.key)),
                    Readiness::Later(at) => soonest(&mut look.next, at),
                    Readiness::Expired => {}
                }
            }
        }
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.created));
        candidates
    }

    /// Takes candidates until there are `max` messages.
    pub(super) async fn take(
        &self,
        candidates: Vec<Candidate>,
        max: usize,
        visibility: Duration,
        look: &mut ClaimPass,
    ) -> Result<(), QueueError> {
        let mut candidates = candidates.into_iter();
        let (mut tried, mut lost) = (0, 0);
        let mut failed = None;
        while look.messages.len() < max && failed.is_none() {
            let (taken, today) = (clock::now(), clock::wall_clock_now());
            let wanted = candidates
                .by_ref()
                .filter(|candidate| self.table.recent.begin(&candidate.task, taken))
                .take(max - look.messages.len());
            let chosen: Vec<(TaskDelivery, ConditionalStep)> = wanted
                .map(|candidate| self.claim(candidate, today, visibility))
                .collect();
            if chosen.is_empty() {
                break;
            }
            tried += chosen.len();
            look.taken.get_or_insert(taken);
            let (deliveries, chosen): (Vec<_>, Vec<_>) = chosen.into_iter().unzip();
            let answers = steps(&self.table, chosen).await;
            for (delivery, answer) in deliveries.into_iter().zip(answers) {
                // The response to the SDK's first attempt was lost, and its second attempt met this
                // claim.
                let answer = match answer {
                    Ok(StepResult::Not(Some(item))) if is_ours(&item, &delivery) => {
                        Ok(StepResult::Done(item))
                    }
                    answer => answer,
                };
                // A task that cannot be taken, for example because the added columns make it too
                // large, is left alone for a while, so that it does not block all others.
                let is_refused = matches!(&answer, Err(error) if error.kind == ErrorKind::Invalid);
                if !is_refused && !matches!(answer, Ok(StepResult::Done(_))) {
                    self.table.recent.forget(&delivery.task);
                }
                match answer {
                    Ok(StepResult::Done(item)) => {
                        let message = self.table.reading.message(&item, Some(&delivery));
                        look.messages.extend(message);
                    }
                    Ok(StepResult::Not(item)) => {
                        lost += 1;
                        self.note_unready(item.as_ref(), look);
                    }
                    Err(error) if is_refused => {
                        let (queue, task) = (&self.table.reading.queue, &delivery.task);
                        tracing::warn!(queue, task, %error, "a task cannot be taken");
                        lost += 1;
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
        self.spread.learn(tried, lost);
        if !look.messages.is_empty() {
            self.sweeper.note(clock::wall_clock_now() + visibility);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Notes the delay of a task that was delayed after the index listed it as ready.
    fn note_unready(&self, item: Option<&TaskItem>, look: &mut ClaimPass) {
        let readiness = item.map(|item| item::readiness(item, clock::wall_clock_now()));
        if let Some(Readiness::Later(at)) = readiness {
            soonest(&mut look.next, at);
        }
    }

    fn claim(
        &self,
        candidate: Candidate,
        today: Timestamp,
        visibility: Duration,
    ) -> (TaskDelivery, ConditionalStep) {
        let delivery = TaskDelivery {
            token: uuid::Uuid::new_v4().to_string(),
            taken: today,
            task: candidate.task,
        };
        let taken = self.table.shards.key(TAKEN, &delivery.task);
        let kept = item::ttl(today + KEPT);
        let keep = candidate.ttl.is_some_and(|ttl| ttl < kept);
        let mut values = vec![
            (":from", item::text(candidate.key)),
            (":taken", item::text(taken)),
            (":token", item::text(delivery.token.clone())),
            (":until", item::number((today + visibility).0)),
            (":now", item::number(today.0)),
            (":seconds", item::number(today.0 / 1_000 + 1)),
            (":turn", item::number(SECONDS_END)),
            (":kind", item::text("N")),
            (":one", item::number(1_u64)),
        ];
        values.extend(keep.then(|| (":kept", item::number(kept))));
        let step = ConditionalStep {
            task: delivery.task.clone(),
            update: if keep { UPDATE_AND_KEEP } else { UPDATE },
            condition: CONDITION,
            names: NAMES,
            values,
        };
        (delivery, step)
    }
}

pub(super) fn candidate(item: &TaskItem, key: &str) -> Option<Candidate> {
    Some(Candidate {
        task: item::string(item, TASK_ID)?.to_owned(),
        key: key.to_owned(),
        created: item::date(item, CREATED),
        ttl: item::whole(item, item::TTL).filter(|ttl| *ttl < SECONDS_END),
    })
}

/// Returns the queries for the next pages.
fn following(seeks: Vec<Seek>, pages: Vec<IndexPage>) -> Vec<Seek> {
    let next = seeks.into_iter().zip(pages).filter_map(|(seek, page)| {
        Some(Seek {
            after: Some(page.next?),
            limit: Some(WIDE),
            ..seek
        })
    });
    next.collect()
}

fn soonest(next: &mut Option<Timestamp>, at: Timestamp) {
    *next = Some(next.map_or(at, |known| known.min(at)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_window_widens_on_conflicts_and_narrows_without() {
        let spread = Spread::default();
        let widths = [(10, 9), (10, 5), (10, 4), (10, 10), (10, 10)].map(|(tried, lost)| {
            spread.learn(tried, lost);
            spread.width()
        });
        assert_eq!(widths, [2, 4, 4, 8, 8]);
        spread.learn(0, 0);
        assert_eq!(spread.width(), 8, "nothing was tried, nothing is known");
        for _ in 0..5 {
            spread.learn(10, 0);
        }
        assert_eq!(spread.width(), 1);
    }
}
