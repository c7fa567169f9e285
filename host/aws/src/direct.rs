//! Calls of AWS's JSON protocol without the SDK's orchestration, which costs ten times the call itself.
//! Where a call goes, how it is signed and over which connections it is sent is learnt from a call that
//! the SDK makes: endpoint, headers, cached credentials and HTTP client are the SDK's own. Signs by
//! `aws-sigv4`. Knows no operation of a service.

use crate::{ATTEMPTS, CONNECT_TIMEOUT, LONG_POLL_READ_TIMEOUT, READ_TIMEOUT, SECOND_ATTEMPT};
use aws_runtime::auth::sigv4::SCHEME_ID;
use aws_runtime::retries::classifiers::{THROTTLING_ERRORS, TRANSIENT_ERRORS};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_async::rt::sleep::{AsyncSleep, SharedAsyncSleep};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::auth::AuthScheme;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::identity::{
    Identity, ResolveCachedIdentity, SharedIdentityResolver,
};
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextRef;
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::error::metadata::{ErrorMetadata, ProvideErrorMetadata};
use bytes::{Bytes, BytesMut};
use dispatcher_core::clock;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, Uri};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
/// Asks a service that had the Query protocol for that protocol's error codes.
const QUERY_MODE: HeaderName = HeaderName::from_static("x-amzn-query-mode");
/// The headers that each call repeats from the one that it was learnt from.
const REPEATED: [HeaderName; 3] = [CONTENT_TYPE, QUERY_MODE, USER_AGENT];

/// How long the next part of an answer may take: what the SDK's protection of stalled streams allows.
const STALLED: Duration = Duration::from_secs(20);

/// Why a call failed, as the SDK reports it.
pub type DirectError = Box<SdkError<ServiceError, HttpResponse>>;

/// An error that the service answered with.
#[derive(Debug)]
pub struct ServiceError(ErrorMetadata);

impl fmt::Display for ServiceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl std::error::Error for ServiceError {}

impl ProvideErrorMetadata for ServiceError {
    fn meta(&self) -> &ErrorMetadata {
        &self.0
    }
}

/// How long a call may take to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The service answers at once.
    Control,
    /// The service may wait for messages.
    LongPoll,
}

/// Learns from a call of the SDK: an interceptor for `customize().interceptor(…)`.
#[derive(Debug, Clone, Default)]
pub struct Learner(Arc<Mutex<Option<DirectClient>>>);

impl Learner {
    /// What the call showed. `None` if it was not signed by version 4, as without credentials.
    pub fn take(&self) -> Option<DirectClient> {
        // The client holds the call's components and with them this interceptor: taken out, so that
        // they do not keep each other alive.
        self.slot().take()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<DirectClient>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intercept for Learner {
    fn name(&self) -> &'static str {
        "Learner"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        *self.slot() =
            Learnt::of(context.request(), components).map(|it| DirectClient(Arc::new(it)));
        Ok(())
    }
}

/// Calls one service at one endpoint. Clones share everything.
#[derive(Debug, Clone)]
pub struct DirectClient(Arc<Learnt>);

#[derive(Debug)]
struct Learnt {
    uri: Uri,
    headers: HeaderMap,
    scope: SigningScope,
    components: RuntimeComponents,
    credentials: SharedIdentityResolver,
    sleep: SharedAsyncSleep,
    control: SharedHttpConnector,
    polls: SharedHttpConnector,
}

/// The region and the service that a signature is valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SigningScope {
    region: String,
    service: String,
}

impl SigningScope {
    /// Reads `AWS4-HMAC-SHA256 Credential=ID/20261124/REGION/SERVICE/aws4_request, …`.
    fn of(authorization: &str) -> Option<Self> {
        let rest = authorization.strip_prefix("AWS4-HMAC-SHA256 ")?;
        let (credential, _) = rest.strip_prefix("Credential=")?.split_once(',')?;
        // An access key id may have slashes in it where an emulator takes any.
        let mut from_the_end = credential.rsplit('/');
        let (end, service, region) = (
            from_the_end.next()?,
            from_the_end.next()?,
            from_the_end.next()?,
        );
        (end == "aws4_request").then(|| Self {
            region: region.to_owned(),
            service: service.to_owned(),
        })
    }
}

