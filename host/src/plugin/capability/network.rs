//! TCP connections that the configuration lends to a plugin: to which places, and no others. Knows
//! no version of the contract: connections are WASI's own.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::sockets::SocketAddrUse;

/// Somewhere a plugin may connect to: `HOST:PORT`, where the host is a name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// A name as the resolver takes it, or an IP address without brackets.
    host: String,
    /// Never 0.
    port: u16,
}

impl FromStr for Peer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "wanted HOST:PORT, such as feed.example.net:7000 or [::1]:7000";
        let (host, port) = text.trim().rsplit_once(':').ok_or(WANTED)?;
        let port: u16 = port.parse().map_err(|_| WANTED)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_host = match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                !host.is_empty() && host.len() <= 253 && host.chars().all(fits)
            }
        };
        if !is_host || port == 0 {
            return Err(WANTED);
        }
        let host = bare.unwrap_or(host).to_owned();
        Ok(Self { host, port })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(out, "[{}]:{}", self.host, self.port),
            false => write!(out, "{}:{}", self.host, self.port),
        }
    }
}

impl Peer {
    /// The address, unless it is a name.
    fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether this is such an address now: what a name leads to may change.
    async fn is_at(&self, address: SocketAddr) -> bool {
        if address.port() != self.port {
            return false;
        }
        match self.address() {
            Some(own) => own == address.ip().to_canonical(),
            None => {
                let found = tokio::net::lookup_host((&*self.host, self.port)).await;
                found.is_ok_and(|mut found| found.any(|own| own.ip() == address.ip()))
            }
        }
    }
}

/// Lends connections to `peers`, and lookups of names if one of them is a name: WASI has no way to
/// let a guest look up some names and not others. Nothing else of the network is lent.
pub(in crate::plugin) fn lend(context: &mut WasiCtxBuilder, peers: &[Peer]) {
    let allowed: Vec<Peer> = peers.to_vec();
    context
        .allow_udp(false)
        .allow_tcp(!peers.is_empty())
        .allow_ip_name_lookup(peers.iter().any(|peer| peer.address().is_none()))
        .socket_addr_check(move |address, used| {
            let peers = match used {
                SocketAddrUse::TcpConnect => allowed.clone(),
                _ => Vec::new(),
            };
            // A socket that connects is bound by the system first, which is asked for as well. To
            // listen is another use, which is refused.
            let by_the_system = matches!(used, SocketAddrUse::TcpBind)
                && address.ip().is_unspecified()
                && address.port() == 0;
            Box::pin(async move {
                for peer in &peers {
                    if peer.is_at(address).await {
                        return true;
                    }
                }
                by_the_system
            })
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        for text in ["feed.example.net:7000", "127.0.0.1:80", "[::1]:80"] {
            let peer: Peer = text.parse().expect(text);
            assert_eq!(peer.to_string(), text);
        }
        for text in [
            "",
            ":",
            "host",
            "host:",
            ":80",
            "host:0",
            "host:65536",
            "::1:80",
            "[::1]",
            "[x]:80",
            "http://host:80",
            "a b:80",
            "*:80",
            "host/x:80",
        ] {
            assert!(text.parse::<Peer>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn an_address_is_what_was_named_and_nothing_beside() {
        for (peer, address, is) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", true),
            ("localhost:80", "127.0.0.1:80", true),
            ("localhost:80", "127.0.0.1:81", false),
            ("localhost:80", "127.0.0.9:80", false),
        ] {
            let found: Peer = peer.parse().expect("a peer");
            let address = address.parse().expect("an address");
            assert_eq!(found.is_at(address).await, is, "{peer} {address}");
        }
    }
}
