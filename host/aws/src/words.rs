//! Formats an error of the AWS SDK in one line. Knows no service.

use crate::http::UNSENT;
use aws_smithy_types::error::ErrorMetadata;
use std::error::Error;

/// The texts in an error chain that contain no information.
const EMPTY: [&str; 7] = [
    "dispatch failure",
    "other",
    "io error",
    "service error",
    "unhandled error",
    "client error (Connect)",
    UNSENT,
];

/// Joins the texts of the error chain in one line, from the outside in, without repetitions.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    for link in links(error) {
        let text = match link.downcast_ref::<ErrorMetadata>() {
            Some(answer) => service_answer(answer),
            None => without_absent_providers(&link.to_string()),
        };
        // The next link has the service's own words.
        let is_empty = text.starts_with("unhandled error (");
        if !is_empty && !EMPTY.contains(&&*text) && !said.iter().any(|known| known.contains(&text))
        {
            said.push(text);
        }
    }
    one_line(&said.join(": "))
}

/// Returns the message of a service, with its code.
fn service_answer(answer: &ErrorMetadata) -> String {
    let code = answer.code().unwrap_or("no code");
    match answer.message() {
        Some(message) => format!("{message} ({code})"),
        None => code.to_owned(),
    }
}

/// Iterates over an error and its sources, from the outside in. Includes an error inside an I/O
/// error, which the standard library skips.
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

/// Removes credentials providers that are not set up. The SDK lists every provider on its own line,
/// with the reason why it has no credentials. For providers that are not set up, this takes 500
/// characters without any use.
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

/// Returns an address without its user name and password.
pub fn hide_userinfo(address: &str) -> String {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    // A mistyped address may contain a password with a slash.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}***@{host}"),
        None => address.to_owned(),
    }
}

/// Returns the text without line breaks.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text without what the SDK says before the reason why there are no credentials.
pub(super) fn without_credentials_prefix(words: &str) -> &str {
    let prefix = "an error occurred while loading credentials: ";
    words.strip_prefix(prefix).unwrap_or(words)
}

/// Whether an error's text says that usable credentials are missing. The SDK's providers have no
/// common error type for it.
pub(super) fn is_about_credentials(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["credential", "identity", "auth scheme", "sso session"]
        .iter()
        .any(|hint| words.contains(hint))
}

/// Whether an error's text says that the region is missing.
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
