//! Serves HTTP: listens, limits its connections, closes idle ones and stops gracefully. Does not
//! interpret requests.

mod pieces;
mod stream;

use axum::Router;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks::Group;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::{Mutex, MutexGuard};
pub use pieces::PieceBody;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
pub use stream::{StreamBody, StreamWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

/// The time for which responses in progress may continue after the stop.
const LAST: Duration = Duration::from_secs(1);

/// The limits of client connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// The maximum number of connections at once. When all are open, a new connection replaces one
    /// without a running request; if there is none, the new one waits. They share the process's
    /// limit of open files with everything else.
    pub connections: usize,
    /// The time within which a client must send its next request.
    pub patience: Duration,
}

/// The client's address, in the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The connection of a request, in its extensions.
#[derive(Clone)]
pub struct ServedConnection {
    id: u64,
    closed: CancellationToken,
    all: Arc<Connections>,
}

impl ServedConnection {
    /// Excludes the connection from the limit, for a response that goes on for long: it takes no
    /// place and is not closed for a new connection. The caller limits the number of such
    /// connections and can close this one with the returned token.
    pub fn detach(&self) -> CancellationToken {
        self.all.lock().by_id.remove(&self.id);
        self.all.released.notify_one();
        self.closed.clone()
    }
}

/// Listens on `address` and returns the listener with its address. Port 0 selects any free port.
///
/// # Errors
/// Returns one line with the address if it is not available.
pub async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let at = listener.local_addr()?;
        io::Result::Ok((listener, at))
    };
    bound
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}"))
}

/// Listens on `address`, or on any free port of its IP address if that port is not available.
///
/// # Errors
/// Returns one line with the address if no port is available.
pub async fn listen_or_any_port(address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    match listen(address).await {
        Ok(listening) => Ok(listening),
        Err(_) => listen(SocketAddr::new(address.ip(), 0)).await,
    }
}

/// Returns the address at which this machine reaches a listener: one on all addresses is also on
/// loopback.
pub fn reached_here(mut at: SocketAddr) -> SocketAddr {
    match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => at.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => at.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    at
}

/// Serves connections until `stop`, then takes up to a second to finish running requests.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let open = Arc::new(Connections::new(limits.connections));
    let mut tasks: Group<()> = Group::new();
    let mut failed = LogThrottle::default();
    let accepted = async {
        loop {
            tokio::select! {
                connection = listener.accept(), if open.has_place() => {
                    match connection {
                        Ok((stream, peer)) => {
                            let ours = open.admit(peer, clock::now());
                            tasks.spawn(converse(stream, router.clone(), ours, limits, stop.clone()));
                        }
                        // The client has disconnected; another one may already be waiting.
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                        // Usually the limit of open files is reached: clients wait until some are
                        // closed.
                        Err(error) => {
                            if failed.should_log(clock::now()) {
                                tracing::warn!(%error, "connection not accepted, retried");
                            }
                            clock::sleep_until(Some(clock::now() + LAST)).await;
                        }
                    }
                }
                () = tasks.next() => {}
                () = open.released.notified() => {}
            }
        }
    };
    tokio::select! {
        () = accepted => {}
        () = stop.cancelled() => {}
    }
    // Close the socket, so that no client connects to it in vain.
    drop(listener);
    let finished = async {
        while !tasks.is_empty() {
            tasks.next().await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = clock::sleep_until(Some(clock::now() + LAST)) => {}
    }
}

