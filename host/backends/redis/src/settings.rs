//! `[backend.redis]`: the server, and the prefixes of keys there.

use crate::server::address::{Address, WANTED};
use dispatcher_core::backend::{
    BackendConfig, BackendSetting, BadValue, SectionValues, SettingFlag, SettingForm,
};
use std::collections::BTreeSet;

/// The default address.
pub(crate) const URL: &str = "redis://127.0.0.1:6379";
/// The default prefix of all keys, in braces.
pub(crate) const PREFIX: &str = "dispatcher";
/// The default prefix of the package npm `worqr`.
pub(crate) const WORQR_PREFIX: &str = "worqr";

pub(crate) const SETTINGS: &[BackendSetting] = &[
    BackendSetting {
        key: "url",
        help: "The Redis server of queues named redis:NAME",
        value: "URL",
        default: URL,
        form: SettingForm::Text,
        flag: Some(SettingFlag::Place),
    },
    BackendSetting {
        key: "ca-file",
        help: "For rediss://, a file with the certificate authorities to trust, in PEM",
        value: "FILE",
        default: "those of the system",
        form: SettingForm::Path,
        flag: Some(SettingFlag::Place),
    },
    BackendSetting {
        key: "cert-file",
        help: "For rediss://, a file with the certificate of this client, in PEM",
        value: "FILE",
        default: "",
        form: SettingForm::Path,
        flag: Some(SettingFlag::Place),
    },
    BackendSetting {
        key: "key-file",
        help: "The file with the key of --redis-cert-file, in PEM",
        value: "FILE",
        default: "",
        form: SettingForm::Path,
        flag: Some(SettingFlag::Place),
    },
    BackendSetting {
        key: "prefix",
        help: "Prefix of all keys on Redis, in braces",
        value: "WORD",
        default: PREFIX,
        form: SettingForm::Text,
        flag: Some(SettingFlag::Place),
    },
    BackendSetting {
        key: "format",
        help: "Queues on Redis that are shared with npm worqr, by their bare names: \
               payments=worqr,default=worqr",
        value: "QUEUE=FORMAT",
        default: "",
        form: SettingForm::WordPerQueue {
            noun: "format",
            wanted: "QUEUE=native or QUEUE=worqr",
            example: "payments=worqr",
            words: &["native", "worqr"],
        },
        flag: Some(SettingFlag::Queues),
    },
    BackendSetting {
        key: "worqr-prefix",
        help: "Prefix of the keys of npm worqr",
        value: "WORD",
        default: WORQR_PREFIX,
        form: SettingForm::Text,
        flag: Some(SettingFlag::Queues),
    },
];

/// Checks whether a value can be used.
pub(crate) fn check(key: &str, value: &str) -> Result<(), BadValue> {
    match key {
        "url" => Address::parse(value).map(drop).map_err(|found| BadValue {
            found,
            wanted: WANTED,
            example: URL,
        }),
        "prefix" if !is_prefix(value) => Err(BadValue {
            found: format!("`{value}` is not a prefix for keys"),
            wanted: "a word without `{`, `}` and `:`",
            example: "",
        }),
        // The package separates names by `_`, and so misreads a prefix that contains one.
        "worqr-prefix" if !is_prefix(value) || value.contains('_') => Err(BadValue {
            found: format!("`{value}` is not a prefix of npm worqr"),
            wanted: "a word without `_`, `{`, `}` and `:`",
            example: "",
        }),
        _ => Ok(()),
    }
}

fn is_prefix(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(|c: char| "{}:".contains(c) || c.is_whitespace() || c.is_control())
}

/// Checks that a certificate and its key come together, and that files for TLS come with an address
/// with TLS.
pub(crate) fn check_tls(values: &SectionValues) -> Vec<(&'static str, BadValue)> {
    let [ca, cert, key] =
        ["ca-file", "cert-file", "key-file"].map(|name| values.contains_key(name).then_some(name));
    let mut problems = Vec::new();
    if let (Some(key), None) | (None, Some(key)) = (cert, key) {
        problems.push((
            key,
            BadValue {
                found: "a client certificate or its key alone".to_owned(),
                wanted: "both, cert-file and key-file",
                example: "",
            },
        ));
    }
    let url = values.get("url").and_then(|urls| urls.first());
    let is_plain = url.is_none_or(|url| !url.starts_with("rediss"));
    if is_plain && let Some(key) = ca.or(cert).or(key) {
        problems.push((
            key,
            BadValue {
                found: "a file for TLS, and an address without TLS".to_owned(),
                wanted: "an address that begins with rediss",
                example: "",
            },
        ));
    }
    problems
}

/// Returns the bare names of the queues of npm `worqr`.
pub(crate) fn worqr_queues(config: &BackendConfig) -> BTreeSet<String> {
    let formats = config.list("format").iter();
    let worqr = formats.filter_map(|format| format.strip_suffix("=worqr"));
    worqr.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn addresses_and_prefixes_are_checked() {
        let good = [
            URL,
            "redis://u:p@h:1/2",
            "redis://[::1]:6379",
            "rediss://u:p@h",
            "redis://a:1,b:2",
            "redis+sentinel://a,b/main",
        ];
        for text in good {
            assert_eq!(check("url", text), Ok(()));
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
            let problem = check("url", text).expect_err(text);
            assert!(problem.wanted.starts_with("redis://"), "{problem:?}");
            assert!(!problem.found.contains("secret"), "{problem:?}");
        }
        assert_eq!(check("prefix", "team-7"), Ok(()));
        for text in ["", "a{b", "a:b", "a b"] {
            assert!(check("prefix", text).is_err(), "{text}");
        }
        assert_eq!(check("prefix", "a_b"), Ok(()));
        assert!(check("worqr-prefix", "a_b").is_err());
    }

    /// The settings with a problem, where these are set.
    fn keys(set: &[(&'static str, &str)]) -> Vec<&'static str> {
        let values = set
            .iter()
            .map(|(key, value)| (*key, vec![(*value).to_owned()]));
        let problems = check_tls(&values.collect());
        problems.into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn files_of_tls_need_each_other_and_an_address_with_tls() {
        let url = ("url", "rediss://h");
        assert_eq!(keys(&[url, ("cert-file", "c"), ("key-file", "k")]), [""; 0]);
        assert_eq!(keys(&[url, ("key-file", "k")]), ["key-file"]);
        assert_eq!(keys(&[("ca-file", "a")]), ["ca-file"]);
        assert_eq!(
            keys(&[("url", "redis://h"), ("cert-file", "c")]),
            ["cert-file"; 2]
        );
    }

    #[test]
    fn queues_of_npm_worqr_are_those_of_its_format() {
        let formats = ["a=worqr", "b=native", "c=d=worqr"].map(str::to_owned);
        let config = BackendConfig {
            section: BTreeMap::from([("format", formats.to_vec())]),
            ..BackendConfig::default()
        };
        let expected = ["a", "c=d"].map(str::to_owned);
        assert_eq!(worqr_queues(&config), BTreeSet::from(expected));
    }
}
