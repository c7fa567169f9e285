//! The HTTP client of all AWS clients, based on the SDK's connection pool. Limits the size of each
//! response, and marks the errors that prove that nothing was sent. Knows no service.

use super::trust;
use aws_smithy_http_client::pool::{Client, ConnectionPool, DriverSpawner, Partition, PartitionId};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::{
    RuntimeComponents, RuntimeComponentsBuilder,
};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::ConfigBag;
use dispatcher_core::clock;
use dispatcher_core::tasks;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_util::client::proxy::matcher::Matcher;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The idle time after which TCP keepalive probes the connection. A function may run for 90
/// minutes, and a NAT gateway of AWS drops a silent connection after 350 s.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// The time for which an unused connection is kept.
const IDLE: Duration = Duration::from_secs(60);

/// The longest call whose `Date` header the SDK may use. The SDK assumes that the date is the time
/// in the middle of the call and corrects its clock by it. After a function that ran for ten
/// minutes, the clock would be off by five minutes, the most that AWS accepts.
const LONGEST_CALL_TO_TRUST_ITS_DATE: Duration = Duration::from_secs(60);

/// The only partition of the pool.
const PARTITION: PartitionId = PartitionId::from_index(0);

/// The maximum size in bytes of the response to a request, set as an extension of the request. The
/// default is enough for ten SQS messages of 1 MiB, which JSON may encode in three times as many
/// bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongestAnswer(pub usize);

impl Default for LongestAnswer {
    fn default() -> Self {
        Self(64 << 20)
    }
}

/// The text of `UnsentError`, which precedes the reason.
pub(crate) const UNSENT: &str = "not sent";

/// The error that no byte of the request was sent, because there was no connection.
#[derive(Debug)]
pub(crate) struct UnsentError(BoxError);

/// The error of a request that was made through this proxy.
#[derive(Debug)]
struct ThroughProxy {
    proxy: String,
    source: BoxError,
}

impl fmt::Display for UnsentError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(UNSENT)
    }
}

impl Error for UnsentError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl fmt::Display for ThroughProxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "through the proxy {}", self.proxy)
    }
}

impl Error for ThroughProxy {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Creates a client with a connection pool. Only the limit of open files bounds its size, since
/// each waiting call needs its own connection.
pub(crate) fn client() -> SharedHttpClient {
    let no_proxy = std::env::var("NO_PROXY").or_else(|_| std::env::var("no_proxy"));
    let (proxy_config, proxies) = if excepts_all(&no_proxy.unwrap_or_default()) {
        (ProxyConfig::disabled(), Matcher::builder().build())
    } else {
        (ProxyConfig::from_env(), Matcher::from_env())
    };
    // Each connection runs on the runtime of the call that opens it.
    let spawner = DriverSpawner::from_fn(tasks::spawn_unowned);
    let pool = ConnectionPool::builder()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .tls_context(trust::context())
        .proxy_config(proxy_config)
        .tcp_keepalive(KEEPALIVE)
        .idle_timeout(IDLE)
        .partitions([Partition::new(PARTITION, spawner)])
        .build_https()
        .expect("one partition, bound to no interface, is a valid pool");
    let client = Client::from_partition(&pool, PARTITION);
    SharedHttpClient::new(PoolClient {
        inner: client.expect("the pool has this partition"),
        proxies: Arc::new(proxies),
    })
}

/// Whether `NO_PROXY` contains `*`. The pool applies it to all names, but not to IP addresses.
fn excepts_all(no_proxy: &str) -> bool {
    no_proxy.split(',').any(|entry| entry.trim() == "*")
}

#[derive(Debug)]
struct PoolClient {
    inner: Client,
    /// The proxies of the pool.
    proxies: Arc<Matcher>,
}

impl HttpClient for PoolClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(PoolConnector {
            inner: self.inner.http_connector(settings, components),
            proxies: Arc::clone(&self.proxies),
            has_read_timeout: settings.read_timeout().is_some(),
        })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.inner.validate_base_client_config(components, config)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.inner.connector_metadata()
    }
}

