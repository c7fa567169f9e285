//! Sends requests of `wasi:http` 0.3 where attempts share an instance, each in the span of the
//! attempt whose task sends it. The library does the sending.

use crate::capability::caller::{Caller, task_of};
use dispatcher_core::telemetry::trace;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use wasmtime::AsContextMut;
use wasmtime::component::{Accessor, HasData, Linker, Resource};
use wasmtime_wasi::TrappableError;
use wasmtime_wasi_http::p3::bindings::http::client::{self, HostWithStore};
use wasmtime_wasi_http::p3::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p3::{Request, Response};
use wasmtime_wasi_http::{WasiHttp, WasiHttpCtxView};

pub(super) fn link<C: Caller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    client::add_to_linker::<_, AwaitedRequests<C>>(linker, C::http)
}

struct AwaitedRequests<C>(PhantomData<fn() -> C>);

impl<C: 'static> HasData for AwaitedRequests<C> {
    type Data<'a> = WasiHttpCtxView<'a>;
}

impl<C: Caller> HostWithStore<C> for AwaitedRequests<C> {
    async fn send(
        accessor: &Accessor<C, Self>,
        request: Resource<Request>,
    ) -> Result<Resource<Response>, TrappableError<ErrorCode>> {
        let mut span = accessor.with(|mut access| {
            let task = task_of(&mut access.as_context_mut());
            access.data_mut().span_of(task)
        });
        let accessor = accessor.with_getter::<WasiHttp>(C::http);
        let mut sending = pin!(WasiHttp::send(&accessor, request));
        poll_fn(|context| trace::within(&mut span, || sending.as_mut().poll(context))).await
    }
}
