//! The transport of one signal to the collector: one request for each part, with limits on its time
//! and on the size of the response. Knows no signal.

use super::proto::{ExportAnswer, PartialSuccess};
use super::{OtlpFile, OtlpSignal};
use bytes::Bytes;
use dispatcher_core::clock;
use dispatcher_core::clock::{Timestamp, retry_after};
use dispatcher_core::telemetry::error_text::with_sources;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{Client, Response, StatusCode};
use std::io::Write;
use std::time::Duration;

/// The maximum number of bytes of a response that are read.
const LONGEST_ANSWER: usize = 64 << 10;
/// The time limit of connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest wait for a collector's `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The media type of OTLP's binary encoding.
const PROTOBUF: &str = "application/x-protobuf";
/// The only supported compression.
const GZIP: &str = "gzip";

/// The sender of one signal.
#[derive(Debug, Clone)]
pub struct OtlpTransport {
    client: Client,
    url: String,
    is_compressed: bool,
}

/// The reason why the collector did not accept all of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpFailure {
    /// The reason, as one line for a person.
    pub reason: String,
    /// Whether a retry may succeed.
    pub may_pass: bool,
    /// The number of items that the collector rejected, if it accepted the others.
    pub rejected: Option<u64>,
    /// The pause that the collector requests.
    pub retry_after: Option<Duration>,
}

impl OtlpFailure {
    fn lasting(reason: String) -> Self {
        Self {
            reason,
            may_pass: false,
            rejected: None,
            retry_after: None,
        }
    }
}

impl OtlpTransport {
    /// Creates a transport; does not connect.
    ///
    /// # Errors
    /// Returns an error if the certificates or the key cannot be used.
    pub fn new(signal: &OtlpSignal) -> Result<Self, UnusableFile> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        headers.extend(signal.headers.clone());
        let mut client = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("dispatcher/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT.min(signal.timeout))
            .timeout(signal.timeout)
            // Telemetry must not be sent to another server.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(file) = &signal.ca_file {
            let (shown, pem) = (file.path.display(), read_file(file)?);
            let all = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|why| file.unusable(format!("`{shown}` has no certificates: {why}")))?;
            if all.is_empty() {
                return Err(file.unusable(format!("`{shown}` has no certificates")));
            }
            client = all
                .into_iter()
                .fold(client, |client, one| client.add_root_certificate(one));
        }
        if let Some((certificate, key)) = &signal.identity {
            let mut pem = read_file(key)?;
            pem.push(b'\n');
            pem.extend(read_file(certificate)?);
            let identity = reqwest::Identity::from_pem(&pem).map_err(|why| {
                let (shown, key) = (certificate.path.display(), key.path.display());
                let found =
                    format!("`{shown}` and `{key}` are not a certificate and its key: {why}");
                certificate.unusable(found)
            })?;
            client = client.identity(identity);
        }
        let client = client.build().map_err(|error| {
            let (found, identity) = (with_sources(&error), signal.identity.as_ref());
            let file = identity.map(|(file, _)| file).or(signal.ca_file.as_ref());
            match file {
                Some(file) => file.unusable(found),
                None => UnusableFile {
                    variable: "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
                    found,
                },
            }
        })?;
        Ok(Self {
            client,
            url: signal.url.clone(),
            is_compressed: signal.is_compressed,
        })
    }

    /// Sends one part in OTLP's binary encoding. Returns within the signal's timeout.
    ///
    /// # Errors
    /// Returns the reason and whether a retry may succeed. A retry is not useful if the collector
    /// accepted a part of the items.
    pub async fn send(&self, body: Bytes) -> Result<(), OtlpFailure> {
        let mut request = self.client.post(&self.url);
        request = if self.is_compressed {
            let packed = gzip(&body).map_err(|why| OtlpFailure::lasting(why.to_string()))?;
            request.header(CONTENT_ENCODING, GZIP).body(packed)
        } else {
            request.body(body)
        };
        let answer = request.send().await.map_err(|error| OtlpFailure {
            reason: with_sources(&error.without_url()),
            may_pass: true,
            rejected: None,
            retry_after: None,
        })?;
        let status = answer.status();
        let retry_after = wait(answer.headers(), clock::wall_clock_now());
        let text = read(answer).await.map_err(|error| OtlpFailure {
            reason: with_sources(&error),
            may_pass: true,
            rejected: None,
            retry_after,
        })?;
        if status.is_success() {
            return accepted(&text).map_err(|failure| OtlpFailure {
                reason: format!("{}: {}", self.url, failure.reason),
                ..failure
            });
        }
        let answered = format!("{}: answered {status} {}", self.url, beginning(&text));
        let may_pass = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        Err(OtlpFailure {
            reason: answered.trim_end().to_owned(),
            may_pass,
            rejected: None,
            retry_after,
        })
    }
}

