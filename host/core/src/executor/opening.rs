//! A handler that takes messages out of their envelope. Settlement still gets the queue's own
//! message.

use crate::envelope::Envelope;
use crate::handler::{Attempt, Handler, Usage};
use crate::message::Verdict;
use std::sync::Arc;

/// A handler that opens the messages of every attempt for the handler behind it.
pub struct EnvelopeOpener {
    handler: Arc<dyn Handler>,
    envelope: Envelope,
}

impl EnvelopeOpener {
    /// Wraps `handler`, or returns it unchanged if there is no envelope to open.
    pub fn before(handler: Arc<dyn Handler>, envelope: Envelope) -> Arc<dyn Handler> {
        match envelope {
            Envelope::None => handler,
            Envelope::Sns => Arc::new(Self { handler, envelope }),
        }
    }
}

#[async_trait::async_trait]
impl Handler for EnvelopeOpener {
    fn batch(&self) -> usize {
        self.handler.batch()
    }

    fn reaches_out(&self) -> bool {
        self.handler.reaches_out()
    }

    fn version(&self, attempt: &Attempt) -> Option<Arc<str>> {
        self.handler.version(attempt)
    }

    fn usage(&self) -> Usage {
        self.handler.usage()
    }

    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict> {
        let messages = attempt.messages.iter().map(|message| {
            let opened = self.envelope.open(message);
            opened.unwrap_or_else(|| message.clone())
        });
        let opened = Attempt {
            messages: messages.collect(),
            cancelled: attempt.cancelled.clone(),
            tries: attempt.tries.clone(),
            deadline: attempt.deadline.clone(),
        };
        self.handler.handle(Arc::new(opened)).await
    }
}
