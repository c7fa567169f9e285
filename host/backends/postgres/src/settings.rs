//! `[backend.postgres]`: the server, and how its connections are used.

use crate::server::address::{self, WANTED};
use dispatcher_core::backend::{BackendSetting, BadValue, SettingFlag, SettingForm};

/// The default address.
pub(crate) const URL: &str = "postgres://127.0.0.1:5432/postgres";
/// The default of the most connections.
pub(crate) const CONNECTIONS: usize = 8;

pub(crate) const SETTINGS: &[BackendSetting] = &[
    BackendSetting {
        key: "url",
        help: "The PostgreSQL server and database of queues named postgres:NAME, as libpq writes it",
        value: "URL",
        default: URL,
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
    address::parse(value).map(drop).map_err(|found| BadValue {
        found,
        wanted: WANTED,
        example: URL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_address_is_refused_without_its_password() {
        for good in [URL, "postgresql://u:p@h/d", "host=h port=5433 user=u"] {
            assert_eq!(check("url", good), Ok(()), "{good}");
        }
        for bad in ["", "redis://h", "postgres://u:secret@h:many/d", "host"] {
            let problem = check("url", bad).expect_err(bad);
            assert!(!problem.found.contains("secret"), "{problem:?}");
        }
    }
}
