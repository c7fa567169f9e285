//! The queues that the configuration lends to this plugin. Calling anything here makes the
//! component import `dispatcher:plugin/queues`; knows nothing of the message at hand.

use crate::bindings::imports::dispatcher::plugin as wire;

pub use wire::queues::send;
pub use wire::queues_types::{Outgoing, SendError};

/// The same for `async` callers: an instance that awaits it can handle other messages meanwhile.
pub use wire::queues_async::send as send_async;

impl Outgoing {
    /// A message of this body: no attributes, no delay, no group.
    pub fn new(body: impl Into<String>) -> Self {
        Self {
            body: body.into(),
            attributes: Vec::new(),
            delay: 0,
            group: None,
        }
    }
}
