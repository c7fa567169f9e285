//! The settings of a backend: the keys of its section `[backend.NAME]`. The backend's crate
//! declares them here; from the declarations follow the parser of the file, the flags, the
//! environment variables, the help and the reference page.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// One key of the section.
#[derive(Debug, Clone)]
pub struct BackendSetting {
    /// The name of the key in the section. Elsewhere it follows the backend's name and a dash:
    /// `--redis-url`.
    pub key: &'static str,
    /// The help text: one sentence without a full stop.
    pub help: &'static str,
    /// The placeholder for a value in the help: `URL`.
    pub value: &'static str,
    /// The default, in words; empty if there is none.
    pub default: &'static str,
    /// The values that are valid, as far as can be said without knowing the backend.
    pub form: SettingForm,
    /// The commands that have a flag for it. If `None`, it can only be set in the file.
    pub flag: Option<SettingFlag>,
}

/// The form of valid values of a setting.
#[derive(Debug, Clone)]
pub enum SettingForm {
    /// A text that `Backend::check_setting` accepts.
    Text,
    /// The path of a file or folder. In the configuration file, a relative path is relative to the
    /// folder of that file.
    Path,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number.
    Number(RangeInclusive<u64>),
    /// A duration.
    Time(RangeInclusive<Duration>),
    /// One of these words for each of some queues, by their names without the backend:
    /// `QUEUE=WORD`.
    WordPerQueue {
        /// The noun for the word of a queue: `format`.
        noun: &'static str,
        /// The expected form, for error messages.
        wanted: &'static str,
        /// An example of a valid value.
        example: &'static str,
        /// The words that are valid.
        words: &'static [&'static str],
    },
}

/// The commands that have a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingFlag {
    /// All commands that connect to the backend.
    Place,
    /// The commands that take queue names.
    Queues,
}

/// The values that are set, by the keys of the section. Texts have no blanks around them. Durations
/// are in the format of `humantime`. A key of the form `WordPerQueue` has an entry `QUEUE=WORD` for
/// each queue.
pub type SectionValues = BTreeMap<&'static str, Vec<String>>;

/// A value of the configuration that cannot be used. Does not quote the value, which may be a
/// password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadValue {
    /// The description of the problem.
    pub found: String,
    /// The expected value.
    pub wanted: &'static str,
    /// An example of a valid value; empty if `wanted` says enough.
    pub example: &'static str,
}
