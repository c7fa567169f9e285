//! Lets the SDK repeat an Invoke only if AWS refused its signature because of the time in it. The
//! function has not run then, and the SDK signs the next attempt by the clock of the response.

use aws_sdk_lambda::config::retry::{ClassifyRetry, RetryAction};
use aws_sdk_lambda::error::ProvideErrorMetadata;
use aws_sdk_lambda::operation::invoke::InvokeError;
use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::orchestrator::OrchestratorError;
use aws_smithy_runtime_api::client::retries::classifiers::RetryClassifierPriority;

/// The codes by which the SDK recognizes a wrong clock. It repeats the call only if the response's
/// `Date` differs by minutes.
const REFUSED_SIGNATURE: [&str; 5] = [
    "AccessDeniedException",
    "AuthFailure",
    "InvalidSignatureException",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
];

/// A classifier that forbids all other retries. It runs after the SDK's classifiers.
#[derive(Debug)]
pub(super) struct OnlyRefusedSignatures;

impl ClassifyRetry for OnlyRefusedSignatures {
    fn classify_retry(&self, _: &InterceptorContext) -> RetryAction {
        RetryAction::RetryForbidden
    }

    fn classify_retry_v2(
        &self,
        context: &InterceptorContext,
        previous: &RetryAction,
    ) -> RetryAction {
        let failure = context.output_or_error().and_then(|result| result.err());
        let code = failure
            .and_then(OrchestratorError::as_operation_error)
            .and_then(|error| error.downcast_ref::<InvokeError>())
            .and_then(ProvideErrorMetadata::code);
        let is_refused = code.is_some_and(|code| REFUSED_SIGNATURE.contains(&code));
        if is_refused && previous.should_retry() {
            RetryAction::NoActionIndicated
        } else {
            RetryAction::RetryForbidden
        }
    }

    fn name(&self) -> &'static str {
        "OnlyRefusedSignatures"
    }

    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}
