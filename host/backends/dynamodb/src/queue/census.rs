//! Counting, each once, the tasks of one key of the index whose time to live passed while they
//! waited. Pure, told `now` and what pages held; `sweep` reads them.
//!
//! One pass after the other goes from the old end until a page has none that expired. Expired is
//! what had expired when the pass began; it is news if it had not when the pass before began, or if
//! no pass came so far. A pass may take many sweeps.

use super::item::{self, CREATED, TaskItem};
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_core::clock::Timestamp;

/// Tasks of a page. This many in a row that live end a pass.
pub(super) const PAGE: usize = 100;

/// What is known of one key.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyCount {
    /// When the pass under way began, or the last one; and the one before it.
    began: Timestamp,
    before: Timestamp,
    /// How far the passes that have ended came, and how far this one is.
    reached: Timestamp,
    seen: Timestamp,
    /// All created until then have expired and were counted, so passes begin there.
    floor: Option<AttributeValue>,
    /// The last of those that have expired, with none before them that lives. Others may have been
    /// created at the same time, so the floor follows once a later one is seen.
    edge: Option<(Timestamp, AttributeValue)>,
    /// Whether all that this pass has seen has expired.
    only_expired: bool,
    /// Where the pass continues.
    rest: Option<TaskItem>,
}

/// What a page came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// So many were not counted before.
    pub news: u64,
    /// The pass goes on with the page after it.
    pub goes_on: bool,
}

impl KeyCount {
    /// Begins a pass, or goes on with the one under way: what to read was created after the first,
    /// and stands after the second.
    pub(super) fn begin(&mut self, now: Timestamp) -> (Option<AttributeValue>, Option<TaskItem>) {
        if self.rest.is_none() {
            self.before = self.began;
            self.began = now.max(self.began);
            self.only_expired = true;
            self.edge = None;
        }
        (self.floor.clone(), self.rest.clone())
    }

    /// Takes the next page of the pass, the oldest first; `next` if there is another after it.
    pub(super) fn page(&mut self, items: &[TaskItem], next: Option<TaskItem>) -> Counted {
        let mut news = 0;
        let mut goes_on = false;
        for item in items {
            let Some(created) = item::date(item, CREATED) else {
                continue;
            };
            let end = item::expiry(item).filter(|end| *end <= self.began);
            let is_new = |end: Timestamp| end > self.before || created > self.reached;
            news += u64::from(end.is_some_and(is_new));
            self.raise_floor(item, created, end.is_some());
            self.seen = self.seen.max(created);
            // All that was reached before is seen again, lest it be taken for news.
            goes_on |= end.is_some() || created < self.reached;
        }
        goes_on &= next.is_some();
        self.rest = next.filter(|_| goes_on);
        if !goes_on {
            self.reached = self.reached.max(self.seen);
        }
        Counted { news, goes_on }
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
#[path = "census_tests.rs"]
mod tests;
