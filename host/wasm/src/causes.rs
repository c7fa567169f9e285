//! Notes why messages failed, written by host functions while a guest runs: version 0.1 of the
//! contract has no field for the cause of a retry. Part of the store, so it lasts as long as the
//! instance.

use dispatcher_core::message::{FailureReason, Message, Verdict};
use std::collections::HashMap;

/// Why messages failed, by their ids, until they are answered. Holds no more than are running.
#[derive(Default)]
pub(crate) struct Causes(HashMap<String, FailureReason>);

impl Causes {
    /// Notes why these messages fail, if they do.
    pub(crate) fn note(&mut self, about: &[&Message], cause: &FailureReason) {
        for message in about {
            self.0.insert(message.id.clone(), cause.clone());
        }
    }

    /// Gives the verdicts on these messages the causes that are known, and forgets them.
    pub(crate) fn explain(&mut self, messages: &[Message], verdicts: &mut [Verdict]) {
        if self.0.is_empty() {
            return;
        }
        for (message, verdict) in messages.iter().zip(verdicts) {
            let cause = self.0.remove(&message.id);
            if let (Verdict::Retry { why, .. }, Some(cause)) = (verdict, cause)
                && *why == FailureReason::Requested
            {
                *why = cause;
            }
        }
    }

    /// Another attempt begins, alone.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
