//! An Invoke as the SDK would send it: addressed, signed, and handed over instead of sent. Sends
//! nothing and knows nothing of answers.
//!
//! The SDK keeps the layers of its configuration, the request for a second attempt and the states of
//! its interceptors for an operation until its answer is there, and a function may take minutes:
//! about 15 of the 56 KiB that a waiting call held. So the operation ends where it would send: the
//! SDK's HTTP client here is one that fails, and whose failure carries the signed request.

use super::{Invocation, InvokeError, Request};
use crate::failure::{About, CallName};
use crate::words;
use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::http::{HttpRequest, HttpResponse};
use aws_sdk_lambda::error::SdkError;
use aws_sdk_lambda::operation::invoke::InvokeError as Refusal;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::{InvocationType, LogType};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use dispatcher_core::error_kind::{CallError, ErrorKind};

/// What the function's trace continues.
const TRACE_HEADER: &str = "x-amzn-trace-id";

/// Signs requests with the configuration's credentials.
#[derive(Debug, Clone)]
pub(super) struct Signer(Client);

impl Signer {
    pub(super) fn new(config: &SdkConfig) -> Self {
        let handing_over = SharedHttpConnector::new(HandOver);
        let config = aws_sdk_lambda::config::Builder::from(config)
            .http_client(http_client_fn(move |_, _| handing_over.clone()))
            // The hand-over is a failure that must not be retried.
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Self(Client::from_conf(config))
    }

    /// The request that an invocation is, with its payload; `request` is left without. `place` is for
    /// messages.
    ///
    /// # Errors
    /// Without credentials or an endpoint, of the kinds that say that nothing was sent.
    pub(super) async fn sign(
        &self,
        request: &mut Request,
        place: &str,
    ) -> Result<HttpRequest, InvokeError> {
        let call = |function| CallName {
            step: "Invoke",
            about: About::Function(function),
            place,
        };
        let trace_header = request.trace_header.take();
        let waits = request.invocation == Invocation::RequestResponse;
        let sent = self
            .0
            .invoke()
            .function_name(&request.function)
            .invocation_type(match request.invocation {
                Invocation::RequestResponse => InvocationType::RequestResponse,
                Invocation::Event => InvocationType::Event,
            })
            .set_log_type((request.log_tail && waits).then_some(LogType::Tail))
            .payload(Blob::new(std::mem::take(&mut request.payload)))
            .customize()
            .mutate_request(move |sent| {
                if let Some(header) = &trace_header {
                    sent.headers_mut().insert(TRACE_HEADER, header.clone());
                }
            })
            .send()
            .await;
        match sent {
            Err(error) => handed_over(error).map_err(|error| {
                let CallError { kind, message } = call(&request.function).failed(&error);
                match kind {
                    ErrorKind::AccessDenied | ErrorKind::Invalid => InvokeError::Permanent(message),
                    // A provider of credentials could not be asked.
                    _ => InvokeError::DidNotRun {
                        reason: message,
                        retry_after: None,
                    },
                }
            }),
            Ok(_) => Err(InvokeError::MayHaveRun(format!(
                "{}: answered before it was sent",
                call(&request.function)
            ))),
        }
    }
}

/// A signed request on its way out of the SDK.
#[derive(Debug, thiserror::Error)]
#[error("signed, not sent")]
struct Signed(HttpRequest);

#[derive(Debug)]
struct HandOver;

impl HttpConnector for HandOver {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::ready(Err(ConnectorError::user(Box::new(Signed(request)))))
    }
}

type SignFailure = SdkError<Refusal, HttpResponse>;

/// The request that a failure carries, or the failure if it is a true one.
fn handed_over(failure: SignFailure) -> Result<HttpRequest, Box<SignFailure>> {
    let carries = words::links(&failure).any(|link| link.is::<Signed>());
    if !carries {
        return Err(failure.into());
    }
    let source = failure.into_source()?;
    let source = source
        .downcast::<ConnectorError>()
        .expect("what carries a request is our connector's")
        .into_source();
    let signed = source
        .downcast::<Signed>()
        .expect("it carries a request and nothing around it");
    Ok(signed.0)
}
