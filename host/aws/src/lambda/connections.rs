//! The connections to Lambda's endpoints: made when there is no unused one, kept for later requests,
//! closed when nobody has used them for a while. Sends nothing.

use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use http::Uri;
use http::uri::{Authority, Scheme};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tower_service::Service;

/// How long to wait for a connection: longer than elsewhere, since thousands may be made at once,
/// and agreeing on TLS with each takes this machine's time as well. What is not connected has not
/// run, so waiting costs nothing but time.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After so long without a byte the other end is asked whether it is there: a function may take 15
/// minutes, and what is between forgets a silent connection, a NAT gateway of AWS after 350 s.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(60);

/// A connection, with TLS where its URI says so. In a box: it is moved often, and large.
pub(super) type Connection = Box<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>;
type BoxError = Box<dyn Error + Send + Sync>;
/// With TLS; or why the system has no certificates.
type Secure = Result<HttpsConnector<HttpConnector>, String>;

/// Clones share the connections.
#[derive(Clone, Default)]
pub(super) struct ConnectionPool {
    idle: Arc<Mutex<UnusedConnections>>,
    /// Reads the system's certificates, so it is made with the first connection.
    secure: Arc<OnceLock<Secure>>,
}

/// Whom a connection leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Endpoint(Scheme, Authority);

/// The unused connections, of each endpoint the one that was used last at the end.
#[derive(Default)]
struct UnusedConnections {
    by_endpoint: HashMap<Endpoint, VecDeque<(Connection, BootInstant)>>,
    /// Closes them in time, while there are any.
    closer: Option<Task<()>>,
}

impl Endpoint {
    /// Of an absolute URI; `None` of any other.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        Some(Self(uri.scheme()?.clone(), uri.authority()?.clone()))
    }
}

impl ConnectionPool {
    /// An unused connection, if there is one that nobody has closed.
    pub(super) async fn unused(&self, endpoint: &Endpoint) -> Option<Connection> {
        loop {
            let (mut connection, _) = lock(&self.idle).by_endpoint.get_mut(endpoint)?.pop_back()?;
            if is_open(&mut connection).await {
                return Some(connection);
            }
        }
    }

    /// Makes a connection.
    ///
    /// # Errors
    /// If there is none in time, or no agreement on TLS.
    pub(super) async fn connect(&self, uri: &Uri) -> Result<Connection, BoxError> {
        let secure = self.secure.get_or_init(|| {
            let builder = HttpsConnectorBuilder::new().with_native_roots();
            let builder = builder.map_err(|error| error.to_string())?;
            let builder = builder.https_or_http().enable_http1();
            Ok(builder.wrap_connector(plain()))
        });
        let connecting = async {
            Ok(match secure {
                Ok(secure) => secure.clone().call(uri.clone()).await?,
                Err(why) if uri.scheme() == Some(&Scheme::HTTPS) => {
                    return Err(format!("there are no certificates: {why}").into());
                }
                Err(_) => MaybeHttpsStream::Http(plain().call(uri.clone()).await?),
            })
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map(|stream| Box::new(TokioIo::new(stream))),
            Err(_) => Err(format!("no connection in {} s", CONNECT_TIMEOUT.as_secs()).into()),
        }
    }

    /// Keeps a connection for a later request.
    pub(super) fn keep(&self, endpoint: Endpoint, connection: Connection) {
        let mut idle = lock(&self.idle);
        let unused = idle.by_endpoint.entry(endpoint).or_default();
        unused.push_back((connection, clock::now()));
        if idle.closer.is_none() {
            idle.closer = Some(tasks::spawn(close_unused(Arc::downgrade(&self.idle))));
        }
    }
}

fn lock(idle: &Mutex<UnusedConnections>) -> MutexGuard<'_, UnusedConnections> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes connections without TLS, and those below it.
fn plain() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    connector
}

/// Whether an unused connection is still of use: what there is to read is its end, or of nobody who
/// was asked.
async fn is_open(connection: &mut Connection) -> bool {
    let mut space = [MaybeUninit::uninit(); 1];
    let mut read = ReadBuf::uninit(&mut space);
    // A task that has done much would be made to wait, which looks the same.
    unconstrained(poll_fn(|context| {
        let polled = Pin::new(&mut *connection).poll_read(context, &mut read);
        Poll::Ready(polled.is_pending())
    }))
    .await
}

/// Closes what nobody has used for a while, until there is none.
async fn close_unused(idle: Weak<Mutex<UnusedConnections>>) {
    let close = || lock(&*idle.upgrade()?).close_unused(clock::now());
    while let Some(next) = close() {
        clock::sleep_until(Some(next)).await;
    }
}

impl UnusedConnections {
    /// Closes what is not to be kept; when to do so again, if anything is left to close.
    fn close_unused(&mut self, now: BootInstant) -> Option<BootInstant> {
        self.by_endpoint.retain(|_, unused| {
            let over = unused.iter().take_while(|(_, since)| *since + IDLE <= now);
            let over = over.count();
            unused.drain(..over);
            !unused.is_empty()
        });
        let oldest = self.by_endpoint.values().filter_map(VecDeque::front);
        let next = oldest.map(|(_, since)| *since + IDLE).min();
        if next.is_none() {
            self.closer = None;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn port(connection: &Connection) -> u16 {
        let MaybeHttpsStream::Http(stream) = connection.inner() else {
            panic!("it has no TLS")
        };
        stream.inner().local_addr().expect("an address").port()
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_silent_connection_is_kept_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let uri: Uri = format!("http://{at}/").parse().expect("a URI");
        let connection = ConnectionPool::default().connect(&uri).await;
        let connection = connection.expect("it listens");
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux");
        let local = format!(":{:04X}", port(&connection));
        let mut sockets = sockets.lines().map(|line| line.split_whitespace());
        let mut own = sockets
            .find(|fields| fields.clone().nth(1).is_some_and(|at| at.ends_with(&local)))
            .expect("our socket");
        // Its timer: 2 is that of keep-alive, followed by what is left of it in hundredths of a second.
        let timer = own.nth(5).expect("its timer");
        let left = timer
            .strip_prefix("02:")
            .unwrap_or_else(|| panic!("{timer}"));
        let left = u64::from_str_radix(left, 16).expect("a number");
        assert!(left <= KEEPALIVE.as_secs() * 100, "{timer}");
    }

    #[tokio::test]
    async fn unused_connections_are_closed_in_time_and_the_latest_is_used_first() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let uri: Uri = format!("http://{at}/").parse().expect("a URI");
        let endpoint = Endpoint::of(&uri).expect("a host");
        let all = ConnectionPool::default();
        let mut kept = Vec::new();
        for _ in 0..2 {
            let connection = all.connect(&uri).await.expect("it listens");
            all.keep(endpoint.clone(), connection);
            kept.push(listener.accept().await.expect("a connection"));
        }
        let now = clock::now();
        assert!(lock(&all.idle).closer.is_some());
        assert!(lock(&all.idle).close_unused(now).is_some(), "none is old");
        let used = all.unused(&endpoint).await.expect("an unused one");
        let latest = kept[1].1.port();
        assert_eq!(port(&used), latest);
        assert_eq!(lock(&all.idle).close_unused(now + IDLE), None);
        assert!(all.unused(&endpoint).await.is_none());
    }
}
