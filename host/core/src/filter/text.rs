//! Comparisons of texts: case-insensitive, and with wildcards.

/// A text that is compared without case. Each letter matches its upper and its lower form and
/// nothing else, as in AWS's engine: `ß` matches `ß` and `SS`, not `ss`.
#[derive(Debug, Clone)]
pub(super) struct AnyCase(Vec<Letter>);

/// The forms of a letter; they are equal if it has no case.
#[derive(Debug, Clone)]
struct Letter {
    lower: String,
    upper: String,
}

impl AnyCase {
    /// Makes the text, or returns `None` if it has a letter beyond U+FFFF: AWS's engine reads it as
    /// two others.
    pub(super) fn new(text: &str) -> Option<Self> {
        let letters = text.chars().map(|letter| {
            let lower = letter.to_lowercase().collect();
            let upper = letter.to_uppercase().collect();
            (letter.len_utf16() == 1).then_some(Letter { lower, upper })
        });
        letters.collect::<Option<_>>().map(Self)
    }

    pub(super) fn is(&self, text: &str) -> bool {
        let rests = rests(self.0.iter(), text, |rest, form| rest.strip_prefix(form));
        rests.contains(&"")
    }

    pub(super) fn begins(&self, text: &str) -> bool {
        !rests(self.0.iter(), text, |rest, form| rest.strip_prefix(form)).is_empty()
    }

    pub(super) fn ends(&self, text: &str) -> bool {
        let letters = self.0.iter().rev();
        !rests(letters, text, |rest, form| rest.strip_suffix(form)).is_empty()
    }
}

/// Returns every remainder that `text` can have after the letters are taken from it.
fn rests<'l, 't>(
    letters: impl Iterator<Item = &'l Letter>,
    text: &'t str,
    take: impl Fn(&'t str, &'l str) -> Option<&'t str>,
) -> Vec<&'t str> {
    let mut rests = vec![text];
    for letter in letters {
        let mut next = Vec::with_capacity(rests.len());
        for rest in rests {
            for form in [&letter.lower, &letter.upper] {
                if let Some(left) = take(rest, form)
                    && !next.contains(&left)
                {
                    next.push(left);
                }
            }
        }
        rests = next;
        if rests.is_empty() {
            break;
        }
    }
    rests
}

/// A text in which `*` matches any characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wildcard(Vec<String>);

impl Wildcard {
    /// Parses a wildcard. `\*` is an asterisk and `\\` a backslash. Returns `None` if two `*`
    /// follow each other or a backslash precedes anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut part = String::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '*' if letters.peek() == Some(&'*') => return None,
                '*' => parts.push(std::mem::take(&mut part)),
                '\\' => part.push(letters.next().filter(|next| matches!(next, '*' | '\\'))?),
                other => part.push(other),
            }
        }
        parts.push(part);
        Some(Self(parts))
    }

    /// Whether a text consists of the parts in order, with anything between them.
    pub(crate) fn is(&self, text: &str) -> bool {
        let Some((first, others)) = self.0.split_first() else {
            return false;
        };
        let Some((last, between)) = others.split_last() else {
            return text == first;
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else {
            return false;
        };
        for part in between {
            let Some(at) = rest.find(part.as_str()) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }
}
