//! Decides which receives of a queue take turns with all others of the process, because their
//! answers may be long. Receives of a queue with short messages do not wait.

use super::link::RedisConnections;
use dispatcher_core::message;
use dispatcher_core::message::Message;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::SemaphorePermit;

/// The maximum number of bytes of a short call or answer: fifty of them take a line of 100 Mbit/s
/// less than half a second.
pub(super) const SHORT: usize = 100_000;

/// The known length of a queue's answers.
#[derive(Debug, Default)]
pub(super) struct LongAnswerTurns {
    /// Whether the last answer with messages was short, and no answer was missing since.
    short: AtomicBool,
}

impl LongAnswerTurns {
    /// Waits until the next receive may be made. The caller keeps the permit until the answer is
    /// there.
    pub(super) async fn next<'a>(
        &self,
        lines: &'a RedisConnections,
    ) -> Option<SemaphorePermit<'a>> {
        if self.short.load(Ordering::Relaxed) {
            None
        } else {
            Some(lines.turn().await)
        }
    }

    /// Records the messages of an answer; `None` if there was no answer, which may have been too
    /// long to be in time. An empty answer proves nothing.
    pub(super) fn note(&self, brought: Option<&[Message]>) {
        let Some(messages) = brought else {
            self.short.store(false, Ordering::Relaxed);
            return;
        };
        if !messages.is_empty() {
            let short = messages
                .iter()
                .map(|message: &Message| message::bytes(&message.body, &message.attributes))
                .sum::<usize>()
                <= SHORT;
            self.short.store(short, Ordering::Relaxed);
        }
    }
}
