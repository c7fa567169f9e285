//! Grants TCP connections to the addresses in the configuration. Does not depend on the contract's
//! version, since connections are WASI's own.

use crate::capability::caller::Grant;
use crate::capability::refusals::{Denial, Refusals};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::sockets::SocketAddrUse;

/// The denial of an address.
const REFUSED: Denial = Denial::ungranted(&<Vec<Peer>>::DESCRIPTION, "use this address");

/// An address that a plugin may connect to: an IP address and a port. Names are not accepted.
/// Lookups are not granted, because WASI cannot distinguish names, and a lookup, once started,
/// occupies a host thread until the system answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(SocketAddr);

impl FromStr for Peer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address: Option<SocketAddr> = text.trim().parse().ok();
        address
            .filter(|address| address.port() != 0 && !address.ip().is_unspecified())
            .map(Self)
            .ok_or("an IP address and a port, such as 192.0.2.7:7000 or [::1]:7000")
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Peer {
    /// An address that matches no connection. A plugin with only this grant can try to connect and
    /// is refused.
    pub(super) const NOWHERE: Self = Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

    fn is_at(self, address: SocketAddr) -> bool {
        self.0.port() == address.port() && self.0.ip() == address.ip().to_canonical()
    }
}

/// Grants connections to `peers` and denies all other uses of the network.
pub(crate) fn grant(context: &mut WasiCtxBuilder, refusals: &Arc<Refusals>, peers: &[Peer]) {
    let granted: Vec<Peer> = peers.to_vec();
    let refusals = Arc::clone(refusals);
    context
        .allow_ip_name_lookup(false)
        .allow_udp(false)
        .allow_tcp(!granted.is_empty())
        .socket_addr_check(move |address, used| {
            let allowed = match used {
                SocketAddrUse::TcpConnect => granted.iter().any(|peer| peer.is_at(address)),
                // The system first binds a socket that connects, and asks for this as well.
                // Listening is another use, which is refused.
                SocketAddrUse::TcpBind => {
                    !granted.is_empty() && address.ip().is_unspecified() && address.port() == 0
                }
                _ => false,
            };
            if !allowed {
                refusals.refuse(&REFUSED, &address.to_string());
            }
            Box::pin(std::future::ready(allowed))
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_an_address_and_a_port() {
        for text in ["127.0.0.1:80", "[::1]:80"] {
            let peer: Peer = text.parse().expect(text);
            assert_eq!(peer.to_string(), text);
        }
        for text in [
            "",
            "127.0.0.1",
            "127.0.0.1:0",
            "0.0.0.0:80",
            "127.0.0.1:65536",
            "::1:80",
            "localhost:80",
            "http://127.0.0.1:80",
        ] {
            assert!(text.parse::<Peer>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_granted_peer_address_matches() {
        for (peer, address, is) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", true),
            ("[::1]:80", "[::1]:80", true),
            ("[::1]:80", "127.0.0.1:80", false),
        ] {
            let found: Peer = peer.parse().expect("a peer");
            let address = address.parse().expect("an address");
            assert_eq!(found.is_at(address), is, "{peer} {address}");
        }
    }
}
