//! Notifications of the server: a message can be received, a delivery was cancelled, the connection
//! is lost. They are only hints, except cancellations: receivers look later without them, and an
//! extension of a lost lease is refused.

use dispatcher_core::message::{Loss, Receipt};
use parking_lot::{Mutex, MutexGuard};
use redis::{PushInfo, PushKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::{mpsc, watch};

/// The notifications of one queue.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// A number that changes at every notification.
    pub notifications: watch::Sender<u64>,
    lost: mpsc::UnboundedSender<Vec<Loss>>,
    /// Whether its messages are cancelled tasks, which are passed on in place of receipts.
    of_tasks: bool,
}

impl Notifier {
    /// Creates a notifier, and the receiver of deliveries that are lost before their time.
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Vec<Loss>>) {
        let (lost, losses) = mpsc::unbounded_channel();
        let notifications = watch::Sender::new(0);
        let of_tasks = false;
        (
            Arc::new(Self {
                notifications,
                lost,
                of_tasks,
            }),
            losses,
        )
    }

    /// Creates a notifier of the payloads of cancelled tasks, which come as receipts do.
    pub(crate) fn of_tasks() -> (Arc<Self>, mpsc::UnboundedReceiver<Vec<Loss>>) {
        let (lost, losses) = mpsc::unbounded_channel();
        let notifier = Self {
            notifications: watch::Sender::new(0),
            lost,
            of_tasks: true,
        };
        (Arc::new(notifier), losses)
    }

    /// Wakes the receives that wait.
    pub(crate) fn notify(&self) {
        self.notifications
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Reports lost deliveries.
    pub(crate) fn lose(&self, losses: Vec<Loss>) {
        if !losses.is_empty() {
            // A queue that is closed has no deliveries.
            let _ = self.lost.send(losses);
        }
    }

    fn pass_on(&self, words: &[u8]) {
        let of_tasks = self.of_tasks.then_some(words);
        match of_tasks.or_else(|| words.strip_prefix(b"cancel ")) {
            None => self.notify(),
            Some(receipt) => {
                let receipt = String::from_utf8_lossy(receipt).into_owned();
                self.lose(vec![Loss::cancelled(Receipt(receipt))]);
            }
        }
    }
}

/// All notifiers of a process, by channel.
#[derive(Debug, Default)]
pub(crate) struct Notifiers {
    by_channel: Mutex<ByChannel>,
}

/// The notifiers of each channel. A queue that is opened twice has two on one channel.
type ByChannel = HashMap<String, Vec<Weak<Notifier>>>;

impl Notifiers {
    /// Adds a notifier. Returns whether it is the first of the channel, which must then be
    /// subscribed to.
    pub(crate) fn register(&self, channel: &str, notifier: &Arc<Notifier>) -> bool {
        let mut notifiers = self.lock();
        let there = notifiers.entry(channel.to_owned()).or_default();
        let first = there.is_empty();
        if !there
            .iter()
            .any(|old| std::ptr::eq(old.as_ptr(), Arc::as_ptr(notifier)))
        {
            there.push(Arc::downgrade(notifier));
        }
        first
    }

    /// Removes the notifiers of a channel that could not be subscribed to, so that it is retried.
    pub(crate) fn unregister(&self, channel: &str) {
        self.lock().remove(channel);
    }

    /// Returns the channels of all notifiers that are still in use.
    pub(crate) fn channels(&self) -> Vec<String> {
        let mut notifiers = self.lock();
        for there in notifiers.values_mut() {
            there.retain(|notifier| notifier.strong_count() > 0);
        }
        notifiers.retain(|_, there| !there.is_empty());
        notifiers.keys().cloned().collect()
    }

    /// Passes on a message of the server.
    pub(crate) fn pass_on(&self, said: &PushInfo) {
        match (&said.kind, said.data.as_slice()) {
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(words)]) => {
                let channel = String::from_utf8_lossy(channel);
                let notifiers: Vec<_> = match self.lock().get(&*channel) {
                    Some(there) => there.iter().filter_map(Weak::upgrade).collect(),
                    None => Vec::new(),
                };
                notifiers
                    .iter()
                    .for_each(|notifier| notifier.pass_on(words));
            }
            // The receives that wait look at once, which reconnects.
            (PushKind::Disconnection, _) => {
                let notifiers: Vec<_> = {
                    let all = self.lock();
                    all.values().flatten().filter_map(Weak::upgrade).collect()
                };
                notifiers.iter().for_each(|notifier| notifier.notify());
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByChannel> {
        self.by_channel.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(channel: &str, words: &str) -> PushInfo {
        let data = [channel, words].map(|text| Value::BulkString(text.as_bytes().to_vec()));
        PushInfo {
            kind: PushKind::Message,
            data: data.into(),
        }
    }

    #[test]
    fn notifier_hears_its_own_channel_and_all_hear_a_closed_connection() {
        let notifiers = Notifiers::default();
        let ((one, mut losses), (other, _)) = (Notifier::new(), Notifier::new());
        assert!(notifiers.register("one", &one) && notifiers.register("other", &other));
        assert!(!notifiers.register("one", &one));
        let (mut at_one, mut at_other) = (
            one.notifications.subscribe(),
            other.notifications.subscribe(),
        );
        notifiers.pass_on(&message("one", "wake"));
        assert!(at_one.has_changed().expect("it hangs"));
        assert!(!at_other.has_changed().expect("it hangs"));
        at_one.mark_unchanged();
        notifiers.pass_on(&message("one", "cancel id.3"));
        assert!(!at_one.has_changed().expect("it hangs"));
        let told = losses.try_recv().expect("told");
        assert_eq!(told, [Loss::cancelled(Receipt("id.3".into()))]);
        let end = PushInfo {
            kind: PushKind::Disconnection,
            data: Vec::new(),
        };
        notifiers.pass_on(&end);
        assert!(at_one.has_changed().expect("it hangs"));
        assert!(at_other.has_changed().expect("it hangs"));
        at_other.mark_unchanged();
        drop(one);
        assert_eq!(notifiers.channels(), ["other"]);
    }
}
