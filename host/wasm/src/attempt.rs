//! The properties of an attempt that do not depend on where its guest runs: its queue and label,
//! its deadline, why the host stops a guest, and the verdicts of an attempt without an answer.

use dispatcher_core::clock;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{FailureReason, Verdict};
use std::time::Duration;

/// The reason for which the host stopped a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttemptStop {
    #[error("the deadline of the attempt has passed")]
    Deadline,
    /// All its messages are cancelled.
    #[error("its answer no longer counts")]
    Cancelled,
    /// It continued computing although it works on no attempt.
    #[error("it continued computing after it had answered")]
    Answered,
}

/// Returns the queue of the attempt, and the label of its messages.
pub(crate) fn place(attempt: &Attempt) -> (String, String) {
    let queue = attempt
        .messages
        .first()
        .map(|message| message.queue.clone());
    (queue.unwrap_or_default(), label(attempt))
}

/// Returns the label of the lines that the guest prints.
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

/// Returns how long an attempt may run from now on. Rounds up, since a little of its time has
/// already passed.
pub(crate) fn limit(attempt: &Attempt) -> Duration {
    let time = attempt.deadline.left(clock::now());
    let ms = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)
}
