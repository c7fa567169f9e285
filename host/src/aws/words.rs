//! How a failure of the AWS SDK reads in one line. Knows no service.

use std::error::Error;

/// Links of an error's chain that say nothing by themselves.
const EMPTY: [&str; 5] = [
    "dispatch failure",
    "other",
    "io error",
    "service error",
    "client error (Connect)",
];

/// Every link of the chain that says something new, from the outside in, in one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    for link in links(error) {
        let text = link.to_string();
        if !EMPTY.contains(&&*text) && !said.iter().any(|known| known.contains(&text)) {
            said.push(text);
        }
    }
    one_line(&said.join(": "))
}

/// An error and what it came from, from the outside in. An error inside an I/O error counts: the
/// standard library passes over it.
pub(super) fn links<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        match error.downcast_ref::<std::io::Error>() {
            Some(io) => io.get_ref().map(|inner| inner as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
}

/// The same words without line breaks.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a failure's words are about the lack of usable credentials. The SDK has no type for it
/// that all its providers use.
pub(super) fn is_about_credentials(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["credential", "identity", "auth scheme", "sso session"]
        .iter()
        .any(|hint| words.contains(hint))
}

/// Whether a failure's words are about the lack of a region.
pub(super) fn is_about_region(words: &str) -> bool {
    words.to_ascii_lowercase().contains("missing region")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_chain_is_one_line_and_says_nothing_twice() {
        let inner = io::Error::other("the line\n  is cut");
        let outer = io::Error::other(inner);
        assert_eq!(chain(&outer), "the line is cut");
        assert_eq!(links(&outer).count(), 3);
    }

    #[test]
    fn missing_credentials_are_recognised_by_their_words() {
        assert!(is_about_credentials(
            "no providers in chain provided CREDENTIALS"
        ));
        assert!(!is_about_credentials("connection reset by peer"));
    }
}
