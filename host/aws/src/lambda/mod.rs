//! Calls AWS Lambda and reads a function's configuration. Each call makes one Invoke, which the SDK
//! never repeats if the function may have run. Knows no message, no queue and no plugin.

mod answer;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod look;
mod region;
mod retry;
mod sort;

pub use dispatcher_core::lambda::{Invocation, Invoke, InvokeError, Request, Response};
pub use look::Function;
pub use region::region_of;

use crate::failure::{About, CallName};
use crate::http::LongestAnswer;
use answer::RefusedInvocation;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::http::HttpResponse;
use aws_sdk_lambda::error::SdkError;
use aws_sdk_lambda::operation::invoke::InvokeError as InvokeFailure;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::{InvocationType, LogType};
use dispatcher_core::account::{Accounts, AwsAccount};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The time limit of connecting. It is longer than for other services, since thousands of
/// connections may be opened at once, and each TLS handshake also takes time on this machine. A
/// function whose call is not connected has not run, so waiting is safe.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a response in bytes; Lambda returns at most 6 MB (Lambda quotas).
const LONGEST_ANSWER: LongestAnswer = LongestAnswer(8 << 20);

/// The header with the trace that the function continues.
const TRACE_HEADER: &str = "x-amzn-trace-id";

/// An AWS Lambda client. Cheap to clone; clones share connections. Each outstanding call has its
/// own connection; their number is limited only by the limit of open files. Idle connections are
/// kept for 60 s.
#[derive(Debug, Clone)]
pub struct Lambda {
    config: SdkConfig,
    accounts: Accounts,
    /// The account of all functions, if they have a common one.
    own: Option<AwsAccount>,
    /// The configuration of each account.
    configs: Arc<BTreeMap<AwsAccount, SdkConfig>>,
    /// The clients of the accounts and regions in which functions were called.
    clients: Arc<Mutex<BTreeMap<ClientsKey, Arc<RegionClients>>>>,
}

/// An account, unless it is the process's own, and a region, unless it is the configured one.
type ClientsKey = (Option<AwsAccount>, Option<String>);

/// The clients for one region.
#[derive(Debug)]
struct RegionClients {
    invoke: Client,
    /// The client for all calls except Invoke.
    look: Client,
    place: String,
    region: Option<String>,
    /// The URL of a call, as determined by the SDK.
    endpoint: OnceLock<String>,
}

impl RegionClients {
    fn new(config: &SdkConfig) -> Self {
        Self {
            invoke: Client::from_conf(invoke_config(config)),
            look: Client::new(config),
            place: crate::place(config, "LAMBDA"),
            region: config.region().map(ToString::to_string),
            endpoint: OnceLock::new(),
        }
    }

    /// Returns the name of a call about a function.
    fn call<'a>(&'a self, step: &'static str, function: &'a str) -> CallName<'a> {
        CallName {
            step,
            about: About::Function(function),
            place: &self.place,
        }
    }
}

/// Returns the configuration of the client for Invoke. Only the caller's time limit bounds the
/// duration of a call: functions may run for 15 minutes, and for 90 on Lambda Managed Instances.
fn invoke_config(config: &SdkConfig) -> aws_sdk_lambda::Config {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT);
    aws_sdk_lambda::config::Builder::from(config)
        .timeout_config(timeouts.disable_read_timeout().build())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .retry_config(crate::retries())
        .retry_classifier(retry::OnlyRefusedSignatures)
        .build()
}

impl Lambda {
    /// Creates a client; the first call connects.
    pub fn connect(config: &SdkConfig) -> Self {
        Self {
            config: config.clone(),
            accounts: Accounts::default(),
            own: None,
            configs: Arc::default(),
            clients: Arc::default(),
        }
    }

    /// Calls functions of these accounts as the accounts' configurations say.
    #[must_use]
    pub async fn with_accounts(self, endpoint_url: Option<&str>, accounts: &Accounts) -> Self {
        let mut configs = BTreeMap::new();
        for account in accounts.iter() {
            let config = crate::account_configuration(endpoint_url, Some(account)).await;
            configs.insert(account.clone(), config);
        }
        Self {
            accounts: accounts.clone(),
            configs: Arc::new(configs),
            ..self
        }
    }

