//! Opens the connections of one plugin: only to granted addresses, with TLS if the system has
//! certificates. Sends no requests.

use super::connection::{ConnectionLimit, CountedConnection};
use super::failure::{NoAddress, NoCertificates, ProhibitedHost, UsedUp};
use super::host::{HttpHost, RequestTarget, may_connect};
use dispatcher_core::tasks;
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tower_service::Service;

/// The maximum number of concurrent lookups. Each occupies a thread until the system answers.
const LOOKUPS: usize = 16;

/// The time without data after which TCP keepalive probes the other end. A response may take longer
/// than gateways remember a silent connection.
const KEEPALIVE: Duration = Duration::from_secs(60);

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Makes connections to granted hosts, by HTTP and HTTPS.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) limit: ConnectionLimit,
    by: By,
}

#[derive(Clone)]
enum By {
    Either(HttpsConnector<Connect>),
    /// HTTP only, because the system has no certificates, with the reason.
    Http(Connect, Arc<str>),
}

impl Connector {
    /// Connects only to these hosts, within the limit. Reads the system's certificates.
    pub(super) fn new(hosts: &[HttpHost], limit: ConnectionLimit) -> Self {
        let connect = Connect::new(hosts, limit.clone());
        let by = match HttpsConnectorBuilder::new().with_native_roots() {
            Ok(builder) => By::Either(
                builder
                    .https_or_http()
                    .enable_http1()
                    .wrap_connector(connect),
            ),
            Err(error) => By::Http(connect, error.to_string().into()),
        };
        Self { limit, by }
    }

    /// Returns the reason why HTTPS is not available, if it is not.
    pub(super) fn lacks_certificates(&self) -> Option<&str> {
        match &self.by {
            By::Either(_) => None,
            By::Http(_, why) => Some(why),
        }
    }

    #[cfg(test)]
    pub(super) fn without_certificates(
        hosts: &[HttpHost],
        limit: ConnectionLimit,
        why: &str,
    ) -> Self {
        let connect = Connect::new(hosts, limit.clone());
        let by = By::Http(connect, why.into());
        Self { limit, by }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<CountedConnection>;
    type Error = BoxError;
    type Future = BoxedFuture<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let is_plain = uri.scheme() == Some(&http::uri::Scheme::HTTP);
        match &mut self.by {
            By::Either(connector) => connector.call(uri),
            By::Http(connect, _) if is_plain => {
                let connection = connect.call(uri);
                Box::pin(async move { Ok(MaybeHttpsStream::Http(connection.await?)) })
            }
            By::Http(_, why) => {
                let error = NoCertificates(why.to_string());
                Box::pin(std::future::ready(Err(error.into())))
            }
        }
    }
}

/// Makes connections to granted hosts.
#[derive(Clone)]
struct Connect {
    hosts: Arc<[HttpHost]>,
    lookups: Arc<Semaphore>,
    limit: ConnectionLimit,
}

impl Connect {
    fn new(hosts: &[HttpHost], limit: ConnectionLimit) -> Self {
        Self {
            hosts: hosts.into(),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            limit,
        }
    }
}

impl Service<Uri> for Connect {
    type Response = CountedConnection;
    type Error = BoxError;
    type Future = BoxedFuture<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self {
            hosts,
            lookups,
            limit,
        } = self.clone();
        Box::pin(async move {
            let target = RequestTarget::of(&uri).ok_or(ProhibitedHost)?;
            // The connector does not resolve an IP address, so it is checked here.
            if let Some(address) = target.address()
                && !may_connect(&hosts, &target, address)
            {
                return Err(ProhibitedHost.into());
            }
            let taken = limit.take().ok_or(UsedUp)?;
            let mut connector = HttpConnector::new_with_resolver(Resolve {
                hosts,
                target,
                lookups,
            });
            connector.enforce_http(false);
            connector.set_nodelay(true);
            connector.set_keepalive(Some(KEEPALIVE));
            let stream = connector.call(uri).await?;
            Ok(CountedConnection {
                stream,
                _taken: taken,
            })
        })
    }
}

