//! Records why messages failed. Host functions write it while a guest runs, because version 0.1 of
//! the contract has no field for the cause of a retry. It is part of the store and lasts as long as
//! the instance.

use dispatcher_core::message::{FailureReason, Message, Verdict};
use std::collections::HashMap;

/// The causes of failures by message ID, until the messages get verdicts. Contains only running
/// messages.
#[derive(Default)]
pub(crate) struct Causes(HashMap<String, FailureReason>);

impl Causes {
    /// Records why these messages fail, if they do.
    pub(crate) fn note(&mut self, about: &[&Message], cause: &FailureReason) {
        for message in about {
            self.0.insert(message.id.clone(), cause.clone());
        }
    }

    /// Adds the known causes to the verdicts on these messages, and forgets them.
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

    /// Forgets all causes, because another attempt begins.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
