//! `[backend.dynamodb]`: how tables are used as queues.

use crate::queue::{Completion, Options};
use dispatcher_core::backend::{BackendConfig, BackendSetting, BadValue, SettingForm};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use std::time::Duration;

const HUNDRED_YEARS: Duration = Duration::from_secs(3_155_760_000);

pub(crate) const SETTINGS: &[BackendSetting] = &[
    BackendSetting {
        key: "body-attribute",
        help: "The column that contains the body",
        value: "NAME",
        default: "all of the task's own columns, as JSON",
        form: SettingForm::Text,
        flag: None,
    },
    BackendSetting {
        key: "shards",
        help: "Number of index keys per status, 1 to 100",
        value: "N",
        default: "1",
        form: SettingForm::Number(1..=100),
        flag: None,
    },
    BackendSetting {
        key: "time-to-live",
        help: "How long a sent task may live, 1s to 100 years",
        value: "TIME",
        default: "4 days",
        form: SettingForm::Time(Duration::from_secs(1)..=HUNDRED_YEARS),
        flag: None,
    },
    BackendSetting {
        key: "idle-poll",
        help: "The longest pause between two polls of an empty table, 50ms to 20s",
        value: "TIME",
        default: "2s",
        form: SettingForm::Time(Duration::from_millis(50)..=Duration::from_secs(20)),
        flag: None,
    },
    BackendSetting {
        key: "completed",
        help: "What happens to a task that is done: it stays as SUCCESS until its ttl, or it is \
               deleted at once, which saves a write unit",
        value: "keep|delete",
        default: "keep",
        form: SettingForm::Word(&["keep", "delete"]),
        flag: None,
    },
];

/// Checks that a value can be used.
pub(crate) fn check(key: &str, value: &str) -> Result<(), BadValue> {
    let taken = ["taskId", "taskStatus", "taskCreated", "taskUpdated", "ttl"];
    let wanted = "the name of an attribute of the task that the queue does not use itself";
    if key == "body-attribute" && (taken.contains(&value) || value.starts_with("dispatcher")) {
        return Err(BadValue {
            found: format!("`{value}` is an attribute that the queue uses itself"),
            wanted,
            example: "",
        });
    }
    if key == "body-attribute" && (value.is_empty() || value.contains('\0')) {
        return Err(BadValue {
            found: "no name".to_owned(),
            wanted,
            example: "",
        });
    }
    Ok(())
}

/// Reads from the configuration whether completed tasks are kept or deleted.
pub(crate) fn completed(config: &BackendConfig) -> Completion {
    match config.get("completed") {
        Some("delete") => Completion::Delete,
        _ => Completion::Keep,
    }
}

/// Reads the options; a setting that the configuration does not have gets its default.
pub(crate) fn options(config: &BackendConfig) -> Result<Options, CallError> {
    let usual = Options::default();
    Ok(Options {
        body_attribute: config.get("body-attribute").map(str::to_owned),
        shards: match config.get("shards") {
            None => usual.shards,
            Some(text) => text.parse().map_err(|error| unreadable("shards", &error))?,
        },
        time_to_live: time(config, "time-to-live", usual.time_to_live)?,
        idle_poll: time(config, "idle-poll", usual.idle_poll)?,
        completed: completed(config),
    })
}

fn time(config: &BackendConfig, key: &str, usual: Duration) -> Result<Duration, CallError> {
    match config.get(key) {
        None => Ok(usual),
        Some(text) => humantime::parse_duration(text).map_err(|error| unreadable(key, &error)),
    }
}

fn unreadable(key: &str, error: &dyn std::fmt::Display) -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message: format!(
            "the configuration of DynamoDB has a `{key}` that cannot be read: {error}"
        ),
    }
}
