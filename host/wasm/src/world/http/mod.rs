//! Runs HTTP handlers of `wasi:http` without a socket: every message is a request. Does not depend
//! on queues.

mod answer;
mod request;

use super::typecheck::check;
use crate::guest::Guest;
use answer::ResponsePart;
use bytes::Bytes;
use dispatcher_core::clock;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{Message, Verdict};
use http::Request;
use http_body_util::Full;
use std::future::poll_fn;
use std::pin::pin;
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use wasmtime::component::{InstancePre, Resource};
use wasmtime::{Engine, Store};
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;
use wasmtime_wasi_http::p2::bindings::{Proxy, ProxyPre};
use wasmtime_wasi_http::p2::types::{HostIncomingRequest, HostResponseOutparam};
use wasmtime_wasi_http::p3::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p3::bindings::{Service, ServicePre};
use wasmtime_wasi_http::{WasiHttpView, p3};

/// The export of an HTTP handler of WASI 0.2.
pub(crate) const HANDLER: &str = "wasi:http/incoming-handler@0.2.0";
/// The export of an HTTP handler of WASI 0.3.
pub(crate) const ASYNC_HANDLER: &str = "wasi:http/handler@0.3.0";

/// A handler whose imports are resolved and whose export is found.
pub(crate) enum HandlerPre {
    Blocking(ProxyPre<Guest>),
    Async(ServicePre<Guest>),
}

/// The handler in one instance.
pub(crate) enum Handler {
    Blocking(Proxy),
    Async(Service),
}

type Params = (
    Resource<HostIncomingRequest>,
    Resource<HostResponseOutparam>,
);
type AsyncParams = (Resource<p3::Request>,);
type AsyncAnswer = (Result<Resource<p3::Response>, ErrorCode>,);

impl HandlerPre {
    /// Creates it from a component that exports `HANDLER`.
    pub(super) fn new(pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        check::<Params, ()>(&pre, HANDLER, "handle")?;
        Ok(Self::Blocking(ProxyPre::new(pre)?))
    }

    /// Creates it from a component that exports `ASYNC_HANDLER`.
    pub(super) fn new_async(pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        check::<AsyncParams, AsyncAnswer>(&pre, ASYNC_HANDLER, "handle")?;
        Ok(Self::Async(ServicePre::new(pre)?))
    }

    pub(super) fn engine(&self) -> &Engine {
        match self {
            Self::Blocking(pre) => pre.engine(),
            Self::Async(pre) => pre.engine(),
        }
    }

    pub(super) async fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<Handler> {
        Ok(match self {
            Self::Blocking(pre) => Handler::Blocking(pre.instantiate_async(store).await?),
            Self::Async(pre) => Handler::Async(pre.instantiate_async(store).await?),
        })
    }
}

impl Handler {
    /// Passes it the message as a request, and returns a verdict from what it has answered by its
    /// end. An error is a trap.
    pub(super) async fn call(
        &self,
        store: &mut Store<Guest>,
        message: &Message,
        attempt: &Attempt,
    ) -> wasmtime::Result<Verdict> {
        let queue = store.data().settings().queue_prefix.bare(&message.queue);
        let request = request::of(message, &queue, attempt);
        let heard = match self {
            Self::Blocking(handler) => call_handler(handler, store, request).await?,
            Self::Async(handler) => call_async_handler(handler, store, request).await?,
        };
        Ok(heard.verdict(clock::wall_clock_now()))
    }
}

/// Calls a handler. The call ends when the handler returns.
async fn call_handler(
    handler: &Proxy,
    store: &mut Store<Guest>,
    request: Request<Full<Bytes>>,
) -> wasmtime::Result<ResponsePart> {
    let (sender, receiver) = oneshot::channel();
    let mut http = store.data_mut().http();
    let request = http.new_incoming_request(Scheme::Http, request)?;
    let answer = http.new_response_outparam(sender)?;
    let mut heard = ResponsePart::Nothing;
    {
        // The response is read while the handler writes it; otherwise the handler would wait. If
        // the handler returns without closing its response, nothing more arrives.
        let reading = async {
            if let Ok(given) = receiver.await {
                answer::listen(given, &mut heard).await;
            }
        };
        let mut listening = pin!(unconstrained(reading));
        let mut listens = true;
        let handler = handler.wasi_http_incoming_handler();
        let mut call = pin!(handler.call_handle(&mut *store, request, answer));
        poll_fn(|context| {
            let returned = call.as_mut().poll(context);
            if listens {
                listens = listening.as_mut().poll(context).is_pending();
            }
            returned
        })
        .await?;
    }
    Ok(heard)
}

/// Calls an asynchronous handler. It returns before it has written the body of its response, so the
/// call ends when all tasks that it began have ended.
async fn call_async_handler(
    handler: &Service,
    store: &mut Store<Guest>,
    request: Request<Full<Bytes>>,
) -> wasmtime::Result<ResponsePart> {
    let hooks = store.data_mut().http().hooks;
    // It does not matter whether the handler has read the body.
    let (request, _) = p3::Request::from_http(hooks, request);
    let answered = store.run_concurrent(async |accessor| {
        let given = match handler.handle(accessor, request).await? {
            Ok(answer) => {
                let answer = accessor.with(|access| answer.into_http(access, async { Ok(()) }));
                Ok(answer?)
            }
            Err(error) => Err(error),
        };
        let mut heard = ResponsePart::Nothing;
        answer::listen(given, &mut heard).await;
        poll_fn(|context| accessor.poll_no_interesting_tasks(context)).await;
        wasmtime::Result::Ok(heard)
    });
    answered.await?
}
