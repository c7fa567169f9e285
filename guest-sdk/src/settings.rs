//! The settings that the configuration gives to this plugin: names with a text value each. A
//! component that calls this module imports `wasi:config/store`.
//!
//! ```
//! use dispatcher_guest::{Failure, Message, handler, settings, testing};
//!
//! fn handle(message: Message) -> Result<(), Failure> {
//!     let greeting = settings::get("GREETING").unwrap_or("hello".into());
//!     let times = settings::parse("TIMES")?.unwrap_or(1);
//!     println!("{}", format!("{greeting}, {} ", message.body).repeat(times));
//!     Ok(())
//! }
//!
//! handler!(handle);
//! # fn main() {
//! let granted = testing::grant().setting("TIMES", "twice");
//! let why = "the setting `TIMES`: invalid digit found in string: `twice`";
//! assert_eq!(testing::run(handle, testing::message("you")), Err(Failure::closed(why)));
//! # }
//! ```
//!
//! The configuration gives settings with `--setting NAME=VALUE`, or `setting` in a file. They are
//! the same for every attempt. To read the variables of `--env`, use [`std::env::var`].

use crate::Failure;
use std::fmt::Display;
use std::str::FromStr;

/// Returns the setting with this name, if there is one.
///
/// # Panics
/// Panics if the host cannot read the settings. Dispatcher always can.
#[must_use]
pub fn get(name: &str) -> Option<String> {
    #[cfg(target_family = "wasm")]
    return told(crate::bindings::wasi::config::store::get(name));
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::setting(name);
}

/// Returns all settings.
///
/// # Panics
/// Panics if the host cannot read the settings, like [`get`].
#[must_use]
pub fn all() -> Vec<(String, String)> {
    #[cfg(target_family = "wasm")]
    return told(crate::bindings::wasi::config::store::get_all());
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::settings();
}

/// Returns the setting with this name as a number, or as another type that can be parsed from text,
/// if there is one.
///
/// # Errors
/// Returns [`Failure::Closed`] if the setting cannot be parsed as a `T`: no message can succeed
/// until someone fixes it.
///
/// # Panics
/// Panics if the host cannot read the settings, like [`get`].
pub fn parse<T: FromStr<Err: Display>>(name: &str) -> Result<Option<T>, Failure> {
    let Some(text) = get(name) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let why = format!("the setting `{name}`: {error}: `{text}`");
            Err(Failure::closed(why))
        }
    }
}

/// Returns the setting with this name, like [`parse`], but the setting must exist.
///
/// # Errors
/// Returns [`Failure::Closed`] if the setting is missing or cannot be parsed as a `T`.
///
/// # Panics
/// Panics if the host cannot read the settings, like [`get`].
pub fn required<T: FromStr<Err: Display>>(name: &str) -> Result<T, Failure> {
    let missing = || {
        Failure::closed(format!(
            "the setting `{name}` is missing: --setting {name}=…"
        ))
    };
    parse(name)?.ok_or_else(missing)
}

#[cfg(target_family = "wasm")]
fn told<T>(answer: Result<T, crate::bindings::wasi::config::store::Error>) -> T {
    answer.unwrap_or_else(|error| panic!("the host cannot tell the settings: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn setting_is_read_as_text_or_parsed_value_or_is_missing() {
        let _granted = testing::grant().setting("N", " 7 ").setting("S", "x");
        assert_eq!(required("N"), Ok(7));
        assert_eq!(required("S"), Ok("x".to_owned()));
        assert_eq!(parse::<u8>("ABSENT"), Ok(None));
        assert!(matches!(required::<u8>("ABSENT"), Err(Failure::Closed(_))));
        assert!(matches!(parse::<u8>("S"), Err(Failure::Closed(_))));
        assert_eq!(all().len(), 2);
    }
}
