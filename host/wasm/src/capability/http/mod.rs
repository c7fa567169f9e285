//! Outgoing HTTP: which hosts a plugin may send requests to. `host` decides, `address` recognises
//! private networks, `client` does the I/O. Requests are WASI's own, or the contract's, which are
//! whole.

mod address;
mod awaited;
mod client;
mod connect;
pub(crate) mod connection;
mod failure;
mod granted;
mod host;
mod requests;
mod traced;
mod v0_2;
mod whole;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{CONTRACT_0_2, Description, Interface, WASI_2, WASI_3};
use connection::ConnectionLimit;
pub use granted::Outgoing;
pub(crate) use granted::{GrantedHttp, HttpHook};
pub use host::HttpHost;
use std::sync::Arc;
use wasmtime::component::Linker;

impl Grant for Outgoing {
    const DESCRIPTION: Description = Description {
        name: "outgoing HTTP",
        key: "allow-http",
        value: "HOST",
        requested_by: &[
            "wasi:http/outgoing-handler",
            "wasi:http/client",
            "dispatcher:plugin/http",
            "dispatcher:plugin/http-async",
        ],
        interfaces: &[
            Interface::new("wasi:http/outgoing-handler", &[WASI_2]),
            Interface::new("wasi:http/client", &[WASI_3]),
            Interface::new("wasi:http/types", &[WASI_2, WASI_3]),
            Interface::new("dispatcher:plugin/http", &[CONTRACT_0_2]),
            Interface::new("dispatcher:plugin/http-async", &[CONTRACT_0_2]),
        ],
        suspends: &["wasi:http/outgoing-handler", "dispatcher:plugin/http@"],
        documented_as: "`wasi:http/outgoing-handler@0.2`, `wasi:http/client@0.3`, `dispatcher:plugin/http@0.2.0-rc.1`",
        without_grant: "every request returns `HTTP-request-denied`, or `forbidden`",
    };

    type Granted = Option<Arc<GrantedHttp>>;

    /// To send by WASI is the library's function, which calls the instance's `HttpHook`.
    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        requests::link(linker)?;
        awaited::link(linker)?;
        v0_2::link(linker)
    }

    fn give(self, plugin: &Recipient<'_>) -> Self::Granted {
        let refusals = Arc::clone(plugin.refusals);
        let connections = match self.attempts {
            // Those that wait to be used again besides: at the limit they would be closed.
            Some(attempts) => ConnectionLimit::of_this_many(attempts.saturating_mul(2)),
            None => plugin.connections.of_plugin(),
        };
        let granted = GrantedHttp::new(plugin.name, self, refusals, connections);
        Some(Arc::new(granted))
    }

    fn for_shadow(self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests;
