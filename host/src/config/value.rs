//! One text into one typed value, or the problem with it. Knows no layers and no sections.

use super::problem::{Problem, nearest};
use super::section::Given;
use bytesize::ByteSize;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What a bare number means to a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bare {
    /// Seconds, as the classic flags have it.
    Seconds,
    /// Nothing: a unit is needed.
    Refused,
}

/// A duration such as `30s`, `1h 30m` or `250ms` within the range, both ends included.
pub fn duration(
    given: &Given,
    bare: Bare,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, Problem> {
    let text = given.text.trim();
    let number = text.parse::<f64>().ok();
    let parsed = match (bare, number) {
        (Bare::Seconds, Some(seconds)) => Duration::try_from_secs_f64(seconds).ok(),
        _ => humantime::parse_duration(text).ok(),
    };
    let wanted = match (*range.end() == Duration::MAX, bare) {
        (true, _) => format!("a duration of at least {}", words(*range.start())),
        (false, Bare::Refused) => format!("{} to {}", words(*range.start()), words(*range.end())),
        (false, Bare::Seconds) => format!(
            "{} to {}, a bare number being seconds",
            words(*range.start()),
            words(*range.end())
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

fn words(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// A size in bytes such as `64MiB` within the range, both ends included.
pub fn size(given: &Given, range: &RangeInclusive<usize>) -> Result<usize, Problem> {
    let text = given.text.trim();
    let bytes = |size: &usize| ByteSize::b(*size as u64).to_string();
    let wanted = format!("{} to {}", bytes(range.start()), bytes(range.end()));
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

/// A whole number within the range, both ends included.
pub fn number<T>(given: &Given, range: &RangeInclusive<T>) -> Result<T, Problem>
where
    T: std::str::FromStr + PartialOrd + Display,
{
    let text = given.text.trim();
    match text.parse::<T>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let whole = text.strip_prefix('-').unwrap_or(text);
            let is_number = !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit());
            let found = match is_number {
                true => format!("`{text}` is out of range"),
                false => format!("`{text}` is not a whole number"),
            };
            let wanted = format!("{} to {}", range.start(), range.end());
            Err(Problem::new(&given.at, found, wanted))
        }
    }
}

/// One of the words.
pub fn choice<T: Copy>(given: &Given, words: &[(&str, T)]) -> Result<T, Problem> {
    let text = given.text.trim();
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let names = || words.iter().map(|(word, _)| *word);
    let wanted = names().collect::<Vec<_>>().join(" or ");
    let problem = Problem::new(&given.at, format!("`{text}` is not known"), wanted);
    Err(match nearest(text, names()) {
        Some(name) => problem.hint(format!("did you mean `{name}`?")),
        None => problem,
    })
}

/// The address of a service: a scheme and a host, and no blanks.
pub fn url(given: &Given) -> Result<String, Problem> {
    let text = given.text.trim();
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let good = host.is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_alphanumeric() || c == '[')
            && !rest.contains(char::is_whitespace)
    });
    match good {
        true => Ok(text.to_owned()),
        false => {
            let found = format!("`{text}` is not the address of a service");
            let wanted = "http:// or https:// and a host";
            Err(Problem::new(&given.at, found, wanted).hint("written like http://127.0.0.1:9324"))
        }
    }
}

/// A text with something in it, `what` being what it names.
pub fn text(given: &Given, what: &str) -> Result<String, Problem> {
    let empty = given.text.is_empty() || given.text.contains('\0');
    match empty {
        true => Err(Problem::new(&given.at, "it is empty", what)),
        false => Ok(given.text.clone()),
    }
}

/// Splits `K=V` at the first `=`; the key must be a key.
pub fn pair(given: &Given) -> Result<(String, String), Problem> {
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
mod tests {
    use super::*;

    fn given(text: &str) -> Given {
        Given::new("--x", text)
    }

    #[test]
    fn durations_have_units_unless_told() {
        let range = Duration::ZERO..=Duration::from_secs(20);
        let bare = |text| duration(&given(text), Bare::Seconds, &range);
        assert_eq!(bare("20"), Ok(Duration::from_secs(20)));
        assert_eq!(bare("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(bare("2s"), Ok(Duration::from_secs(2)));
        for bad in ["21", "-1", "inf", "nan", "1e300", "", "soon", "36h"] {
            let problem = bare(bad).expect_err(bad).to_string();
            assert!(problem.contains("wanted 0s to 20s"), "{problem}");
        }
        let strict = |text| duration(&given(text), Bare::Refused, &range);
        let problem = strict("5").expect_err("no unit").to_string();
        assert!(problem.ends_with("did you mean `5s`?"), "{problem}");
    }

    #[test]
    fn sizes_are_bytes() {
        let range = 65_536..=1 << 32;
        assert_eq!(size(&given("64MiB"), &range), Ok(64 << 20));
        assert_eq!(size(&given("65536"), &range), Ok(65_536));
        for bad in [
            "64",
            "-1",
            "",
            "lots",
            "64 parsecs",
            "99999999999999999999TB",
            "5GiB",
        ] {
            let problem = size(&given(bad), &range).expect_err(bad).to_string();
            assert!(problem.contains("wanted 64.0 KiB to 4.0 GiB"), "{problem}");
        }
    }

    #[test]
    fn numbers_choices_and_addresses() {
        assert_eq!(number(&given("10"), &(1..=10)), Ok(10));
        for bad in ["0", "11", "-1", "ten", "", "1.5", "99999999999999999999999"] {
            let problem = number(&given(bad), &(1_u32..=10))
                .expect_err(bad)
                .to_string();
            assert!(problem.contains("wanted 1 to 10"), "{problem}");
        }
        assert_eq!(choice(&given("json"), &[("text", 0), ("json", 1)]), Ok(1));
        let problem = choice(&given("jsn"), &[("text", 0), ("json", 1)]).expect_err("jsn");
        assert_eq!(problem.hint.as_deref(), Some("did you mean `json`?"));
        assert!(url(&given("http://127.0.0.1:1")).is_ok());
        for bad in [
            "",
            "localhost:1",
            "http://",
            "http:// x",
            "ftp://x",
            "http:///p",
        ] {
            assert!(url(&given(bad)).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let given = given(&text);
            let _ = duration(&given, Bare::Seconds, &(Duration::ZERO..=Duration::MAX));
            let _ = duration(&given, Bare::Refused, &(Duration::ZERO..=Duration::MAX));
            let _ = size(&given, &(0..=usize::MAX));
            let _ = number(&given, &(0_u64..=9));
            let _ = (url(&given), pair(&given));
        }
    }
}
