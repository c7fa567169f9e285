//! Outgoing HTTP: the hosts to which a plugin may send requests. `host` decides, `address`
//! recognises private networks, `added` has the headers that the host adds, and `client` does the
//! I/O. Guests send requests through WASI, or whole requests through the contract.

mod added;
mod address;
mod awaited;
mod client;
mod connect;
pub(crate) mod connection;
mod contract;
mod failure;
mod granted;
mod host;
mod requests;
mod traced;
mod whole;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{CONTRACT, Description, Interface, WASI_2, WASI_3};
pub use added::AddedHeaders;
use connection::ConnectionLimit;
pub use granted::AllowedHosts;
pub(crate) use granted::{GrantedHttp, HttpHook};
pub use host::HttpHost;
use std::sync::Arc;
use wasmtime::component::Linker;

impl Grant for AllowedHosts {
    const DESCRIPTION: Description = Description {
        name: "outgoing HTTP",
        key: "allow-http",
        value: "HOST",
        value_for: Some(|target| host_of(target).to_owned()),
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
            Interface::new("dispatcher:plugin/http", &[CONTRACT]),
            Interface::new("dispatcher:plugin/http-async", &[CONTRACT]),
        ],
        suspends: &["wasi:http/outgoing-handler", "dispatcher:plugin/http@"],
        documented_as: "`wasi:http/outgoing-handler@0.2`, `wasi:http/client@0.3`, `dispatcher:plugin/http@0.1.0`",
        without_grant: "every request returns `HTTP-request-denied`, or `forbidden`",
    };

    type SharedGrant = Option<Arc<GrantedHttp>>;

    /// Links the contract's functions and the limits. WASI's own functions send through the
    /// library, which calls the instance's `HttpHook`.
    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        requests::link(linker)?;
        awaited::link(linker)?;
        contract::link(linker)
    }

    fn give(self, plugin: &Recipient<'_>) -> Self::SharedGrant {
        let refusals = Arc::clone(plugin.refusals);
        let connections = match self.attempts {
            // Includes the connections that wait for reuse, which would be closed at the limit.
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

/// Returns the host of a request's target, with its port if that is not the usual one.
fn host_of(target: &str) -> &str {
    for (scheme, port) in [("http://", ":80"), ("https://", ":443")] {
        if let Some(host) = target.strip_prefix(scheme) {
            return host.strip_suffix(port).unwrap_or(host);
        }
    }
    target
}

#[cfg(test)]
mod tests;
