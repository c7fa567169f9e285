//! A batch on its way: in parts to the function, each part's answer back to its messages. Knows
//! the host only by the trait below.

use crate::settings::Settings;
use crate::split::{self, Part, Slip, Step};
use crate::verdict::{self, Settled};
use dispatcher_guest::lambda::{InvokeError, Request, Response};
use dispatcher_guest::{Failed, Message};
use futures_util::future::join_all;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a delivery needs of the world outside.
pub trait Host {
    /// Invokes a function.
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError>;
    /// Milliseconds since the Unix epoch.
    fn now(&self) -> u64;
    /// Takes a line for the log, perhaps with indented ones below it.
    fn log(&self, line: &str);
}

/// The size that an event of several messages stays below. One per instance: what Lambda refused of
/// one batch it would refuse of the same messages when they come again, and for ever.
pub struct Room(AtomicUsize);

impl Room {
    /// Nothing was refused yet.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    /// Events of so many bytes are refused; later ones have at most half of that.
    fn refused(&self, bytes: usize) {
        self.0.fetch_min(bytes / 2, Ordering::Relaxed);
    }

    fn below(&self, limit: usize) -> usize {
        self.0.load(Ordering::Relaxed).min(limit)
    }
}

/// Forwards a batch and lists the messages that failed. Parts go side by side, unless an order
/// must be kept: then one after the other, and of a group none after one that failed.
pub async fn deliver(
    messages: Vec<Message>,
    settings: &Settings,
    room: &Room,
    host: &impl Host,
) -> Vec<Failed> {
    let limit = settings.limit();
    let steps = split::plan(messages, settings.no_digest, room.below(limit), limit);
    let ordered = steps
        .iter()
        .flat_map(Step::slips)
        .any(|slip| slip.group.is_some());
    let courier = Courier {
        settings,
        room,
        host,
        ordered,
    };
    let settled: Vec<Settled> = if ordered {
        courier.settle(steps).await
    } else {
        let all = steps.into_iter().map(|step| courier.settle(vec![step]));
        join_all(all).await.into_iter().flatten().collect()
    };
    let failed = |(slip, failure): Settled| {
        Some(Failed {
            id: slip.id,
            failure: failure?,
        })
    };
    settled.into_iter().filter_map(failed).collect()
}

struct Courier<'a, H> {
    settings: &'a Settings,
    room: &'a Room,
    host: &'a H,
    ordered: bool,
}

impl<H: Host> Courier<'_, H> {
    /// One step after the other; one that Lambda refuses is halved.
    async fn settle(&self, steps: Vec<Step>) -> Vec<Settled> {
        let mut settled = Vec::new();
        let mut waiting = steps;
        waiting.reverse();
        while let Some(step) = waiting.pop() {
            let Some(step) = self.without_followers(step, &mut settled) else {
                continue;
            };
            match step {
                Step::Invoke(part) => {
                    let halves = self.invoke(part, &mut settled).await;
                    if let Some((first, second)) = halves {
                        waiting.extend([second, first].map(Step::Invoke));
                    }
                }
                Step::Oversized(slip, bytes) => {
                    let reject = verdict::oversized(self.settings, bytes);
                    settled.push((slip, Some(reject)));
                }
            }
        }
        settled
    }

    /// Settles those messages of a step that must not be sent after what happened to others, and returns
    /// the rest.
    fn without_followers(&self, step: Step, settled: &mut Vec<Settled>) -> Option<Step> {
        if !self.ordered {
            return Some(step);
        }
        let behind = |slip: &Slip| verdict::behind(slip, settled);
        let (rest, left) = step.leave_out(behind);
        settled.extend(left.into_iter().map(|(slip, why)| (slip, Some(why))));
        rest
    }

    /// Invokes the function with a part. Two halves of it are yet to be settled if it is refused.
    async fn invoke(&self, mut part: Part, settled: &mut Vec<Settled>) -> Option<(Part, Part)> {
        let spare = part.spare(self.settings.kept());
        let bytes = part.payload.len();
        let request = Request {
            function: self.settings.function.clone(),
            invocation: self.settings.invocation,
            payload: std::mem::take(&mut part.payload),
            log_tail: self.settings.waits(),
            deadline: part.slips.iter().map(|slip| slip.deadline).min(),
        };
        let result = self.host.invoke(request).await;
        if let Err(InvokeError::Refused(_)) = &result {
            match spare {
                Some(payload) => return part.halves(&payload),
                None if part.slips.len() > 1 => self.room.refused(bytes),
                None => {}
            }
        }
        let verdicts = verdict::of(result, self.settings, &part.slips, || self.host.now());
        if let Some(note) = verdicts.note {
            self.host.log(&note);
        }
        settled.extend(part.slips.into_iter().zip(verdicts.failures));
        None
    }
}

#[cfg(test)]
mod tests;
