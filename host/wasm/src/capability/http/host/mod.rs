//! Decides which hosts a plugin may send requests to. Pure.

use super::address;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A host to which a plugin may send requests: `api.example.com`, `*.example.org:8443`,
/// `10.0.0.0/8`, `https://localhost:8080`. Without a port, the default ports 80 and 443 of the
/// schemes are granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHost {
    scheme: Option<Scheme>,
    host: Host,
    port: Option<u16>,
    /// Whether it may lead to private addresses even if it is a name.
    anywhere: bool,
}

/// The scheme of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    /// This name, in lower case.
    Name(String),
    /// Every name that ends with this text, which begins with a dot.
    Under(String),
    /// The addresses of a network, or a single address.
    Net(IpNet),
}

/// The only name that also grants private addresses: those of the loopback interface.
const LOCALHOST: &str = "localhost";
const WANTED: &str = "a host such as api.example.com, *.example.org, 192.0.2.7, 10.0.0.0/8 or localhost, optionally with :PORT";

impl Scheme {
    fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl FromStr for HttpHost {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(_) => return Err("http:// or https://, if a scheme is given"),
            None => (None, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split(rest).ok_or(WANTED)?;
        let host = Host::read(host).ok_or(WANTED)?;
        Ok(Self {
            scheme,
            host,
            port,
            anywhere: false,
        })
    }
}

/// Splits `host` or `host:port`. An IPv6 address with a port is in brackets.
fn split(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(rest) => Some((host, Some(port(rest)?))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Some((text, None)),
        Some((host, rest)) => Some((host, Some(port(rest)?))),
        None => Some((text, None)),
    }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

impl Host {
    fn read(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Net(address.to_canonical().into()));
        }
        if text.contains('/') {
            let net: IpNet = text.parse().ok()?;
            return Some(Self::Net(net.trunc()));
        }
        let text = text.to_ascii_lowercase();
        let (under, name) = match text.strip_prefix('*') {
            Some(rest) => (true, rest.strip_prefix('.')?),
            None => (false, text.as_str()),
        };
        // Some resolvers take a name that ends in a number for an address. It is usually a misspelt
        // address.
        let last = name.rsplit('.').next().unwrap_or_default();
        let number = last.bytes().all(|byte| byte.is_ascii_digit());
        if name.len() > 253
            || number
            || !name.split('.').all(|part: &str| {
                (1..=63).contains(&part.len())
                    && part
                        .bytes()
                        .all(|byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            })
        {
            return None;
        }
        Some(if under {
            Self::Under(format!(".{name}"))
        } else {
            Self::Name(name.to_owned())
        })
    }
}

impl fmt::Display for HttpHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(out, "{}://", scheme.word())?;
        }
        let host = match &self.host {
            Host::Name(name) => name.clone(),
            Host::Under(name) => format!("*{name}"),
            Host::Net(net) if net.prefix_len() == net.max_prefix_len() => net.addr().to_string(),
            Host::Net(net) => net.to_string(),
        };
        match self.port {
            Some(port) if host.contains(':') => write!(out, "[{host}]:{port}"),
            Some(port) => write!(out, "{host}:{port}"),
            None => out.write_str(&host),
        }
    }
}

/// The target of a request, before any lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    scheme: Scheme,
    /// Lower case, without a dot at the end and without brackets.
    host: String,
    port: u16,
}

impl RequestTarget {
    /// Returns the target of a request's URI, or `None` if the URI has another scheme, no host, or
    /// a user before the host.
    pub(crate) fn of(uri: &http::Uri) -> Option<Self> {
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            _ => return None,
        };
        let authority = uri.authority()?;
        let given = authority.host();
        let opened = given.strip_prefix('[').unwrap_or(given);
        let name = opened.strip_suffix(']').unwrap_or(opened);
        let host = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let port = match authority.port() {
            Some(port) => port.as_str().parse().ok().filter(|port| *port != 0)?,
            None => scheme.port(),
        };
        let plain = !host.is_empty() && !authority.as_str().contains('@');
        plain.then_some(Self { scheme, host, port })
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Returns the name or address, without brackets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for RequestTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port } = self;
        if host.contains(':') {
            write!(out, "{}://[{host}]:{port}", scheme.word())
        } else {
            write!(out, "{}://{host}:{port}", scheme.word())
        }
    }
}

impl HttpHost {
    /// Returns the same host, but with all addresses that its name resolves to, including private
    /// ones: for a host that the configuration names in full and no guest chooses.
    #[must_use]
    pub fn anywhere(self) -> Self {
        Self {
            anywhere: true,
            ..self
        }
    }

    /// Whether the scheme and port match this grant.
    fn suits(&self, target: &RequestTarget) -> bool {
        let port = match (self.port, self.scheme) {
            (Some(port), _) => target.port == port,
            (None, Some(scheme)) => target.port == scheme.port(),
            (None, None) => [Scheme::Http.port(), Scheme::Https.port()].contains(&target.port),
        };
        port && self.scheme.is_none_or(|scheme| scheme == target.scheme)
    }

    /// Whether it grants any HTTPS request.
    pub(crate) fn may_be_https(&self) -> bool {
        self.scheme != Some(Scheme::Http)
    }

    fn names(&self, target: &RequestTarget) -> bool {
        self.suits(target)
            && match (&self.host, target.address()) {
                (Host::Net(net), Some(address)) => address::is_named_by(*net, address),
                (Host::Name(name), None) => *name == target.host,
                (Host::Under(name), None) => target.host.ends_with(name.as_str()),
                _ => false,
            }
    }
}

/// Whether a request may be sent there, as far as can be decided without a lookup. A name without a
/// grant is not resolved, because the query alone would reveal something.
pub(crate) fn is_granted(hosts: &[HttpHost], target: &RequestTarget) -> bool {
    hosts.iter().any(|host| host.names(target))
}

/// Whether a connection to this address of the target's name is allowed. Public addresses are.
/// Other addresses must also be granted as addresses or networks, belong to a host that is granted
/// `anywhere`, or be loopback addresses of `localhost`.
pub(crate) fn may_connect(hosts: &[HttpHost], target: &RequestTarget, address: IpAddr) -> bool {
    let address = address::plain(address);
    let is_home = target.host == LOCALHOST && address.is_loopback();
    is_granted(hosts, target)
        && (address::is_public(address)
            || is_home
            || hosts.iter().any(|host: &HttpHost| match &host.host {
                Host::Net(net) => host.suits(target) && address::is_named_by(*net, address),
                Host::Name(_) | Host::Under(_) => host.anywhere && host.names(target),
            }))
}

#[cfg(test)]
mod tests;
