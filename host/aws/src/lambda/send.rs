//! One HTTP request to Lambda, and its answer whole. Sent once, by the SDK's own HTTP client, which
//! brings TLS, proxies and the pool of connections. Knows no credentials and sorts no errors but
//! its own.
//!
//! Resident memory for each of 10,000 calls that wait over plain HTTP, and for one while the SDK ran
//! the operation to its end: 41 KiB and 56 with the huge pages that the allocator asks for, 29 and
//! 43 without them. What a call has allocated is 38.7 KiB: 16.0 are hyper's read and write buffers,
//! 11.5 its channel to the connection (one block of tokio's, slots for 32 requests), 3.8 the
//! client's future, 1.7 ours, 1.2 headers, 1.1 the stream, the rest small. The SDK lets none of the
//! first three be set.

use super::{InvokeError, answer};
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
use std::error::Error;
use std::time::Duration;

/// How long to wait for a connection: longer than elsewhere, since thousands may be made at once,
/// and agreeing on TLS with each takes this machine's time as well. What is not connected has not
/// run, so waiting costs nothing but time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends signed requests. Clones share connections.
#[derive(Debug, Clone)]
pub(super) struct Sender(SharedHttpConnector);

impl Sender {
    /// As the SDK makes its own: TLS by its provider, the proxy that the environment names.
    pub(super) fn new() -> Self {
        Self(SharedHttpConnector::new(
            Connector::builder()
                .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
                .proxy_config(ProxyConfig::from_env())
                .connector_settings(
                    HttpConnectorSettings::builder()
                        .connect_timeout(CONNECT_TIMEOUT)
                        .build(),
                )
                .build(),
        ))
    }

    /// Waits for the answer as long as it takes.
    ///
    /// # Errors
    /// `DidNotRun` without a connection, `MayHaveRun` once there was one.
    pub(super) async fn send(
        &self,
        function: &str,
        request: HttpRequest,
    ) -> Result<InvokeAnswer, InvokeError> {
        let lost = |error: &(dyn Error + 'static)| {
            let reason = format!("Invoke of function `{function}`: {}", words::chain(error));
            match never_connected(error) {
                true => InvokeError::DidNotRun {
                    reason,
                    retry_after: None,
                },
                false => InvokeError::MayHaveRun(reason),
            }
        };
        let mut response = self.0.call(request).await.map_err(|error| lost(&error))?;
        let body = ByteStream::new(response.take_body())
            .collect()
            .await
            .map_err(|error| lost(&error))?;
        Ok(InvokeAnswer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: body.into_bytes().into(),
        })
    }
}

/// Whether the call failed because there was no connection for it: refused, no address, no answer
/// in time, no agreement on TLS. Then not a byte of it was sent.
fn never_connected(error: &(dyn Error + 'static)) -> bool {
    words::links(error)
        .filter_map(|link| link.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect)
}
