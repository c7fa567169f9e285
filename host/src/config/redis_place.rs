//! What the settings say of the Redis server: its address, and what our names there begin with.
//! Connects to nothing.

use super::problem::Problem;
use super::section::Given;
use super::value;
use std::collections::BTreeSet;

/// The address without which nothing else is said.
const URL: &str = "redis://127.0.0.1:6379";
/// What every key of ours begins with, in braces.
const PREFIX: &str = "dispatcher";

/// The default of the package.
const WORQR_PREFIX: &str = "worqr";

/// The Redis server and our names there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisPlace {
    /// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`.
    pub url: String,
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
            prefix: PREFIX.to_owned(),
            worqr: BTreeSet::new(),
            worqr_prefix: WORQR_PREFIX.to_owned(),
        }
    }
}

/// Reads the address. The problem does not quote it: it may hold a password.
pub(super) fn url(given: &Given) -> Result<String, Problem> {
    let text = given.text.trim();
    let host = text.strip_prefix("redis://");
    let good = host.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace));
    match good {
        true => Ok(text.to_owned()),
        false => {
            let found = match text.starts_with("rediss://") {
                true => "TLS to Redis, which this version does not speak",
                false => "not the address of a Redis server",
            };
            let wanted = "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]";
            Err(Problem::new(&given.at, found, wanted).hint(format!("written like {URL}")))
        }
    }
}

/// Reads the prefix of npm `worqr`, which separates names by `_` and so mistakes one with it.
pub(super) fn worqr_prefix(given: &Given) -> Result<String, Problem> {
    match prefix(given) {
        Ok(text) if !text.contains('_') => Ok(text),
        _ => {
            let found = format!("`{}` is no prefix of npm worqr", given.text.trim());
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
            let found = format!("`{text}` is no prefix for keys");
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
    fn addresses_and_prefixes() {
        let at = |text: &str| Given::new("--redis-url", text);
        for text in [URL, "redis://u:p@h:1/2", "redis://[::1]:6379"] {
            assert_eq!(url(&at(text)).as_deref(), Ok(text));
        }
        for text in ["", "redis://", "http://h", "redis://a b", "127.0.0.1:6379"] {
            let problem = url(&at(text)).expect_err(text).to_string();
            assert!(problem.contains("wanted redis://"), "{problem}");
        }
        let problem = url(&at("rediss://u:secret@h"))
            .expect_err("TLS")
            .to_string();
        assert!(problem.contains("TLS") && !problem.contains("secret"));
        assert_eq!(prefix(&at("team-7")).as_deref(), Ok("team-7"));
        for text in ["", "a{b", "a:b", "a b"] {
            assert!(prefix(&at(text)).is_err(), "{text}");
        }
    }
}
