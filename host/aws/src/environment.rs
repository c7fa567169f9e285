//! Checks the environment variables and the selected profile for AWS before a client is created. It
//! reports a key with a line break, an endpoint without a scheme and a misspelled profile clearly,
//! where the SDK would panic or report its internals. Makes no calls.

use super::profiles::Profiles;
use super::trust;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use std::collections::BTreeMap;
use std::env::VarError;

/// The variables whose values are sent in a header of every request.
const IN_HEADERS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
];
/// The keys of a profile whose values are sent in a header of every request.
const IN_HEADERS_OF_PROFILE: [&str; 4] = [
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "region",
];
/// The variable with the endpoint for all services, which is also the prefix of the variables for
/// single services.
const ENDPOINT: &str = "AWS_ENDPOINT_URL";

/// Checks the environment of the process and the files that it refers to.
///
/// # Errors
/// Reports all problems in one line. It never contains a value that may be secret.
pub fn check() -> Result<(), CallError> {
    let variables = Variables::of_process();
    let mut found = variables.problems();
    let profiles = Profiles::read(|name| variables.get(name).map(str::to_owned));
    found.extend(problems_of_profile(&variables, &profiles));
    let bundle = trust::bundle(|name| variables.get(name).map(str::to_owned), &profiles);
    found.extend(bundle.and_then(|bundle| bundle.certificates().err()));
    if found.is_empty() {
        return Ok(());
    }
    Err(CallError {
        kind: ErrorKind::Invalid,
        message: found.join("; "),
    })
}

/// The variables that begin with `AWS_`, and `HOME`.
struct Variables(BTreeMap<String, Result<String, VarError>>);

impl Variables {
    fn of_process() -> Self {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let ours = names.filter(|name| name.starts_with("AWS_") || name == "HOME");
        Self(
            ours.map(|name| (name.clone(), std::env::var(name)))
                .collect(),
        )
    }

    /// Returns the value of a variable, unless it is empty.
    fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.as_deref().ok()?;
        (!value.is_empty()).then_some(value)
    }

    fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        for name in IN_HEADERS {
            match self.0.get(name) {
                Some(Err(_)) => found.push(format!("{name} is not text")),
                Some(Ok(value)) => found.extend(in_header(name, value)),
                None => {}
            }
        }
        for (name, value) in &self.0 {
            let is_endpoint = name == ENDPOINT || name.starts_with("AWS_ENDPOINT_URL_");
            if is_endpoint && let Ok(value) = value {
                found.extend(as_endpoint(name, value));
            }
        }
        found
    }
}

fn problems_of_profile(variables: &Variables, profiles: &Profiles) -> Vec<String> {
    let name = variables.get("AWS_PROFILE").unwrap_or("default");
    let Some(profile) = profiles.get(name) else {
        if name == "default" {
            return Vec::new();
        }
        let places = profiles.places();
        return vec![format!(
            "AWS_PROFILE names the profile `{}`, which is not in {places}",
            name.escape_debug()
        )];
    };
    let mut found = Vec::new();
    for key in IN_HEADERS_OF_PROFILE {
        if let Some(value) = profile.get(key) {
            found.extend(in_header(&format!("{key} of the profile `{name}`"), value));
        }
    }
    if let Some(value) = profile.get("endpoint_url") {
        let of_profile = format!("endpoint_url of the profile `{name}`");
        found.extend(as_endpoint(&of_profile, value));
    }
    found
}

/// Returns the problem of a value that cannot be part of a header. It never contains the value,
/// which may be a key.
fn in_header(name: &str, value: &str) -> Option<String> {
    let at = value.find(|letter: char| letter.is_whitespace() || letter.is_control())?;
    let what = match value[at..].chars().next() {
        Some('\n' | '\r') => "a line break",
        Some(letter) if letter.is_whitespace() => "a space",
        _ => "a control character",
    };
    let place = if value[at..].trim().is_empty() {
        "ends with"
    } else {
        "contains"
    };
    Some(format!(
        "{name} {place} {what}; wanted the value alone, as `printf` writes it and `echo` does not"
    ))
}

