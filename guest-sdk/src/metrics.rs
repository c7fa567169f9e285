//! Counters and gauges of the plugin, on the dispatcher's metrics page. In native builds the values
//! are dropped.
//!
//! ```
//! use dispatcher_guest::{Failure, Message, handler, metrics};
//!
//! fn price(message: Message) -> Result<(), Failure> {
//!     metrics::add("orders", &[("queue", &message.queue)], 1.0)?;
//!     Ok(())
//! }
//!
//! handler!(price);
//! # fn main() {}
//! ```

#[cfg(target_family = "wasm")]
use crate::bindings::imports::dispatcher::plugin::metrics as wire;
use std::fmt;

/// The reason why a value was not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricError {
    /// The name, a label or the value is not valid. The text says why.
    Invalid(String),
    /// The plugin already has the maximum number of names with different labels.
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

/// Adds to a counter of the plugin. The metrics page shows it as `plugin_NAME_total`.
///
/// # Errors
/// Returns [`MetricError::Invalid`] if the name, a label or the value is not valid, and
/// [`MetricError::TooMany`] if the plugin has too many metrics.
pub fn add(name: &str, labels: &[(&str, &str)], value: f64) -> Result<(), MetricError> {
    #[cfg(target_family = "wasm")]
    return wire::add(name, &owned(labels), value).map_err(refused);
    #[cfg(not(target_family = "wasm"))]
    return nowhere(name, labels, value);
}

/// Sets a gauge of the plugin. The metrics page shows it as `plugin_NAME`.
///
/// # Errors
/// Returns [`MetricError::Invalid`] if the name, a label or the value is not valid, and
/// [`MetricError::TooMany`] if the plugin has too many metrics.
pub fn set(name: &str, labels: &[(&str, &str)], value: f64) -> Result<(), MetricError> {
    #[cfg(target_family = "wasm")]
    return wire::set(name, &owned(labels), value).map_err(refused);
    #[cfg(not(target_family = "wasm"))]
    return nowhere(name, labels, value);
}

#[cfg(target_family = "wasm")]
fn owned(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(target_family = "wasm")]
fn refused(error: wire::MetricError) -> MetricError {
    match error {
        wire::MetricError::Invalid(why) => MetricError::Invalid(why),
        wire::MetricError::TooMany => MetricError::TooMany,
    }
}

#[cfg(not(target_family = "wasm"))]
fn nowhere(name: &str, labels: &[(&str, &str)], value: f64) -> Result<(), MetricError> {
    let _ = (name, labels, value);
    Ok(())
}