/// Looks up the name of one connection. The connection is made to the addresses that this returns.
#[derive(Clone)]
struct Resolve {
    hosts: Arc<[HttpHost]>,
    target: RequestTarget,
    lookups: Arc<Semaphore>,
}

impl Service<Name> for Resolve {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxedFuture<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self {
            hosts,
            target,
            lookups,
        } = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                look_up(lookups, move || (name.as_str(), 0).to_socket_addrs())
                    .await
                    .map_err(NoAddress)?
                    .collect();
            let may: Vec<_> = found
                .iter()
                .copied()
                .filter(|address| may_connect(&hosts, &target, address.ip()))
                .collect();
            if may.is_empty() && !found.is_empty() {
                Err(ProhibitedHost.into())
            } else {
                Ok(may.into_iter())
            }
        })
    }
}

/// Calls the system's resolver when a slot is free. The slot is held until the system answers, even
/// if the caller no longer waits.
async fn look_up<T: Send + 'static>(
    turns: Arc<Semaphore>,
    ask: impl FnOnce() -> T + Send + 'static,
) -> T {
    let turn = turns.acquire_owned().await.expect("nobody closes it");
    let asked = tasks::blocking(move || {
        let _turn = turn;
        ask()
    });
    asked.finished().await
}

#[cfg(test)]
mod tests {
    use super::super::failure::not_connected;
    use super::*;
    use wasmtime_wasi_http::Error;

    #[tokio::test]
    async fn abandoned_lookup_keeps_its_slot_until_the_resolver_answers() {
        let turns = Arc::new(Semaphore::new(1));
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let lookup = tasks::spawn(look_up(Arc::clone(&turns), move || {
            let _ = begin.send(());
            let _ = answered.recv();
        }));
        begun.await.expect("it began");
        drop(lookup);
        tokio::task::yield_now().await;
        assert_eq!(turns.available_permits(), 0);
        drop(answer);
        drop(turns.acquire().await);
    }

    async fn listening() -> (tokio::net::TcpListener, Uri) {
        let bound = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = bound.expect("a port");
        let at = listener.local_addr().expect("an address");
        let uri = format!("http://{at}/").parse().expect("a URI");
        (listener, uri)
    }

    fn error_of(error: &BoxError) -> Error {
        not_connected(&**error).into()
    }

    #[tokio::test]
    async fn without_certificates_http_works_and_https_names_the_reason() {
        let (_listener, uri) = listening().await;
        let hosts = [uri
            .authority()
            .expect("it has one")
            .as_str()
            .parse()
            .expect("a host")];
        let limit = ConnectionLimit::of_process(1_000);
        let mut connector = Connector::without_certificates(&hosts, limit, "none were found");
        assert!(connector.call(uri.clone()).await.is_ok());
        let secure = uri.to_string().replace("http:", "https:");
        let error = connector.call(secure.parse().expect("a URI")).await;
        let Error::TlsAlertReceived {
            alert_message: Some(why),
            ..
        } = error_of(&error.err().expect("it cannot"))
        else {
            panic!("it is about TLS");
        };
        assert!(
            why.contains("certificate") && why.ends_with("none were found"),
            "{why}"
        );
    }

    #[tokio::test]
    async fn connection_beyond_the_limit_is_refused_until_one_ends() {
        let (_listener, uri) = listening().await;
        let hosts = [uri
            .authority()
            .expect("it has one")
            .as_str()
            .parse()
            .expect("a host")];
        // Two of all plugins, one of each.
        let limit = ConnectionLimit::of_process(0).of_plugin();
        let mut connector = Connector::new(&hosts, limit);
        let first = connector.call(uri.clone()).await;
        let error = connector.call(uri.clone()).await.err().expect("no room");
        assert!(matches!(error_of(&error), Error::ConnectionLimitReached));
        drop(first);
        assert!(connector.call(uri).await.is_ok());
    }
}
