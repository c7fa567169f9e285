//! Writes lines with a level and fields to the dispatcher's log. Output to stdout and stderr is
//! logged too, line by line.
//!
//! ```
//! use dispatcher_guest::log::{Level, log};
//! use dispatcher_guest::{Message, handler};
//!
//! fn price(message: Message) {
//!     log(Level::Info, "priced", &[("order", &message.body)]);
//! }
//!
//! handler!(price);
//! # fn main() {}
//! ```

#[cfg(target_family = "wasm")]
use crate::bindings::imports::dispatcher::plugin::log as wire;

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Details for the handler's author.
    Trace,
    /// Details that help to find a problem.
    Debug,
    /// Normal events.
    Info,
    /// Events that an operator may want to look into.
    Warn,
    /// Errors.
    Error,
}

/// Logs a line with fields. If the instance handles one message at a time, the line has the ID of
/// the current message. In native builds the line goes to stderr.
pub fn log(level: Level, text: &str, fields: &[(&str, &str)]) {
    #[cfg(target_family = "wasm")]
    {
        let level = match level {
            Level::Trace => wire::Level::Trace,
            Level::Debug => wire::Level::Debug,
            Level::Info => wire::Level::Info,
            Level::Warn => wire::Level::Warn,
            Level::Error => wire::Level::Error,
        };
        let fields = fields.iter();
        wire::write(&wire::Entry {
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
