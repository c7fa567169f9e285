//! A JSON string in its escaped form, and its decoded form.

use std::borrow::Cow;

/// The characters between the quotes. Equality compares the escaped forms; use [`Text::is_same`] to
/// compare the decoded ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// Wraps the characters between the quotes of a valid JSON string.
    pub(super) fn of_json(escaped: &'a str) -> Self {
        Self(escaped)
    }

    /// Decodes the string. Half a surrogate pair, which a Rust string cannot hold, becomes
    /// `instead`.
    pub fn decode(self, instead: char) -> Cow<'a, str> {
        if !self.0.contains('\\') {
            return Cow::Borrowed(self.0);
        }
        let letters = self.code_points();
        Cow::Owned(
            letters
                .map(|code| char::from_u32(code).unwrap_or(instead))
                .collect(),
        )
    }

    /// Whether both decode to the same string. Half a surrogate pair equals the same half.
    pub fn is_same(self, other: Text<'_>) -> bool {
        self.0 == other.0 || self.code_points().eq(other.code_points())
    }

    /// Whether it decodes to this text.
    pub fn is(self, text: &str) -> bool {
        if !self.0.contains('\\') {
            return self.0 == text;
        }
        self.code_points().eq(text.chars().map(u32::from))
    }

    /// Decodes the code points, including single surrogates.
    fn code_points(self) -> impl Iterator<Item = u32> + 'a {
        let mut rest = self.0.chars();
        std::iter::from_fn(move || {
            let letter = rest.next()?;
            if letter != '\\' {
                return Some(u32::from(letter));
            }
            let escaped = rest.next()?;
            if escaped != 'u' {
                return Some(u32::from(simple_escape(escaped)));
            }
            let first = hex_digits(&mut rest)?;
            let mut ahead = rest.clone();
            if (0xD800..0xDC00).contains(&first)
                && ahead.next() == Some('\\')
                && ahead.next() == Some('u')
                && let Some(second @ 0xDC00..0xE000) = hex_digits(&mut ahead)
            {
                rest = ahead;
                return Some(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00));
            }
            Some(first)
        })
    }
}

fn simple_escape(letter: char) -> char {
    match letter {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        other => other,
    }
}

fn hex_digits(letters: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut code = 0;
    for _ in 0..4 {
        code = code * 16 + letters.next()?.to_digit(16)?;
    }
    Some(code)
}
