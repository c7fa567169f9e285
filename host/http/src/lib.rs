//! Serves HTTP: listens, bounds its connections, closes idle ones, and stops in good order. Knows
//! nothing of the requests.

mod pieces;
mod stream;

use axum::Router;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks::Group;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
pub use pieces::PieceBody;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
pub use stream::{StreamBody, StreamWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

/// How long answers under way may take after the stop.
const LAST: Duration = Duration::from_secs(1);

/// What clients may take of us.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// This many connections at once. When they are all open, a new one takes the place of one on
    /// which no request is running; while there is none, it waits. They share the limit of open
    /// files with everything else.
    pub connections: usize,
    /// How long a connection may take to ask, the time between two questions included.
    pub patience: Duration,
}

/// The other end of the connection: in the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The connection of a request: in its extensions.
#[derive(Clone)]
pub struct ServedConnection {
    id: u64,
    closed: CancellationToken,
    all: Arc<Connections>,
}

impl ServedConnection {
    /// The answer goes on for long: from now on the connection takes no place among the others, and
    /// makes place for none. Whoever bounds how many there are ends it with the token.
    pub fn detach(&self) -> CancellationToken {
        self.all.lock().by_id.remove(&self.id);
        self.all.released.notify_one();
        self.closed.clone()
    }
}

/// Listens on `address`, and says where: port 0 is any that is free.
///
/// # Errors
/// One line that names the address, if it cannot be had.
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

/// The same, or any port of the address where its port cannot be had.
///
/// # Errors
/// One line that names the address, if none can be had.
pub async fn listen_or_any_port(address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    match listen(address).await {
        Ok(listening) => Ok(listening),
        Err(_) => listen(SocketAddr::new(address.ip(), 0)).await,
    }
}

/// Answers until `stop`, then for a second at most to finish what is running.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let open = Arc::new(Connections::new(limits.connections));
    let mut tasks: Group<()> = Group::new();
    let accepted = async {
        loop {
            tokio::select! {
                connection = listener.accept(), if open.has_place() => {
                    match connection {
                        Ok((stream, peer)) => {
                            let ours = open.admit(peer, clock::now());
                            tasks.spawn(converse(stream, router.clone(), ours, limits, stop.clone()));
                        }
                        // Of one connection, or of all the files that may be open: it passes.
                        Err(_) => clock::sleep_until(Some(clock::now() + LAST)).await,
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
    // Nobody new is let in by a socket that nobody reads.
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

/// Answers what one connection asks, until it is closed, says nothing for too long or must make
/// place for another; after the stop what it has asked already.
async fn converse(
    stream: TcpStream,
    router: Router,
    ours: AcceptedConnection,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    // Answers are small and waited for. A connection that cannot be set so works as well.
    let _ = stream.set_nodelay(true);
    // To tell HTTP/1 from 2 it would wait for the first words without end.
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
    // What goes wrong with one connection ends that connection.
    tokio::select! {
        _ = &mut connection => {}
        () = ours.closed.cancelled() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// The open connections. Clients that are silent, or slow to ask, can fill it and keep nobody out:
/// their connections make place for new ones.
#[derive(Debug)]
struct Connections {
    most: usize,
    open: Mutex<Open>,
    /// A request has ended, so that there may be a place.
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
    /// Since when no request is running on it; `None` while one is.
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

    /// Whether one more can be admitted.
    fn has_place(&self) -> bool {
        let open = self.lock();
        let idle = |entry: &OpenConnection| entry.idle_since.is_some();
        open.by_id.len() < self.most || open.by_id.values().any(idle)
    }

    /// Admits a connection, in the place of another if all are taken.
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
        // One that made place is no longer there.
        if let Some(entry) = self.lock().by_id.get_mut(&id) {
            entry.idle_since = since;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The connection that makes place for a new one: of those without an outstanding request, one of
    /// the peer that has the most connections, and of these the one that is idle for the longest.
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

/// One open connection; its drop frees its place.
struct AcceptedConnection {
    id: u64,
    peer: SocketAddr,
    /// Set when it makes place for another.
    closed: CancellationToken,
    all: Arc<Connections>,
}

impl AcceptedConnection {
    /// As the requests on it see it.
    fn connection(&self) -> ServedConnection {
        ServedConnection {
            id: self.id,
            closed: self.closed.clone(),
            all: Arc::clone(&self.all),
        }
    }

    /// Keeps the connection until this is dropped.
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
