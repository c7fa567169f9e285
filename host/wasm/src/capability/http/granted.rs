//! One plugin's grant, and the hook that `wasi:http` calls for an instance.

use super::client::{ResponseBody, Sender, holding};
use super::connect::Connector;
use super::connection::ConnectionLimit as Connections;
use super::host::{HttpHost, RequestTarget, is_granted};
use super::traced;
use crate::capability::caller::Grant;
use crate::capability::refusals::{Denial, Refusals};
use crate::invocation_limit::InvocationLimit;
use crate::limits::HTTP_CHUNK;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::trace::{self, ActiveSpan};
use http::{Method, Request, Response};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// What a refusal is called.
const REFUSED: Denial =
    Denial::ungranted(&Outgoing::DESCRIPTION, "send HTTP requests to this host");

/// The hosts that one plugin may send requests to.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    /// None unless they are named.
    pub hosts: Vec<HttpHost>,
    /// The longest that a request may take, its answer's body included, where many attempts share an
    /// instance; elsewhere it ends with its attempt.
    pub longest: Duration,
    /// For a plugin that makes a request of every attempt: maximum concurrent attempts. It may have
    /// that many connections, keeps them for the next requests, and what it asks for may continue
    /// in the service when an attempt is stopped.
    pub attempts: Option<usize>,
}

/// The grant and the connections of one plugin.
pub(crate) struct GrantedHttp {
    outgoing: Outgoing,
    refusals: Arc<Refusals>,
    /// None where no host is granted.
    sender: Option<Sender>,
}

impl fmt::Debug for GrantedHttp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outgoing.fmt(out)
    }
}

impl GrantedHttp {
    /// `name` is the plugin's in the log.
    pub(crate) fn new(
        name: &str,
        outgoing: Outgoing,
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
        }
    }

    /// Whether what an attempt asks for may continue when the attempt is stopped.
    pub(crate) fn reaches_out(&self) -> bool {
        self.outgoing.attempts.is_some()
    }

    fn refuse(&self, target: &str) {
        self.refusals.refuse(&REFUSED, target);
    }

    /// The longest that a request may take where many attempts share an instance.
    pub(super) fn longest(&self) -> Duration {
        self.outgoing.longest
    }

    /// Sends a request whose target `judge` has granted, and waits for the head of its response.
    /// `attempt`: the span that it is made for, where attempts are traced.
    pub(super) async fn send(
        &self,
        target: RequestTarget,
        mut request: Request<WasiBody>,
        options: RequestOptions,
        end: BootInstant,
        attempt: Option<ActiveSpan>,
    ) -> Result<Response<ResponseBody>, Error> {
        let sender = self.sender.as_ref().ok_or(Error::HttpRequestDenied)?;
        let forwards = self.reaches_out();
        let call =
            attempt.and_then(|attempt| traced::begin(&attempt, &mut request, &target, forwards));
        let answer = sender.send(request, options, end).await;
        if let Some(call) = call {
            call.end(|| traced::answered(&answer));
        }
        answer.inspect_err(|error| {
            if matches!(error, Error::DestinationIpProhibited) {
                self.refuse(&target.to_string());
            }
        })
    }

    /// Whether the request is one that may be sent.
    pub(super) fn judge(&self, request: &Request<WasiBody>) -> Result<RequestTarget, Error> {
        // A tunnel leads wherever its other end likes.
        if request.method() == Method::CONNECT {
            return Err(Error::HttpRequestMethodInvalid);
        }
        let target = RequestTarget::of(request.uri()).ok_or(Error::HttpRequestUriInvalid)?;
        match is_granted(&self.outgoing.hosts, &target) {
            true => Ok(target),
            false => {
                self.refuse(&target.to_string());
                Err(Error::HttpRequestDenied)
            }
        }
    }
}

/// What one instance sends with.
pub(crate) struct HttpHook {
    /// None is nowhere, and nobody counts.
    granted: Option<Arc<GrantedHttp>>,
    limit: InvocationLimit,
    /// When the one attempt of the instance ends.
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

type Sent = wasmtime_wasi_http::Result<(
    Response<WasiBody>,
    Box<dyn Future<Output = wasmtime_wasi_http::Result<()>> + Send>,
)>;

impl WasiHttpHooks for HttpHook {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _failed: Box<dyn Future<Output = wasmtime_wasi_http::Result<()>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let refused = |error| Box::new(std::future::ready(Err(error))) as Box<_>;
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
        let end = self.deadline;
        let end = end.unwrap_or_else(|| clock::now() + granted.outgoing.longest);
        Box::new(async move {
            let options = options.unwrap_or_default();
            let answer = granted.send(target, request, options, end, attempt).await?;
            let answer = answer.map(|body| holding(body, held));
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
