//! The HTTP grant of one plugin, and the hook that `wasi:http` calls for an instance.

use super::added::AddedHeaders;
use super::client::{ResponseBody, Sender, holding};
use super::connect::Connector;
use super::connection::ConnectionLimit as Connections;
use super::failure::SendFailure;
use super::host::{HttpHost, RequestTarget, is_granted};
use super::traced;
use crate::capability::caller::Grant;
use crate::capability::refusals::{Denial, Refusals};
use crate::invocation_limit::InvocationLimit;
use crate::limits::HTTP_CHUNK;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_core::telemetry::trace::{self, ActiveSpan};
use http::{Method, Request, Response};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// The denial of a request.
const REFUSED: Denial = Denial::ungranted(
    &AllowedHosts::DESCRIPTION,
    "send HTTP requests to this host",
);

/// The hosts that one plugin may send requests to.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts {
    /// The granted hosts; by default none.
    pub hosts: Vec<HttpHost>,
    /// The maximum duration of a request, including the body of the response, if several attempts
    /// share an instance. Otherwise a request ends with its attempt.
    pub longest: Duration,
    /// The maximum number of concurrent attempts, for a plugin that makes a request for every
    /// attempt. Such a plugin has its own connections, of which it keeps this many for later
    /// requests. The service may continue a request after its attempt is stopped.
    pub attempts: Option<usize>,
    /// The headers that the host adds to every request.
    pub headers: AddedHeaders,
}

/// The grant and the connections of one plugin.
pub(crate) struct GrantedHttp {
    outgoing: AllowedHosts,
    refusals: Arc<Refusals>,
    /// `None` if no host is granted.
    sender: Option<Sender>,
    /// The plugin's name in the log.
    plugin: String,
    /// Throttles the log line that the process has no room for a connection.
    shortage: Mutex<LogThrottle>,
}

impl fmt::Debug for GrantedHttp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outgoing.fmt(out)
    }
}

impl GrantedHttp {
    /// Creates the grant. `name` is the plugin's name in the log.
    pub(crate) fn new(
        name: &str,
        outgoing: AllowedHosts,
        refusals: Arc<Refusals>,
        connections: Connections,
    ) -> Self {
        // Reading the certificates costs more than most plugins need.
        let sender = (!outgoing.hosts.is_empty()).then(|| {
            let connector = Connector::new(&outgoing.hosts, connections);
            if let Some(why) = connector.lacks_certificates()
                && outgoing.hosts.iter().any(HttpHost::may_be_https)
            {
                tracing::warn!(
                    plugin = name,
                    error = %why,
                    "no HTTPS for allow-http: this machine has no certificate authorities"
                );
            }
            Sender::new(connector, outgoing.attempts)
        });
        Self {
            sender,
            outgoing,
            refusals,
            plugin: name.to_owned(),
            shortage: Mutex::default(),
        }
    }

    /// Whether a request may continue in the service after its attempt is stopped.
    pub(crate) fn reaches_out(&self) -> bool {
        self.outgoing.attempts.is_some()
    }

    fn refuse(&self, target: &str) {
        self.refusals.refuse(&REFUSED, target);
    }

    /// Returns the maximum duration of a request if several attempts share an instance.
    pub(super) fn longest(&self) -> Duration {
        self.outgoing.longest
    }

    /// Sends a request whose target `judge` has granted, and waits for the head of its response.
    /// `attempt` is the span of the attempt, if attempts are traced.
    pub(super) async fn send(
        &self,
        target: RequestTarget,
        mut request: Request<WasiBody>,
        options: RequestOptions,
        end: BootInstant,
        attempt: Option<ActiveSpan>,
    ) -> Result<Response<ResponseBody>, SendFailure> {
        let sender = self
            .sender
            .as_ref()
            .ok_or_else(|| SendFailure::refused(Error::HttpRequestDenied))?;
        self.outgoing.headers.add(request.headers_mut()).await;
        let forwards = self.reaches_out();
        let call =
            attempt.and_then(|attempt| traced::begin(&attempt, &mut request, &target, forwards));
        let answer = sender.send(request, options, end).await;
        if let Some(call) = call {
            call.end(|| traced::answered(&answer));
        }
        answer.inspect_err(|failure| match failure {
            SendFailure::NotSent {
                code: Error::DestinationIpProhibited,
                ..
            } => self.refuse(&target.to_string()),
            SendFailure::NotSent {
                is_shortage: true,
                words,
                ..
            } => self.log_shortage(words),
            _ => {}
        })
    }

    /// Logs, at most once a minute, that the process has no room for a connection.
    fn log_shortage(&self, error: &str) {
        let mut logged = self.shortage.lock();
        if logged.should_log(clock::now()) {
            tracing::warn!(
                plugin = self.plugin,
                error,
                "connection not opened: too many open files or connections, raise LimitNOFILE or lower concurrency"
            );
        }
    }

    /// Returns the target of a request if it may be sent.
    pub(super) fn judge(&self, request: &Request<WasiBody>) -> Result<RequestTarget, Error> {
        // A tunnel could lead anywhere.
        if request.method() == Method::CONNECT {
            return Err(Error::HttpRequestMethodInvalid);
        }
        let target = RequestTarget::of(request.uri()).ok_or(Error::HttpRequestUriInvalid)?;
        if is_granted(&self.outgoing.hosts, &target) {
            Ok(target)
        } else {
            self.refuse(&target.to_string());
            Err(Error::HttpRequestDenied)
        }
    }
}

/// The hook through which one instance sends requests.
pub(crate) struct HttpHook {
    /// `None` grants no host and counts no denials.
    granted: Option<Arc<GrantedHttp>>,
    limit: InvocationLimit,
    /// The deadline of the instance's only attempt.
    pub(crate) deadline: Option<BootInstant>,
}

impl HttpHook {
    pub(crate) fn new(granted: Option<Arc<GrantedHttp>>, limit: InvocationLimit) -> Self {
        Self {
            granted,
            limit,
            deadline: None,
        }
    }
}

type SendResult = wasmtime_wasi_http::Result<(
    Response<WasiBody>,
    Box<dyn Future<Output = wasmtime_wasi_http::Result<()>> + Send>,
)>;

impl WasiHttpHooks for HttpHook {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _failed: Box<dyn Future<Output = wasmtime_wasi_http::Result<()>> + Send>,
    ) -> Box<dyn Future<Output = SendResult> + Send> {
        let Some(granted) = &self.granted else {
            return refused(Error::HttpRequestDenied);
        };
        let target = match granted.judge(&request) {
            Ok(target) => target,
            Err(error) => return refused(error),
        };
        let Ok(held) = self.limit.hold(0) else {
            return refused(Error::ConnectionLimitReached);
        };
        let granted = Arc::clone(granted);
        let attempt = trace::active();
        let end = self
            .deadline
            .unwrap_or_else(|| clock::now() + granted.outgoing.longest);
        Box::new(async move {
            let options = options.unwrap_or_default();
            let answer = granted
                .send(target, request, options, end, attempt)
                .await?
                .map(|body| holding(body, held));
            let done: Box<dyn Future<Output = _> + Send> = Box::new(std::future::ready(Ok(())));
            Ok((answer, done))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        HTTP_CHUNK
    }

    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        HTTP_CHUNK
    }
}

fn refused(error: Error) -> Box<dyn Future<Output = SendResult> + Send> {
    let answer: SendResult = Err(error);
    Box::new(std::future::ready(answer))
}
