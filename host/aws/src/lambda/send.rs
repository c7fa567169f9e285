//! One HTTP request to Lambda, and its answer whole. Sent once. Knows no credentials and sorts no
//! errors but its own.
//!
//! A call that waits on a connection of ours holds the connection, its headers and little more. Where
//! the environment names a proxy for the endpoint, the SDK's own HTTP client sends the request; each of
//! its calls that wait takes 25 KiB more: its read and write buffers and its channel to the connection.

use super::connections::{CONNECT_TIMEOUT, Connection, ConnectionPool, Endpoint};
use super::exchange::{ExchangeError, FailedWrite, SerializedPost};
use super::{InvokeError, answer, exchange};
use crate::words;
use answer::InvokeAnswer;
use aws_sdk_lambda::config::http::HttpRequest;
use aws_sdk_lambda::primitives::ByteStream;
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::http::Headers;
use aws_smithy_types::body::SdkBody;
use http::{Request, Response};
use hyper_util::client::proxy::matcher::Matcher;
use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

type BoxError = Box<dyn Error + Send + Sync>;

/// Sends signed requests. Clones share connections.
#[derive(Clone)]
pub(super) struct Sender {
    connections: ConnectionPool,
    /// Which endpoints are reached through a proxy.
    proxies: Arc<Matcher>,
    /// What reaches them; made with the first request.
    through_proxy: Arc<OnceLock<SharedHttpConnector>>,
}

/// Why a request has no answer.
pub(super) enum SendFailure {
    /// Not a byte of it was sent.
    Unsent(BoxError),
    Lost(BoxError),
}

impl SendFailure {
    fn unsent(error: impl Into<BoxError>) -> Self {
        Self::Unsent(error.into())
    }

    fn lost(error: impl Into<BoxError>) -> Self {
        Self::Lost(error.into())
    }

    /// The same of an invocation: `DidNotRun` of one that was not sent, `MayHaveRun` of another.
    pub(super) fn of(self, function: &str) -> InvokeError {
        let failed =
            |error: BoxError| format!("Invoke of function `{function}`: {}", words::chain(&*error));
        match self {
            Self::Unsent(error) => InvokeError::DidNotRun {
                reason: failed(error),
                retry_after: None,
            },
            Self::Lost(error) => InvokeError::MayHaveRun(failed(error)),
        }
    }
}

/// A request under way.
pub(super) enum SentRequest {
    /// Its answer is to be read.
    Written(WrittenRequest),
    /// The SDK's client has it, which sends it when its answer is awaited.
    ByProxy(Pin<Box<dyn Future<Output = Result<InvokeAnswer, SendFailure>> + Send>>),
}

/// A request that is written.
pub(super) struct WrittenRequest {
    connection: Connection,
    endpoint: Endpoint,
    /// Why it was not written to its end.
    failed: Option<io::Error>,
}

