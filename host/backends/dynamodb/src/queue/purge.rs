//! Empties a status of a table, some tasks at a time. The `PurgeSource` decides which tasks may be
//! removed.

use super::item::TaskItem;
use super::table::{IndexPage, Seek, side_by_side};
use dispatcher_core::queue::{PurgeStep, QueueError};

/// The maximum number of tasks of each key that are removed concurrently.
pub(super) const PURGED_AT_ONCE: usize = 100;

/// The tasks of a status, some of which may be removed.
#[async_trait::async_trait]
pub(super) trait PurgeSource: Sync {
    /// Reads a page of the index, without the tasks that must stay.
    async fn page(&self, seek: &Seek) -> Result<IndexPage, QueueError>;

    /// Removes these tasks and returns how many of them existed.
    async fn remove(&self, items: Vec<TaskItem>) -> Result<u64, QueueError>;
}

/// Removes some tasks from the beginning of each of these keys. For a while the index still lists
/// tasks that were removed before, so a page without a task to remove says nothing about later
/// pages. The step continues until it has removed a task or no key has more pages.
pub(super) async fn purge_some(
    source: &dyn PurgeSource,
    mut seeks: Vec<Seek>,
) -> Result<PurgeStep, QueueError> {
    let mut removed = 0;
    while removed == 0 && !seeks.is_empty() {
        let mut items = Vec::new();
        let mut rest = Vec::new();
        for mut seek in seeks {
            let page = source.page(&seek).await?;
            items.extend(page.items);
            seek.after = page.next;
            rest.extend(seek.after.is_some().then_some(seek));
        }
        seeks = rest;
        removed = source.remove(items).await?;
    }
    Ok(PurgeStep {
        removed: Some(removed),
        has_more: removed > 0,
    })
}

/// Runs these removals concurrently and returns how many tasks existed. Fails only if a removal
/// failed and no task was removed.
pub(super) async fn removed<F>(removals: Vec<F>) -> Result<u64, QueueError>
where
    F: Future<Output = Result<bool, QueueError>> + Send + 'static,
{
    let mut removed = 0;
    let mut failed = None;
    for answer in side_by_side(removals).await {
        match answer {
            Ok(done) => removed += u64::from(done),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) if removed == 0 => Err(error),
        _ => Ok(removed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::item::{self, TASK_ID};
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    /// An index that lists tasks although they are gone.
    struct LateIndex {
        listed: Vec<usize>,
        there: Mutex<BTreeSet<String>>,
    }

    #[async_trait::async_trait]
    impl PurgeSource for LateIndex {
        async fn page(&self, seek: &Seek) -> Result<IndexPage, QueueError> {
            let place = seek
                .after
                .as_ref()
                .and_then(|after| item::whole(after, TASK_ID));
            let at = usize::try_from(place.unwrap_or_default()).unwrap();
            let end = (at + PURGED_AT_ONCE).min(self.listed.len());
            let items = self.listed[at..end].iter().map(|number| {
                TaskItem::from([(TASK_ID.to_owned(), item::text(number.to_string()))])
            });
            let next = TaskItem::from([(TASK_ID.to_owned(), item::number(end as u64))]);
            Ok(IndexPage {
                items: items.collect(),
                next: (end < self.listed.len()).then_some(next),
            })
        }

        async fn remove(&self, items: Vec<TaskItem>) -> Result<u64, QueueError> {
            let mut there = self.there.lock().unwrap();
            let ids = items.iter().filter_map(|one| item::string(one, TASK_ID));
            Ok(ids.filter(|id| there.remove(*id)).count() as u64)
        }
    }

    fn seeks() -> Vec<Seek> {
        vec![Seek::newest("PENDING".to_owned(), PURGED_AT_ONCE)]
    }

    #[tokio::test]
    async fn a_purge_goes_on_behind_tasks_that_are_gone_and_still_listed() {
        let there = (0..1_000).map(|number: usize| number.to_string()).collect();
        let index = LateIndex {
            listed: (0..1_000).collect(),
            there: Mutex::new(there),
        };
        let mut steps = 0;
        while purge_some(&index, seeks()).await.unwrap().has_more {
            steps += 1;
        }
        assert!(index.there.lock().unwrap().is_empty(), "some were left");
        assert_eq!(steps, 10);
    }

    #[tokio::test]
    async fn a_purge_of_nothing_ends() {
        let index = LateIndex {
            listed: Vec::new(),
            there: Mutex::default(),
        };
        let step = purge_some(&index, seeks()).await.unwrap();
        assert_eq!((step.removed, step.has_more), (Some(0), false));
    }
}
