//! Formats a failure of the AWS SDK in one line. Knows no service.

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
        let text = without_absent_providers(&link.to_string());
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

/// The SDK lists every provider of credentials, one a line, with why it has none. Those that are
/// simply not set up say nothing that a person can use, and take 500 characters to say it.
fn without_absent_providers(text: &str) -> String {
    let Some((_, attempted)) = text.split_once("no credentials found in chain. Attempted:") else {
        return text.to_owned();
    };
    let mut failed = attempted
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains("was not enabled"))
        .peekable();
    match failed.peek() {
        None => "none in the environment, a profile, a web identity, a container or an instance \
                 role"
            .to_owned(),
        Some(_) => failed.collect::<Vec<_>>().join("; "),
    }
}

/// An address without the user name and password in it.
pub fn hide_userinfo(address: &str) -> String {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    // Whoever mistypes an address may have written a password with a slash in it.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}***@{host}"),
        None => address.to_owned(),
    }
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
    fn error_chain_is_one_line_without_repetition() {
        let inner = io::Error::other("the line\n  is cut");
        let outer = io::Error::other(inner);
        assert_eq!(chain(&outer), "the line is cut");
        assert_eq!(links(&outer).count(), 3);
    }

    #[test]
    fn finding_27_unconfigured_credential_providers_are_omitted() {
        let chain = "no credentials found in chain. Attempted:\n  Environment: the credential \
                     provider was not enabled: environment variable not set\n  Profile: the \
                     credential provider was not enabled";
        assert_eq!(
            without_absent_providers(chain),
            "none in the environment, a profile, a web identity, a container or an instance role"
        );
        let failed = format!("{chain}\n  Sso: the token has expired");
        assert_eq!(
            without_absent_providers(&failed),
            "Sso: the token has expired"
        );
        assert_eq!(
            without_absent_providers("connection reset"),
            "connection reset"
        );
    }

    #[test]
    fn finding_21_address_is_shown_without_its_password() {
        for (address, shown) in [
            ("http://user:secret@127.0.0.1:1", "http://***@127.0.0.1:1"),
            ("http://user:se/cr@et@h", "http://***@h"),
            ("user:secret@h", "***@h"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ] {
            assert_eq!(hide_userinfo(address), shown);
        }
    }

    #[test]
    fn missing_credentials_are_recognised_by_error_text() {
        assert!(is_about_credentials(
            "no providers in chain provided CREDENTIALS"
        ));
        assert!(!is_about_credentials("connection reset by peer"));
    }
}
