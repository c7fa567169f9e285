//! Converts a message into an HTTP request. Pure; does not depend on guests.

use bytes::Bytes;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{AttributeValue, Message};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

/// The content type of the body if the sender sets none.
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// The URI of the request. The host is never contacted.
const URI: &str = "http://localhost/";

/// Creates a POST request with the body, and with the other values of the message in its headers.
/// `queue` is its queue as the configuration names it.
pub(super) fn of(message: &Message, queue: &str, attempt: &Attempt) -> Request<Full<Bytes>> {
    let body = Bytes::from(message.body.clone());
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(URI);
    *request.headers_mut() = headers(message, queue, attempt);
    request
}

fn headers(message: &Message, queue: &str, attempt: &Attempt) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_LENGTH, message.body.len().into());
    headers.insert(CONTENT_TYPE, content_type(message));
    headers.insert("dispatcher-receive-count", message.receive_count.into());
    headers.insert("dispatcher-deadline-ms", attempt.deadline.date().0.into());
    if let Some(date) = message.sent_at {
        headers.insert("dispatcher-sent-at-ms", date.0.into());
    }
    let texts = [
        ("dispatcher-message-id", Some(&*message.id)),
        ("dispatcher-queue", Some(queue)),
        ("dispatcher-group", message.group.as_deref()),
    ];
    for (name, text) in texts {
        let value = text.and_then(|text| HeaderValue::from_bytes(text.as_bytes()).ok());
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
    for attribute in &message.attributes {
        let AttributeValue::Text(text) = &attribute.value else {
            continue;
        };
        let header = format!("dispatcher-attribute-{}", attribute.name);
        let name = HeaderName::from_bytes(header.as_bytes());
        let value = HeaderValue::from_bytes(text.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            // Two names that differ only in capitals become one header with two values. Fails
            // beyond 30,000 headers, for which no message has room.
            let _ = headers.try_append(name, value);
        }
    }
    headers
}

/// Returns the sender's `content-type` attribute, or the default.
fn content_type(message: &Message) -> HeaderValue {
    let mut attributes = message.attributes.iter();
    let said = attributes.find_map(|attribute| match &attribute.value {
        AttributeValue::Text(text) if attribute.name.eq_ignore_ascii_case("content-type") => {
            HeaderValue::from_bytes(text.as_bytes()).ok()
        }
        _ => None,
    });
    said.unwrap_or(BYTES)
}
