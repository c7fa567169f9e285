//! One standard queue: what is visible, what is away and until when. Told `now`; knows no protocol.

use dispatcher_core::clock::{BootInstant, Timestamp};
use md5::{Digest, Md5};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// A message on its way in.
pub(crate) struct IncomingMessage {
    pub body: String,
    pub attributes: Option<Value>,
    pub delay: Duration,
}

/// A message of the queue.
pub(crate) struct StoredMessage {
    pub id: String,
    pub body: String,
    pub md5: String,
    pub attributes: Option<Value>,
    pub sent: Timestamp,
    pub first_received: Timestamp,
    pub received: u32,
    /// The moment until which it is away; `None` while it is visible.
    away: Option<BootInstant>,
    /// What was asked for last, and when.
    claim: (BootInstant, Duration),
}

/// A call about a receipt that cannot be done.
pub(crate) enum Refusal {
    /// This was never a receipt.
    Malformed,
    /// The message is gone, visible again, or delivered anew.
    NotInFlight,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Queue {
    pub visibility: Duration,
    messages: HashMap<u64, StoredMessage>,
    numbered: u64,
    visible: VecDeque<u64>,
    away: BinaryHeap<Reverse<(BootInstant, u64)>>,
    /// Something became visible or will.
    pub changed: Rc<Notify>,
}

impl Queue {
    pub(super) fn new(visibility: Duration) -> Self {
        Self {
            visibility,
            ..Self::default()
        }
    }

    /// Takes a message in; its id and its body's digest.
    pub(super) fn send(
        &mut self,
        sent: IncomingMessage,
        now: BootInstant,
        today: Timestamp,
    ) -> (String, String) {
        self.numbered += 1;
        let number = self.numbered;
        let digest = Md5::digest(sent.body.as_bytes());
        let md5: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let id = format!("00000000-0000-4000-8000-{number:012}");
        let answer = (id.clone(), md5.clone());
        let stored = StoredMessage {
            id,
            body: sent.body,
            md5,
            attributes: sent.attributes,
            sent: today,
            first_received: today,
            received: 0,
            away: (!sent.delay.is_zero()).then_some(now + sent.delay),
            claim: (now, Duration::ZERO),
        };
        match stored.away {
            Some(until) => self.away.push(Reverse((until, number))),
            None => self.visible.push_back(number),
        }
        self.messages.insert(number, stored);
        answer
    }

    /// Lets what has been away long enough be seen.
    fn settle(&mut self, now: BootInstant) {
        while let Some(&Reverse((until, number))) = self.away.peek() {
            if until > now {
                break;
            }
            self.away.pop();
            let message = self.messages.get_mut(&number);
            if let Some(message) = message.filter(|message| message.away == Some(until)) {
                message.away = None;
                self.visible.push_back(number);
            }
        }
    }

    /// Up to `max` messages, each with its receipt. `called` is when the call came.
    pub(super) fn receive(
        &mut self,
        max: usize,
        visibility: Duration,
        called: BootInstant,
        (now, today): (BootInstant, Timestamp),
    ) -> Vec<(String, &StoredMessage)> {
        self.settle(now);
        let mut taken = Vec::new();
        while taken.len() < max {
            let Some(number) = self.visible.pop_front() else {
                break;
            };
            // A late delete may have removed it.
            let Some(message) = self.messages.get_mut(&number) else {
                continue;
            };
            if message.received == 0 {
                message.first_received = today;
            }
            message.received += 1;
            message.away = Some(now + visibility);
            message.claim = (called, visibility);
            self.away.push(Reverse((now + visibility, number)));
            taken.push(number);
        }
        let receipt = |number| {
            let message = &self.messages[&number];
            (format!("{number}-{}", message.received), message)
        };
        taken.into_iter().map(receipt).collect()
    }

    /// When the next message comes back, if nothing happens before.
    pub(super) fn next_return(&self) -> Option<BootInstant> {
        self.away.peek().map(|Reverse((until, _))| *until)
    }

    /// Deletes a delivery. An old receipt of a message delivered anew does nothing, as on SQS.
    pub(super) fn delete(&mut self, receipt: &str) -> Result<(), Refusal> {
        let (number, received) = self.parse(receipt)?;
        let current = self.messages.get(&number);
        if current.is_some_and(|message| message.received == received) {
            self.messages.remove(&number);
        }
        Ok(())
    }

    /// Changes how long a delivery stays away; how late that came, in ms, after half of what was
    /// asked for before.
    pub(super) fn change(
        &mut self,
        receipt: &str,
        visibility: Duration,
        now: BootInstant,
    ) -> Result<f64, Refusal> {
        self.settle(now);
        let (number, received) = self.parse(receipt)?;
        let message = self.messages.get_mut(&number);
        let message = message
            .filter(|message| message.received == received && message.away.is_some())
            .ok_or(Refusal::NotInFlight)?;
        let (claimed, asked) = message.claim;
        let late = now.since(claimed).as_secs_f64() - asked.as_secs_f64() / 2.0;
        message.claim = (now, visibility);
        message.away = Some(now + visibility);
        self.away.push(Reverse((now + visibility, number)));
        self.changed.notify_waiters();
        Ok(late * 1e3)
    }

    fn parse(&self, receipt: &str) -> Result<(u64, u32), Refusal> {
        let (number, received) = receipt.split_once('-').ok_or(Refusal::Malformed)?;
        let number = number.parse().map_err(|_| Refusal::Malformed)?;
        let received = received.parse().map_err(|_| Refusal::Malformed)?;
        if number <= self.numbered {
            Ok((number, received))
        } else {
            Err(Refusal::Malformed)
        }
    }

    /// Visible, in flight, delayed.
    pub(super) fn counts(&mut self, now: BootInstant) -> (usize, usize, usize) {
        self.settle(now);
        let (mut visible, mut in_flight, mut delayed) = (0, 0, 0);
        for message in self.messages.values() {
            match (message.away, message.received) {
                (None, _) => visible += 1,
                (Some(_), 0) => delayed += 1,
                (Some(_), _) => in_flight += 1,
            }
        }
        (visible, in_flight, delayed)
    }

    /// Whether it holds nothing at all.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}
