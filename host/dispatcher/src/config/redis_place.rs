//! The settings of the Redis server: its address and the key prefix. Connects to nothing.

use super::problem::Problem;
use super::section::Given;
use super::value;
use crate::backends;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The default address.
const URL: &str = "redis://127.0.0.1:6379";
/// The default prefix of all keys, in braces.
const PREFIX: &str = "dispatcher";

/// The default of the package.
const WORQR_PREFIX: &str = "worqr";

/// The files that a connection with TLS needs, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsPaths {
    /// The certificate authorities to trust; without it those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate that this client shows, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// The Redis server and our names there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisPlace {
    /// The address, as the backend reads it.
    pub url: String,
    /// The files of TLS, for addresses that begin with `rediss`.
    pub tls: TlsPaths,
    /// A word without `{`, `}` and `:`.
    pub prefix: String,
    /// The bare names of the queues that are npm `worqr`'s.
    pub worqr: BTreeSet<String>,
    /// What that package's keys begin with.
    pub worqr_prefix: String,
}

impl Default for RedisPlace {
    fn default() -> Self {
        Self {
            url: URL.to_owned(),
            tls: TlsPaths::default(),
            prefix: PREFIX.to_owned(),
            worqr: BTreeSet::new(),
            worqr_prefix: WORQR_PREFIX.to_owned(),
        }
    }
}

impl RedisPlace {
    /// The keys and values of the backend's section; `worqr` lists the queues of that format.
    pub(super) fn section(&self) -> BTreeMap<&'static str, Vec<String>> {
        let path = |path: &PathBuf| vec![path.to_string_lossy().into_owned()];
        let mut section = BTreeMap::from([
            ("url", vec![self.url.clone()]),
            ("prefix", vec![self.prefix.clone()]),
            ("worqr", self.worqr.iter().cloned().collect()),
            ("worqr-prefix", vec![self.worqr_prefix.clone()]),
        ]);
        section.extend(self.tls.ca.iter().map(|ca| ("ca-file", path(ca))));
        if let Some((cert, key)) = &self.tls.client {
            section.extend([("cert-file", path(cert)), ("key-file", path(key))]);
        }
        section
    }
}

/// Reads the address. The problem does not quote it: it may hold a password.
pub(super) fn url(given: &Given) -> Result<String, Problem> {
    let text = given.text.trim();
    let backend = backends::find("redis").map_err(|absent| {
        let found = format!("an address for {absent}");
        Problem::new(&given.at, found, "")
    })?;
    match backend.check_setting("url", text) {
        Ok(()) => Ok(text.to_owned()),
        Err(bad) => {
            let problem = Problem::new(&given.at, bad.found, bad.wanted);
            Err(problem.hint(format!("written like {}", bad.example)))
        }
    }
}

/// The name of a file.
pub(super) fn file(given: &Given) -> Result<PathBuf, Problem> {
    match given.text.trim() {
        "" => Err(Problem::new(&given.at, "no name", "the name of a file")),
        name => Ok(PathBuf::from(name)),
    }
}

/// Reads the prefix of npm `worqr`, which separates names by `_` and so mistakes one with it.
pub(super) fn worqr_prefix(given: &Given) -> Result<String, Problem> {
    match prefix(given) {
        Ok(text) if !text.contains('_') => Ok(text),
        _ => {
            let found = format!("`{}` is not a prefix of npm worqr", given.text.trim());
            Err(Problem::new(
                &given.at,
                found,
                "a word without `_`, `{`, `}` and `:`",
            ))
        }
    }
}

/// Reads a queue's format.
pub(super) fn is_worqr(given: &Given) -> Result<bool, Problem> {
    value::choice(given, &[("native", false), ("worqr", true)])
}

/// Reads the prefix.
pub(super) fn prefix(given: &Given) -> Result<String, Problem> {
    let text = given.text.trim();
    let strange = |c: char| "{}:".contains(c) || c.is_whitespace() || c.is_control();
    match text.is_empty() || text.contains(strange) {
        false => Ok(text.to_owned()),
        true => {
            let found = format!("`{text}` is not a prefix for keys");
            Err(Problem::new(
                &given.at,
                found,
                "a word without `{`, `}` and `:`",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_prefixes_are_parsed() {
        let at = |text: &str| Given::new("--redis-url", text);
        let good = [
            URL,
            "redis://u:p@h:1/2",
            "redis://[::1]:6379",
            "rediss://u:p@h",
            "redis://a:1,b:2",
            "redis+sentinel://a,b/main",
        ];
        for text in good {
            assert_eq!(url(&at(text)).as_deref(), Ok(text));
        }
        let bad = [
            "",
            "redis://",
            "http://h",
            "redis://a b",
            "127.0.0.1:6379",
            "rediss://u:secret@h/x",
        ];
        for text in bad {
            let problem = url(&at(text)).expect_err(text).to_string();
            assert!(problem.contains("wanted redis://"), "{problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
        assert_eq!(prefix(&at("team-7")).as_deref(), Ok("team-7"));
        for text in ["", "a{b", "a:b", "a b"] {
            assert!(prefix(&at(text)).is_err(), "{text}");
        }
    }
}