#[derive(Debug)]
struct PoolConnector {
    inner: SharedHttpConnector,
    proxies: Arc<Matcher>,
    has_read_timeout: bool,
}

impl HttpConnector for PoolConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let most = request.extension::<LongestAnswer>().copied();
        let (has_read_timeout, began) = (self.has_read_timeout, clock::now());
        let (proxies, address) = (Arc::clone(&self.proxies), request.uri().to_owned());
        let answered = self.inner.call(request);
        HttpConnectorFuture::new(async move {
            let answered = answered.await.map_err(|error| {
                let error = name_proxy(error, proxy_of(&proxies, &address));
                mark_unsent(error, has_read_timeout)
            });
            let mut answer = answered?;
            if clock::now().since(began) > LONGEST_CALL_TO_TRUST_ITS_DATE {
                answer.headers_mut().remove("date");
            }
            Ok(bound(answer, most.unwrap_or_default()))
        })
    }
}

/// Marks an error as unsent if there was no connection. The pool adds the connection to each error
/// that occurs after connecting, except to the read timeout, which may end the wait for a
/// connection or for the response.
fn mark_unsent(error: ConnectorError, has_read_timeout: bool) -> ConnectorError {
    let is_unclear = error.is_timeout() && has_read_timeout;
    if error.connection_metadata().is_some() || is_unclear {
        return error;
    }
    with_source(error, |source| Box::new(UnsentError(source)))
}

/// Returns the proxy of a request, without its user name and password.
fn proxy_of(proxies: &Matcher, address: &str) -> Option<String> {
    let proxy = proxies.intercept(&address.parse().ok()?)?;
    Some(proxy.uri().to_string().trim_end_matches('/').to_owned())
}

fn name_proxy(error: ConnectorError, proxy: Option<String>) -> ConnectorError {
    let Some(proxy) = proxy else { return error };
    with_source(error, |source| Box::new(ThroughProxy { proxy, source }))
}

/// Replaces the source of an error.
fn with_source(error: ConnectorError, change: impl FnOnce(BoxError) -> BoxError) -> ConnectorError {
    let (is_timeout, is_user, is_io) = (error.is_timeout(), error.is_user(), error.is_io());
    let (kind, connection) = (error.as_other(), error.connection_metadata().cloned());
    let source = change(error.into_source());
    let changed = if is_timeout {
        ConnectorError::timeout(source)
    } else if is_user {
        ConnectorError::user(source)
    } else if is_io {
        ConnectorError::io(source)
    } else {
        ConnectorError::other(source, kind)
    };
    match connection {
        Some(connection) => changed.with_connection(connection),
        None => changed,
    }
}

