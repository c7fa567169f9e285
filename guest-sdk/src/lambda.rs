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
    /// What a failed invocation means for the message it was made for: again (when Lambda advises,
    /// if it does) unless no retry can help. A function that may have run may run twice.
    #[must_use]
    pub fn of_invocation(error: InvokeError) -> Self {
        match error {
            InvokeError::DidNotRun(why) => {
                eprintln!("the function did not run: {}", why.reason);
                Self::Retry(why.retry_after.map(Duration::from_millis))
            }
            InvokeError::MayHaveRun(why) => {
                eprintln!("the function may have run: {why}");
                Self::retry()
            }
            InvokeError::Permanent(why) | InvokeError::Forbidden(why) => Self::Reject(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_followed_and_the_hopeless_is_rejected() {
        let throttled = InvokeError::DidNotRun(DidNotRun {
            reason: "busy".into(),
            retry_after: Some(20),
        });
        let later = Failure::retry_after(Duration::from_millis(20));
        assert_eq!(Failure::of_invocation(throttled), later);
        let hopeless = InvokeError::Permanent("no such function".into());
        let reject = Failure::reject("no such function");
        assert_eq!(Failure::of_invocation(hopeless), reject);
    }
}
