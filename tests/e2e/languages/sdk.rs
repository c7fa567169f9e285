//! What `guest-sdk` promises to people who write handlers in Rust: what is granted works by it in a
//! component, what `?` makes of an error is what the queue is told, and a handler is tested natively.

use crate::scene::{guest, run, send};
use dispatcher_tests::child::{Program, Signal};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};

/// The verdict on one body, without a queue, by the guest that does what it says.
fn invoke(body: &Value, grants: &[&str]) -> String {
    let (guest, body) = (guest("granted"), body.to_string());
    let mut arguments = vec!["plugin", "invoke", &guest, &body];
    arguments.extend(grants);
    Program::new(arguments).run().stdout.trim().to_owned()
}

/// What the guest got.
fn got(body: &Value, grants: &[&str]) -> Value {
    let said = invoke(body, grants);
    let got = said.strip_prefix("reject: got ").map(serde_json::from_str);
    got.and_then(Result::ok)
        .unwrap_or_else(|| panic!("{body}: {said}"))
}

/// A server that answers a request by its path, and says in a header how long its body was; where it
/// listens.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("it connects");
            std::thread::spawn(move || {
                let answer = answer(&request(&mut connection));
                let _ = connection.write_all(answer.as_bytes());
            });
        }
    });
    address
}

/// A request, its body included.
fn request(connection: &mut impl Read) -> String {
    let (mut request, mut some) = (String::new(), [0; 4096]);
    loop {
        let read = connection.read(&mut some).expect("it is read");
        request += std::str::from_utf8(&some[..read]).expect("ASCII");
        let Some((head, body)) = request.split_once("\r\n\r\n") else {
            continue;
        };
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        if read == 0 || body.len() >= length.map_or(0, |it| it.parse().expect("a length")) {
            return request;
        }
    }
}

static ASKED: AtomicBool = AtomicBool::new(false);

fn answer(request: &str) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap_or_default();
    let line = head.lines().next().unwrap_or_default();
    let (status, more, text) = match line.split(' ').nth(1).unwrap_or_default() {
        "/busy" => (429, "retry-after: 7\r\n", "later"),
        "/away" => (503, "", "later"),
        // Known to whoever asks first.
        "/c-7" if !ASKED.swap(true, Ordering::SeqCst) => (200, "", "{\"name\": \"Ada\"}"),
        "/unknown" | "/c-7" => (404, "", "nobody"),
        // Silence until the other side has had enough.
        "/never" => {
            std::thread::park();
            unreachable!("nobody unparks it")
        }
        _ => (200, "", "hello"),
    };
    let length = text.len();
    let line = format!("{line} {}", body.len());
    format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\
         x-answer: {line}\r\n\r\n{text}"
    )
}

fn http(url: &str, limit: usize, timeout_ms: Option<u64>, waits: bool) -> Value {
    json!({
        "do": "http", "method": "POST", "url": url, "body": "b".repeat(10_000), "limit": limit,
        "timeout_ms": timeout_ms, "waits": waits,
    })
}

#[test]
fn sdk_sends_http_and_interprets_responses() {
    for waits in [false, true] {
        sends_http(waits);
    }
}

