//! `wasi:http`: HTTP servers without a socket, for which every message is a request, and what they
//! may call. Knows no queue.

mod answer;
mod request;

use super::check;
use crate::clock;
use crate::message::{Message, Verdict};
use crate::plugin::Attempt;
use crate::plugin::guest::Guest;
use answer::Heard;
use std::future::poll_fn;
use std::pin::pin;
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use wasmtime::component::{InstancePre, Resource};
use wasmtime::{Engine, Store};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;
use wasmtime_wasi_http::p2::bindings::{Proxy, ProxyPre};
use wasmtime_wasi_http::p2::types::{HostIncomingRequest, HostResponseOutparam};

/// What an HTTP handler exports.
pub(in crate::plugin) const HANDLER: &str = "wasi:http/incoming-handler@0.2.0";

/// A handler whose imports are resolved and whose export is found.
pub(in crate::plugin) struct HandlerPre(ProxyPre<Guest>);

/// The handler in one instance.
pub(in crate::plugin) struct Handler(Proxy);

type Params = (
    Resource<HostIncomingRequest>,
    Resource<HostResponseOutparam>,
);

impl HandlerPre {
    /// Of a component that exports `HANDLER`.
    pub(super) fn new(pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        check::<Params, ()>(&pre, HANDLER, "handle")?;
        Ok(Self(ProxyPre::new(pre)?))
    }

    pub(super) fn engine(&self) -> &Engine {
        self.0.engine()
    }

    pub(super) async fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<Handler> {
        Ok(Handler(self.0.instantiate_async(store).await?))
    }
}

impl Handler {
    /// Hands it the message as a request, and takes what it has answered when it returns. An error
    /// is a trap.
    pub(super) async fn call(
        &self,
        store: &mut Store<Guest>,
        message: &Message,
        attempt: &Attempt,
    ) -> wasmtime::Result<Verdict> {
        let (sender, receiver) = oneshot::channel();
        let request = request::of(message, attempt);
        let mut http = store.data_mut().http();
        let request = http.new_incoming_request(Scheme::Http, request)?;
        let answer = http.new_response_outparam(sender)?;
        let mut heard = Heard::Nothing;
        {
            // What it writes is read while it writes, or it would wait. It may keep its answer open
            // and return, and then nothing more comes, so the end is its return.
            let mut listening = pin!(unconstrained(answer::listen(receiver, &mut heard)));
            let mut listens = true;
            let handler = self.0.wasi_http_incoming_handler();
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
        Ok(heard.verdict(clock::today()))
    }
}