impl Learnt {
    fn of(request: &HttpRequest, components: &RuntimeComponents) -> Option<Self> {
        let mut headers = HeaderMap::new();
        for name in REPEATED {
            if let Some(value) = request.headers().get(name.as_str()) {
                headers.insert(name, HeaderValue::from_str(value).ok()?);
            }
        }
        let client = components.http_client()?;
        let scheme = components.auth_scheme(SCHEME_ID)?;
        Some(Self {
            uri: request.uri().parse().ok()?,
            headers,
            scope: SigningScope::of(request.headers().get("authorization")?)?,
            credentials: scheme.identity_resolver(components)?,
            sleep: components.sleep_impl()?,
            control: connector(&client, READ_TIMEOUT, components),
            polls: connector(&client, LONG_POLL_READ_TIMEOUT, components),
            components: components.clone(),
        })
    }

    fn signed(
        &self,
        operation: &HeaderValue,
        body: &Bytes,
        identity: &Identity,
    ) -> Result<HttpRequest, BoxError> {
        let mut request = Request::new(SdkBody::from(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(TARGET, operation.clone());
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(clock::wall_clock_now().0);
        let params = v4::SigningParams::builder()
            .identity(identity)
            .region(&self.scope.region)
            .name(&self.scope.service)
            .time(now)
            .settings(SigningSettings::default())
            .build()?
            .into();
        let uri = self.uri.to_string();
        let texts = request
            .headers()
            .iter()
            .map(|(name, value)| Ok((name.as_str(), value.to_str()?)))
            .collect::<Result<Vec<_>, http::header::ToStrError>>()?;
        let signable =
            SignableRequest::new("POST", uri, texts.into_iter(), SignableBody::Bytes(body))?;
        let (instructions, _) = sign(signable, &params)?.into_parts();
        instructions.apply_to_request_http1x(&mut request);
        Ok(HttpRequest::try_from(request)?)
    }
}

/// The SDK's HTTP client caches connectors by these settings, so the connections are the SDK's own.
fn connector(
    client: &SharedHttpClient,
    read: Duration,
    components: &RuntimeComponents,
) -> SharedHttpConnector {
    let settings = HttpConnectorSettings::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(read)
        .build();
    client.http_connector(&settings, components)
}

impl DirectClient {
    /// Calls an operation, such as `AmazonSQS.ReceiveMessage`, and again after a pause where the SDK
    /// would: at most `ATTEMPTS` times in all.
    ///
    /// # Errors
    /// As the SDK's: what the service answered, or why no answer came.
    pub async fn call<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        input: &impl Serialize,
        patience: Patience,
    ) -> Result<T, DirectError> {
        let body = serde_json::to_vec(input).map_err(SdkError::construction_failure)?;
        let body = Bytes::from(body);
        let operation = HeaderValue::from_static(operation);
        let mut attempt = 1;
        loop {
            match self.attempt(&operation, &body, patience).await {
                Err(error) if attempt < ATTEMPTS && may_repeat(&error) => attempt += 1,
                outcome => return outcome,
            }
            // As in the SDK: any part of the first back-off.
            let pause = SECOND_ATTEMPT.mul_f64(fastrand::f64());
            self.0.sleep.sleep(pause).await;
        }
    }

    async fn attempt<T: DeserializeOwned>(
        &self,
        operation: &HeaderValue,
        body: &Bytes,
        patience: Patience,
    ) -> Result<T, DirectError> {
        let learnt = &*self.0;
        let components = &learnt.components;
        let identity = components
            .identity_cache()
            .resolve_cached_identity(learnt.credentials.clone(), components, &ConfigBag::base())
            .await
            .map_err(|error| SdkError::dispatch_failure(ConnectorError::other(error, None)))?;
        let request = learnt
            .signed(operation, body, &identity)
            .map_err(SdkError::construction_failure)?;
        let connector = match patience {
            Patience::Control => &learnt.control,
            Patience::LongPoll => &learnt.polls,
        };
        let mut answer = connector
            .call(request)
            .await
            .map_err(SdkError::dispatch_failure)?;
        let body = match whole(answer.take_body()).await {
            Ok(body) => body,
            Err(error) => return Err(SdkError::response_error(error, answer).into()),
        };
        if answer.status().is_success() {
            // As in the SDK, what cannot be read is not asked for again.
            return read(&body).map_err(|error| {
                let error = ErrorMetadata::builder().message(error.to_string()).build();
                SdkError::service_error(ServiceError(error), answer).into()
            });
        }
        let error = ServiceError(error_metadata(&answer, &body));
        Err(SdkError::service_error(error, answer).into())
    }
}

/// An answer is an object; nothing at all is one without members.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    match body.trim_ascii_start().first() {
        None => serde_json::from_slice(b"{}"),
        Some(b'{') => serde_json::from_slice(body),
        Some(_) => Err(serde::de::Error::custom("the answer is no JSON object")),
    }
}

