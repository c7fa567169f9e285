//! The lines for the log: which function, which messages, and why. Pure text; prints nothing.

use crate::members::{self, Members};
use crate::split::Slip;

/// How many ids are named.
const NAMED: usize = 3;
/// The most characters of an error's message, and of a line of the function's log.
const LONGEST: usize = 500;

/// A function that failed: one line, and below it the end of the function's log, indented.
pub fn function_error(
    function: &str,
    version: Option<&str>,
    payload: &[u8],
    log_tail: Option<&str>,
    slips: &[Slip],
) -> String {
    let details: Members<'_> = serde_json::from_slice(payload).unwrap_or_default();
    let detail = |name: &str| members::text(&details, name).map(|text| line(&text));
    let kind = detail("errorType").unwrap_or_else(|| "an error without a type".into());
    let message = detail("errorMessage").unwrap_or_else(|| "no message".into());
    let mut text = format!(
        "{} failed on {}: {kind}: {message}",
        versioned(function, version),
        messages(slips)
    );
    for logged in log_tail.unwrap_or_default().lines() {
        let logged = line(logged);
        if !logged.is_empty() {
            text.push_str("\n    ");
            text.push_str(&logged);
        }
    }
    text
}

/// An invocation that came to nothing, and why.
pub fn of_no_use(function: &str, version: Option<&str>, why: &str, slips: &[Slip]) -> String {
    let function = versioned(function, version);
    format!(
        "{function}, invoked with {}: {}",
        messages(slips),
        line(why)
    )
}

/// An invocation of which nobody knows whether it ran.
pub fn may_have_run(function: &str, why: &str, slips: &[Slip]) -> String {
    format!(
        "function {function} may have run on {}, which come again only after their deadline: {}",
        messages(slips),
        line(why)
    )
}

fn versioned(function: &str, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("function {function}, version {version},"),
        None => format!("function {function}"),
    }
}

/// The first few ids, and how many more there are.
fn messages(slips: &[Slip]) -> String {
    let ids: Vec<&str> = slips
        .iter()
        .take(NAMED)
        .map(|slip| slip.id.as_str())
        .collect();
    let word = if slips.len() == 1 {
        "message"
    } else {
        "messages"
    };
    let more = match slips.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{word} {}{more}", ids.join(", "))
}

/// One line of sensible length out of any text.
fn line(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let text = text.trim();
    let mut line: String = text.chars().take(LONGEST).map(visible).collect();
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slips(ids: &[&str]) -> Vec<Slip> {
        let slip = |id: &&str| Slip {
            id: (*id).into(),
            group: None,
            deadline: 0,
        };
        ids.iter().map(slip).collect()
    }

    #[test]
    fn function_error_is_logged_with_type_message_and_log_tail() {
        let payload =
            br#"{"errorType":"KeyError","errorMessage":"'id'\nis missing","stackTrace":[]}"#;
        let log = "START RequestId: 1\n\n\u{9}[ERROR] KeyError\r\nEND RequestId: 1\n";
        let five = slips(&["a", "b", "c", "d", "e"]);
        assert_eq!(
            function_error("f:live", Some("7"), payload, Some(log), &five),
            "function f:live, version 7, failed on messages a, b, c and 2 more: \
             KeyError: 'id' is missing\n    START RequestId: 1\n    [ERROR] KeyError\n    END RequestId: 1"
        );
        assert_eq!(
            function_error("f", None, b"no JSON", None, &slips(&["a"])),
            "function f failed on message a: an error without a type: no message"
        );
    }

    #[test]
    fn long_line_is_truncated() {
        let long = line(&"ä".repeat(1000));
        assert_eq!(long.chars().count(), LONGEST + 1);
        assert!(long.ends_with('…'));
        assert_eq!(line("short"), "short");
    }
}
