//! Reads a function's configuration, for checks before the first invocation.

use super::Lambda;
use crate::words;
use aws_sdk_lambda::config::http::HttpResponse;
use aws_sdk_lambda::error::{ProvideErrorMetadata, SdkError};
use std::error::Error;
use std::time::Duration;

/// What matters about a function to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// How long one invocation may take, 1 s to 15 min.
    pub timeout: Duration,
    /// `Active`, `Pending`, `Inactive` or `Failed`; empty if Lambda did not say.
    pub state: String,
    /// Why it is in that state, if it is not `Active`.
    pub state_reason: Option<String>,
    /// How many invocations may run at once, if that is reserved. Also none where we are not
    /// allowed to know (`lambda:GetFunctionConcurrency`).
    pub reserved_concurrency: Option<u32>,
}

/// Why a function could not be looked at. Each text is one line for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// There is no such function, version or alias.
    #[error("{0}")]
    Missing(String),
    /// We have no credentials, or they do not allow it.
    #[error("{0}")]
    Denied(String),
    /// Lambda gave no answer.
    #[error("{0}")]
    Unreachable(String),
    /// Anything else that Lambda answered.
    #[error("{0}")]
    Other(String),
}

impl Lambda {
    /// Looks at a function: a name, `name:qualifier`, or an ARN.
    ///
    /// # Errors
    /// When its configuration cannot be read. That its reserved concurrency cannot be is none.
    pub async fn look(&self, function: &str) -> Result<Function, LookError> {
        let configuration = self
            .look
            .get_function_configuration()
            .function_name(function)
            .send()
            .await
            .map_err(|error| sorted(function, &error))?;
        // Concurrency is reserved for a function, never for a version of it.
        let reserved = self
            .look
            .get_function_concurrency()
            .function_name(unqualified(function))
            .send()
            .await;
        let reserved_concurrency = reserved
            .ok()
            .and_then(|answer| answer.reserved_concurrent_executions)
            .and_then(|number| u32::try_from(number).ok());
        // Lambda's own default, should it not say.
        let timeout = configuration.timeout.unwrap_or(3);
        Ok(Function {
            timeout: Duration::from_secs(u64::try_from(timeout).unwrap_or_default()),
            state: configuration
                .state
                .map_or_else(String::new, |state| state.as_str().to_owned()),
            state_reason: configuration
                .state_reason
                .filter(|reason| !reason.is_empty()),
            reserved_concurrency,
        })
    }
}

/// A function's name without its version or alias: of a name, of an ARN, and of the short form
/// `ACCOUNT:function:NAME`.
pub(super) fn unqualified(function: &str) -> &str {
    let name = match function.find("function:") {
        Some(at) => at + "function:".len(),
        None => 0,
    };
    match function[name..].find(':') {
        Some(end) => &function[..name + end],
        None => function,
    }
}

fn sorted<E>(function: &str, error: &SdkError<E, HttpResponse>) -> LookError
where
    E: Error + ProvideErrorMetadata + 'static,
{
    let SdkError::ServiceError(answer) = error else {
        let words = format!(
            "cannot inspect function `{function}`: {}",
            words::chain(error)
        );
        return match words::is_about_credentials(&words) {
            true => LookError::Denied(format!(
                "no usable AWS credentials: {words}; wanted a profile, a role or AWS_ACCESS_KEY_ID"
            )),
            false => LookError::Unreachable(words),
        };
    };
    let status = answer.raw().status().as_u16();
    let code = answer.err().code().unwrap_or_default();
    let message = answer.err().message().unwrap_or("no reason given");
    let words = words::one_line(&format!("{code} (HTTP {status}): {message}"));
    match (status, code) {
        (404, _) | (_, "ResourceNotFoundException") => {
            LookError::Missing(format!("there is no function `{function}`: {words}"))
        }
        (401 | 403, _) | (_, "UnrecognizedClientException") => LookError::Denied(format!(
            "AWS does not allow reading the configuration of function `{function}`: {words}"
        )),
        _ => LookError::Other(format!("cannot inspect function `{function}`: {words}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifier_is_removed_from_every_form_of_a_function_name() {
        let arn = "arn:aws:lambda:us-east-1:123456789012:function:orders";
        assert_eq!(unqualified(arn), arn);
        assert_eq!(unqualified(&format!("{arn}:live")), arn);
        assert_eq!(unqualified("orders"), "orders");
        assert_eq!(unqualified("orders:7"), "orders");
        let short = "123456789012:function:orders";
        assert_eq!(unqualified(&format!("{short}:$LATEST")), short);
    }
}
