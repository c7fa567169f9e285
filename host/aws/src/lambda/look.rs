//! Reads a function's configuration, for checks before the first invocation.

use super::Lambda;
use crate::failure::{About, CallName};
use dispatcher_core::error_kind::CallError;
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

impl Lambda {
    /// Looks at a function: a name, `name:qualifier`, or an ARN.
    ///
    /// # Errors
    /// When its configuration cannot be read. That its reserved concurrency cannot be is none.
    pub async fn look(&self, function: &str) -> Result<Function, CallError> {
        let call = CallName {
            step: "GetFunctionConfiguration",
            about: About::Function(function),
            place: &self.place,
        };
        let configuration = self
            .look
            .get_function_configuration()
            .function_name(function)
            .send()
            .await
            .map_err(|error| call.failed(&error))?;
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
