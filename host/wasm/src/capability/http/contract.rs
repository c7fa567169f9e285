//! HTTP by the contract, sync and async: its bindings, and the conversion to whole
//! requests and back.

use super::whole::{HttpCaller, RequestError, WholeRequest, WholeResponse, sending};
use crate::capability::caller::{View, ViewOf, begin_call, view};
use bindings::dispatcher::plugin::http_types::{HttpError, Request, Response};
use bindings::dispatcher::plugin::{http, http_async, http_types};
use std::time::Duration;
use wasmtime::component::{Accessor, Linker};

mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package dispatcher:host;
            world clients {
                import dispatcher:plugin/http@0.1.0;
                import dispatcher:plugin/http-async@0.1.0;
            }
        ",
        world: "dispatcher:host/clients",
        imports: { default: async | tracing | verbose_tracing },
    });
}

/// Adds the sync and async interfaces to a linker. Each call checks the grant of its guest.
pub(super) fn link<C: HttpCaller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    http::add_to_linker::<_, ViewOf<C>>(linker, view)?;
    http_async::add_to_linker::<_, ViewOf<C>>(linker, view)
}

impl<C: HttpCaller> http_types::Host for View<'_, C> {}

impl<C: HttpCaller> http::Host for View<'_, C> {
    /// Suspends the guest's stack and thus the whole instance.
    async fn send(&mut self, request: Request) -> Result<Response, HttpError> {
        sending(self.0, whole(request))
            .await
            .map(response)
            .map_err(error)
    }
}

impl<C: HttpCaller> http_async::Host for View<'_, C> {}

impl<T, C: HttpCaller> http_async::HostWithStore<T> for ViewOf<C> {
    /// Runs concurrently with the rest of the instance.
    async fn send(accessor: &Accessor<T, Self>, request: Request) -> Result<Response, HttpError> {
        let request = whole(request);
        let sending = begin_call(accessor, |caller, _| sending(caller, request));
        sending.await.map(response).map_err(error)
    }
}

fn whole(request: Request) -> WholeRequest {
    WholeRequest {
        method: request.method,
        url: request.url,
        headers: request.headers,
        body: request.body,
        timeout: request.timeout.map(Duration::from_millis),
        max_body: request.max_body,
        truncate: request.truncate,
    }
}

fn response(response: WholeResponse) -> Response {
    Response {
        status: response.status,
        headers: response.headers,
        body: response.body,
    }
}

fn error(why: RequestError) -> HttpError {
    match why {
        RequestError::Forbidden(why) => HttpError::Forbidden(why),
        RequestError::Invalid(why) => HttpError::Invalid(why),
        RequestError::Busy(why) => HttpError::Busy(why),
        RequestError::Unreachable(why) => HttpError::Unreachable(why),
        RequestError::TimedOut(why) => HttpError::TimedOut(why),
        RequestError::Interrupted(why) => HttpError::Interrupted(why),
        RequestError::TooLarge(most) => HttpError::TooLarge(most),
    }
}
