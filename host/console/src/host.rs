//! Parses the host that a request names (RFC 9110, 7.2, and RFC 3986, 3.2.2). Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The maximum length of a name, in characters (RFC 1035, 2.3.4).
const LONGEST_NAME: usize = 253;

/// The host of a `Host` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamedHost {
    /// An IP address: not a name that a foreign page could have pointed here.
    Address,
    /// A name in lower case, without a trailing dot.
    Name(String),
}

impl NamedHost {
    /// Parses `HOST` or `HOST:PORT`. Returns `None` if the text contains anything else, because
    /// another parser could see another host in it.
    pub(super) fn read(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            // A zone such as `%eth0` only has a meaning on one machine, and does not parse.
            address.parse::<Ipv6Addr>().ok()?;
            return is_port(rest).then_some(Self::Address);
        }
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if !is_port(port) {
            None
        } else if host.parse::<Ipv4Addr>().is_ok() {
            Some(Self::Address)
        } else {
            is_name(&host).then_some(Self::Name(host))
        }
    }
}

/// Returns whether the text after a host is empty, or a colon and a port.
fn is_port(text: &str) -> bool {
    let Some(port) = text.strip_prefix(':') else {
        return text.is_empty();
    };
    port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

fn is_name(text: &str) -> bool {
    let mut labels = text.split('.');
    text.len() <= LONGEST_NAME
        && labels.all(|label| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_hosts_are_read_with_and_without_a_port() {
        for address in [
            "127.0.0.1",
            "127.0.0.1:9090",
            "127.0.0.1.",
            "[::1]",
            "[::1]:9090",
            "[::ffff:127.0.0.1]:1",
            "[FD00::1]",
        ] {
            assert_eq!(
                NamedHost::read(address),
                Some(NamedHost::Address),
                "{address}"
            );
        }
        for (text, name) in [
            ("localhost", "localhost"),
            ("LocalHost.:80", "localhost"),
            ("queues.example.com:65535", "queues.example.com"),
            ("a_b-c", "a_b-c"),
        ] {
            let read = NamedHost::read(text);
            assert_eq!(read, Some(NamedHost::Name(name.to_owned())), "{text}");
        }
    }

    #[test]
    fn host_with_anything_else_beside_it_is_not_read() {
        for text in [
            "",
            ".",
            ":80",
            "localhost..",
            ".localhost",
            "a..localhost",
            "localhost:",
            "localhost:x",
            "localhost:+1",
            "localhost:65536",
            "localhost:80:80",
            "localhost:80.evil.example",
            "user@localhost",
            "user:80@localhost",
            "localhost@evil.example",
            "localhost/",
            "localhost#",
            "localhost%2e",
            "local host",
            "[::1",
            "[::1]x",
            "[::1].evil.example",
            "[::1].",
            "[::1]]",
            "[::1]:80.evil.example",
            "[::1]@evil.example",
            "[::1%25eth0]",
            "[fe80::1%eth0]:1",
            "[127.0.0.1]",
            "[localhost]",
            "[]",
            "::1",
            "x[::1]",
        ] {
            assert_eq!(NamedHost::read(text), None, "{text}");
        }
    }
}