/// Returns the response with a body that fails when it exceeds the limit.
fn bound(answer: HttpResponse, LongestAnswer(most): LongestAnswer) -> HttpResponse {
    let length: Option<usize> = answer
        .headers()
        .get("content-length")
        .and_then(|text| text.parse().ok());
    if length.is_some_and(|length| length <= most) {
        return answer;
    }
    answer.map(|body| {
        let limited = Limited::new(body, most).map_err(move |error| -> BoxError {
            if error.is::<LengthLimitError>() {
                format!("the answer is longer than {} MiB", most >> 20).into()
            } else {
                error
            }
        });
        SdkBody::from_body_1_x(limited)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::proves_unsent;
    use aws_sdk_lambda::operation::invoke::InvokeError;
    use aws_smithy_runtime_api::client::connection::ConnectionMetadata;
    use aws_smithy_runtime_api::client::result::SdkError;
    use aws_smithy_runtime_api::http::StatusCode;
    use aws_smithy_types::byte_stream::ByteStream;
    use http_body_util::Full;
    use std::io;

    fn is_unsent(error: ConnectorError, has_read_timeout: bool) -> bool {
        let marked = mark_unsent(error, has_read_timeout);
        let error: SdkError<InvokeError, HttpResponse> = SdkError::dispatch_failure(marked);
        proves_unsent(&error)
    }

    #[test]
    fn every_failure_to_connect_proves_that_nothing_was_sent() {
        for kind in [
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::AddrNotAvailable,
            io::ErrorKind::AddrInUse,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::NetworkUnreachable,
            io::ErrorKind::HostUnreachable,
            io::ErrorKind::QuotaExceeded,
            io::ErrorKind::OutOfMemory,
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::Other,
        ] {
            let io = ConnectorError::io(Box::new(io::Error::from(kind)));
            assert!(is_unsent(io, true), "{kind}");
            let other = ConnectorError::other(Box::new(io::Error::from(kind)), None);
            assert!(is_unsent(other, true), "{kind}");
        }
        // EMFILE and EPERM as the system writes them.
        for number in [24, 1] {
            let source = Box::new(io::Error::from_raw_os_error(number));
            assert!(is_unsent(ConnectorError::io(source), false));
        }
        assert!(is_unsent(ConnectorError::timeout("connect".into()), false));
        assert!(is_unsent(ConnectorError::user("no host".into()), false));
    }

    #[test]
    fn failure_on_a_connection_proves_nothing() {
        for error in [
            ConnectorError::io("reset".into()),
            ConnectorError::timeout("no answer".into()),
            ConnectorError::other("nonsense".into(), None),
        ] {
            let connection = ConnectionMetadata::builder()
                .proxied(false)
                .poison_fn(|| ());
            let failed = error.with_connection(connection.build());
            assert!(!is_unsent(failed, false));
        }
        assert!(!is_unsent(ConnectorError::timeout("read".into()), true));
    }

    #[test]
    fn failure_of_a_request_through_a_proxy_names_it_and_proves_what_it_did() {
        let proxies = Matcher::builder()
            .https("http://me:secret@proxy.test:3128")
            .no("sqs.eu-west-1.amazonaws.com, 10.0.0.0/8")
            .build();
        let lambda = "https://lambda.eu-west-1.amazonaws.com/2015-03-31/functions";
        let proxy = proxy_of(&proxies, lambda);
        assert_eq!(proxy.as_deref(), Some("http://proxy.test:3128"));
        for address in [
            "https://sqs.eu-west-1.amazonaws.com/",
            "https://10.1.2.3/",
            "http://lambda.eu-west-1.amazonaws.com/",
        ] {
            assert_eq!(proxy_of(&proxies, address), None, "{address}");
        }
        let named = name_proxy(ConnectorError::io("refused".into()), proxy.clone());
        let text = named.source().map(ToString::to_string);
        assert_eq!(
            text.as_deref(),
            Some("through the proxy http://proxy.test:3128")
        );
        assert!(is_unsent(named, false));
        let connection = ConnectionMetadata::builder().proxied(true).poison_fn(|| ());
        let refused = ConnectorError::io("refused".into());
        let connected = refused.with_connection(connection.build());
        assert!(!is_unsent(name_proxy(connected, proxy), false));
    }

    #[tokio::test]
    async fn answer_is_read_up_to_its_bound() {
        let text = "0123456789";
        for (declared, most, is_whole) in [
            (None, 10, true),
            (None, 9, false),
            (Some("10"), 10, true),
            (Some("10"), 9, false),
            (Some("many"), 9, false),
        ] {
            let body = SdkBody::from_body_1_x(Full::from(text));
            let status = StatusCode::try_from(200).expect("a status");
            let mut answer = HttpResponse::new(status, body);
            if let Some(length) = declared {
                answer.headers_mut().insert("content-length", length);
            }
            let mut bounded = bound(answer, LongestAnswer(most));
            let read = ByteStream::new(bounded.take_body()).collect().await;
            assert_eq!(read.is_ok(), is_whole, "{declared:?} {most}");
        }
    }
}
