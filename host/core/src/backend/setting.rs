//! The settings of a backend: the keys of its section `[backend.NAME]`. The reader of the file, flags,
//! variables, help and the reference page follow from what its crate declares here.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// One key of the section.
#[derive(Debug, Clone)]
pub struct BackendSetting {
    /// Its name in the section. Elsewhere the backend's name and a dash stand before it: `--redis-url`.
    pub key: &'static str,
    /// What it does: one sentence without a full stop.
    pub help: &'static str,
    /// What a value looks like in the help: `URL`.
    pub value: &'static str,
    /// What holds without it, in words; empty if nothing does.
    pub default: &'static str,
    /// Which values are right, as far as one can say without knowing the backend.
    pub form: SettingForm,
    /// Which commands have a flag for it; without one, only the file has it.
    pub flag: Option<SettingFlag>,
}

/// Which values of a setting are right.
#[derive(Debug, Clone)]
pub enum SettingForm {
    /// What `Backend::check_setting` accepts.
    Text,
    /// The path of a file or folder. A relative one in the configuration file is relative to its
    /// folder.
    Path,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number.
    Number(RangeInclusive<u64>),
    /// A duration.
    Time(RangeInclusive<Duration>),
    /// For some queues, by their bare names, one of these words each: `QUEUE=WORD`.
    WordPerQueue {
        /// What a queue has there: `format`.
        noun: &'static str,
        /// The expected form, for problems.
        wanted: &'static str,
        /// One that is right.
        example: &'static str,
        /// The words.
        words: &'static [&'static str],
    },
}

/// Which commands have a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingFlag {
    /// All that reach the backend.
    Place,
    /// Those that name queues.
    Queues,
}

/// What is set, by the keys of the section: texts without blanks around them. A time is as
/// `humantime` writes it, and a key for single queues has an entry `QUEUE=WORD` for each.
pub type SectionValues = BTreeMap<&'static str, Vec<String>>;

/// Why a value of the configuration cannot be used. Does not quote it: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadValue {
    /// What is wrong.
    pub found: String,
    /// What would be right.
    pub wanted: &'static str,
    /// An example of one that is right; empty if `wanted` says enough.
    pub example: &'static str,
}
