//! Parses the URL of an HTTP service that messages are forwarded to, and the headers of its
//! requests. Makes no calls.

use super::HttpHost;
use super::problem::Problem;
use super::secret;
use super::secret::Secret;
use super::section::WrittenValue;
use dispatcher_aws::hide_userinfo;
use http::uri::{Authority, Uri};
use std::fmt;
use std::path::Path;

/// The maximum length of a URL in a component's request.
const LONGEST: usize = 8 << 10;

/// The settings for forwarding messages to an HTTP service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpForward {
    /// The URL to which each message or batch is posted.
    pub url: ServiceUrl,
    /// The headers of every request.
    pub headers: Vec<(String, String)>,
    /// The headers with secret values.
    pub secret_headers: Vec<(String, Secret)>,
    /// The key that signs requests.
    pub key: Option<Secret>,
}

/// The URL of a service: a scheme, a host and perhaps a port, path and query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceUrl {
    text: String,
    host: HttpHost,
    authority: String,
}

impl ServiceUrl {
    /// Parses `http://HOST[:PORT][/PATH][?QUERY]`, or with `https`.
    ///
    /// # Errors
    /// Returns the expected form.
    fn parse(text: &str) -> Result<Self, &'static str> {
        const WANTED: &str = "http:// or https://, a host and perhaps a port and a path";
        if text.len() > LONGEST {
            return Err("at most 8192 bytes");
        }
        if text.contains('#') {
            return Err("a URL without a fragment");
        }
        let uri: Uri = text.parse().map_err(|_| WANTED)?;
        let authority = uri.authority().map(Authority::as_str).ok_or(WANTED)?;
        if authority.contains('@') {
            return Err("a URL without a user, and the header `authorization` by forward-header");
        }
        if authority.contains('*') {
            return Err("one host");
        }
        let scheme = uri.scheme_str().unwrap_or_default();
        let host: HttpHost = format!("{scheme}://{authority}")
            .parse()
            .map_err(|_| WANTED)?;
        Ok(Self {
            text: text.to_owned(),
            host: host.anywhere(),
            authority: authority.to_owned(),
        })
    }

    /// Returns the grant that requests to the service need.
    pub fn host(&self) -> HttpHost {
        self.host.clone()
    }

    /// Returns the host, with the port if one was given.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Parses the URL of a service.
pub fn url(given: &WrittenValue) -> Result<ServiceUrl, Problem> {
    let text = given.text.trim();
    ServiceUrl::parse(text).map_err(|wanted| {
        // The log must not contain a password.
        let found = format!("`{}` is not the URL of a service", hide_userinfo(text));
        let problem = Problem::new(&given.at, found, wanted);
        let with_scheme = format!("http://{text}");
        if !text.contains("://") && ServiceUrl::parse(&with_scheme).is_ok() {
            return problem.hint(format!("did you mean `{with_scheme}`?"));
        }
        problem.hint("written like http://127.0.0.1:8080/jobs")
    })
}

/// The headers that the connection sets or that describe a message.
const OWN: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
    "x-amzn-trace-id",
];
/// The prefixes of other headers that describe a message.
const OF_MESSAGE: [&str; 2] = ["x-aws-sqsd-", "x-dispatcher-"];

/// Checks a value of the header `name`.
pub fn header(name: &str, given: &WrittenValue) -> Result<String, Problem> {
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        let found = format!("`{name}` cannot be the name of a header");
        let wanted = "letters, digits and dashes, as in authorization";
        return Err(Problem::new(&given.at, found, wanted));
    }
    let lower = name.to_ascii_lowercase();
    if OWN.contains(&lower.as_str()) || OF_MESSAGE.iter().any(|start| lower.starts_with(start)) {
        let found = format!("the header `{name}`, which dispatcher sets itself");
        return Err(Problem::new(&given.at, found, "another header"));
    }
    let text = given.text.trim();
    if http::HeaderValue::from_str(text).is_err() {
        // The value may be secret.
        let found = format!(
            "the value of the header `{name}` has characters that are not allowed in a header"
        );
        return Err(Problem::new(
            &given.at,
            found,
            "one line of visible characters",
        ));
    }
    Ok(text.to_owned())
}

/// Reads the value of the header `name` again from the file of a setting.
///
/// # Errors
/// Returns the reason why the file has no valid value.
pub fn header_of_file(name: &str, file: &Path) -> Result<Secret, Problem> {
    let given = WrittenValue::new("forward-header-file", file.to_string_lossy());
    secret_header(name, &given)
}

/// Reads the value of the header `name` from a file.
pub fn secret_header(name: &str, given: &WrittenValue) -> Result<Secret, Problem> {
    let secret = secret::read(given, &format!("value of `{name}`"))?;
    let text = header(name, &WrittenValue::new(&given.at, secret.text()))?;
    Ok(secret.with_text(text))
}

/// Reads the key that signs requests from a file.
pub fn key(given: &WrittenValue) -> Result<Secret, Problem> {
    secret::read(given, "key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServiceUrl, String> {
        url(&WrittenValue::new("--forward", text)).map_err(|problem| problem.to_string())
    }

    #[test]
    fn url_names_the_one_host_that_is_granted() {
        for (text, host, authority) in [
            (
                "http://127.0.0.1:8080/jobs",
                "http://127.0.0.1:8080",
                "127.0.0.1:8080",
            ),
            (
                " https://Api.example.com ",
                "https://api.example.com",
                "Api.example.com",
            ),
            ("http://worker/jobs?queue=a", "http://worker", "worker"),
            ("http://[::1]:3000", "http://[::1]:3000", "[::1]:3000"),
            ("http://10.0.0.0/8", "http://10.0.0.0", "10.0.0.0"),
        ] {
            let url = read(text).expect(text);
            assert_eq!(url.to_string(), text.trim());
            assert_eq!(url.host().to_string(), host);
            assert_eq!(url.authority(), authority);
        }
    }

    #[test]
    fn what_is_no_service_is_refused_with_a_hint() {
        for (text, says) in [
            ("", "written like http://127.0.0.1:8080/jobs"),
            (
                "127.0.0.1:8080/jobs",
                "did you mean `http://127.0.0.1:8080/jobs`?",
            ),
            ("localhost:8080", "did you mean `http://localhost:8080`?"),
            ("ftp://example.com/", "wanted http:// or https://"),
            ("http:///jobs", "wanted http:// or https://"),
            ("http://a b/", "is not the URL of a service"),
            ("http://h/#top", "a URL without a fragment"),
            ("http://u:secret@h/", "a URL without a user"),
            ("http://*.example.com/", "is not the URL of a service"),
        ] {
            let problem = read(text).expect_err(text);
            assert!(problem.contains(says), "{text}: {problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn headers_are_checked_and_their_values_never_shown() {
        let good = WrittenValue::new("--forward-header", " Bearer x ");
        assert_eq!(header("Authorization", &good).as_deref(), Ok("Bearer x"));
        for (name, value) in [
            ("a b", "x"),
            ("Host", "x"),
            ("content-length", "1"),
            ("x-secret", "one\ntwo"),
        ] {
            let given = WrittenValue::new("--forward-header", value);
            let problem = header(name, &given).expect_err(name).to_string();
            assert!(problem.starts_with("--forward-header: "), "{problem}");
            assert!(!problem.contains("two"), "{problem}");
        }
    }
}
