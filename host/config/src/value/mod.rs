//! Parses a text into a typed value or a problem. Knows no layers and no sections.

use super::problem::{Problem, nearest};
use super::section::WrittenValue;
use bytesize::ByteSize;
use dispatcher_aws::hide_userinfo;
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The meaning of a number without a unit as a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BareUnit {
    /// Seconds, as in the classic flags.
    Seconds,
    /// Not allowed: a unit is required.
    Refused,
}

/// Parses a duration such as `30s`, `1h 30m` or `250ms` within the inclusive range.
pub fn duration(
    given: &WrittenValue,
    bare: BareUnit,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, Problem> {
    let text = given.text.trim();
    let number = text.parse::<f64>().ok();
    let parsed = match (bare, number) {
        (BareUnit::Seconds, Some(seconds)) => Duration::try_from_secs_f64(seconds).ok(),
        _ => humantime::parse_duration(text).ok(),
    };
    let wanted = match (*range.end() == Duration::MAX, bare) {
        (true, _) => format!("a duration of at least {}", in_words(*range.start())),
        (false, BareUnit::Refused) => {
            format!("{} to {}", in_words(*range.start()), in_words(*range.end()))
        }
        (false, BareUnit::Seconds) => format!(
            "{} to {}; a bare number is seconds",
            in_words(*range.start()),
            in_words(*range.end())
        ),
    };
    match parsed {
        Some(parsed) if range.contains(&parsed) => Ok(parsed),
        Some(_) => Err(Problem::new(
            &given.at,
            format!("`{text}` is out of range"),
            wanted,
        )),
        None => {
            let problem = Problem::new(&given.at, format!("`{text}` is not a duration"), wanted);
            Err(match number {
                Some(number) if number > 0.0 => problem.hint(format!("did you mean `{text}s`?")),
                _ => problem.hint("written like 30s, 15m or 36h"),
            })
        }
    }
}

fn in_words(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Parses a size in bytes such as `64MiB` within the inclusive range.
pub fn size(given: &WrittenValue, range: &RangeInclusive<usize>) -> Result<usize, Problem> {
    let text = given.text.trim();
    let wanted = format!("{} to {}", in_units(*range.start()), in_units(*range.end()));
    let Ok(size) = text.parse::<ByteSize>() else {
        let found = format!("`{text}` is not a size");
        return Err(Problem::new(&given.at, found, wanted).hint("written like 64MiB"));
    };
    usize::try_from(size.as_u64())
        .ok()
        .filter(|size| range.contains(size))
        .ok_or_else(|| {
            let found = format!("`{text}` is {size}, which is out of range");
            let problem = Problem::new(&given.at, found, wanted);
            match text.parse::<u32>() {
                Ok(_) => problem.hint(format!("a bare number is bytes; did you mean `{text}MiB`?")),
                Err(_) => problem,
            }
        })
}

fn in_units(bytes: usize) -> String {
    ByteSize::b(bytes as u64).to_string()
}

/// Parses a whole number within the inclusive range.
pub fn number<T>(given: &WrittenValue, range: &RangeInclusive<T>) -> Result<T, Problem>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    let text = given.text.trim();
    match text.parse::<T>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let whole = text.strip_prefix('-').unwrap_or(text);
            let is_number = !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit());
            let found = if is_number {
                format!("`{text}` is out of range")
            } else {
                format!("`{text}` is not a whole number")
            };
            let wanted = format!("{} to {}", range.start(), range.end());
            Err(Problem::new(&given.at, found, wanted))
        }
    }
}

/// Parses one of the words.
pub fn choice<T: Copy>(given: &WrittenValue, words: &[(&str, T)]) -> Result<T, Problem> {
    let text = given.text.trim();
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let found = format!("`{text}` is not known");
    let problem = Problem::new(&given.at, found, names.join(" or "));
    Err(match nearest(text, names) {
        Some(name) => problem.hint(format!("did you mean `{name}`?")),
        None => problem,
    })
}

/// Parses the address of a service: a scheme and a host, without white space.
pub fn url(given: &WrittenValue) -> Result<String, Problem> {
    let text = given.text.trim();
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let good = host.is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_alphanumeric() || c == '[')
            && !rest.contains(char::is_whitespace)
            && !rest.contains('@')
    });
    if let Some(port) = host.and_then(port_of)
        && good
        && port.parse::<NonZeroU16>().is_err()
    {
        let found = format!("`{port}` is not a port");
        return Err(Problem::new(&given.at, found, "a port from 1 to 65535"));
    }
    if good {
        Ok(text.to_owned())
    } else {
        // AWS clients sign requests, so a user name and a password in the address have no effect.
        let shown = hide_userinfo(text);
        let found = format!("`{shown}` is not the address of a service");
        let wanted = "http:// or https:// and a host";
        Err(Problem::new(&given.at, found, wanted).hint("written like http://127.0.0.1:9324"))
    }
}

