//! `[backend.postgres]`: the server, and how its connections are used.

use crate::server::address::{self, WANTED};
use dispatcher_core::backend::{BackendSetting, BadValue, SettingFlag, SettingForm};

/// An example of an address.
const EXAMPLE: &str = "postgres://app@db.example.com/app";
/// The default of the most connections.
pub(crate) const CONNECTIONS: usize = 8;

pub(crate) const SETTINGS: &[BackendSetting] = &[
    BackendSetting {
        key: "url",
        help: "The PostgreSQL server and database of queues named postgres:NAME, as libpq writes it",
        value: "URL",
        default: "libpq's: PGHOST and the like, or this machine",
        form: SettingForm::Text,
        flag: Some(SettingFlag::Place),
    },
    BackendSetting {
        key: "max-connections",
        help: "The most connections of this process to PostgreSQL, besides one that listens",
        value: "NUMBER",
        default: "8",
        form: SettingForm::Number(1..=1_000),
        flag: Some(SettingFlag::Place),
    },
    BackendSetting {
        key: "archive",
        help: "Queues on PostgreSQL whose messages move to the archive of pgmq once they are done, \
               by their bare names: jobs=yes",
        value: "QUEUE=yes",
        default: "they are deleted",
        form: SettingForm::WordPerQueue {
            noun: "archive",
            wanted: "QUEUE=yes or QUEUE=no",
            example: "jobs=yes",
            words: &["yes", "no"],
        },
        flag: Some(SettingFlag::Queues),
    },
];

/// Checks whether a value can be used.
pub(crate) fn check(key: &str, value: &str) -> Result<(), BadValue> {
    if key != "url" {
        return Ok(());
    }
    address::check(value).map_err(|found| BadValue {
        found,
        wanted: WANTED,
        example: EXAMPLE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_address_is_refused_without_its_password() {
        for good in [EXAMPLE, "postgresql://u:p@h/d", "host=h port=5433 user=u"] {
            assert_eq!(check("url", good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "redis://h",
            "postgres://u:secret@h:many/d",
            "host",
            "host=h sslmode=x",
            "host=h password=secret y=z",
        ] {
            let problem = check("url", bad).expect_err(bad);
            assert!(!problem.found.contains("secret"), "{problem:?}");
        }
    }
}
