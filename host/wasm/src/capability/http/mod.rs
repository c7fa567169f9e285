//! Outgoing HTTP: which hosts a plugin may send requests to. `host` decides, `address` recognises
//! private networks, `client` does the I/O. Knows no version of the contract: requests are WASI's
//! own.

mod address;
mod client;
mod connect;
pub(crate) mod connection;
mod failure;
mod granted;
mod host;
mod requests;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{Description, Interface, WASI_2, WASI_3};
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
        requested_by: &["wasi:http/outgoing-handler", "wasi:http/client"],
        interfaces: &[
            Interface::new("wasi:http/outgoing-handler", &[WASI_2]),
            Interface::new("wasi:http/client", &[WASI_3]),
            Interface::new("wasi:http/types", &[WASI_2, WASI_3]),
        ],
        suspends: &["wasi:http/outgoing-handler"],
        documented_as: "`wasi:http/outgoing-handler@0.2`, `wasi:http/client@0.3`",
        without_grant: "every request returns `HTTP-request-denied`",
    };

    type Granted = Option<Arc<GrantedHttp>>;

    /// To send is the library's function, which calls the instance's `HttpHook`.
    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        requests::link(linker)
    }

    fn give(self, plugin: &Recipient<'_>) -> Self::Granted {
        let refusals = Arc::clone(plugin.refusals);
        let connections = plugin.connections.of_plugin();
        let granted = GrantedHttp::new(plugin.name, self, refusals, connections);
        Some(Arc::new(granted))
    }

    fn for_shadow(self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests;
