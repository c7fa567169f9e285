//! Counts and shows tasks without receiving them.

use super::item::{self, CREATED, EXPIRES, NOT_BEFORE, Readiness, TTL};
use super::status::{PENDING, TAKEN};
use super::table::Seek;
use super::{BATCH, DynamoQueue};
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::Message;
use dispatcher_core::queue::{Depth, QueueError};

/// The maximum number of pages of 1 MB that are counted for each key, which is about ten thousand
/// small tasks. Beyond that, the count is too low.
const MOST_PAGES: usize = 10;

impl DynamoQueue {
    /// Counts the tasks in the index. Expired tasks are not counted; tasks that the sample has
    /// taken count as in flight. If the count is incomplete, a line in the log says so.
    pub(super) async fn count(&self) -> Result<Depth, QueueError> {
        let mut depth = Depth::default();
        let mut oldest: Option<Timestamp> = None;
        let today = clock::wall_clock_now();
        for key in self.table.shards.keys(PENDING) {
            let mut seek = whole(key, &[CREATED, TTL, EXPIRES, NOT_BEFORE]);
            let mut pages = 0;
            loop {
                let page = self.table.page(&seek).await?;
                for item in &page.items {
                    match item::readiness(item, today) {
                        Readiness::Ready => depth.waiting += 1,
                        Readiness::Later(_) => depth.delayed += 1,
                        Readiness::Expired => continue,
                    }
                    let created = item::date(item, CREATED);
                    oldest = match (oldest, created) {
                        (Some(known), Some(created)) => Some(known.min(created)),
                        (known, created) => known.or(created),
                    };
                }
                pages += 1;
                if !self.goes_on(&mut seek, page.next, pages) {
                    break;
                }
            }
        }
        for key in self.table.shards.keys(TAKEN) {
            let mut seek = whole(key, &[CREATED]);
            let mut pages = 0;
            loop {
                let page = self.table.page(&seek).await?;
                depth.in_flight += page.items.len() as u64;
                pages += 1;
                if !self.goes_on(&mut seek, page.next, pages) {
                    break;
                }
            }
        }
        depth.oldest = oldest.map(|created| today.since(created));
        Ok(depth)
    }

    fn goes_on(&self, seek: &mut Seek, next: Option<item::TaskItem>, pages: usize) -> bool {
        if next.is_some() && pages >= MOST_PAGES {
            let (queue, status) = (&self.identity.name, &seek.key);
            tracing::warn!(
                queue,
                status,
                counted_mb = MOST_PAGES,
                "more tasks than are counted"
            );
            return false;
        }
        seek.after = next;
        seek.after.is_some()
    }

    /// Returns the next tasks in the order of receives, the newest first, then the delayed tasks.
    pub(super) async fn show(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        let today = clock::wall_clock_now();
        let mut found: Vec<(bool, Option<Timestamp>, Message)> = Vec::new();
        for key in self.table.shards.keys(PENDING) {
            let mut seek = Seek::newest(key, max.clamp(BATCH, 1_000));
            let mut ready = 0;
            let mut pages = 0;
            loop {
                let page = self.table.page(&seek).await?;
                for item in &page.items {
                    let delayed = match item::readiness(item, today) {
                        Readiness::Ready => false,
                        Readiness::Later(_) => true,
                        Readiness::Expired => continue,
                    };
                    ready += usize::from(!delayed);
                    let message = self.table.reading.message(item, None);
                    found.extend(message.map(|m| (delayed, item::date(item, CREATED), m)));
                }
                pages += 1;
                if ready >= max || pages >= MOST_PAGES || page.next.is_none() {
                    break;
                }
                seek.after = page.next;
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        found.truncate(max);
        Ok(found.into_iter().map(|(_, _, message)| message).collect())
    }
}

fn whole(key: String, columns: &'static [&'static str]) -> Seek {
    Seek {
        limit: None,
        columns,
        ..Seek::newest(key, 1)
    }
}
