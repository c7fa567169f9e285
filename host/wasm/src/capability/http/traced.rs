//! Makes the span of a request, and the headers by which the other side continues the trace.

use super::failure::SendFailure;
use super::host::RequestTarget;
use dispatcher_core::telemetry::trace::{
    ActiveSpan, CallAnswer, CallSpan, CallStart, RemoteContext, SpanContext, SpanKind,
};
use http::header::{HeaderMap, HeaderValue};
use http::{Request, Response, Uri};

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
const X_RAY: &str = "x-amzn-trace-id";

/// Begins the span of a request if traces are recorded. If `forwards` is set, the request carries
/// the headers of a message, and this span replaces their parent; otherwise the guest's headers are
/// kept.
pub(super) fn begin<B>(
    attempt: &ActiveSpan,
    request: &mut Request<B>,
    target: &RequestTarget,
    forwards: bool,
) -> Option<CallSpan> {
    let call = attempt.begin_call(|_| CallStart {
        kind: SpanKind::Client,
        name: request.method().to_string(),
        attributes: vec![
            (
                "http.request.method",
                request.method().as_str().to_owned().into(),
            ),
            ("server.address", target.host().to_owned().into()),
            ("server.port", u32::from(target.port()).into()),
            ("url.full", shown_url(request.uri()).into()),
        ],
    })?;
    continue_trace(request.headers_mut(), call.context(), forwards);
    Some(call)
}

/// Returns the end of the span: the head of the response, or the failure.
pub(super) fn answered<B>(answer: &Result<Response<B>, SendFailure>) -> CallAnswer {
    let mut attributes = Vec::new();
    let mut failure = None;
    match answer {
        Ok(answer) => {
            let status = answer.status();
            let code = u32::from(status.as_u16());
            attributes.push(("http.response.status_code", code.into()));
            if status.is_client_error() || status.is_server_error() {
                attributes.push(("error.type", status.as_str().to_owned().into()));
                failure = Some(format!("answered {status}"));
            }
        }
        Err(error) => {
            attributes.push(("error.type", "no-answer".into()));
            failure = Some(match error {
                SendFailure::NotSent { words, .. } if !words.is_empty() => words.clone(),
                error => format!("{:?}", error.code()),
            });
        }
    }
    CallAnswer {
        attributes,
        failure,
    }
}

/// Returns a URL without the values of its query, which may be secret.
fn shown_url(uri: &Uri) -> String {
    let Some(query) = uri.query() else {
        return uri.to_string();
    };
    let whole = uri.to_string();
    let start = whole.split('?').next().unwrap_or_default();
    let shown = query.split('&').map(|part| match part.split_once('=') {
        Some((name, _)) => format!("{name}=REDACTED"),
        None => "REDACTED".to_owned(),
    });
    format!("{start}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// Adds the span to the headers.
fn continue_trace(headers: &mut HeaderMap, context: SpanContext, forwards: bool) {
    if headers.contains_key(TRACEPARENT) && !forwards {
        return;
    }
    if let Ok(parent) = HeaderValue::try_from(context.traceparent()) {
        let replaced = headers
            .insert(TRACEPARENT, parent)
            .as_ref()
            .and_then(|parent| parent.to_str().ok())
            .and_then(RemoteContext::from_traceparent);
        // The state of another trace does not apply to this one.
        if replaced.is_none_or(|replaced| replaced.trace_id != context.trace_id) {
            headers.remove(TRACESTATE);
        }
    }
    if headers.contains_key(X_RAY)
        && let Ok(header) = HeaderValue::try_from(context.x_ray())
    {
        headers.insert(X_RAY, header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_not_shown() {
        for (address, shown) in [
            ("http://a:1/jobs", "http://a:1/jobs"),
            (
                "https://a/b?key=secret&id=7&token",
                "https://a/b?key=REDACTED&id=REDACTED&REDACTED",
            ),
        ] {
            let uri: Uri = address.parse().expect("an address");
            assert_eq!(shown_url(&uri), shown);
        }
    }

    const OWN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(names: &[&'static str]) -> HeaderMap {
        let all = names.iter().map(|name| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(OWN))
        });
        all.collect()
    }

    #[test]
    fn forwarded_headers_follow_the_span_and_those_of_a_guest_are_kept() {
        let mine = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
        let remote = RemoteContext::from_traceparent(mine).expect("it is one");
        let context = remote.span().expect("it is one");
        let mut plain = HeaderMap::new();
        continue_trace(&mut plain, context, false);
        assert_eq!(plain[TRACEPARENT], mine);
        assert!(!plain.contains_key(X_RAY));
        let mut kept = headers(&[TRACEPARENT, TRACESTATE]);
        continue_trace(&mut kept, context, false);
        assert_eq!(
            (&kept[TRACEPARENT], kept.len()),
            (&OWN.parse().expect("text"), 2)
        );
        let mut forwarded = headers(&[TRACEPARENT, TRACESTATE, X_RAY]);
        continue_trace(&mut forwarded, context, true);
        assert_eq!(forwarded[TRACEPARENT], mine);
        assert_eq!(forwarded[X_RAY], context.x_ray());
        assert!(!forwarded.contains_key(TRACESTATE));
        let mut continued = headers(&[TRACESTATE]);
        let sender = mine.replace("53995c3f", "63995c3f");
        continued.insert(TRACEPARENT, sender.parse().expect("text"));
        continue_trace(&mut continued, context, true);
        assert_eq!(continued[TRACEPARENT], mine);
        assert_eq!(continued[TRACESTATE], OWN);
    }
}