/// Holding the instance, or awaiting the answer.
fn sends_http(waits: bool) {
    let http = |url: &str, limit, timeout_ms| http(url, limit, timeout_ms, waits);
    let server = server();
    let granted = ["--allow-http", server.as_str()];
    let url = |path: &str| format!("http://{server}{path}");
    let answer = got(&http(&url("/x?y=1#z"), 5, None), &granted);
    let echoed = "POST /x?y=1 HTTP/1.1 10000";
    assert_eq!(answer, json!([200, echoed, "hello"]));
    let late = format!(
        "retry: timed out: no complete response in time: {}",
        url("/never")
    );
    for (path, limit, timeout_ms, verdict) in [
        ("/x", 4, None, "retry: the response has more than 4 bytes"),
        ("/busy", 5, None, "retry after 7s: the response: 429 later"),
        ("/away", 5, None, "retry: the response: 503 later"),
        ("/unknown", 6, None, "reject: the response: 404 nobody"),
        ("/never", 5, Some(300), &late),
    ] {
        let said = invoke(&http(&url(path), limit, timeout_ms), &granted);
        assert_eq!(said, verdict, "{path}");
    }
    let nobody = dispatcher_tests::servers::free_port();
    let nobody = format!("127.0.0.1:{nobody}");
    let refused = invoke(
        &http(&format!("http://{nobody}/"), 5, None),
        &["--allow-http", &nobody],
    );
    let why = "retry: no connection: connection refused: http://";
    assert!(refused.starts_with(why), "{refused}");
    let shut = invoke(&http(&url("/x"), 5, None), &[]);
    let why = "retry: not granted: the configuration does not allow this plugin";
    assert!(shut.starts_with(why), "{shut}");
    let no_url = invoke(&http("ftp://x/", 5, None), &granted);
    assert!(
        no_url.starts_with("reject: not a valid request: "),
        "{no_url}"
    );
}

#[test]
fn sdk_reads_settings_and_closes_the_route_on_an_invalid_one() {
    let body = json!({"do": "setting", "name": "N"});
    assert_eq!(got(&body, &[]), json!([null, []]));
    let set = ["--setting", "N= 7", "--setting", "M=x"];
    let all = got(&body, &set);
    assert_eq!(all[0], 7);
    assert_eq!(all[1].as_array().map(Vec::len), Some(2));
    let said = invoke(&body, &["--setting", "N=seven"]);
    let why = "closed: the setting `N`: invalid digit found in string: `seven`";
    assert_eq!(said, why);
}

#[test]
fn sdk_stores_values_and_retries_on_a_denied_store() {
    let body = json!({"do": "store", "store": "mine", "key": "k", "to": 3});
    let granted = ["--store", "mine=local:b"];
    assert_eq!(got(&body, &granted), json!([null, 30, ["k"], false]));
    let shut = invoke(&body, &[]);
    assert_eq!(
        shut,
        "retry: the store `mine` is not granted: --store mine=local:mine"
    );
}

#[test]
fn sdk_exposes_the_attempt_and_maps_errors() {
    let told = got(&json!({"do": "tell"}), &[]);
    assert_eq!(
        (&told["attempt"], &told["has-time"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(told["cancelled"], false);
    let digit = "invalid digit found in string";
    for (body, verdict) in [
        (
            json!({"do": "fail", "marked": false}),
            format!("retry: {digit}"),
        ),
        (
            json!({"do": "fail", "marked": true}),
            format!("reject: {digit}"),
        ),
    ] {
        assert_eq!(invoke(&body, &[]), verdict);
    }
    let malformed = invoke(&json!({"do": "dance"}), &[]);
    assert!(
        malformed.starts_with("reject: the body: unknown variant `dance`"),
        "{malformed}"
    );
}

#[tokio::test]
async fn enrich_example_requests_each_customer_once() {
    let server = server();
    let customers = format!("CUSTOMERS=http://{server}");
    let granted = [
        "--allow-http",
        &server,
        "--setting",
        &customers,
        "--setting",
        "ENRICHED=local:enriched",
        "--store",
        "names=local:names",
        "--allow-send",
        "local:enriched",
    ];
    let mut running = run("enrich", &granted).start();
    let order = |id| json!({"id": id, "customer": "c-7"}).to_string();
    send(running.data().path(), "default", [order("o-1")]).await;
    running.wait_for_line(|line| line.contains("order o-1 of Ada: sent as"));
    // The service would not know the customer any more.
    send(running.data().path(), "default", [order("o-2")]).await;
    running.wait_for_line(|line| line.contains("order o-2 of Ada: sent as"));
    crate::scene::until_depth(running.data().path(), "enriched", |depth| {
        depth.waiting == 2
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}
