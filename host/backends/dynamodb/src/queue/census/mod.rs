//! Counts the tasks of one index key that expired while they waited, each once. Pure: `now` and the
//! pages are arguments; `sweep` reads them.
//!
//! Passes follow each other. Each begins at the old end and stops after a page without expired
//! tasks. A task counts as expired if it had expired when the pass began. It is new if it had not
//! expired when the previous pass began, or if no earlier pass reached it. One pass may take many
//! sweeps.

use super::item::{self, CREATED, TaskItem};
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock::Timestamp;

/// The number of tasks in a page. A pass ends after a page in which no task has expired.
pub(super) const PAGE: usize = 100;

/// The count of one key.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyCount {
    /// The start of the current or last pass, and the start of the pass before it.
    began: Timestamp,
    before: Timestamp,
    /// The newest `taskCreated` that finished passes saw, and the newest that the current pass saw.
    reached: Timestamp,
    seen: Timestamp,
    /// The `taskCreated` up to which all tasks have expired and were counted; passes begin after
    /// it.
    floor: Option<AttributeValue>,
    /// The newest expired task without a live task before it. Other tasks may have the same
    /// `taskCreated`, so it becomes the floor only when a later one is seen.
    edge: Option<(Timestamp, AttributeValue)>,
    /// Whether all tasks that this pass has seen have expired.
    only_expired: bool,
    /// The position at which the pass continues.
    rest: Option<TaskItem>,
}

/// The result of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageCount {
    /// The number of expired tasks that were not counted before.
    pub news: u64,
    /// Whether the pass continues with the next page.
    pub goes_on: bool,
}

impl KeyCount {
    /// Begins a pass or continues the current one. Returns the `taskCreated` after which to read,
    /// and the key after which the next page begins.
    pub(super) fn begin(&mut self, now: Timestamp) -> (Option<AttributeValue>, Option<TaskItem>) {
        if self.rest.is_none() {
            self.before = self.began;
            self.began = now.max(self.began);
            self.only_expired = true;
            self.edge = None;
        }
        (self.floor.clone(), self.rest.clone())
    }

    /// Counts the next page of the pass, the oldest tasks first; `next` is set if there is another
    /// page.
    pub(super) fn page(&mut self, items: &[TaskItem], next: Option<TaskItem>) -> PageCount {
        let mut news = 0;
        let mut goes_on = false;
        for item in items {
            let Some(created) = item::date(item, CREATED) else {
                continue;
            };
            let end = item::expiry(item).filter(|end| *end <= self.began);
            news += u64::from(
                end.is_some_and(|end: Timestamp| end > self.before || created > self.reached),
            );
            self.raise_floor(item, created, end.is_some());
            self.seen = self.seen.max(created);
            // A pass reads at least as far as the passes before it, so that no task is counted
            // twice.
            goes_on |= end.is_some() || created < self.reached;
        }
        goes_on &= next.is_some();
        self.rest = if goes_on { next } else { None };
        if !goes_on {
            self.reached = self.reached.max(self.seen);
        }
        PageCount { news, goes_on }
    }

    fn raise_floor(&mut self, item: &TaskItem, created: Timestamp, has_expired: bool) {
        if !self.only_expired {
            return;
        }
        if let Some((_, edge)) = self.edge.take_if(|(edge, _)| created > *edge) {
            self.floor = Some(edge);
        }
        self.only_expired = has_expired;
        if has_expired {
            let value = item.get(CREATED).cloned();
            self.edge = value.map(|value| (created, value));
        }
    }
}

#[cfg(test)]
mod tests;
