//! The ids of receives on FIFO queues. SQS answers a receive that names the id of an earlier one
//! with the same messages and receipts for five minutes (SQS API reference, ReceiveMessage), so an
//! answer that was lost on the way is asked for again and its groups are not blocked until their
//! visibility runs out. Pure, told `now`.

use crate::clock::Moment;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long an id can be used again; SQS says five minutes.
const USABLE: Duration = Duration::from_secs(280);

/// Ids whose answers were lost.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<Vec<Attempt>>);

/// One receive, perhaps made several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    /// As `ReceiveRequestAttemptId` wants it.
    pub id: String,
    began: Moment,
}

impl Lost {
    /// The id of the next receive: one whose answer was lost, if there is one that SQS still
    /// knows, or else `fresh`.
    pub(super) fn next(&self, fresh: impl FnOnce() -> String, now: Moment) -> Attempt {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|attempt| now.since(attempt.began) < USABLE);
        let first = (!lost.is_empty()).then(|| lost.remove(0));
        first.unwrap_or_else(|| Attempt {
            id: fresh(),
            began: now,
        })
    }

    /// Its answer may have been lost.
    pub(super) fn put(&self, attempt: Attempt) {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lost.push(attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_id_is_used_again_while_sqs_knows_it() {
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        let lost = Lost::default();
        let first = lost.next(|| "a".into(), at(0));
        assert_eq!(lost.next(|| "b".into(), at(1)).id, "b");
        lost.put(first);
        assert_eq!(lost.next(|| "c".into(), at(2)).id, "a");
        let late = lost.next(|| "d".into(), at(3));
        lost.put(late);
        assert_eq!(lost.next(|| "e".into(), at(290)).id, "e");
    }
}
