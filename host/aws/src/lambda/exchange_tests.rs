//! Requests and responses over a pipe in memory: what is written, what is read however it is cut, and
//! whether the connection may be used again.

use super::*;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};

fn outgoing(body: &str) -> SerializedPost {
    let request = Request::post("http://lambda.test:8000/a%3Ab?q=1")
        .header("x-amz-log-type", "Tail")
        .header("x-long", "l".repeat(3_000))
        .body(SdkBody::from(body));
    SerializedPost::new(request.expect("a request")).expect("it is HTTP/1.1")
}

/// What is read of a server that writes these pieces, and then closes the connection or keeps it open.
async fn response(
    pieces: &[&[u8]],
    closes: bool,
) -> Result<(Response<Vec<u8>>, bool), ExchangeError> {
    let (mut ours, mut theirs) = duplex(1 << 20);
    let writing = async {
        for piece in pieces {
            theirs.write_all(piece).await.expect("somebody reads");
            tokio::task::yield_now().await;
        }
        // Kept open until the response was read, or closed now.
        (!closes).then_some(theirs)
    };
    let (read, _open): (_, Option<DuplexStream>) = tokio::join!(read(&mut ours), writing);
    read
}

async fn text(whole: &str, closes: bool) -> (u16, String, bool) {
    let (response, reusable) = response(&[whole.as_bytes()], closes)
        .await
        .expect("a response");
    let status = response.status().as_u16();
    let body = String::from_utf8(response.into_body()).expect("text");
    (status, body, reusable)
}

#[tokio::test]
async fn a_request_is_written_once_with_its_host_and_length() {
    for body in ["", "{\"a\":1}"] {
        let (mut ours, mut theirs) = duplex(1 << 16);
        outgoing(body).write(&mut ours).await.expect("written");
        drop(ours);
        let mut written = String::new();
        theirs.read_to_string(&mut written).await.expect("text");
        let (head, rest) = written.split_once("\r\n\r\n").expect("an empty line");
        assert_eq!(rest, body);
        assert!(head.starts_with("POST /a%3Ab?q=1 HTTP/1.1\r\n"), "{head}");
        for line in [
            "host: lambda.test:8000".to_owned(),
            format!("content-length: {}", body.len()),
            "x-amz-log-type: Tail".to_owned(),
            format!("x-long: {}", "l".repeat(3_000)),
        ] {
            let found = head.lines().filter(|found| **found == line).count();
            assert_eq!(found, 1, "{line} in {head}");
        }
    }
}

#[tokio::test]
async fn a_write_that_fails_says_whether_it_began() {
    let (mut ours, theirs) = duplex(16);
    drop(theirs);
    let failed = outgoing("{}").write(&mut ours).await;
    assert!(!failed.expect_err("nobody is there").began);
    let (mut ours, mut theirs) = duplex(16);
    let leaves = async move {
        theirs.read_exact(&mut [0; 16]).await.expect("the begin");
    };
    let sent = outgoing("{}");
    let (failed, ()) = tokio::join!(sent.write(&mut ours), leaves);
    assert!(failed.expect_err("it has gone").began);
}

#[tokio::test]
async fn bodies_end_as_their_heads_say() {
    let sized = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]";
    assert_eq!(text(sized, false).await, (200, "[1,2]".into(), true));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3;a=b\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n";
    assert_eq!(text(chunked, false).await, (200, "[1,2]".into(), true));
    let empty = "HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(text(empty, false).await, (204, String::new(), true));
    let until_closed = "HTTP/1.1 502 Bad Gateway\r\n\r\n[1,2]";
    assert_eq!(text(until_closed, true).await, (502, "[1,2]".into(), false));
}

#[tokio::test]
async fn a_connection_that_ends_or_says_too_much_is_not_used_again() {
    let last = "HTTP/1.1 429 Slow\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(text(last, false).await, (429, "{}".into(), false));
    let old = "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(text(old, false).await, (200, "{}".into(), false));
    let more = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n";
    assert_eq!(text(more, false).await, (200, "{}".into(), false));
}

#[tokio::test]
async fn what_informs_before_a_response_is_passed_over() {
    let after = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
                 HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(text(after, false).await, (301, "{}".into(), true));
}

#[tokio::test]
async fn a_response_that_is_cut_off_or_none_is_an_error() {
    for whole in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n",
    ] {
        let read = response(&[whole.as_bytes()], true).await;
        assert!(matches!(read, Err(ExchangeError::Closed)), "{whole}");
    }
    let other = response(&[b"+OK redis\r\n\r\n"], false).await;
    assert!(matches!(other, Err(ExchangeError::Protocol(_))));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(LONGEST_HEAD));
    let long = response(&[long.as_bytes()], false).await;
    assert!(matches!(long, Err(ExchangeError::LongHead)));
}

proptest! {
    #[test]
    fn a_response_is_the_same_however_it_is_cut(
        body in prop::collection::vec(any::<u8>(), 0..2_000),
        chunk in prop::option::of(1_usize..700),
        cuts in prop::collection::vec(1_usize..400, 1..12),
    ) {
        let mut whole = b"HTTP/1.1 200 OK\r\nX-Amzn-RequestId: r-1\r\n".to_vec();
        match chunk {
            None => {
                whole.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                whole.extend(&body);
            }
            Some(size) => {
                whole.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for part in body.chunks(size) {
                    whole.extend(format!("{:x}\r\n", part.len()).bytes());
                    whole.extend(part);
                    whole.extend(b"\r\n");
                }
                whole.extend(b"0\r\n\r\n");
            }
        }
        let (mut pieces, mut rest) = (Vec::new(), whole.as_slice());
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at(rest.len().min(*cut));
            pieces.push(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (response, reusable) = runtime.block_on(response(&pieces, false)).expect("a response");
        prop_assert!(reusable);
        prop_assert_eq!(&response.headers()["x-amzn-requestid"], "r-1");
        prop_assert_eq!(response.into_body(), body);
    }
}
