//! The file name of a message: it contains everything that changes during the message's life, so
//! that each step is one rename, which the file system carries out completely or not at all.

use dispatcher_core::clock::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// The id of a message that is sent now.
pub(crate) fn new_id(now: Timestamp) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{:014}-{number:010}-{}", now.0, std::process::id())
}

/// A name, taken apart. Names are written `ID.RECEIVES.VISIBLE.FIRST.STATE`.
#[derive(Clone)]
pub(crate) struct Name {
    /// `SENT-NUMBER-PROCESS`, so that the order of ids is the order of sending.
    pub(crate) id: String,
    /// How often the message was received.
    pub(crate) receives: u32,
    /// The time from which it can be received.
    pub(crate) visible_at: Timestamp,
    /// When it was received first; 0 before.
    pub(crate) first_received_at: Timestamp,
    /// Whether it was received, and neither settled nor visible since.
    pub(crate) is_leased: bool,
}

impl Name {
    /// Returns the name of a message that was never received.
    pub(crate) fn new(id: String, visible_at: Timestamp) -> Self {
        Self {
            id,
            receives: 0,
            visible_at,
            first_received_at: Timestamp(0),
            is_leased: false,
        }
    }

    /// Returns the name of a delivery until that time.
    pub(crate) fn taken(&self, now: Timestamp, visible_at: Timestamp) -> Self {
        Self {
            id: self.id.clone(),
            receives: self.receives + 1,
            visible_at,
            first_received_at: match self.receives {
                0 => now,
                _ => self.first_received_at,
            },
            is_leased: true,
        }
    }

    /// `None` for a file that is no message, such as one that is being written.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let [id, receives, visible, first, state] = text.split('.').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Self {
            id: id.to_owned(),
            receives: receives.parse().ok()?,
            visible_at: Timestamp(visible.parse().ok()?),
            first_received_at: Timestamp(first.parse().ok()?),
            is_leased: state == "leased",
        })
    }

    /// When the message was sent.
    pub(crate) fn sent_at(&self) -> Option<Timestamp> {
        let (sent, _) = self.id.split_once('-')?;
        sent.parse().ok().map(Timestamp)
    }

    /// The receipt of the delivery: every receive has another, and makes those before it void.
    pub(crate) fn receipt(&self) -> String {
        format!("{}.{}", self.id, self.receives)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.is_leased { "leased" } else { "waits" };
        write!(
            out,
            "{}.{}.{}.{}.{state}",
            self.id, self.receives, self.visible_at.0, self.first_received_at.0
        )
    }
}
