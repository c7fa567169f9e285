//! Sends the requests of one plugin, and keeps connections for later ones. Runs on the runtime for
//! guests, regardless of who polls the guest. Does not decide which hosts are allowed.

use super::connect::Connector;
use super::failure::{SendFailure, not_connected, on_connection};
use bytes::Bytes;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

/// The connect timeout if the guest sets none.
const CONNECT: Duration = Duration::from_secs(10);
/// The time for which an unused connection is kept, and the number of them per host.
const IDLE: Duration = Duration::from_secs(60);
const IDLE_CONNECTIONS: usize = 32;
/// The maximum size of a response's head, and of the part of the body that is read ahead, in bytes.
const READ: usize = 64 << 10;
/// The connections of one plugin.
pub(super) struct Sender {
    connector: Connector,
    /// The maximum number of unused connections per host.
    idle: usize,
    /// The client, with the connections that are kept for later requests.
    client: Mutex<HttpClient>,
}

type HttpClient = Client<Connector, WasiBody>;

impl Sender {
    /// Creates a sender that connects through `connector`. It keeps `idle` unused connections per
    /// host, and at least `IDLE_CONNECTIONS`. It connects only for the first request.
    pub(super) fn new(connector: Connector, idle: Option<usize>) -> Self {
        let idle = idle.unwrap_or_default().max(IDLE_CONNECTIONS);
        Self {
            client: Mutex::new(client(connector.clone(), idle)),
            idle,
            connector,
        }
    }

    /// Sends a request whose target is granted, and waits for the head of the response. Waits for
    /// the head and the body until `end` at most. Requires the guests' runtime.
    pub(super) async fn send(
        &self,
        mut request: Request<WasiBody>,
        options: RequestOptions,
        end: BootInstant,
    ) -> Result<Response<ResponseBody>, SendFailure> {
        let client = self.client();
        let connected_by = end.min(clock::now() + options.connect_timeout.unwrap_or(CONNECT));
        let mut captured = capture_connection(&mut request);
        let mut answer = pin!(client.request(request));
        let early = tokio::select! {
            biased;
            answer = &mut answer => Some(answer),
            () = async { drop(captured.wait_for_connection_metadata().await) } => None,
            () = clock::sleep_until(Some(connected_by)) => {
                return Err(SendFailure::refused(Error::ConnectionTimeout));
            }
        };
        let answered = match early {
            Some(answer) => answer,
            None => {
                let answered_by = options
                    .first_byte_timeout
                    .map_or(end, |time| end.min(clock::now() + time));
                tokio::select! {
                    biased;
                    answer = &mut answer => answer,
                    () = clock::sleep_until(Some(answered_by)) => {
                        return Err(SendFailure::MayBeSent(Error::HttpResponseTimeout));
                    }
                }
            }
        };
        let response = answered.map_err(|error| {
            let is_connected = captured.connection_metadata().is_some();
            failure(&error, is_connected)
        })?;
        let timers = Handle::current();
        Ok(response.map(|incoming| ResponseBody {
            incoming,
            between: options.between_bytes_timeout,
            end,
            timers,
            late: None,
        }))
    }

    fn client(&self) -> HttpClient {
        let mut kept = self.client.lock();
        if self.connector.limit.is_used_up() {
            // Close unused connections, which occupy places that new ones need.
            *kept = client(self.connector.clone(), self.idle);
        }
        kept.clone()
    }
}

/// Classifies an error of the client. `is_connected`: the request was given a connection.
fn failure(error: &legacy::Error, is_connected: bool) -> SendFailure {
    // The connection returned the request before it began to write it. The library marks this kind
    // only in its text.
    let was_returned = error.to_string() == "client error (Canceled)";
    if error.is_connect() || !is_connected || was_returned {
        not_connected(error)
    } else {
        SendFailure::MayBeSent(on_connection(error))
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

/// The body of a response. It is read only as far as the guest reads it.
pub(super) struct ResponseBody {
    incoming: Incoming,
    between: Option<Duration>,
    end: BootInstant,
    /// The guest is polled outside of tokio.
    timers: Handle,
    /// The timeout of the data that is awaited now.
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
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| on_connection(&error))));
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

/// Attaches a value to the body, which is dropped together with it.
pub(super) fn holding<T: Send + 'static>(answer: ResponseBody, held: T) -> WasiBody {
    answer
        .map_frame(move |frame| {
            let _held = &held;
            frame
        })
        .boxed_unsync()
}