/// Returns the pause that the collector requests by its `Retry-After`.
fn wait(headers: &HeaderMap, today: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    Some(retry_after(text, today)?.min(LONGEST_WAIT))
}

fn gzip(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

fn read_file(file: &OtlpFile) -> Result<Vec<u8>, UnusableFile> {
    let read = std::fs::read(&file.path);
    read.map_err(|why| file.unusable(format!("cannot read `{}`: {why}", file.path.display())))
}

/// A file of certificates or of a key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableFile {
    /// The variable that names the file.
    pub variable: String,
    /// The reason as a text.
    pub found: String,
}

impl OtlpFile {
    fn unusable(&self, found: String) -> UnusableFile {
        UnusableFile {
            variable: self.variable.clone(),
            found,
        }
    }
}

/// Returns the headers of requests from names and values.
///
/// # Errors
/// Returns the problem as a text, without the value, which may be secret.
pub fn headers(pairs: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let Ok(known) = HeaderName::try_from(name.as_str()) else {
            return Err(format!("`{name}` is not the name of a header"));
        };
        let Ok(mut value) = HeaderValue::try_from(value.as_str()) else {
            return Err(format!("the value of `{name}` is not valid in a header"));
        };
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    Ok(headers)
}

/// Reads the body of a response until the limit is exceeded.
async fn read(mut answer: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    while body.len() <= LONGEST_ANSWER
        && let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)?
    {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the beginning of a response.
fn beginning(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    text.trim().to_owned()
}

/// Checks a successful response. A collector may report that it accepted only a part of the items;
/// a server with any other response is not a collector.
fn accepted(body: &[u8]) -> Result<(), OtlpFailure> {
    let Ok(answer) = ExportAnswer::decode(body) else {
        let words = beginning(body);
        let why = format!("answered 200, but not as a collector of OTLP does: {words}");
        return Err(OtlpFailure::lasting(why));
    };
    let Some(PartialSuccess {
        rejected,
        error_message,
    }) = answer.partial_success
    else {
        return Ok(());
    };
    match u64::try_from(rejected) {
        Err(_) | Ok(0) => Ok(()),
        Ok(rejected) => Err(OtlpFailure {
            rejected: Some(rejected),
            ..OtlpFailure::lasting(format!(
                "the collector rejected {rejected} of it: {error_message}"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rejected: i64) -> Vec<u8> {
        let partial_success = Some(PartialSuccess {
            rejected,
            error_message: "too old".to_owned(),
        });
        ExportAnswer { partial_success }.encode_to_vec()
    }

    #[test]
    fn answer_that_is_none_of_a_collector_is_a_failure_and_one_may_take_a_part() {
        for taken in [Vec::new(), answer(0), answer(-1)] {
            assert_eq!(accepted(&taken), Ok(()), "{taken:?}");
        }
        for body in ["<html", "{}", "OK"] {
            let failure = accepted(body.as_bytes()).expect_err("it is no answer");
            assert!(failure.reason.contains(body), "{failure:?}");
            assert_eq!(
                (failure.may_pass, failure.rejected),
                (false, None),
                "{body}"
            );
        }
        let failure = accepted(&answer(7)).expect_err("seven are lost");
        assert_eq!((failure.may_pass, failure.rejected), (false, Some(7)));
        assert!(failure.reason.contains("too old"), "{failure:?}");
    }

    #[test]
    fn collector_is_left_alone_for_seconds_or_until_a_date_and_never_for_long() {
        // Sun, 06 Nov 1994 08:49:37 GMT, and a minute earlier.
        let today = Timestamp(784_111_777_000 - 60_000);
        for (text, seconds) in [
            ("7", Some(7)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(60)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(600)),
            ("soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
            let waited = wait(&headers, today);
            assert_eq!(waited, seconds.map(Duration::from_secs), "{text}");
        }
        assert_eq!(wait(&HeaderMap::new(), today), None);
    }
}
