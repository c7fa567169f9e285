//! What an invocation means for its messages. Pure: the clock is lent, and nothing is printed.

use crate::answer::{self, Reading};
use crate::journal;
use crate::settings::Settings;
use crate::split::Slip;
use dispatcher_guest::Failure;
use dispatcher_guest::lambda::{DidNotRun, InvokeError, Response};
use std::time::Duration;

/// What befell the messages of one invocation.
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
        "alone it makes an event of {bytes} bytes, and function {} takes at most {}",
        settings.function,
        settings.limit()
    ))
}

/// What befalls those that come after a failure in an ordered queue and were not sent: as little
/// was done for them as for one that found the function busy, and otherwise they come again at
/// once behind the one that failed.
pub fn behind(first: &Failure) -> Failure {
    match first {
        Failure::Busy { .. } | Failure::Closed(_) => first.clone(),
        Failure::Retry(_) | Failure::Reject(_) => at_once(),
    }
}

fn at_once() -> Failure {
    Failure::retry_after(Duration::ZERO)
}

#[cfg(test)]
mod tests;
