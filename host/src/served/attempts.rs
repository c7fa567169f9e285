//! Receives of FIFO queues that name their attempt: asked again within five minutes, as after an
//! answer that was lost, the same messages are handed out with the same receipts. Remembers; reads
//! no queue.

use super::desk::lock;
use crate::clock::{self, Moment};
use crate::message::Message;
use crate::queue::local::{QueueId, StoreTime};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// How long an attempt may be asked for again (ReceiveMessage's page in the SQS API).
const USABLE: Duration = Duration::from_secs(300);
/// So many at most; then all are forgotten.
const MOST: usize = 10_000;

/// What one attempt brought.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// When.
    at: Moment,
    /// What was handed out.
    pub messages: Vec<Message>,
    /// Until when it is invisible.
    pub until: StoreTime,
}

/// The attempts of all queues.
#[derive(Default)]
pub struct Attempts {
    by_name: Mutex<HashMap<(QueueId, String), Attempt>>,
}

impl Attempts {
    /// What an attempt brought, if it may be asked for again.
    pub fn get(&self, queue: QueueId, id: &str) -> Option<Attempt> {
        let now = clock::now();
        let mut all = lock(&self.by_name);
        all.retain(|_, attempt| now.since(attempt.at) < USABLE);
        all.get(&(queue, id.to_owned())).cloned()
    }

    /// Remembers what an attempt brought.
    pub fn keep(&self, queue: QueueId, id: &str, messages: Vec<Message>, until: StoreTime) {
        let at = clock::now();
        let mut all = lock(&self.by_name);
        if all.len() >= MOST {
            all.clear();
        }
        let attempt = Attempt {
            at,
            messages,
            until,
        };
        all.insert((queue, id.to_owned()), attempt);
    }

    /// It is asked for again, so its messages are invisible until later.
    pub fn renew(&self, queue: QueueId, id: &str, until: StoreTime) {
        if let Some(attempt) = lock(&self.by_name).get_mut(&(queue, id.to_owned())) {
            attempt.until = until;
        }
    }
}
