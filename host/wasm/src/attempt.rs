//! The properties of an attempt wherever its guest runs: its owner, its deadline, why the host
//! stops a guest, and the verdicts of an attempt without an answer.

use dispatcher_core::clock;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{FailureReason, Verdict};
use std::time::Duration;

/// Why the host itself stopped a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttemptStop {
    /// Its deadline has passed.
    #[error("the deadline of the attempt has passed")]
    Deadline,
    /// All its messages are cancelled.
    #[error("its answer no longer counts")]
    Cancelled,
    /// It computes for no attempt.
    #[error("it continued computing after it had answered")]
    Answered,
}

/// Whose attempt it is: the queue, and the label of its messages.
pub(crate) fn place(attempt: &Attempt) -> (String, String) {
    let queue = attempt
        .messages
        .first()
        .map(|message| message.queue.clone());
    (queue.unwrap_or_default(), label(attempt))
}

/// What a line that the guest prints is filed under.
pub(crate) fn label(attempt: &Attempt) -> String {
    match attempt.messages.as_slice() {
        [] => String::new(),
        [one] => one.id.clone(),
        [first, rest @ ..] => format!("{} and {} more", first.id, rest.len()),
    }
}

pub(crate) fn retry_all(attempt: &Attempt, why: FailureReason) -> Vec<Verdict> {
    let verdict = Verdict::Retry { after: None, why };
    vec![verdict; attempt.messages.len()]
}

/// How long an attempt may run from now on. Rounded up, since a little of the time that the
/// attempt was given has passed already.
pub(crate) fn limit(attempt: &Attempt) -> Duration {
    let time = attempt.deadline.left(clock::now());
    let ms = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)
}
