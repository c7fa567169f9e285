//! One signal's way to the collector: a request for each part, with a bound on its time and on the
//! answer. Knows no signal.

use super::OtlpSignal;
use super::proto::ExportAnswer;
use bytes::Bytes;
use dispatcher_core::clock;
use dispatcher_core::clock::{Timestamp, retry_after};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{Client, Response, StatusCode};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The most bytes of an answer that are read.
const LONGEST_ANSWER: usize = 64 << 10;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest that a collector's `Retry-After` is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The media type of OTLP's binary encoding.
const PROTOBUF: &str = "application/x-protobuf";
/// The one compression.
const GZIP: &str = "gzip";

/// Sends the parts of one signal.
#[derive(Debug, Clone)]
pub(crate) struct OtlpTransport {
    client: Client,
    url: String,
    is_compressed: bool,
}

/// Why the collector did not take a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OtlpFailure {
    /// One line for a person.
    pub reason: String,
    /// Whether sending it again may help.
    pub may_pass: bool,
    /// How long the collector wants to be left alone.
    pub retry_after: Option<Duration>,
}

impl OtlpFailure {
    fn lasting(reason: String) -> Self {
        Self {
            reason,
            may_pass: false,
            retry_after: None,
        }
    }
}

impl OtlpTransport {
    /// Connects to nothing.
    ///
    /// # Errors
    /// In words: the certificates cannot be used, the key, or a header.
    pub(crate) fn new(signal: &OtlpSignal) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        for (name, value) in &signal.headers {
            let bad = |_| format!("`{name}` is not the name of a header, or its value is not text");
            let name = HeaderName::try_from(name.as_str()).map_err(|_| bad(()))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| bad(()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let mut client = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("dispatcher/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT.min(signal.timeout))
            .timeout(signal.timeout)
            // What is sent may not go elsewhere.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(file) = &signal.ca_file {
            let (shown, pem) = (file.display(), read_file(file)?);
            let all = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|why| format!("`{shown}` has no certificates: {why}"))?;
            client = all
                .into_iter()
                .fold(client, |client, one| client.add_root_certificate(one));
        }
        if let Some((certificate, key)) = &signal.identity {
            let mut pem = read_file(key)?;
            pem.push(b'\n');
            pem.extend(read_file(certificate)?);
            let (certificate, key) = (certificate.display(), key.display());
            let identity = reqwest::Identity::from_pem(&pem).map_err(|why| {
                format!("`{certificate}` and `{key}` are no certificate with its key: {why}")
            })?;
            client = client.identity(identity);
        }
        Ok(Self {
            client: client.build().map_err(|error| chain(&error))?,
            url: signal.url.clone(),
            is_compressed: signal.is_compressed,
        })
    }

    /// Sends one part in OTLP's binary encoding. Returns within the signal's timeout.
    ///
    /// # Errors
    /// Why, and whether sending it again may help: not where the collector took a part of it only.
    pub(crate) async fn send(&self, body: Bytes) -> Result<(), OtlpFailure> {
        let mut request = self.client.post(&self.url);
        request = if self.is_compressed {
            let packed = gzip(&body).map_err(|why| OtlpFailure::lasting(why.to_string()))?;
            request.header(CONTENT_ENCODING, GZIP).body(packed)
        } else {
            request.body(body)
        };
        let answer = request.send().await.map_err(|error| OtlpFailure {
            reason: chain(&error.without_url()),
            may_pass: true,
            retry_after: None,
        })?;
        let status = answer.status();
        let retry_after = wait(answer.headers(), clock::wall_clock_now());
        let text = read(answer).await;
        if status.is_success() {
            return accepted(&text);
        }
        let text: String = String::from_utf8_lossy(&text).chars().take(200).collect();
        let words = format!("{}: answered {status} {}", self.url, text.trim());
        let words = words.trim_end().to_owned();
        let may_pass = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        Err(OtlpFailure {
            reason: words,
            may_pass,
            retry_after,
        })
    }
}

/// How long the collector wants to be left alone, by its `Retry-After`.
fn wait(headers: &HeaderMap, today: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    Some(retry_after(text, today)?.min(LONGEST_WAIT))
}

fn gzip(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

fn read_file(file: &Path) -> Result<Vec<u8>, String> {
    let read = std::fs::read(file);
    read.map_err(|why| format!("cannot read `{}`: {why}", file.display()))
}

/// The answer's body as far as it is read; a failure ends it.
async fn read(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > LONGEST_ANSWER {
            break;
        }
    }
    body
}

/// A collector may take a part and say so. An answer that cannot be read says nothing.
fn accepted(body: &[u8]) -> Result<(), OtlpFailure> {
    let answer = ExportAnswer::decode(body).unwrap_or_default();
    match answer.partial_success {
        Some(partial) if partial.rejected > 0 => Err(OtlpFailure::lasting(format!(
            "the collector rejected {} of it: {}",
            partial.rejected, partial.error_message
        ))),
        _ => Ok(()),
    }
}

fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

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
