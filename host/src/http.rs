//! How the program answers over HTTP: it listens, holds so many connections and no more, ends those
//! that do not ask, and stops in good order. Knows nothing of what is asked.

use crate::clock;
use crate::tasks::Group;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How long answers under way may take after the stop.
const LAST: Duration = Duration::from_secs(1);

/// What clients may take of us.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// So many connections at once; others wait until one is closed. They share the limit of open
    /// files with everything else.
    pub connections: usize,
    /// How long a connection may take to ask, the time between two questions included.
    pub patience: Duration,
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

/// Answers until `stop`, then for a second at most to finish what is under way.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let mut connections: Group<()> = Group::new();
    let accepted = async {
        loop {
            tokio::select! {
                connection = listener.accept(), if connections.len() < limits.connections => {
                    match connection {
                        Ok((stream, _)) => {
                            let router = router.clone();
                            connections.spawn(converse(stream, router, limits, stop.clone()));
                        }
                        // Of one connection, or of all the files that may be open: it passes.
                        Err(_) => clock::sleep_until(Some(clock::now() + LAST)).await,
                    }
                }
                () = connections.next() => {}
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
        while !connections.is_empty() {
            connections.next().await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = clock::sleep_until(Some(clock::now() + LAST)) => {}
    }
}

/// Answers what one connection asks, until it is closed or says nothing for too long; after the stop
/// what it has asked already.
async fn converse(stream: TcpStream, router: Router, limits: Limits, stop: CancellationToken) {
    // Answers are small and waited for. A connection that cannot be set so works as well.
    let _ = stream.set_nodelay(true);
    // To tell HTTP/1 from 2 it would wait for the first words without end.
    let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.patience);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    // What goes wrong with one connection ends that connection.
    tokio::select! {
        _ = &mut connection => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
