//! What a handler of version 0.2 may ask of the host: lines of the log, metrics, more time. Off
//! WebAssembly lines go to stderr, and metrics and time nowhere.

#[cfg(target_family = "wasm")]
use super::bindings::imports::dispatcher::plugin as wire;
use std::fmt;

/// How important a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Of interest to the author alone.
    Trace,
    /// Of interest when something is looked for.
    Debug,
    /// What happened.
    Info,
    /// What somebody may want to look at.
    Warn,
    /// What went wrong.
    Error,
}

/// Why a value was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricError {
    /// A name, label or value that cannot be, and why.
    Invalid(String),
    /// The plugin has as many names with different labels as it may have.
    TooMany,
}

impl fmt::Display for MetricError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => out.write_str(why),
            Self::TooMany => out.write_str("too many metrics"),
        }
    }
}

impl std::error::Error for MetricError {}

/// Logs a line with details, under the id of the message at hand if the instance handles one at a time.
pub fn log(level: Level, text: &str, fields: &[(&str, &str)]) {
    #[cfg(target_family = "wasm")]
    {
        let level = match level {
            Level::Trace => wire::log::Level::Trace,
            Level::Debug => wire::log::Level::Debug,
            Level::Info => wire::log::Level::Info,
            Level::Warn => wire::log::Level::Warn,
            Level::Error => wire::log::Level::Error,
        };
        let fields = fields.iter();
        wire::log::write(&wire::log::Entry {
            level,
            text: text.to_owned(),
            fields: fields
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            message_id: None,
        });
    }
    #[cfg(not(target_family = "wasm"))]
    eprintln!("{level:?}: {text} {fields:?}");
}

/// Adds to a counter of the plugin's own, shown as `plugin_NAME_total`.
///
/// # Errors
/// Why it was not added.
pub fn add(name: &str, labels: &[(&str, &str)], value: f64) -> Result<(), MetricError> {
    #[cfg(target_family = "wasm")]
    return wire::metrics::add(name, &owned(labels), value).map_err(refused);
    #[cfg(not(target_family = "wasm"))]
    return nowhere(name, labels, value);
}

/// Sets a gauge of the plugin's own, shown as `plugin_NAME`.
///
/// # Errors
/// Why it was not set.
pub fn set(name: &str, labels: &[(&str, &str)], value: f64) -> Result<(), MetricError> {
    #[cfg(target_family = "wasm")]
    return wire::metrics::set(name, &owned(labels), value).map_err(refused);
    #[cfg(not(target_family = "wasm"))]
    return nowhere(name, labels, value);
}

/// Requests that the attempt on the message of this id may take so many milliseconds from now, and
/// returns when it is stopped, in milliseconds since the Unix epoch: as requested, or as late as the
/// configuration's `max-timeout` allows. `None` for an id that is not being attempted, and off
/// WebAssembly.
#[must_use]
pub fn extend(message_id: &str, milliseconds: u64) -> Option<u64> {
    #[cfg(target_family = "wasm")]
    return wire::context::extend(message_id, milliseconds);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = (message_id, milliseconds);
        None
    }
}

#[cfg(target_family = "wasm")]
fn owned(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(target_family = "wasm")]
fn refused(error: wire::metrics::MetricError) -> MetricError {
    match error {
        wire::metrics::MetricError::Invalid(why) => MetricError::Invalid(why),
        wire::metrics::MetricError::TooMany => MetricError::TooMany,
    }
}

#[cfg(not(target_family = "wasm"))]
fn nowhere(name: &str, labels: &[(&str, &str)], value: f64) -> Result<(), MetricError> {
    let _ = (name, labels, value);
    Ok(())
}