impl Sender {
    /// With the proxies that the environment names.
    pub(super) fn new() -> Self {
        Self {
            connections: ConnectionPool::default(),
            proxies: Arc::new(Matcher::from_env()),
            through_proxy: Arc::default(),
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Why it was not sent.
    pub(super) async fn send(&self, request: HttpRequest) -> Result<SentRequest, SendFailure> {
        let uri = request.uri().parse().map_err(SendFailure::unsent)?;
        match self.proxies.intercept(&uri) {
            Some(_) => Ok(self.by_proxy(request)),
            None => self.write(request).await.map(SentRequest::Written),
        }
    }

    /// Waits for the answer as long as it takes.
    ///
    /// # Errors
    /// Whether the request was sent, and why it has no answer.
    pub(super) async fn answer(&self, sent: SentRequest) -> Result<InvokeAnswer, SendFailure> {
        let mut sent = match sent {
            SentRequest::Written(sent) => sent,
            SentRequest::ByProxy(answer) => return answer.await,
        };
        let read = exchange::read(&mut sent.connection).await;
        self.read(sent, read)
    }

    /// The answer that was read, if one was.
    fn read(
        &self,
        sent: WrittenRequest,
        read: Result<(Response<Vec<u8>>, bool), ExchangeError>,
    ) -> Result<InvokeAnswer, SendFailure> {
        let (response, is_reusable) = match sent.failed {
            None => read.map_err(SendFailure::lost)?,
            Some(error) => {
                let (response, _) = read.map_err(|_| SendFailure::lost(error))?;
                (response, false)
            }
        };
        if is_reusable {
            self.connections.keep(sent.endpoint, sent.connection);
        }
        let (parts, body) = response.into_parts();
        let headers = Headers::try_from(parts.headers);
        Ok(InvokeAnswer {
            status: parts.status.as_u16(),
            headers: headers.map_err(SendFailure::lost)?,
            body,
        })
    }

    /// Writes it on an unused connection, or a new one.
    async fn write(&self, request: HttpRequest) -> Result<WrittenRequest, SendFailure> {
        let request: Request<SdkBody> = request.try_into_http1x().map_err(SendFailure::unsent)?;
        let uri = request.uri().clone();
        let endpoint =
            Endpoint::of(&uri).ok_or_else(|| SendFailure::unsent("its URL has no host"))?;
        let post = SerializedPost::new(request).map_err(SendFailure::unsent)?;
        loop {
            let unused = self.connections.unused(&endpoint).await;
            let is_reused = unused.is_some();
            let mut connection = match unused {
                Some(connection) => connection,
                None => {
                    let connected = self.connections.connect(&uri).await;
                    connected.map_err(SendFailure::Unsent)?
                }
            };
            let failed = match post.write(&mut connection).await {
                Ok(()) => None,
                // The other end had closed it before.
                Err(FailedWrite { began: false, .. }) if is_reused => continue,
                Err(FailedWrite {
                    began: false,
                    error,
                }) => return Err(SendFailure::unsent(error)),
                // It may have answered before it had all of it.
                Err(FailedWrite { error, .. }) => Some(error),
            };
            return Ok(WrittenRequest {
                connection,
                endpoint,
                failed,
            });
        }
    }

    /// Has it sent by the SDK's own HTTP client, which knows proxies.
    fn by_proxy(&self, request: HttpRequest) -> SentRequest {
        let client = self.through_proxy.get_or_init(|| {
            let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT_TIMEOUT);
            let client = Connector::builder()
                .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
                .proxy_config(ProxyConfig::from_env())
                .connector_settings(settings.build())
                .build();
            SharedHttpConnector::new(client)
        });
        let answered = client.call(request);
        SentRequest::ByProxy(Box::pin(async move {
            let mut response = match answered.await {
                Ok(response) => response,
                Err(error) if never_connected(&error) => return Err(SendFailure::unsent(error)),
                Err(error) => return Err(SendFailure::lost(error)),
            };
            let body = ByteStream::new(response.take_body()).collect().await;
            let body = body.map_err(SendFailure::lost)?;
            Ok(InvokeAnswer {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: body.into_bytes().into(),
            })
        }))
    }
}

#[cfg(test)]
impl Sender {
    /// What a request sent in one of the two ways comes to: the answer, or whether it was sent.
    pub(super) async fn outcome(
        &self,
        request: HttpRequest,
        through_proxy: bool,
    ) -> Result<(u16, Vec<(String, String)>, Vec<u8>), bool> {
        let was_sent = |failure| matches!(failure, SendFailure::Lost(_));
        let sent = match through_proxy {
            true => self.by_proxy(request),
            false => SentRequest::Written(self.write(request).await.map_err(was_sent)?),
        };
        let answer = self.answer(sent).await.map_err(was_sent)?;
        let headers = answer.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok((answer.status, headers.collect(), answer.body))
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// Whether the call failed because there was no connection for it: refused, no address, no answer
/// in time, no agreement on TLS. Then not a byte of it was sent.
fn never_connected(error: &(dyn Error + 'static)) -> bool {
    words::links(error)
        .filter_map(|link| link.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect)
}
