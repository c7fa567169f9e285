//! Sends the requests of one plugin, and keeps connections for later ones. Runs on the runtime for
//! guests, whoever polls the guest. Decides nothing about hosts.

use super::connect::Connector;
use super::failure::failed;
use bytes::Bytes;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

/// How long a connection may take to be made where the guest says nothing.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept, and how many of them to one place.
const IDLE: Duration = Duration::from_secs(60);
const IDLE_CONNECTIONS: usize = 32;
/// Maximum bytes of an answer's head, and of its body that are read ahead.
const READ: usize = 64 << 10;
/// The connections of one plugin.
pub(super) struct Sender {
    connector: Connector,
    /// Maximum unused connections to one place.
    idle: usize,
    /// With the connections that are kept for later requests.
    client: Mutex<HttpClient>,
}

type HttpClient = Client<Connector, WasiBody>;

impl Sender {
    /// Connects by this and keeps what it connects, `idle` unused connections if that is more than
    /// usual. Connects nothing before the first request.
    pub(super) fn new(connector: Connector, idle: Option<usize>) -> Self {
        let idle = idle.unwrap_or_default().max(IDLE_CONNECTIONS);
        Self {
            client: Mutex::new(client(connector.clone(), idle)),
            idle,
            connector,
        }
    }

    /// Sends a request whose target is granted, and waits for the head of its answer. Neither that nor
    /// the body is waited for beyond `end`. Needs the guests' runtime.
    pub(super) async fn send(
        &self,
        mut request: Request<WasiBody>,
        options: RequestOptions,
        end: BootInstant,
    ) -> Result<Response<ResponseBody>, Error> {
        let client = self.client();
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
        Ok(answer.map(|incoming| ResponseBody {
            incoming,
            between: options.between_bytes_timeout,
            end,
            timers,
            late: None,
        }))
    }

    fn client(&self) -> HttpClient {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if self.connector.limit.is_used_up() {
            // What nobody uses now is in the way of what somebody needs.
            *kept = client(self.connector.clone(), self.idle);
        }
        kept.clone()
    }
}

fn client(connector: Connector, idle: usize) -> HttpClient {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(idle)
        .http1_max_buf_size(READ)
        .build(connector)
}

/// The body of an answer, as the guest reads it: no further than it reads.
pub(super) struct ResponseBody {
    incoming: Incoming,
    between: Option<Duration>,
    end: BootInstant,
    /// Whoever reads is polled outside of tokio.
    timers: Handle,
    /// When what is awaited now is too late.
    late: Option<Pin<Box<clock::Sleep>>>,
}

impl Body for ResponseBody {
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

/// The body with something that is released when it is dropped.
pub(super) fn holding<T: Send + 'static>(answer: ResponseBody, held: T) -> WasiBody {
    answer
        .map_frame(move |frame| {
            let _held = &held;
            frame
        })
        .boxed_unsync()
}
