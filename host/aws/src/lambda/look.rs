//! Reads a function's configuration, for checks before the first invocation.

use super::Lambda;
use aws_sdk_lambda::types::InvocationType;
use dispatcher_core::error_kind::CallError;
use std::time::Duration;

/// The properties of a function that its caller needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The timeout of one invocation, 1 s to 15 min.
    pub timeout: Duration,
    /// `Active`, `Pending`, `Inactive` or `Failed`; empty if Lambda did not report it.
    pub state: String,
    /// The reason for the state, if it is not `Active`.
    pub state_reason: Option<String>,
    /// The reserved concurrency. `None` also if the caller may not read it
    /// (`lambda:GetFunctionConcurrency`).
    pub reserved_concurrency: Option<u32>,
    /// Whether each invocation must name a tenant, because no environment serves two.
    pub isolates_tenants: bool,
}

impl Lambda {
    /// Reads the configuration of a function: a name, `name:qualifier`, or an ARN.
    ///
    /// # Errors
    /// Returns an error if the configuration cannot be read, but not if only the reserved
    /// concurrency cannot.
    pub async fn look(&self, function: &str) -> Result<Function, CallError> {
        let clients = self.clients(function);
        let call = clients.call("GetFunctionConfiguration", function);
        let configuration = clients
            .look
            .get_function_configuration()
            .function_name(function)
            .send()
            .await
            .map_err(|error| call.failed(&error))?;
        // Concurrency is reserved for a whole function, never for a version of it.
        let reserved = clients
            .look
            .get_function_concurrency()
            .function_name(unqualified(function))
            .send()
            .await;
        let reserved_concurrency = reserved
            .ok()
            .and_then(|answer| answer.reserved_concurrent_executions)
            .and_then(|number| u32::try_from(number).ok());
        // Lambda's default, if the response has no timeout.
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
            isolates_tenants: configuration.tenancy_config.is_some(),
        })
    }

    /// Asks Lambda whether a function may be invoked, for some tenant if `has_tenant`. The function does
    /// not run.
    ///
    /// # Errors
    /// Returns an error if it may not, or if that cannot be found out.
    pub async fn try_permission(&self, function: &str, has_tenant: bool) -> Result<(), CallError> {
        let clients = self.clients(function);
        let call = clients.call("Invoke (DryRun)", function);
        let asked = clients
            .look
            .invoke()
            .function_name(function)
            .invocation_type(InvocationType::DryRun)
            .set_tenant_id(has_tenant.then(|| "doctor".to_owned()))
            .send();
        // Boxed, because the SDK's future is deeply nested.
        let asked = Box::pin(asked).await;
        asked.map(drop).map_err(|error| call.failed(&error))
    }
}

/// Returns a function's name without its version or alias. Accepts a name, an ARN, and the short
/// form `ACCOUNT:function:NAME`.
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
