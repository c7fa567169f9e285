//! The AWS Lambda functions that the configuration lends to this plugin. Calling anything here
//! makes the component import `dispatcher:plugin/lambda`; knows nothing of messages.

use crate::Failure;
use crate::bindings::imports::dispatcher::plugin as wire;
use std::time::Duration;

pub use wire::lambda::invoke;
pub use wire::lambda_types::{DidNotRun, Invocation, InvokeError, Request, Response};

/// The same for `async` callers: an instance that awaits it can handle other messages meanwhile.
pub use wire::lambda_async::invoke as invoke_async;

impl Failure {
    /// What a failed invocation means for the message it was made for. One that did not run is
    /// tried again without spending a receive; one that may have run is retried by policy, so the
    /// function may run twice; a payload that Lambda refuses is rejected; one that cannot run at all
    /// closes the route until somebody acts.
    #[must_use]
    pub fn of_invocation(error: InvokeError) -> Self {
        match error {
            InvokeError::DidNotRun(why) => Self::Busy {
                after: why.retry_after.map(Duration::from_millis),
                reason: why.reason,
            },
            InvokeError::MayHaveRun(why) => {
                eprintln!("the function may have run: {why}");
                Self::retry()
            }
            InvokeError::Refused(why) => Self::Reject(why),
            InvokeError::Permanent(why) | InvokeError::Forbidden(why) => Self::Closed(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_is_refused_is_rejected() {
        let refused = InvokeError::Refused("it is no JSON".into());
        let reject = Failure::reject("it is no JSON");
        assert_eq!(Failure::of_invocation(refused), reject);
    }

    #[test]
    fn what_did_not_run_spends_no_receive_and_what_cannot_run_closes_the_route() {
        let throttled = InvokeError::DidNotRun(DidNotRun {
            reason: "busy".into(),
            retry_after: Some(20),
        });
        let later = Failure::Busy {
            after: Some(Duration::from_millis(20)),
            reason: "busy".into(),
        };
        assert_eq!(Failure::of_invocation(throttled), later);
        let missing = InvokeError::Permanent("no such function".into());
        let closed = Failure::Closed("no such function".into());
        assert_eq!(Failure::of_invocation(missing), closed);
    }
}