fn as_endpoint(name: &str, value: &str) -> Option<String> {
    let has_scheme = ["http://", "https://"]
        .iter()
        .any(|scheme| value.starts_with(scheme));
    let uri: Option<::http::Uri> = value.parse().ok();
    let has_host = uri.is_some_and(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    if value.is_empty() || (has_scheme && has_host) {
        return None;
    }
    let shown = super::hide_userinfo(value).escape_debug().to_string();
    Some(format!(
        "{name} is `{shown}`; wanted http://HOST or https://HOST, as in https://sqs.us-east-1.amazonaws.com"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let owned = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Ok((*value).to_owned())));
        Variables(owned.collect())
    }

    #[test]
    fn keys_that_no_header_can_carry_are_named_and_not_quoted() {
        for name in IN_HEADERS {
            for (value, words) in [
                ("hunter2\n", "ends with a line break"),
                ("hunter2\r\n", "ends with a line break"),
                ("hunter2 ", "ends with a space"),
                ("hun\nter2", "contains a line break"),
                ("\u{7}hunter2", "contains a control character"),
            ] {
                let found = variables(&[(name, value)]).problems();
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(
                    found[0].starts_with(&format!("{name} {words}")),
                    "{found:?}"
                );
                assert!(!found[0].contains("hunter2"), "{found:?}");
            }
            assert!(variables(&[(name, "us-east-1")]).problems().is_empty());
        }
    }

    #[test]
    fn endpoint_of_every_variable_needs_a_scheme_and_a_host() {
        for name in [
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_SQS",
            "AWS_ENDPOINT_URL_S3",
        ] {
            for bad in [
                "localhost:4566",
                "sqs",
                "ftp://a",
                "http://",
                "https:///x",
                "http://a b",
            ] {
                let found = variables(&[(name, bad)]).problems();
                assert_eq!(found.len(), 1, "{name}={bad}: {found:?}");
                assert!(
                    found[0].starts_with(name) && found[0].contains(bad),
                    "{found:?}"
                );
            }
            for good in [
                "",
                "http://127.0.0.1:4566",
                "https://[::1]:1/path",
                "https://a.b",
            ] {
                assert!(variables(&[(name, good)]).problems().is_empty(), "{good}");
            }
        }
    }

    #[test]
    fn all_problems_are_found_at_once() {
        let all = variables(&[("AWS_ACCESS_KEY_ID", "a\n"), ("AWS_ENDPOINT_URL", "b:1")]);
        assert_eq!(all.problems().len(), 2);
    }

    #[test]
    fn profile_that_is_in_no_file_is_named_with_the_files() {
        let profiles = Profiles::of_texts("[profile work]\nregion = eu-west-1\n", "");
        let work = variables(&[("AWS_PROFILE", "work")]);
        assert!(problems_of_profile(&work, &profiles).is_empty());
        let wrok = variables(&[("AWS_PROFILE", "wrok")]);
        let found = problems_of_profile(&wrok, &profiles);
        assert!(found.len() == 1 && found[0].contains("`wrok`"), "{found:?}");
        assert!(problems_of_profile(&variables(&[]), &profiles).is_empty());
    }

    #[test]
    fn values_of_the_selected_profile_are_checked() {
        let config = "[profile work]\nendpoint_url = localhost:1\n[profile other]\nregion = a b\n";
        let credentials = "[work]\naws_access_key_id = AKIA\u{b}X\n";
        let profiles = Profiles::of_texts(config, credentials);
        let found = problems_of_profile(&variables(&[("AWS_PROFILE", "work")]), &profiles);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("aws_access_key_id of the profile `work`"));
        assert!(found[1].starts_with("endpoint_url of the profile `work`"));
    }
}
