//! Lends queues: which ones a plugin may send to, and how often a refusal is said. Knows neither the
//! contract's spelling nor how a message is sent.

use crate::clock;
use crate::message::Outgoing;
use crate::telemetry::said::Said;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// So many refused names are remembered; a plugin that invents more is told about anew.
const NAMES: usize = 100;
/// The most characters of a refused name.
const SHOWN: usize = 200;

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDelivered {
    /// For good, and why.
    Refused(String),
    /// Sending again may help.
    Unavailable(String),
}

/// Sends messages of plugins.
#[async_trait::async_trait]
pub trait Deliver: Send + Sync + 'static {
    /// Sends one, with a delay of any length; its id. `Ok` means that it survives a crash.
    async fn deliver(&self, queue: &str, message: Outgoing) -> Result<String, NotDelivered>;
}

/// The queues that one plugin may send to.
#[derive(Clone)]
pub struct Queues {
    /// Sends.
    pub deliver: Arc<dyn Deliver>,
    /// Names, as plugins must write them.
    pub allowed: Vec<String>,
    /// Called at every refusal, to count it.
    pub refused: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Queues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Queues({})", self.allowed.join(", "))
    }
}

/// Why there is no id.
pub(in crate::plugin) enum Denied {
    /// Not lent, in words for the plugin's author.
    Forbidden(String),
    /// Tried, in vain.
    Failed(NotDelivered),
}

/// Queues and what was said about others. One per plugin.
#[derive(Debug)]
pub(in crate::plugin) struct Lent {
    queues: Queues,
    said: Mutex<HashMap<String, Said>>,
}

impl Lent {
    pub(in crate::plugin) fn new(queues: Queues) -> Self {
        Self {
            queues,
            said: Mutex::default(),
        }
    }

    /// Sends a message, if the queue is lent. `plugin` is the name in the log.
    pub(in crate::plugin) async fn send(
        &self,
        plugin: &str,
        queue: String,
        message: Outgoing,
    ) -> Result<String, Denied> {
        if !self.queues.allowed.contains(&queue) {
            // It is the guest's and may be of any length: no more of it is said or remembered.
            let queue: String = queue.escape_debug().take(SHOWN).collect();
            self.refuse(plugin, &queue);
            let why = format!("the configuration does not let this plugin send to {queue}");
            return Err(Denied::Forbidden(why));
        }
        let sent = self.queues.deliver.deliver(&queue, message).await;
        sent.map_err(Denied::Failed)
    }

    /// Counts a refusal, and says it once a minute for each queue.
    fn refuse(&self, plugin: &str, queue: &str) {
        (self.queues.refused)();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= NAMES && !said.contains_key(queue) {
            said.clear();
        }
        if said
            .entry(queue.to_owned())
            .or_default()
            .again(clock::now())
        {
            tracing::warn!(
                plugin,
                queue,
                "the plugin may not send to this queue; --allow-send lends it"
            );
        }
    }
}
