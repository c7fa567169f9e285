//! Decides which receives of a queue take turns with all others of the process, because their
//! answers may be long. Those of a queue whose messages are short wait for nobody.

use super::link::RedisConnections;
use dispatcher_core::message;
use dispatcher_core::message::Message;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::SemaphorePermit;

/// Maximum bytes of a short call or answer: fifty of them take a line of 100 Mbit/s less than half
/// a second.
pub(super) const SHORT: usize = 100_000;

/// What is known of the length of a queue's answers.
#[derive(Debug, Default)]
pub(super) struct LongAnswerTurns {
    /// The last that brought anything was short, and came.
    short: AtomicBool,
}

impl LongAnswerTurns {
    /// Waits until the next receive may be made; keep what this returns until it is answered.
    pub(super) async fn next<'a>(
        &self,
        lines: &'a RedisConnections,
    ) -> Option<SemaphorePermit<'a>> {
        match self.short.load(Ordering::Relaxed) {
            true => None,
            false => Some(lines.turn().await),
        }
    }

    /// Notes what an answer brought; `None` if there was none. That may have been too long to be in
    /// time, and what is empty proves nothing.
    pub(super) fn note(&self, brought: Option<&[Message]>) {
        let Some(messages) = brought else {
            self.short.store(false, Ordering::Relaxed);
            return;
        };
        let bytes = |message: &Message| message::bytes(&message.body, &message.attributes);
        if !messages.is_empty() {
            let short = messages.iter().map(bytes).sum::<usize>() <= SHORT;
            self.short.store(short, Ordering::Relaxed);
        }
    }
}