/// Serves one connection until the client closes it, it is idle for too long or it is closed for
/// another one. After the stop, finishes the requests that have arrived.
async fn converse(
    stream: TcpStream,
    router: Router,
    ours: AcceptedConnection,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    // Responses are small and clients wait for them. The connection also works without this option.
    let _ = stream.set_nodelay(true);
    // Detecting HTTP/1 or HTTP/2 would wait for the first bytes without a time limit.
    let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience);
    let service = hyper::service::service_fn(|mut request: hyper::Request<_>| {
        let under_way = ours.request_under_way();
        request.extensions_mut().insert(Peer(ours.peer));
        request.extensions_mut().insert(ours.connection());
        let answer = router.clone().call(request);
        async move {
            let answer = answer.await;
            drop(under_way);
            answer
        }
    });
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    // An error of one connection ends only that connection.
    tokio::select! {
        _ = &mut connection => {}
        () = ours.closed.cancelled() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// The open connections. Clients that are silent or slow cannot block others, since their
/// connections are closed for new ones.
#[derive(Debug)]
struct Connections {
    most: usize,
    open: Mutex<Open>,
    /// Notified when a request ends, since a place may then be free.
    released: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_id: HashMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    peer: IpAddr,
    /// The time since which no request is running on it; `None` while one is.
    idle_since: Option<BootInstant>,
    closed: CancellationToken,
}

impl Connections {
    fn new(most: usize) -> Self {
        Self {
            most,
            open: Mutex::default(),
            released: Notify::new(),
        }
    }

    /// Whether one more connection can be admitted.
    fn has_place(&self) -> bool {
        let open = self.lock();
        open.by_id.len() < self.most
            || open
                .by_id
                .values()
                .any(|entry: &OpenConnection| entry.idle_since.is_some())
    }

    /// Admits a connection, in place of another if all places are taken.
    fn admit(self: &Arc<Self>, peer: SocketAddr, now: BootInstant) -> AcceptedConnection {
        let mut open = self.lock();
        if open.by_id.len() >= self.most
            && let Some(id) = open.gives_way()
            && let Some(entry) = open.by_id.remove(&id)
        {
            entry.closed.cancel();
        }
        let id = open.next;
        open.next += 1;
        let closed = CancellationToken::new();
        let entry = OpenConnection {
            peer: peer.ip(),
            idle_since: Some(now),
            closed: closed.clone(),
        };
        open.by_id.insert(id, entry);
        AcceptedConnection {
            id,
            peer,
            closed,
            all: Arc::clone(self),
        }
    }

    fn set_idle(&self, id: u64, since: Option<BootInstant>) {
        // A connection that was closed for another one is no longer in the map.
        if let Some(entry) = self.lock().by_id.get_mut(&id) {
            entry.idle_since = since;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}

impl Open {
    /// Selects the connection to close for a new one: among those without an outstanding request,
    /// one of the peer with the most connections, and of these the one that has been idle longest.
    fn gives_way(&self) -> Option<u64> {
        let mut of_peer: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.by_id.values() {
            *of_peer.entry(entry.peer).or_default() += 1;
        }
        let idle = self.by_id.iter().filter_map(|(id, entry)| {
            let since = entry.idle_since?;
            let count = of_peer.get(&entry.peer).copied().unwrap_or_default();
            Some((count, Reverse(since), Reverse(*id)))
        });
        idle.max().map(|(_, _, Reverse(id))| id)
    }
}

/// An open connection. Dropping it frees its place.
struct AcceptedConnection {
    id: u64,
    peer: SocketAddr,
    /// Cancelled when the connection is closed for another one.
    closed: CancellationToken,
    all: Arc<Connections>,
}

impl AcceptedConnection {
    /// Returns the handle for the requests on it.
    fn connection(&self) -> ServedConnection {
        ServedConnection {
            id: self.id,
            closed: self.closed.clone(),
            all: Arc::clone(&self.all),
        }
    }

    /// Protects the connection from being closed for another one until the guard is dropped.
    fn request_under_way(&self) -> RequestGuard {
        self.all.set_idle(self.id, None);
        RequestGuard {
            id: self.id,
            all: Arc::clone(&self.all),
        }
    }
}

impl Drop for AcceptedConnection {
    fn drop(&mut self) {
        self.all.lock().by_id.remove(&self.id);
    }
}

/// A request that is being answered.
struct RequestGuard {
    id: u64,
    all: Arc<Connections>,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.all.set_idle(self.id, Some(clock::now()));
        self.all.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 5_000))
    }

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn finding_18_new_connection_replaces_the_longest_idle_of_the_busiest_peer() {
        let all = Arc::new(Connections::new(4));
        let kubelet = all.admit(peer(1), at(0));
        let silent: Vec<_> = (1..4)
            .map(|second| all.admit(peer(2), at(second)))
            .collect();
        assert!(all.has_place());
        let fresh = all.admit(peer(3), at(9));
        assert!(silent[0].closed.is_cancelled());
        for kept in [&kubelet, &silent[1], &silent[2], &fresh] {
            assert!(!kept.closed.is_cancelled());
        }
        // The end of one that made place frees no place a second time.
        drop(silent);
        assert_eq!(all.lock().by_id.len(), 2);
    }

    #[test]
    fn a_detached_connection_takes_no_place() {
        let all = Arc::new(Connections::new(1));
        let stream = all.admit(peer(1), at(0));
        let asked = stream.request_under_way();
        assert!(!all.has_place());
        let closed = stream.connection().detach();
        drop(asked);
        let other = all.admit(peer(1), at(1));
        assert!(!closed.is_cancelled() && !other.closed.is_cancelled());
        drop(stream);
        assert_eq!(all.lock().by_id.len(), 1);
    }

    #[test]
    fn connection_with_a_running_request_is_kept_until_it_ends() {
        let all = Arc::new(Connections::new(2));
        let first = all.admit(peer(1), at(0));
        let second = all.admit(peer(1), at(1));
        let asked = (first.request_under_way(), second.request_under_way());
        assert!(!all.has_place());
        drop(asked.1);
        assert!(all.has_place());
        let third = all.admit(peer(1), at(2));
        assert!(second.closed.is_cancelled() && !first.closed.is_cancelled());
        drop((asked.0, third));
    }
}
