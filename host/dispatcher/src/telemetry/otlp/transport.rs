//! One signal's way to the collector: a request for each part, with a bound on its time and on the
//! answer. Knows no signal.

use super::OtlpSignal;
use super::proto::ExportAnswer;
use crate::telemetry::publish::SendError;
use bytes::Bytes;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use std::error::Error;
use std::time::Duration;

/// The most bytes of an answer that are read.
const LONGEST_ANSWER: usize = 64 << 10;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The media type of OTLP's binary encoding.
const PROTOBUF: &str = "application/x-protobuf";

/// Sends the parts of one signal.
#[derive(Debug, Clone)]
pub struct OtlpTransport {
    client: Client,
    url: String,
}

impl OtlpTransport {
    /// Connects to nothing.
    ///
    /// # Errors
    /// In words: the certificates cannot be used, or a header.
    pub fn new(signal: &OtlpSignal) -> Result<Self, String> {
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
            let shown = file.display();
            let pem = std::fs::read(file).map_err(|why| format!("cannot read `{shown}`: {why}"))?;
            let all = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|why| format!("`{shown}` has no certificates: {why}"))?;
            client = all
                .into_iter()
                .fold(client, |client, one| client.add_root_certificate(one));
        }
        Ok(Self {
            client: client.build().map_err(|error| chain(&error))?,
            url: signal.url.clone(),
        })
    }

    /// Sends one part in OTLP's binary encoding. Returns within the signal's timeout.
    ///
    /// # Errors
    /// `Failed` where sending it again may help; then `Refused`, also where the collector took a part
    /// of it only.
    pub async fn send(&self, body: Bytes) -> Result<(), SendError> {
        let sent = self.client.post(&self.url).body(body).send().await;
        let answer = sent.map_err(|error| SendError::Failed(chain(&error.without_url())))?;
        let status = answer.status();
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
        Err(match may_pass {
            true => SendError::Failed(words),
            false => SendError::Refused(words),
        })
    }
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
fn accepted(body: &[u8]) -> Result<(), SendError> {
    let answer = ExportAnswer::decode(body).unwrap_or_default();
    match answer.partial_success {
        Some(partial) if partial.rejected > 0 => Err(SendError::Refused(format!(
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
