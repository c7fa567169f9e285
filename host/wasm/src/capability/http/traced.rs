//! The span of one request, and the headers by which the other side continues the trace.

use super::host::RequestTarget;
use dispatcher_core::telemetry::trace::{
    ActiveSpan, CallAnswer, CallSpan, CallStart, RemoteContext, SpanContext, SpanKind,
};
use http::header::{HeaderMap, HeaderValue};
use http::{Request, Response, Uri};
use wasmtime_wasi_http::Error;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
const X_RAY: &str = "x-amzn-trace-id";

/// Begins the span of a request, unless nobody traces. `forwards`: the request passes on the headers of
/// a message, which this span follows; any other guest's own are kept.
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

/// How it ends: with the head of the answer.
pub(super) fn answered<B>(answer: &Result<Response<B>, Error>) -> CallAnswer {
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
            failure = Some(format!("{error:?}"));
        }
    }
    CallAnswer {
        attributes,
        failure,
    }
}

/// An address without what may be secret: the values of its query.
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

/// Names the span in the headers.
fn continue_trace(headers: &mut HeaderMap, context: SpanContext, forwards: bool) {
    if headers.contains_key(TRACEPARENT) && !forwards {
        return;
    }
    let value = |text: String| HeaderValue::try_from(text).ok();
    if let Some(parent) = value(context.traceparent()) {
        let replaced = headers.insert(TRACEPARENT, parent);
        let replaced = replaced.as_ref().and_then(|parent| parent.to_str().ok());
        let replaced = replaced.and_then(RemoteContext::from_traceparent);
        // What others noted about another trace says nothing about this one.
        if replaced.is_none_or(|replaced| replaced.trace_id != context.trace_id) {
            headers.remove(TRACESTATE);
        }
    }
    if headers.contains_key(X_RAY)
        && let Some(header) = value(context.x_ray())
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

    #[test]
    fn forwarded_headers_follow_the_span_and_those_of_a_guest_are_kept() {
        let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mine = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
        let context = RemoteContext::from_traceparent(mine).and_then(|remote| remote.span());
        let context = context.expect("it is one");
        let headers = |names: &[&'static str]| {
            let all = names.iter().map(|name| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(own))
            });
            all.collect::<HeaderMap>()
        };
        let mut plain = HeaderMap::new();
        continue_trace(&mut plain, context, false);
        assert_eq!(plain[TRACEPARENT], mine);
        assert!(!plain.contains_key(X_RAY));
        let mut kept = headers(&[TRACEPARENT, TRACESTATE]);
        continue_trace(&mut kept, context, false);
        assert_eq!(
            (&kept[TRACEPARENT], kept.len()),
            (&own.parse().expect("text"), 2)
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
        assert_eq!(continued[TRACESTATE], own);
    }
}
