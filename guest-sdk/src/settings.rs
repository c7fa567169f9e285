//! The settings that the configuration gives to this plugin: names with a text each. Calling anything
//! here makes the component import `wasi:config/store`; knows nothing of messages.
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
//! They are given by `--setting NAME=VALUE`, or `setting` in a file, and are the same for every
//! attempt. What is in `--env` is read by [`std::env::var`].

use crate::Failure;
use std::fmt::Display;
use std::str::FromStr;

/// The setting of this name, if there is one.
///
/// # Panics
/// Where the host cannot tell, which the one of this repository always can.
#[must_use]
pub fn get(name: &str) -> Option<String> {
    #[cfg(target_family = "wasm")]
    return told(crate::bindings::wasi::config::store::get(name));
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::setting(name);
}

/// All of them.
///
/// # Panics
/// As [`get`] does.
#[must_use]
pub fn all() -> Vec<(String, String)> {
    #[cfg(target_family = "wasm")]
    return told(crate::bindings::wasi::config::store::get_all());
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::settings();
}

/// The setting of this name as a number, or whatever else can be read from text; if there is one.
///
/// # Errors
/// [`Failure::Closed`], where there is one and it is no such thing: no message will fare better until
/// somebody mends it.
///
/// # Panics
/// As [`get`] does.
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

/// The same for one that there must be.
///
/// # Errors
/// [`Failure::Closed`], where it is not there either.
///
/// # Panics
/// As [`get`] does.
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