/// Returns the port in an address without its scheme.
fn port_of(rest: &str) -> Option<&str> {
    let authority = rest.split(['/', '?', '#']).next()?;
    let (_, port) = authority.rsplit_once(':')?;
    // A colon inside an IPv6 address does not precede a port.
    (!port.ends_with(']')).then_some(port)
}

/// Parses a socket address to listen on, such as `127.0.0.1:9090`.
pub fn socket(given: &WrittenValue) -> Result<SocketAddr, Problem> {
    let text = given.text.trim();
    text.parse().map_err(|_| {
        let found = format!("`{text}` is not a socket address");
        let problem = Problem::new(&given.at, found, "an IP address and a port");
        let ending = text.strip_prefix("localhost").unwrap_or(text);
        let port = ending.strip_prefix(':').unwrap_or(ending);
        match port.parse::<u16>() {
            Ok(port) => problem.hint(format!("did you mean `127.0.0.1:{port}`?")),
            Err(_) => problem.hint("written like 127.0.0.1:9090"),
        }
    })
}

/// Parses a rate such as `100/s`, `30/m` or `0.5/h` and returns it per second. The minimum is one
/// per day, so that the wait for the next message is always a valid duration.
pub fn rate(given: &WrittenValue) -> Result<f64, Problem> {
    const LEAST: f64 = 1.0 / 86_400.0;
    const MOST: f64 = 1_000_000.0;
    let text = given.text.trim();
    let parsed = text.split_once('/').and_then(|(number, unit)| {
        let seconds = match unit.trim() {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        Some(decimal(number.trim())? / seconds)
    });
    let wanted = "a number and /s, /m or /h, from one a day to 1000000/s";
    match parsed {
        Some(rate) if (LEAST..=MOST).contains(&rate) => Ok(rate),
        Some(_) => {
            let found = format!("`{text}` is out of range");
            Err(Problem::new(&given.at, found, wanted))
        }
        None => {
            let problem = Problem::new(&given.at, format!("`{text}` is not a rate"), wanted);
            Err(match decimal(text) {
                Some(_) => problem.hint(format!("did you mean `{text}/s`?")),
                None => problem.hint("written like 100/s"),
            })
        }
    }
}

/// Parses a number of digits and points only.
fn decimal(text: &str) -> Option<f64> {
    text.chars()
        .all(|c: char| c.is_ascii_digit() || c == '.')
        .then(|| text.parse::<f64>().ok())?
}

/// Parses a name that can be part of a CloudWatch namespace, with the characters allowed there.
pub fn namespace(given: &WrittenValue) -> Result<String, Problem> {
    let text = given.text.trim();
    if (1..=200).contains(&text.len())
        && text
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || ".-_/#".contains(c))
    {
        Ok(text.to_owned())
    } else {
        let found = format!("`{text}` cannot name a namespace of metrics");
        let wanted = "1 to 200 letters, digits, `.`, `-`, `_`, `/` or `#`";
        Err(Problem::new(&given.at, found, wanted))
    }
}

/// Parses `true` or `false`.
pub fn switch(given: &WrittenValue) -> Result<bool, Problem> {
    choice(given, &[("true", true), ("false", false)])
}

/// Returns a text that is not empty; `what` describes the wanted text in the problem.
pub fn text(given: &WrittenValue, what: &str) -> Result<String, Problem> {
    let empty = given.text.is_empty() || given.text.contains('\0');
    if empty {
        Err(Problem::new(&given.at, "it is empty", what))
    } else {
        Ok(given.text.clone())
    }
}

/// Splits `K=V` at the first `=`; the key must be valid.
pub fn pair(given: &WrittenValue) -> Result<(String, String), Problem> {
    match given.text.split_once('=') {
        Some((key, value)) if is_key(key) && !value.contains('\0') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => {
            let found = format!("`{}` is not a name and a value", given.text);
            Err(Problem::new(&given.at, found, "NAME=VALUE"))
        }
    }
}

/// Whether the text can name an environment variable or an attribute.
pub fn is_key(text: &str) -> bool {
    !text.is_empty() && !text.contains(['=', '\0'])
}

#[cfg(test)]
mod tests;
