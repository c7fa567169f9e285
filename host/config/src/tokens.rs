//! The tokens in a file: one word, or a line for each with its name. Pure.

/// The longest token, in bytes: a header holds little more.
const LONGEST: usize = 4_096;
const LONGEST_NAME: usize = 64;
/// The names of other callers in the audit log.
const OTHER_CALLERS: [&str; 3] = ["anyone", "proxy", "token"];

/// A token of the admin address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedToken<'a> {
    /// The name in the log, if it has one.
    pub name: Option<&'a str>,
    /// The token.
    pub token: &'a str,
}

/// Parses the text of a file: one token; or lines of `NAME TOKEN`, with empty lines and lines that
/// begin with `#`.
///
/// # Errors
/// Returns what is wrong with the text.
pub fn parse(text: &str) -> Result<Vec<NamedToken<'_>>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines: Vec<(usize, &str)> = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut tokens: Vec<NamedToken<'_>> = Vec::new();
    for &(at, line) in &lines {
        let place = if lines.len() == 1 {
            String::new()
        } else {
            format!("line {}: ", at + 1)
        };
        let read = line_of(line, lines.len() == 1).map_err(|why| format!("{place}{why}"))?;
        let is_again = tokens.iter().any(|other| {
            other.token == read.token || (other.name.is_some() && other.name == read.name)
        });
        if is_again {
            return Err(format!(
                "{place}it has the name or the token of another line"
            ));
        }
        tokens.push(read);
    }
    if tokens.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(tokens)
}

fn line_of(line: &str, is_only: bool) -> Result<NamedToken<'_>, String> {
    let mut words = line.split_ascii_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next());
    let (name, token) = match second {
        Some(token) => (Some(first), token),
        None if is_only => (None, first),
        None => return Err("a token without a name; wanted NAME TOKEN".to_owned()),
    };
    let is_visible = line
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t');
    if words.next().is_some() || !is_visible {
        return Err("it is neither one word of visible ASCII characters nor NAME TOKEN".to_owned());
    }
    if name.is_some_and(|name| OTHER_CALLERS.contains(&name) || name.contains(['(', ')'])) {
        let others = OTHER_CALLERS.join(", ");
        return Err(format!("its name has parentheses, or is one of {others}"));
    }
    if token.len() > LONGEST {
        return Err(format!("its token has more than {LONGEST} bytes"));
    }
    if name.is_some_and(|name| name.len() > LONGEST_NAME) {
        return Err(format!("its name has more than {LONGEST_NAME} characters"));
    }
    Ok(NamedToken { name, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_one_token_or_a_line_for_each_name() {
        let one = parse(" secret\n").expect("a token");
        let secret = NamedToken {
            name: None,
            token: "secret",
        };
        assert_eq!(one, [secret]);
        let text = "# made in June\nci  a1\n\nanna\tb2\r\n";
        let both = parse(text).expect("tokens");
        let pairs: Vec<_> = both.iter().map(|one| (one.name, one.token)).collect();
        assert_eq!(pairs, [(Some("ci"), "a1"), (Some("anna"), "b2")]);
        assert_eq!(parse("ci a1").expect("a token")[0].name, Some("ci"));
    }

    #[test]
    fn bad_lines_are_told_with_their_numbers() {
        let long = "x".repeat(4_097);
        let name = format!("{} x", "n".repeat(65));
        for (text, why) in [
            ("", "it is empty"),
            ("\n# none\n", "it is empty"),
            ("a b c", "it is neither one word"),
            ("ä", "it is neither one word"),
            (
                "a b\nc",
                "line 2: a token without a name; wanted NAME TOKEN",
            ),
            (
                "a b\n\na c",
                "line 3: it has the name or the token of another line",
            ),
            (
                "a b\nc b",
                "line 2: it has the name or the token of another line",
            ),
            (long.as_str(), "its token has more than 4096 bytes"),
            (name.as_str(), "its name has more than 64 characters"),
        ] {
            let found = parse(text).expect_err(text);
            assert!(found.starts_with(why), "{text}: {found}");
        }
    }
}
