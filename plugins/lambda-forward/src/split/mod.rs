//! Batches into events that fit one invocation each. Each record is written once, into its place,
//! so no size is foretold: what is counted is what is sent. Knows nothing of invocations.

use crate::event::{self, NoDigest};
use dispatcher_guest::Message;

const HEAD: &[u8] = br#"{"Records":["#;
const TAIL: &[u8] = b"]}";

/// What is kept of a message once its record is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slip {
    /// Its id.
    pub id: String,
    /// Its group, where the group's order must be kept.
    pub group: Option<String>,
    /// When its attempt is over, in milliseconds since the Unix epoch.
    pub deadline: u64,
}

/// Some messages in the batch's order, and the event made of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The messages; at least one.
    pub slips: Vec<Slip>,
    /// The event.
    pub payload: Vec<u8>,
    /// Where in the payload each message's record ends.
    ends: Vec<usize>,
}

/// What is to be done, in the batch's order.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Invoke the function with these.
    Invoke(Part),
    /// Nothing can be: this message alone makes an event of so many bytes.
    Oversized(Slip, usize),
}

impl Step {
    /// The messages of this step.
    pub fn slips(&self) -> &[Slip] {
        match self {
            Self::Invoke(part) => &part.slips,
            Self::Oversized(slip, _) => std::slice::from_ref(slip),
        }
    }

    /// Takes out the messages that `why` has a reason for. What is left, if anything, and they.
    pub fn leave_out<R>(self, why: impl Fn(&Slip) -> Option<R>) -> (Option<Self>, Vec<(Slip, R)>) {
        let reasons: Vec<_> = self.slips().iter().map(why).collect();
        if reasons.iter().all(Option::is_none) {
            return (Some(self), Vec::new());
        }
        let stays = |at: &usize| reasons[*at].is_none();
        let (rest, slips) = match self {
            Self::Invoke(part) => {
                let staying = (0..part.slips.len()).filter(stays);
                let rest = part.pick(&part.payload, staying);
                (rest.map(Self::Invoke), part.slips)
            }
            Self::Oversized(slip, _) => (None, vec![slip]),
        };
        let left = slips.into_iter().zip(reasons);
        (
            rest,
            left.filter_map(|(slip, why)| Some((slip, why?))).collect(),
        )
    }
}

impl Part {
    fn new(room: usize) -> Self {
        let mut payload = Vec::with_capacity(room.max(HEAD.len()));
        payload.extend_from_slice(HEAD);
        Self {
            slips: Vec::new(),
            payload,
            ends: Vec::new(),
        }
    }

    /// Appends a record that `write` writes.
    fn add(&mut self, slip: Slip, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.slips.is_empty() {
            self.payload.push(b',');
        }
        write(&mut self.payload);
        self.slips.push(slip);
        self.ends.push(self.payload.len());
    }

    /// Where a record begins.
    fn start(&self, at: usize) -> usize {
        match at.checked_sub(1) {
            Some(before) => self.ends[before] + 1,
            None => HEAD.len(),
        }
    }

    /// How many bytes the finished event has.
    fn bytes(&self) -> usize {
        self.payload.len() + TAIL.len()
    }

    /// Takes the last record out again.
    fn take_last(&mut self) -> Option<(Slip, Vec<u8>)> {
        let slip = self.slips.pop()?;
        let start = self.start(self.slips.len());
        self.ends.pop();
        let record = self.payload.split_off(start);
        if !self.slips.is_empty() {
            self.payload.pop();
        }
        Some((slip, record))
    }

    fn finish(mut self) -> Step {
        self.payload.extend_from_slice(TAIL);
        Step::Invoke(self)
    }

    /// The event again, for halves should Lambda take less than it says. None for a single
    /// message, which has no halves, and for an event above `most` bytes.
    pub fn spare(&self, most: usize) -> Option<Vec<u8>> {
        let kept = self.slips.len() > 1 && self.payload.len() <= most;
        kept.then(|| self.payload.clone())
    }

    /// Two parts of half as many messages each, from the event that `spare` kept. None for a
    /// single message.
    pub fn halves(self, payload: &[u8]) -> Option<(Self, Self)> {
        let middle = self.slips.len() / 2;
        let first = self.pick(payload, 0..middle)?;
        Some((first, self.pick(payload, middle..self.slips.len())?))
    }

    /// A part of these of its messages, whose records are in `payload`. None of none.
    fn pick(&self, payload: &[u8], chosen: impl Iterator<Item = usize> + Clone) -> Option<Self> {
        let record = |at: usize| &payload[self.start(at)..self.ends[at]];
        let room: usize = chosen.clone().map(|at| record(at).len() + 1).sum();
        let mut part = Self::new(HEAD.len() + room + TAIL.len());
        for at in chosen {
            part.add(self.slips[at].clone(), |out| {
                out.extend_from_slice(record(at))
            });
        }
        part.payload.extend_from_slice(TAIL);
        (!part.slips.is_empty()).then_some(part)
    }
}

/// Writes the events of a batch: those of several messages below `room` bytes, those of one below
/// `limit`. Each message is freed as soon as its record is written.
pub fn plan(messages: Vec<Message>, no_digest: NoDigest, room: usize, limit: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    // Escapes may make it more; then it grows.
    let capacity: usize = messages.iter().map(|m| m.body.len() + 1024).sum();
    let mut part = Part::new(capacity.min(room));
    for message in messages {
        let slip = Slip {
            group: message
                .group
                .clone()
                .filter(|_| event::is_ordered(&message)),
            deadline: message.deadline,
            id: message.id.clone(),
        };
        part.add(slip, |out| event::write(&message, no_digest, out));
        drop(message);
        let alone = part.slips.len() == 1;
        if part.bytes() < if alone { limit } else { room } {
            continue;
        }
        let Some((slip, record)) = part.take_last() else {
            continue;
        };
        if !part.slips.is_empty() {
            steps.push(std::mem::replace(&mut part, Part::new(0)).finish());
        }
        let bytes = HEAD.len() + record.len() + TAIL.len();
        if bytes >= limit {
            steps.push(Step::Oversized(slip, bytes));
        } else {
            part.add(slip, |out| out.extend_from_slice(&record));
        }
    }
    if !part.slips.is_empty() {
        steps.push(part.finish());
    }
    steps
}

#[cfg(test)]
mod tests;
