//! `wasi:http`: what a handler of requests may call. Knows no queue.

use crate::plugin::limits::HTTP_CHUNK;
use http::{Request, Response};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// Sends no request: each is answered with `HTTP-request-denied`.
#[derive(Debug, Clone, Copy)]
pub(in crate::plugin) struct Refusing;

/// The shape of the engine's own.
type Sent = wasmtime_wasi_http::Result<(
    Response<WasiBody>,
    Box<dyn Future<Output = wasmtime_wasi_http::Result<()>> + Send>,
)>;

impl WasiHttpHooks for Refusing {
    fn send_request(
        &mut self,
        _request: Request<WasiBody>,
        _options: Option<RequestOptions>,
        _failed: Box<dyn Future<Output = wasmtime_wasi_http::Result<()>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        Box::new(std::future::ready(Err(Error::HttpRequestDenied)))
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        HTTP_CHUNK
    }
}
