//! What an invocation means for its messages. Pure: the clock is granted, and nothing is printed.

use crate::answer::{self, Reading};
use crate::journal;
use crate::settings::Settings;
use crate::split::Slip;
use dispatcher_guest::Failure;
use dispatcher_guest::lambda::{DidNotRun, InvokeError, Response};
use std::time::Duration;

/// One message and how it failed, if it did.
pub type Settled = (Slip, Option<Failure>);

/// What happened to the messages of one invocation.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// Of each message how it failed; none where it is done.
    pub failures: Vec<Option<Failure>>,
    /// What the log should say.
    pub note: Option<String>,
}

impl Verdicts {
    fn all(slips: &[Slip], failure: Option<Failure>, note: Option<String>) -> Self {
        Self {
            failures: vec![failure; slips.len()],
            note,
        }
    }
}

/// From what Lambda answered to one verdict per message. `now`, in milliseconds since the Unix
/// epoch, is asked only where nobody knows whether the function ran.
pub fn of(
    result: Result<Response, InvokeError>,
    settings: &Settings,
    slips: &[Slip],
    now: impl FnOnce() -> u64,
) -> Verdicts {
    match result {
        Ok(response) => of_response(&response, settings, slips),
        Err(error) => of_error(error, &settings.function, slips, now),
    }
}

fn of_response(response: &Response, settings: &Settings, slips: &[Slip]) -> Verdicts {
    let function = &settings.function;
    let version = response.executed_version.as_deref();
    if response.function_error.is_some() {
        let log = response.log_tail.as_deref();
        let note = journal::function_error(function, version, &response.payload, log, slips);
        return Verdicts::all(slips, Some(Failure::retry()), Some(note));
    }
    if !(settings.waits() && settings.partial_failures) {
        return Verdicts::all(slips, None, None);
    }
    match answer::read(&response.payload, slips) {
        Reading::Each(failed) => {
            let failure = |failed: bool| failed.then(Failure::retry);
            let mut failures: Vec<_> = failed.into_iter().map(failure).collect();
            keep_order(&mut failures, slips);
            Verdicts {
                failures,
                note: None,
            }
        }
        Reading::Unreadable(why) => {
            let note = journal::of_no_use(function, version, &why, slips);
            Verdicts::all(slips, Some(Failure::retry()), Some(note))
        }
    }
}

/// In an ordered group all that follow the first failure fail with it. They are not at fault, so
/// nothing but the one before them makes them wait.
fn keep_order(failures: &mut [Option<Failure>], slips: &[Slip]) {
    let mut stopped = Vec::new();
    for (failure, slip) in failures.iter_mut().zip(slips) {
        let Some(group) = &slip.group else {
            continue;
        };
        if failure.is_some() {
            stopped.push(group);
        } else if stopped.contains(&group) {
            *failure = Some(at_once());
        }
    }
}

fn of_error(
    error: InvokeError,
    function: &str,
    slips: &[Slip],
    now: impl FnOnce() -> u64,
) -> Verdicts {
    let named = |why: &str| format!("function {function}: {why}");
    match error {
        InvokeError::DidNotRun(DidNotRun {
            reason,
            retry_after,
        }) => {
            let busy = Failure::Busy {
                after: retry_after.map(Duration::from_millis),
                reason: named(&reason),
            };
            Verdicts::all(slips, Some(busy), None)
        }
        InvokeError::MayHaveRun(why) => {
            let now = now();
            let later = |slip: &Slip| {
                let left = Duration::from_millis(slip.deadline.saturating_sub(now));
                Some(Failure::retry_after(left))
            };
            Verdicts {
                failures: slips.iter().map(later).collect(),
                note: Some(journal::may_have_run(function, &why, slips)),
            }
        }
        InvokeError::Refused(why) if slips.len() > 1 => {
            let note = journal::of_no_use(function, None, &why, slips);
            Verdicts::all(slips, Some(Failure::retry()), Some(note))
        }
        InvokeError::Refused(why) => {
            let reject = Failure::reject(named(&why));
            Verdicts::all(slips, Some(reject), None)
        }
        InvokeError::Permanent(why) | InvokeError::Forbidden(why) => {
            Verdicts::all(slips, Some(Failure::closed(named(&why))), None)
        }
    }
}

/// Why a message that alone is more than Lambda takes will never be handled.
pub fn oversized(settings: &Settings, bytes: usize) -> Failure {
    Failure::reject(format!(
        "alone it makes an event of {bytes} bytes, and function {} takes less than {}",
        settings.function,
        settings.limit()
    ))
}

/// Why a message of an ordered batch must not be sent after what happened to those before it, if it
/// must not. One of a group that failed comes again at once, behind the one that did. Of the others
/// none is sent to a function that is busy or closed: as little was done for them as for the one
/// that found out. Nothing else holds them up, so that no attempt counts that was none.
pub fn behind(slip: &Slip, before: &[Settled]) -> Option<Failure> {
    let failures = || {
        before
            .iter()
            .filter_map(|(slip, failure)| Some((slip, failure.as_ref()?)))
    };
    let is_spared =
        |failure: &Failure| matches!(failure, Failure::Busy { .. } | Failure::Closed(_));
    let mut group = failures().filter(|(one, _)| slip.group.is_some() && one.group == slip.group);
    if group.any(|(_, failure)| !is_spared(failure)) {
        return Some(at_once());
    }
    let mut spared = failures().map(|(_, failure)| failure);
    spared.find(|failure| is_spared(failure)).cloned()
}

fn at_once() -> Failure {
    Failure::retry_after(Duration::ZERO)
}

#[cfg(test)]
mod tests;
