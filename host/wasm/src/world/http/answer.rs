//! Converts the response of an HTTP handler into a verdict. Does not depend on guests.

use crate::output::escape_control_characters;
use bytes::Bytes;
use dispatcher_core::clock::{Timestamp, retry_after};
use dispatcher_core::message::{FailureReason, Verdict};
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use std::fmt::Debug;
use std::time::Duration;

/// The maximum number of characters of a response's body that are shown to users.
const TOLD: usize = 200;
/// The number of bytes of a body that are kept to find these characters, also behind the head of an
/// HTML page; the rest is read and dropped.
const KEPT: usize = 4_096;

/// The part of a response that has arrived so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResponsePart {
    /// No response was given.
    Nothing,
    /// The handler gave an error instead of a response.
    Error(String),
    /// A response, which may be incomplete.
    Answer(HandlerResponse),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct HandlerResponse {
    status: StatusCode,
    retry_after: Option<String>,
    /// The first bytes of its body.
    body: Vec<u8>,
    /// The reason why its body broke off, if the handler reported it.
    broke: Option<String>,
}

/// Reads the response as it arrives. Ends with the response, which may never end.
pub(super) async fn listen<B>(given: Result<Response<B>, impl Debug>, heard: &mut ResponsePart)
where
    B: BodyExt<Data = Bytes, Error: Debug> + Unpin,
{
    let response = match given {
        Ok(response) => response,
        Err(error) => {
            *heard = ResponsePart::Error(format!("{error:?}"));
            return;
        }
    };
    let (head, mut body) = response.into_parts();
    let retry_after = head
        .headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    *heard = ResponsePart::Answer(HandlerResponse {
        status: head.status,
        retry_after: retry_after.map(str::to_owned),
        body: Vec::new(),
        broke: None,
    });
    let ResponsePart::Answer(answer) = heard else {
        return;
    };
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

impl ResponsePart {
    /// Returns the verdict on the message.
    pub(super) fn verdict(self, today: Timestamp) -> Verdict {
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
        match self.status {
            status if status.is_success() => match self.broke {
                None => Verdict::Done,
                Some(why) => failed(format!(
                    "it answered {}, and its body broke off: {}",
                    self.status,
                    cut(&why)
                )),
            },
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Verdict::Retry {
                after: self.retry_after.and_then(|text| wait(&text, today)),
                why: FailureReason::RequestedWith(told),
            },
            StatusCode::REQUEST_TIMEOUT => failed(format!("it answered {told}")),
            status if status.is_client_error() => Verdict::Reject(told),
            // Nothing follows a redirect or waits for another response, so these fail too.
            _ => failed(format!("it answered {told}")),
        }
    }

    /// Returns the status and the beginning of the body, for users.
    fn summary(&self) -> String {
        let body = cut(&without_markup(String::from_utf8_lossy(&self.body).trim()));
        if body.is_empty() {
            self.status.to_string()
        } else {
            format!("{}: {body}", self.status)
        }
    }
}

/// Returns the text of an HTML or XML page, in one line. Other texts stay as they are.
fn without_markup(body: &str) -> String {
    if !body.starts_with('<') {
        return body.to_owned();
    }
    let mut text = String::new();
    let mut rest = body;
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        text.push(' ');
        let tag = &rest[start..];
        // Styles and scripts are not text.
        let hidden = ["style", "script"].into_iter().find(|name| {
            let begins = tag.get(1..=name.len());
            begins.is_some_and(|begins| begins.eq_ignore_ascii_case(name))
        });
        let tag = match hidden {
            Some(name) => tag.find(&format!("</{name}")).map_or("", |at| &tag[at..]),
            None => tag,
        };
        rest = tag.find('>').map_or("", |end| &tag[end + 1..]);
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn failed(why: String) -> Verdict {
    Verdict::Retry {
        after: None,
        why: FailureReason::Failed(why),
    }
}

/// Returns the beginning of a text, for users.
fn cut(text: &str) -> String {
    let text: String = text.chars().take(TOLD).collect();
    escape_control_characters(&text)
}

/// Returns the delay that `Retry-After` requests: seconds, or a date. Returns `None` if it is
/// neither, or if the delay is zero: a clock that is a little ahead must not use up all attempts at
/// once, so the back-off applies.
fn wait(text: &str, today: Timestamp) -> Option<Duration> {
    // The contract counts in milliseconds, so the delay is limited to its maximum.
    let after = retry_after(text, today)?.min(Duration::from_millis(u64::MAX));
    (!after.is_zero()).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_page_is_quoted_as_text() {
        let page = "<html><head><title>502 Bad Gateway</title><STYLE>p {}</style></head>\n\
                    <body><center><h1>502 Bad Gateway</h1></center><hr>nginx</body></html>";
        for (body, text) in [
            (page, "502 Bad Gateway 502 Bad Gateway nginx"),
            ("<p>a<script>cut off", "a"),
            ("<", ""),
            ("a < b", "a < b"),
            (r#"{"error": "<b>"}"#, r#"{"error": "<b>"}"#),
        ] {
            assert_eq!(without_markup(body), text);
        }
    }
}
