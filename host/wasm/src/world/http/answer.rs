//! Converts the response of an HTTP handler into a verdict. Knows no guest.

use crate::output::escape_control_characters;
use bytes::Bytes;
use dispatcher_core::clock::{Timestamp, retry_after};
use dispatcher_core::message::{FailureReason, Verdict};
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use std::fmt::Debug;
use std::time::Duration;

/// Maximum characters of a response's body that are shown to people.
const TOLD: usize = 200;
/// This many bytes contain them in any case; the rest of a body is read and dropped.
const KEPT: usize = TOLD * 4;

/// What has been heard of an answer so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// None was given.
    Nothing,
    /// In place of one, why there is none.
    Error(String),
    /// One, perhaps not to its end.
    Answer(HandlerResponse),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct HandlerResponse {
    status: StatusCode,
    retry_after: Option<String>,
    /// The first bytes of its body.
    body: Vec<u8>,
    /// Why its body broke off, if the handler reported it.
    broke: Option<String>,
}

/// Takes what is answered as it comes. Ends with the answer, which may be never.
pub(super) async fn listen<B>(given: Result<Response<B>, impl Debug>, heard: &mut Heard)
where
    B: BodyExt<Data = Bytes, Error: Debug> + Unpin,
{
    let response = match given {
        Ok(response) => response,
        Err(error) => {
            *heard = Heard::Error(format!("{error:?}"));
            return;
        }
    };
    let (head, mut body) = response.into_parts();
    let retry_after = head.headers.get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok());
    *heard = Heard::Answer(HandlerResponse {
        status: head.status,
        retry_after: retry_after.map(str::to_owned),
        body: Vec::new(),
        broke: None,
    });
    let Heard::Answer(answer) = heard else { return };
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                answer.broke = Some(format!("{error:?}"));
                return;
            }
        };
        if let Some(bytes) = frame.data_ref() {
            let room = KEPT - answer.body.len();
            answer.body.extend(bytes.iter().take(room));
        }
    }
}

impl Heard {
    /// What is to become of the message.
    pub(super) fn verdict(self, today: Timestamp) -> Verdict {
        let failed = |why| Verdict::Retry {
            after: None,
            why: FailureReason::Failed(why),
        };
        match self {
            Self::Nothing => failed("it returned without a response".into()),
            Self::Error(error) => failed(format!("it returned an error: {}", cut(&error))),
            Self::Answer(answer) => answer.verdict(today),
        }
    }
}

impl HandlerResponse {
    fn verdict(self, today: Timestamp) -> Verdict {
        let told = self.summary();
        let failed = |told| Verdict::Retry {
            after: None,
            why: FailureReason::Failed(format!("it answered {told}")),
        };
        match self.status {
            status if status.is_success() => match self.broke {
                None => Verdict::Done,
                Some(why) => failed(format!(
                    "{}, and its body broke off: {}",
                    self.status,
                    cut(&why)
                )),
            },
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Verdict::Retry {
                after: self.retry_after.and_then(|text| wait(&text, today)),
                why: FailureReason::RequestedWith(told),
            },
            StatusCode::REQUEST_TIMEOUT => failed(told),
            status if status.is_client_error() => Verdict::Reject(told),
            // To ask elsewhere, or to wait for more, is nobody's to do.
            _ => failed(told),
        }
    }

    /// Status and beginning of the body, for people.
    fn summary(&self) -> String {
        let body = cut(String::from_utf8_lossy(&self.body).trim());
        match body.is_empty() {
            true => self.status.to_string(),
            false => format!("{}: {body}", self.status),
        }
    }
}

/// The beginning of a text, for people.
fn cut(text: &str) -> String {
    let text: String = text.chars().take(TOLD).collect();
    escape_control_characters(&text)
}

/// How long `Retry-After` says to wait: seconds, or a date. None if it is neither, and if it is no
/// time at all: a clock that is a little ahead must not use all tries up at once, so the back-off
/// counts.
fn wait(text: &str, today: Timestamp) -> Option<Duration> {
    // Milliseconds are what the contract counts in; no wish is longer than what it can say.
    let after = retry_after(text, today)?.min(Duration::from_millis(u64::MAX));
    (!after.is_zero()).then_some(after)
}
