//! TCP connections: the addresses that a plugin may connect to. Does not depend on the contract's
//! version, since connections are WASI's own.

mod peers;
mod sockets;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{Description, Interface, WASI_2, WASI_3};
pub use peers::Peer;
pub(crate) use peers::grant;
use wasmtime::component::Linker;

impl Grant for Vec<Peer> {
    const DESCRIPTION: Description = Description {
        name: "TCP connections",
        key: "allow-connect",
        value: "IP:PORT",
        value_for: Some(str::to_owned),
        requested_by: &["wasi:sockets/tcp", "wasi:sockets/types"],
        interfaces: &[
            Interface::new("wasi:sockets/instance-network", &[WASI_2]),
            Interface::new("wasi:sockets/ip-name-lookup", &[WASI_2, WASI_3]),
            Interface::new("wasi:sockets/network", &[WASI_2]),
            Interface::new("wasi:sockets/tcp", &[WASI_2]),
            Interface::new("wasi:sockets/tcp-create-socket", &[WASI_2]),
            Interface::new("wasi:sockets/types", &[WASI_3]),
            Interface::new("wasi:sockets/udp", &[WASI_2]),
            Interface::new("wasi:sockets/udp-create-socket", &[WASI_2]),
        ],
        suspends: &[],
        documented_as: "`wasi:sockets/tcp`",
        without_grant: "no socket is made",
    };

    type SharedGrant = Self;

    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        sockets::link(linker)
    }

    fn give(self, _: &Recipient<'_>) -> Self::SharedGrant {
        self
    }

    /// Returns an address that refuses every connection if any address is granted, so that attempts
    /// to connect are noted. Without a grant a guest cannot create a socket.
    fn for_shadow(self) -> Self {
        self.first().map(|_| Peer::NOWHERE).into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
