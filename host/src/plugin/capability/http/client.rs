//! Sends the requests of one plugin: looks names up, connects to what may be connected to and nothing
//! else, keeps connections for later requests. All of it on the guests' own runtime, whoever polls the
//! guest. Decides nothing about names.

use super::failure::{NoAddress, Prohibited, failed};
use super::{HttpHost, Target, may_connect};
use crate::clock::{self, Moment};
use crate::tasks;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore};
use tower_service::Service;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

/// How long a connection may take to be made where the guest says nothing.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept, and how many of them to one place.
const IDLE: Duration = Duration::from_secs(60);
const IDLE_CONNECTIONS: usize = 32;
/// The most bytes of an answer's head, and of its body that are read ahead.
const READ: usize = 64 << 10;
/// Lookups at once: each takes a thread for as long as the system likes.
const LOOKUPS: usize = 16;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The connections of one plugin. Nothing is made before the first request.
pub(super) struct Sender {
    hosts: Arc<[HttpHost]>,
    client: OnceCell<Client<HttpsConnector<Connect>, WasiBody>>,
}

impl Sender {
    /// To these hosts and no others.
    pub(super) fn new(hosts: &[HttpHost]) -> Self {
        Self {
            hosts: hosts.into(),
            client: OnceCell::new(),
        }
    }

    /// Sends a request whose target is lent, and waits for the head of its answer. Neither that nor
    /// the body is waited for beyond `end`. Needs the guests' runtime.
    pub(super) async fn send(
        &self,
        mut request: Request<WasiBody>,
        options: RequestOptions,
        end: Moment,
    ) -> Result<Response<Answer>, Error> {
        let client = self.client().await?;
        let within = |time: Option<Duration>| match time {
            Some(time) => end.min(clock::now() + time),
            None => end,
        };
        let connected_by = within(Some(options.connect_timeout.unwrap_or(CONNECT)));
        let mut captured = capture_connection(&mut request);
        let mut answer = pin!(client.request(request));
        let early = tokio::select! {
            biased;
            answer = &mut answer => Some(answer),
            () = async { drop(captured.wait_for_connection_metadata().await) } => None,
            () = clock::sleep_until(Some(connected_by)) => return Err(Error::ConnectionTimeout),
        };
        let answer = match early {
            Some(answer) => answer,
            None => tokio::select! {
                biased;
                answer = &mut answer => answer,
                () = clock::sleep_until(Some(within(options.first_byte_timeout))) => {
                    return Err(Error::HttpResponseTimeout);
                }
            },
        };
        let answer = answer.map_err(|error| failed(&error))?;
        let timers = Handle::current();
        Ok(answer.map(|incoming| Answer {
            incoming,
            between: options.between_bytes_timeout,
            end,
            timers,
            late: None,
        }))
    }

    async fn client(&self) -> Result<&Client<HttpsConnector<Connect>, WasiBody>, Error> {
        let hosts = Arc::clone(&self.hosts);
        let made = self.client.get_or_try_init(|| async {
            // The system's certificates are read from files.
            tasks::blocking(move || client(hosts)).finished().await
        });
        made.await.map_err(|error| {
            let why = format!("the system's certificates cannot be read: {error}");
            Error::InternalError(Some(why))
        })
    }
}

fn client(hosts: Arc<[HttpHost]>) -> io::Result<Client<HttpsConnector<Connect>, WasiBody>> {
    let lookups = Arc::new(Semaphore::new(LOOKUPS));
    let connector = HttpsConnectorBuilder::new()
        .with_native_roots()?
        .https_or_http()
        .enable_http1()
        .wrap_connector(Connect { hosts, lookups });
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_max_buf_size(READ)
        .build(connector))
}

/// Makes connections to what is lent.
#[derive(Clone)]
struct Connect {
    hosts: Arc<[HttpHost]>,
    lookups: Arc<Semaphore>,
}

impl Service<Uri> for Connect {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Boxed<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { hosts, lookups } = self.clone();
        Box::pin(async move {
            let target = Target::of(&uri).ok_or(Prohibited)?;
            // The connector asks nobody about an address that is written as one.
            if let Some(address) = target.address()
                && !may_connect(&hosts, &target, address)
            {
                return Err(Prohibited.into());
            }
            let mut connector = HttpConnector::new_with_resolver(Resolve {
                hosts,
                target,
                lookups,
            });
            connector.enforce_http(false);
            connector.set_nodelay(true);
            Ok(connector.call(uri).await?)
        })
    }
}

/// Looks up the name of one connection. What it answers is what is connected to.
#[derive(Clone)]
struct Resolve {
    hosts: Arc<[HttpHost]>,
    target: Target,
    lookups: Arc<Semaphore>,
}

impl Service<Name> for Resolve {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Boxed<Result<Self::Response, BoxError>>;

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
            let ask = move || (name.as_str(), 0).to_socket_addrs();
            let found: Vec<SocketAddr> = look_up(lookups, ask).await.map_err(NoAddress)?.collect();
            let may = |address: &SocketAddr| may_connect(&hosts, &target, address.ip());
            let may: Vec<_> = found.iter().copied().filter(may).collect();
            match may.is_empty() && !found.is_empty() {
                true => Err(Prohibited.into()),
                false => Ok(may.into_iter()),
            }
        })
    }
}

/// Asks the system, when it is one's turn. The turn is not over before the system has answered, which it
/// does in its own time even where nobody waits any more.
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

/// The body of an answer, as the guest reads it: no further than it reads.
pub(super) struct Answer {
    incoming: Incoming,
    between: Option<Duration>,
    end: Moment,
    /// Whoever reads is polled outside of tokio.
    timers: Handle,
    /// When what is awaited now is too late.
    late: Option<Pin<Box<clock::Sleep>>>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(context) {
            this.late = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| failed(&error))));
        }
        let late = this.late.get_or_insert_with(|| {
            let end = match this.between {
                Some(between) => this.end.min(clock::now() + between),
                None => this.end,
            };
            Box::pin(clock::sleep_on(&this.timers, end))
        });
        ready!(late.as_mut().poll(context));
        Poll::Ready(Some(Err(Error::ConnectionReadTimeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The body with something that is given back when it is dropped.
pub(super) fn holding<T: Send + 'static>(answer: Answer, held: T) -> WasiBody {
    answer
        .map_frame(move |frame| {
            let _held = &held;
            frame
        })
        .boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lookup_that_is_given_up_keeps_its_turn_until_the_system_answers() {
        let turns = Arc::new(Semaphore::new(1));
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let ask = move || {
            let _ = begin.send(());
            let _ = answered.recv();
        };
        let lookup = tasks::spawn(look_up(Arc::clone(&turns), ask));
        begun.await.expect("it began");
        drop(lookup);
        tokio::task::yield_now().await;
        assert_eq!(turns.available_permits(), 0);
        drop(answer);
        drop(turns.acquire().await);
    }
}