/// A body of one part is not copied.
async fn whole(body: SdkBody) -> Result<Bytes, BoxError> {
    let mut stream = ByteStream::new(body);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let next = tokio::time::timeout(STALLED, stream.next()).await;
        let next = next.map_err(|_| "the answer stalled")?;
        match next.transpose()? {
            None if rest.is_empty() => return Ok(first),
            None => return Ok(rest.freeze()),
            Some(part) if first.is_empty() => first = part,
            Some(part) => {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&part);
            }
        }
    }
}

/// What the SDK's classifiers of standard retries repeat: failures of the connection, throttling, and
/// errors of the server that pass.
fn may_repeat(error: &SdkError<ServiceError, HttpResponse>) -> bool {
    match error {
        SdkError::DispatchFailure(failure) => {
            failure.is_io() || failure.is_timeout() || failure.as_other().is_some()
        }
        SdkError::ResponseError(_) | SdkError::TimeoutError(_) => true,
        SdkError::ServiceError(answer) => {
            let code = answer.err().code().unwrap_or_default();
            let status = answer.raw().status().as_u16();
            THROTTLING_ERRORS.contains(&code)
                || TRANSIENT_ERRORS.contains(&code)
                || matches!(status, 500 | 502 | 503 | 504)
        }
        _ => false,
    }
}

/// The body of an error in the JSON protocol.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    code: Option<String>,
    #[serde(rename = "__type")]
    kind: Option<String>,
    #[serde(alias = "Message", alias = "errorMessage")]
    message: Option<String>,
}

/// The code by the header of the Query protocol, else by the header or the body of the JSON protocol.
fn error_metadata(answer: &HttpResponse, body: &[u8]) -> ErrorMetadata {
    let read: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    let header = |name| answer.headers().get(name);
    let query = header("x-amzn-query-error").and_then(|text| text.split_once(';'));
    let code = query.map(|(code, _)| code).or_else(|| {
        let code = header("x-amzn-errortype").or(read.code.as_deref().or(read.kind.as_deref()));
        code.map(bare_code)
    });
    let mut builder = ErrorMetadata::builder();
    if let Some(code) = code {
        builder = builder.code(code);
    }
    if let Some(message) = read.message {
        builder = builder.message(message);
    }
    builder.build()
}

/// `QueueDoesNotExist` of `com.amazonaws.sqs#QueueDoesNotExist:http://…`.
fn bare_code(code: &str) -> &str {
    let code = code.split_once(':').map_or(code, |(code, _)| code);
    code.split_once('#').map_or(code, |(_, code)| code)
}

#[cfg(test)]
mod tests;
