//! A batch on its way: in parts to the function, each part's answer back to its messages. Knows
//! the host only by the trait below.

use crate::settings::Settings;
use crate::split::{self, Part, Slip, Step};
use crate::verdict;
use dispatcher_guest::lambda::{InvokeError, Request, Response};
use dispatcher_guest::{Failed, Failure, Message};
use futures_util::future::join_all;

/// What a delivery needs of the world outside.
pub trait Host {
    /// Invokes a function.
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError>;
    /// Milliseconds since the Unix epoch.
    fn now(&self) -> u64;
    /// Takes a line for the log, perhaps with indented ones below it.
    fn log(&self, line: &str);
}

/// One message and how it failed, if it did.
type Settled = (Slip, Option<Failure>);

/// Forwards a batch and lists the messages that failed. Parts go side by side, unless an order
/// must be kept: then one after the other, and none after a failure.
pub async fn deliver(messages: Vec<Message>, settings: &Settings, host: &impl Host) -> Vec<Failed> {
    let steps = split::plan(messages, settings.limit());
    let ordered = steps
        .iter()
        .flat_map(Step::slips)
        .any(|slip| slip.group.is_some());
    let courier = Courier {
        settings,
        host,
        ordered,
    };
    let settled: Vec<Settled> = if ordered {
        courier.one_by_one(steps).await
    } else {
        let all = steps.into_iter().map(|step| courier.settle(step));
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
    host: &'a H,
    ordered: bool,
}

impl<H: Host> Courier<'_, H> {
    async fn one_by_one(&self, steps: Vec<Step>) -> Vec<Settled> {
        let mut settled = Vec::new();
        for step in steps {
            match first_failure(&settled) {
                Some(failure) => settled.extend(left_behind(step.into_slips(), &failure)),
                None => settled.extend(self.settle(step).await),
            }
        }
        settled
    }

    async fn settle(&self, step: Step) -> Vec<Settled> {
        match step {
            Step::Invoke(part) => self.invoke(part).await,
            Step::Oversized(slip, bytes) => {
                vec![(slip, Some(verdict::oversized(self.settings, bytes)))]
            }
        }
    }

    /// Invokes the function with a part; halves it where Lambda refuses it.
    async fn invoke(&self, part: Part) -> Vec<Settled> {
        let mut settled = Vec::new();
        let mut waiting = vec![part];
        while let Some(mut part) = waiting.pop() {
            if let Some(failure) = first_failure(&settled).filter(|_| self.ordered) {
                settled.extend(left_behind(part.slips, &failure));
                continue;
            }
            let spare = part.spare(self.settings.kept());
            let request = Request {
                function: self.settings.function.clone(),
                invocation: self.settings.invocation,
                payload: std::mem::take(&mut part.payload),
                log_tail: self.settings.waits(),
                deadline: part.slips.iter().map(|slip| slip.deadline).min(),
            };
            let result = self.host.invoke(request).await;
            if let (Err(InvokeError::Refused(_)), Some(payload)) = (&result, spare) {
                let (first, second) = part.halves(&payload);
                waiting.extend([second, first]);
                continue;
            }
            let verdicts = verdict::of(result, self.settings, &part.slips, || self.host.now());
            if let Some(note) = verdicts.note {
                self.host.log(&note);
            }
            settled.extend(part.slips.into_iter().zip(verdicts.failures));
        }
        settled
    }
}

fn first_failure(settled: &[Settled]) -> Option<Failure> {
    settled.iter().find_map(|(_, failure)| failure.clone())
}

fn left_behind(slips: Vec<Slip>, failure: &Failure) -> impl Iterator<Item = Settled> {
    let behind = verdict::behind(failure);
    slips
        .into_iter()
        .map(move |slip| (slip, Some(behind.clone())))
}

#[cfg(test)]
mod tests;