    /// Calls every function in this account, if there is one.
    #[must_use]
    pub fn in_account(&self, account: Option<&AwsAccount>) -> Self {
        Self {
            own: account.cloned(),
            ..self.clone()
        }
    }

    /// Returns the clients for a function: those of its account, and of the region in its ARN or
    /// else of the configured region.
    fn clients(&self, function: &str) -> Arc<RegionClients> {
        let account = match &self.own {
            Some(own) => Some(own),
            None => self.accounts.of_function(function),
        };
        let of_account = account.and_then(|account| self.configs.get(account));
        let config = of_account.unwrap_or(&self.config);
        let configured = config.region().map(AsRef::as_ref);
        let region = region_of(function).filter(|region| Some(*region) != configured);
        let key = (account.cloned(), region.map(str::to_owned));
        let mut all = self.clients.lock();
        let clients = all.entry(key).or_insert_with(|| {
            Arc::new(match region {
                Some(region) => RegionClients::new(&crate::for_region(config, region)),
                None => RegionClients::new(config),
            })
        });
        Arc::clone(clients)
    }
}

impl RegionClients {
    async fn invoke(self: Arc<Self>, request: Request) -> Result<Response, InvokeError> {
        let waits = request.invocation == Invocation::RequestResponse;
        let (trace_header, clients) = (request.trace_header, Arc::clone(&self));
        let sent = self
            .invoke
            .invoke()
            .function_name(&request.function)
            .invocation_type(match request.invocation {
                Invocation::RequestResponse => InvocationType::RequestResponse,
                Invocation::Event => InvocationType::Event,
            })
            .set_tenant_id(request.tenant)
            .set_log_type((request.log_tail && waits).then_some(LogType::Tail))
            .payload(Blob::new(request.payload))
            .customize()
            .mutate_request(move |sent| {
                clients.endpoint.get_or_init(|| sent.uri().to_owned());
                sent.add_extension(LONGEST_ANSWER);
                if let Some(header) = &trace_header {
                    sent.headers_mut().insert(TRACE_HEADER, header.clone());
                }
            })
            .send()
            .await;
        match sent {
            Ok(output) => answer::response(output, &request.function, waits),
            Err(error) => Err(self.failed(&request.function, &error)),
        }
    }

    /// Returns the error, which says whether the function ran.
    fn failed(&self, function: &str, error: &SdkError<InvokeFailure, HttpResponse>) -> InvokeError {
        if let SdkError::ServiceError(refused) = error {
            return RefusedInvocation::of(refused.raw()).classify(function);
        }
        let call = self.call("Invoke", function);
        let CallError { kind, message } = call.failed(error);
        match (crate::failure::proves_unsent(error), kind) {
            (false, _) => InvokeError::MayHaveRun(message),
            (true, ErrorKind::AccessDenied | ErrorKind::Invalid) => InvokeError::Permanent(message),
            (true, _) => InvokeError::DidNotRun {
                reason: message,
                retry_after: None,
            },
        }
    }
}

#[async_trait]
impl Invoke for Lambda {
    fn region(&self, function: &str) -> Option<String> {
        self.clients(function).region.clone()
    }

    fn endpoint(&self, function: &str) -> Option<String> {
        self.clients(function).endpoint.get().cloned()
    }

    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        let patience = request.patience;
        let clients = self.clients(&request.function);
        let function = request.function.clone();
        // The future is boxed because the SDK's future is large and thousands of calls wait at
        // once.
        let answer = Box::pin(clients.invoke(request));
        match tokio::time::timeout(patience, answer).await {
            Ok(outcome) => outcome,
            Err(_) => Err(InvokeError::MayHaveRun(format!(
                "Invoke of function `{function}`: no answer in {}",
                humantime::format_duration(patience)
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
