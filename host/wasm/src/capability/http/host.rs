//! Which hosts a plugin may send requests to. Pure.

use super::address;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Where a plugin may send requests: `api.example.com`, `*.example.org:8443`, `10.0.0.0/8`,
/// `https://localhost:8080`. Without a port the schemes' own, 80 and 443.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHost {
    scheme: Option<Scheme>,
    host: Host,
    port: Option<u16>,
    /// Whether it may lead to private addresses though it is a name.
    anywhere: bool,
}

/// How a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    /// This name, in lower case.
    Name(String),
    /// Every name that ends with this, which begins with a dot.
    Under(String),
    /// The addresses of a network, or one alone.
    Net(IpNet),
}

/// The one name that also names its addresses: those of the loopback interface.
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

/// `host` or `host:port`; an address of IPv6 with a port is in brackets.
fn split(text: &str) -> Option<(&str, Option<u16>)> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
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
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let part = |part: &str| (1..=63).contains(&part.len()) && part.bytes().all(letter);
        // What ends in a number is an address to some resolvers, and a misspelt one to people.
        let last = name.rsplit('.').next().unwrap_or_default();
        let number = last.bytes().all(|byte| byte.is_ascii_digit());
        if name.len() > 253 || number || !name.split('.').all(part) {
            return None;
        }
        Some(match under {
            true => Self::Under(format!(".{name}")),
            false => Self::Name(name.to_owned()),
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

/// Where a request goes, before anything is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    scheme: Scheme,
    /// Lower case, without a dot at the end and without brackets.
    host: String,
    port: u16,
}

impl RequestTarget {
    /// The target of a request's address. None if it names no host, or a user before it.
    pub(crate) fn of(uri: &http::Uri) -> Option<Self> {
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            _ => return None,
        };
        let authority = uri.authority()?;
        let host = authority.host();
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host);
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
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

    /// A name or an address, without brackets.
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
        match host.contains(':') {
            true => write!(out, "{}://[{host}]:{port}", scheme.word()),
            false => write!(out, "{}://{host}:{port}", scheme.word()),
        }
    }
}

impl HttpHost {
    /// Returns the same host, whatever addresses its name leads to, private ones included: for a
    /// place that the configuration names in full and no guest chooses.
    #[must_use]
    pub fn anywhere(self) -> Self {
        Self {
            anywhere: true,
            ..self
        }
    }

    /// Whether the scheme and port are as this one wants them.
    fn suits(&self, target: &RequestTarget) -> bool {
        let port = match (self.port, self.scheme) {
            (Some(port), _) => target.port == port,
            (None, Some(scheme)) => target.port == scheme.port(),
            (None, None) => [Scheme::Http.port(), Scheme::Https.port()].contains(&target.port),
        };
        port && self.scheme.is_none_or(|scheme| scheme == target.scheme)
    }

    /// Whether it grants anything by HTTPS.
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

/// Whether a request may be sent there, as far as is known without a lookup. A name without a
/// grant is not resolved: the query alone would reveal something.
pub(crate) fn is_granted(hosts: &[HttpHost], target: &RequestTarget) -> bool {
    hosts.iter().any(|host| host.names(target))
}

/// Whether the address that the target's name led to may be connected to: the world's may, others if
/// they are named as addresses or networks too, or are those of `localhost`.
pub(crate) fn may_connect(hosts: &[HttpHost], target: &RequestTarget, address: IpAddr) -> bool {
    let address = address::plain(address);
    let is_home = target.host == LOCALHOST && address.is_loopback();
    let is_named = |host: &HttpHost| match &host.host {
        Host::Net(net) => host.suits(target) && address::is_named_by(*net, address),
        Host::Name(_) | Host::Under(_) => host.anywhere && host.names(target),
    };
    is_granted(hosts, target)
        && (address::is_public(address) || is_home || hosts.iter().any(is_named))
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
