//! Parses the address of a Redis server, a cluster or Sentinels. Pure. No error quotes the address:
//! it may contain a password.

use redis::{IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use std::fmt;

/// The forms of an address.
pub const WANTED: &str = "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// for TLS, \
                          several HOST:PORT with commas for a cluster, or \
                          redis+sentinel://HOST:PORT,…/MASTER[/DATABASE]";
/// The default port of a server, and of a Sentinel.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// A name or an IP address, without brackets.
    pub name: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(out, "[{}]:{}", self.name, self.port)
        } else {
            write!(out, "{}:{}", self.name, self.port)
        }
    }
}

impl Host {
    /// Reads `HOST:PORT`, `HOST` or `[IPV6]:PORT`. `port` is the default.
    pub fn parse(text: &str, port: u16) -> Option<Self> {
        let (name, given) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, after) = rest.split_once(']')?;
                name.parse::<std::net::Ipv6Addr>().ok()?;
                (
                    name,
                    after.strip_prefix(':').or(after.is_empty().then_some(""))?,
                )
            }
            None => text.split_once(':').unwrap_or((text, "")),
        };
        if name.is_empty()
            || name.contains(|c: char| c.is_whitespace() || c.is_control() || "@/?#[]%".contains(c))
        {
            return None;
        }
        let port = match given {
            "" => port,
            given => given.parse().ok().filter(|port| *port != 0)?,
        };
        Some(Self {
            name: name.to_owned(),
            port,
        })
    }
}

/// The Sentinels that know the address of the master.
#[derive(Clone)]
pub struct Sentinels {
    /// The name of the master.
    pub master: String,
    /// The login at the Sentinels themselves, if they need one.
    pub login: RedisConnectionInfo,
}

/// The address of a server, a cluster or Sentinels, and the login.
#[derive(Clone)]
pub struct Address {
    /// One server, some nodes of one cluster, or Sentinels; at least one.
    pub hosts: Vec<Host>,
    /// Whether connections use TLS.
    pub tls: bool,
    /// The login at a server, and the database.
    pub login: RedisConnectionInfo,
    /// The Sentinels, if the hosts are Sentinels.
    pub sentinels: Option<Sentinels>,
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Address({self})")
    }
}

/// Displays the hosts alone.
impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(sentinels) = &self.sentinels {
            write!(out, "{} by Sentinel ", sentinels.master)?;
        }
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        out.write_str(&hosts.join(","))
    }
}

impl Address {
    /// Reads an address. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or("not the address of a Redis server")?;
        let (tls, by_sentinel) = match scheme {
            "redis" => (false, false),
            "rediss" => (true, false),
            "redis+sentinel" => (false, true),
            "rediss+sentinel" => (true, true),
            _ => return Err("not the address of a Redis server".into()),
        };
        // A part of a password is never taken for a path: passwords contain `/`, `?` and `#` as
        // %2F, %3F, %23.
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let (path, query) = match after.split_once(['?', '#']) {
            Some(_) if after.contains('#') => return Err("an address with a fragment".into()),
            Some((path, query)) => (path, query),
            None => (after, ""),
        };
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (user, hosts),
            None => ("", authority),
        };
        let port = if by_sentinel { SENTINEL_PORT } else { PORT };
        let parsed: Option<Vec<Host>> =
            hosts.split(',').map(|one| Host::parse(one, port)).collect();
        let hosts = parsed.ok_or("an address without a valid host and port")?;
        let (master, database) = if by_sentinel {
            let path = path.trim_start_matches('/').trim_end_matches('/');
            let (master, database) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                return Err("an address of Sentinels without the name of the master".into());
            }
            (Some(master.to_owned()), database)
        } else {
            (None, path.trim_matches('/'))
        };
        let login = login(user, database)?;
        let sentinel_login = sentinel_login(query, by_sentinel)?;
        Ok(Self {
            hosts,
            tls,
            login,
            sentinels: master.map(|master| Sentinels {
                master,
                login: sentinel_login,
            }),
        })
    }
}

/// Returns the login. The redis crate knows how users and passwords are written.
fn login(user: &str, database: &str) -> Result<RedisConnectionInfo, String> {
    let database = match database {
        "" => 0,
        number => number
            .parse::<u32>()
            .map_err(|_| "an address whose database is not a number")?,
    };
    let at = if user.is_empty() { "" } else { "@" };
    let info = format!("redis://{user}{at}host/")
        .into_connection_info()
        .map_err(|_| "an address whose user or password is not valid")?;
    let login = info.redis_settings().clone();
    Ok(login
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(i64::from(database)))
}

fn sentinel_login(query: &str, by_sentinel: bool) -> Result<RedisConnectionInfo, String> {
    let (mut user, mut password) = ("", "");
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sentinel-user", value)) if by_sentinel => user = value,
            Some(("sentinel-password", value)) if by_sentinel => password = value,
            _ if by_sentinel => {
                return Err(
                    "an address with an option other than sentinel-user and sentinel-password"
                        .into(),
                );
            }
            _ => return Err("an address with options after a `?`".into()),
        }
    }
    match (user, password) {
        ("", "") => login("", ""),
        (user, password) => login(&format!("{user}:{password}"), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Address {
        Address::parse(text).expect(text)
    }

    fn who(login: &RedisConnectionInfo) -> (Option<&str>, Option<&str>, i64) {
        (login.username(), login.password(), login.db())
    }

    #[test]
    fn finding_10_addresses_are_parsed() {
        let plain = read("redis://127.0.0.1");
        assert_eq!(
            (plain.to_string(), plain.tls),
            ("127.0.0.1:6379".into(), false)
        );
        assert_eq!(who(&plain.login), (None, None, 0));
        let acl = read("rediss://app:p%40ss%2F@h:7/3");
        assert_eq!((acl.to_string(), acl.tls), ("h:7".into(), true));
        assert_eq!(who(&acl.login), (Some("app"), Some("p@ss/"), 3));
        let old = read("redis://:secret@[::1]:8/");
        assert_eq!(old.to_string(), "[::1]:8");
        assert_eq!(who(&old.login), (None, Some("secret"), 0));
        let cluster = read("rediss://u:p@a:1,b:2,c");
        assert_eq!(cluster.to_string(), "a:1,b:2,c:6379");
        let text = "redis+sentinel://u:p@s1,s2:5/main/2?sentinel-password=q";
        let sentinel = read(text);
        assert_eq!(sentinel.to_string(), "main by Sentinel s1:26379,s2:5");
        assert_eq!(who(&sentinel.login), (Some("u"), Some("p"), 2));
        let of = sentinel.sentinels.expect("Sentinels");
        assert_eq!(who(&of.login), (None, Some("q"), 0));
    }

    #[test]
    fn finding_10_errors_and_debug_output_hide_the_password() {
        for text in [
            "redis://u:secret@",
            "redis://u:secret@h:port",
            "redis://u:secret@h/x",
            "redis://u:secret@h#insecure",
            "redis://u:secret@h?x=1",
            "rediss://u:secret@h:0",
            "redis://u:%ffsecret@h",
            "redis+sentinel://u:secret@h",
            "redis+sentinel://h/main?sentinel-passwort=secret",
            "http://u:secret@h",
            "secret",
            "redis://u:sec/ret@h",
        ] {
            let error = Address::parse(text).expect_err(text);
            assert!(!error.contains("secret"), "{error}");
        }
        let good = read("redis://u:secret@h,i");
        assert!(!format!("{good:?} {good}").contains("secret"));
    }
}
