//! Outgoing HTTP: what is granted, what is refused, how long is waited, and what breaks on the way.

use crate::capability::caller::Grant;
use crate::capability::http::{AddedHeaders, AllowedHosts};
use crate::tests::shared::begin;
use crate::tests::*;
use axum::Router;
use axum::body::Body;
use axum::response::Redirect;
use axum::routing::{get, post};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The control runtime of these tests: with its drivers, unlike `timers`.
fn control() -> tokio::runtime::Handle {
    static CONTROL: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let start = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    };
    CONTROL.get_or_init(start).handle().clone()
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = control()
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A server as they are.
fn server() -> SocketAddr {
    let (listener, address) = listen();
    let never = || async { std::future::pending::<()>().await };
    let echo = |body: bytes::Bytes| async move { format!("{} bytes came", body.len()) };
    let host = |headers: axum::http::HeaderMap| async move {
        let host = headers
            .get("host")
            .map(|host| host.to_str().unwrap_or_default().to_owned());
        host.unwrap_or_default()
    };
    let routes = Router::new()
        .route("/ok", get(|| async { "hello" }))
        .route("/host", get(host))
        .route("/never", get(never))
        .route("/moved", get(|| async { Redirect::to("/ok") }))
        .route("/big", get(|| async { Body::from(vec![b'y'; 8 << 20]) }))
        .route("/echo", post(echo));
    control().spawn(async move { axum::serve(listener, routes).await });
    address
}

/// A server that writes these bytes to whoever asks, and then closes the connection or keeps it.
fn raw(answer: Vec<u8>, keeps: bool) -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address) = listen();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    control().spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.read(&mut [0; 4096]).await;
            count.fetch_add(1, Ordering::SeqCst);
            let _ = connection.write_all(&answer).await;
            if keeps {
                kept.push(connection);
            }
        }
    });
    (address, asked)
}

struct HttpScene {
    plugin: LoadedPlugin,
    refused: Arc<AtomicUsize>,
}

fn scene(hosts: &[String]) -> HttpScene {
    scene_of("capable", MAX_MEMORY, hosts)
}

/// Of this guest, where an instance may have so much memory.
fn scene_of(guest: &str, max_memory: usize, hosts: &[String]) -> HttpScene {
    let (refused, count) = counting();
    let options = PluginOptions {
        refused: count,
        max_memory,
        ..granting(|grants| {
            grants.http = AllowedHosts {
                hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
                longest: LONG,
                attempts: None,
                headers: AddedHeaders::default(),
            };
        })
    };
    let runtime = RuntimeOptions {
        instances: 2,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let runtime = Runtime::start(runtime, control(), spawn()).unwrap();
    HttpScene {
        plugin: load(&runtime, guest, options),
        refused,
    }
}

impl HttpScene {
    fn says(&self, body: &str) -> String {
        rejection(&self.plugin, body)
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }
}

#[test]
fn without_a_grant_every_request_is_denied_and_counted() {
    let (asked, scene) = (server(), scene(&[]));
    for url in [
        &format!("http://{asked}/ok"),
        "https://example.com/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
    ] {
        assert_eq!(
            scene.says(&format!("http GET {url}")),
            "ErrorCode::HttpRequestDenied"
        );
    }
    assert_eq!(scene.refused(), 4);
}

#[test]
fn only_granted_hosts_are_reached() {
    let (granted, other) = (server(), server());
    let scene = scene(&[granted.to_string()]);
    let says = |body: &str| scene.says(body);
    assert_eq!(
        says(&format!("http GET http://{granted}/ok")),
        "got 200, 5 bytes: hello"
    );
    assert_eq!(
        says(&format!("http GET http://{granted}/host")),
        format!("got 200, 15 bytes: {granted}")
    );
    assert_eq!(
        says(&format!("http POST http://{granted}/echo 1000000")),
        "got 200, 18 bytes: 1000000 bytes came"
    );
    assert!(
        says(&format!("http GET http://{granted}/big")).starts_with("got 200, 8388608 bytes: yyy")
    );
    assert!(says(&format!("http GET http://{granted}/gone")).starts_with("got 404"));
    assert_eq!(scene.refused(), 0);
    assert_eq!(
        says(&format!("http GET http://{other}/ok")),
        "ErrorCode::HttpRequestDenied"
    );
    let port = granted.port();
    // The same place by a name that is not granted is not even looked up.
    let named = format!("http GET http://localhost:{port}/ok");
    assert_eq!(says(&named), "ErrorCode::HttpRequestDenied");
    assert_eq!(scene.refused(), 2);
    let user = format!("http GET http://user@{granted}/ok");
    assert_eq!(says(&user), "ErrorCode::HttpRequestUriInvalid");
    let tunnel = format!("http CONNECT http://{granted}/ok");
    assert_eq!(says(&tunnel), "ErrorCode::HttpRequestMethodInvalid");
}

#[test]
fn grants_apply_equally_to_wasi_0_3() {
    let (granted, other) = (server(), server());
    let (port, name) = (granted.port(), "0x7f000001");
    let scene = |host: String| scene_of("async-http-handler", MAX_MEMORY, &[host]);
    let (named, by_name) = (scene(granted.to_string()), scene(format!("{name}:{port}")));
    let says = |place: &str| named.says(&format!("fetch:http://{place}"));
    let told = |answer: &str| format!("400 Bad Request: {answer}");
    assert_eq!(says(&format!("{granted}/ok")), told("got 200 5"));
    assert_eq!(says(&format!("{granted}/big")), told("got 200 8388608"));
    assert_eq!(says(&format!("{granted}/moved")), told("got 303 0"));
    assert_eq!(named.refused(), 0);
    let denied = told("ErrorCode::HttpRequestDenied");
    assert_eq!(says(&format!("{other}/ok")), denied);
    assert_eq!(says(&format!("localhost:{port}/ok")), denied);
    assert_eq!(named.refused(), 2);
    let says = by_name.says(&format!("fetch:http://{name}:{port}/ok"));
    assert_eq!(says, told("ErrorCode::DestinationIpProhibited"));
    assert_eq!(by_name.refused(), 1);
}

#[test]
fn grants_apply_equally_to_requests_of_the_contract() {
    let (granted, other) = (server(), server());
    let (port, name) = (granted.port(), "0x7f000001");
    let scene = |host: String| scene_of("contract", MAX_MEMORY, &[host]);
    let (named, by_name) = (scene(granted.to_string()), scene(format!("{name}:{port}")));
    let says = |request: &str| named.says(&format!("http {request}"));
    for (path, answer) in [
        ("GET http://HOST/ok", "200, 5 bytes: hello"),
        ("GET http://HOST/host", &format!("200, 15 bytes: {granted}")),
        (
            "POST http://HOST/echo bytes=1000000",
            "200, 18 bytes: 1000000 bytes came",
        ),
        ("POST http://HOST/echo", "200, 12 bytes: 0 bytes came"),
        ("GET http://HOST/moved", "303, 0 bytes: "),
        ("GET http://HOST/big", "HttpError::TooLarge(4194304)"),
        (
            "GET http://HOST/big max=8388607",
            "HttpError::TooLarge(8388607)",
        ),
    ] {
        assert_eq!(
            says(&path.replace("HOST", &granted.to_string())),
            answer,
            "{path}"
        );
    }
    assert!(
        says(&format!("GET http://{granted}/big max=8388608")).starts_with("200, 8388608 bytes")
    );
    assert!(
        says(&format!("GET http://{granted}/never timeout=50")).starts_with("HttpError::TimedOut(")
    );
    assert_eq!(named.refused(), 0);
    let denied = "HttpError::Forbidden(";
    assert!(says(&format!("GET http://{other}/ok")).starts_with(denied));
    assert!(says(&format!("GET http://localhost:{port}/ok")).starts_with(denied));
    assert_eq!(named.refused(), 2);
    for (request, why) in [
        ("CONNECT http://HOST/ok", "CONNECT"),
        ("GET http://user@HOST/ok", "without a user"),
        ("GET ftp://HOST/ok", "wanted http://"),
        ("G(T http://HOST/ok", "the method"),
    ] {
        let told = says(&request.replace("HOST", &granted.to_string()));
        assert!(
            told.starts_with("HttpError::Invalid(") && told.contains(why),
            "{told}"
        );
    }
    let prohibited = by_name.says(&format!("http GET http://{name}:{port}/ok"));
    assert!(
        prohibited.starts_with(denied) && prohibited.contains("private address"),
        "{prohibited}"
    );
    assert_eq!(by_name.refused(), 1);
}

#[test]
fn failed_request_of_the_contract_tells_whether_the_server_may_have_acted() {
    // Nobody listens there any longer.
    let unheard = listen().1.port();
    let (cut, _) = raw(
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhe".to_vec(),
        false,
    );
    let (rubbish, _) = raw(b"rubbish\r\n\r\n".to_vec(), false);
    let hosts = [
        format!("127.0.0.1:{unheard}"),
        cut.to_string(),
        rubbish.to_string(),
    ];
    let scene = scene_of("contract", MAX_MEMORY, &hosts);
    let says = |host: &str| scene.says(&format!("http GET http://{host}/"));
    assert!(says(&hosts[0]).starts_with("HttpError::Unreachable(\"connection refused"));
    assert!(says(&hosts[1]).starts_with("HttpError::Interrupted("));
    assert!(says(&hosts[2]).starts_with("HttpError::Interrupted("));
}

#[test]
fn request_of_the_contract_leaves_the_attempt_time_to_answer() {
    let granted = server();
    let scene = scene_of("contract", MAX_MEMORY, &[granted.to_string()]);
    let body = format!("http GET http://{granted}/never");
    let answered = only(&scene.plugin, attempt(&[&body], Duration::from_secs(2)));
    let Verdict::Reject(told) = answered else {
        panic!("it has answered: {answered:?}");
    };
    assert!(told.starts_with("HttpError::TimedOut("), "{told}");
}

/// A server that answers nobody before so many have asked.
fn waits_for(many: usize) -> SocketAddr {
    let (listener, address) = listen();
    control().spawn(async move {
        let mut asked = Vec::new();
        while asked.len() < many {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await;
            asked.push(connection);
        }
        for mut connection in asked {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            let _ = connection.write_all(answer).await;
        }
    });
    address
}

#[test]
fn awaited_requests_of_the_contract_are_sent_beside_each_other() {
    let address = waits_for(8);
    let scene = scene_of("contract-async", MAX_MEMORY, &[address.to_string()]);
    assert_eq!(scene.says(&format!("8 http://{address}/")), "8 succeeded");
}

#[test]
fn requests_of_the_contract_are_limited_by_what_their_instance_may_hold() {
    // Four times its memory, of which each request takes 64 KiB and its own length.
    let most = 4 * 32 - 1;
    let address = waits_for(most);
    let scene = scene_of("contract-async", 2 << 20, &[address.to_string()]);
    let told = scene.says(&format!("200 http://{address}/"));
    assert_eq!(told, format!("{most} succeeded"));
}

/// By `wasi:http` of WASI 0.2 it would.
#[test]
fn awaited_request_blocks_no_other_message_of_its_instance() {
    let granted = server();
    let runtime = RuntimeOptions {
        instances: 2,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let runtime = Runtime::start(runtime, control(), spawn()).unwrap();
    let options = PluginOptions {
        instance_concurrency: 2,
        shared_instances: 1,
        ..granting(|grants| {
            grants.http = AllowedHosts {
                hosts: vec![granted.to_string().parse().unwrap()],
                longest: LONG,
                attempts: None,
                headers: AddedHeaders::default(),
            };
        })
    };
    let plugin = load(&runtime, "granted", options);
    let get = |path: &str| {
        format!(
            r#"{{"do": "http", "method": "GET", "url": "http://{granted}{path}", "body": "",
                "limit": 100, "waits": true}}"#
        )
    };
    let never = begin(&plugin, "first", &get("/never"));
    let answered = rejection(&plugin, &get("/ok"));
    assert_eq!(answered, r#"got [200,null,"hello"]"#);
    assert_eq!(runtime.instances(), 1);
    drop(never);
}

#[test]
fn redirects_are_left_to_the_guest() {
    let granted = server();
    let says = scene(&[granted.to_string()]).says(&format!("http GET http://{granted}/moved"));
    assert!(says.starts_with("got 303"), "{says}");
}

#[test]
fn granted_name_that_resolves_to_a_private_address_is_denied() {
    let granted = server();
    let port = granted.port();
    // No name of a domain, but a way to write 127.0.0.1 that a resolver knows and an address's own
    // parser does not.
    let name = "0x7f000001";
    let alone = scene(&[format!("{name}:{port}")]);
    let says = alone.says(&format!("http GET http://{name}:{port}/ok"));
    assert_eq!(says, "ErrorCode::DestinationIpProhibited");
    assert_eq!(alone.refused(), 1);
    let both = scene(&[format!("{name}:{port}"), format!("127.0.0.0/8:{port}")]);
    let says = both.says(&format!("http GET http://{name}:{port}/ok"));
    assert_eq!(says, "got 200, 5 bytes: hello");
    // With its own name it is open.
    let scene = scene(&[format!("localhost:{port}")]);
    let says = scene.says(&format!("http GET http://localhost:{port}/ok"));
    assert_eq!(says, "got 200, 5 bytes: hello");
}

#[test]
fn connections_are_reused_by_later_requests_of_the_plugin() {
    let (listener, address) = listen();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    control().spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                while connection
                    .read(&mut [0; 4096])
                    .await
                    .is_ok_and(|read| read > 0)
                {
                    let _ = connection
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                        .await;
                }
            });
        }
    });
    let scene = scene(&[address.to_string()]);
    for _ in 0..5 {
        assert_eq!(
            scene.says(&format!("http GET http://{address}/")),
            "got 200, 2 bytes: ok"
        );
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn transport_errors_have_specific_codes() {
    let (closed, asked) = raw(Vec::new(), false);
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789".to_vec();
    let (cut, _) = raw(cut, false);
    let (odd, _) = raw(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(), false);
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for number in 0..10_000 {
        head.extend(format!("x-{number}: 0123456789012345678901234567890123456789\r\n").bytes());
    }
    let (long, _) = raw(head, false);
    let (listener, nobody) = listen();
    drop(listener);
    let granted: Vec<_> = [closed, cut, odd, long, nobody]
        .iter()
        .map(ToString::to_string)
        .collect();
    let scene = scene(&granted);
    let says = |to: SocketAddr| scene.says(&format!("http GET http://{to}/"));
    let incomplete = says(closed);
    assert!(
        [
            "ErrorCode::HttpResponseIncomplete",
            "ErrorCode::ConnectionTerminated"
        ]
        .contains(&incomplete.as_str()),
        "{incomplete}"
    );
    assert_eq!(
        asked.load(Ordering::SeqCst),
        1,
        "what may have been done is not asked again"
    );
    let half = says(cut);
    assert!(
        half.contains("incomplete") || half.contains("terminated"),
        "{half}"
    );
    assert!(half.contains("after 10 bytes"), "{half}");
    assert_eq!(says(odd), "ErrorCode::HttpProtocolError");
    let long = says(long);
    assert!(
        long.contains("HttpResponseHeaderSectionSize") || long.contains("HttpProtocolError"),
        "{long}"
    );
    assert_eq!(says(nobody), "ErrorCode::ConnectionRefused");
    assert_eq!(scene.refused(), 0);
    // What is no TLS at the other end.
    let says = scene.says(&format!("http GET https://{odd}/"));
    assert!(says.contains("Tls"), "{says}");
}

#[test]
fn timeouts_of_the_guest_are_respected() {
    let silent = server();
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789".to_vec();
    let (half, _) = raw(half, true);
    let scene = scene(&[silent.to_string(), half.to_string()]);
    let first = scene.says(&format!("http-within first 50 http://{silent}/never"));
    assert_eq!(first, "ErrorCode::HttpResponseTimeout");
    let between = scene.says(&format!("http-within between 50 http://{half}/"));
    assert!(
        between.contains("connection read timeout") && between.contains("after 10 bytes"),
        "{between}"
    );
}

#[test]
fn requests_end_with_the_attempt() {
    let silent = server();
    let scene = scene(&[silent.to_string()]);
    let short = Duration::from_millis(100);
    let body = format!("http GET http://{silent}/never");
    let mut verdicts = drive(scene.plugin.handle(attempt(&[&body], short)));
    // Either the host gave the request up, or the guest was stopped before it could say so.
    match verdicts.remove(0) {
        Verdict::Reject(why) => assert_eq!(why, "ErrorCode::HttpResponseTimeout"),
        Verdict::Retry {
            why: FailureReason::TimedOut(_),
            ..
        } => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn concurrent_requests_are_bounded() {
    let granted = server();
    // Four times 2 MiB for what is running, 64 KiB each.
    let scene = scene_of("capable", 2 << 20, &[granted.to_string()]);
    let says = scene.says(&format!("http-many 150 http://{granted}/ok"));
    assert_eq!(
        says,
        "got 128, else Some(ErrorCode::ConnectionLimitReached)"
    );
    // What is answered and read has given its room back.
    for _ in 0..2 {
        let says = scene.says(&format!("http-many 128 http://{granted}/ok"));
        assert_eq!(says, "got 128, else None");
    }
}

#[test]
fn denial_names_the_whole_flag() {
    for (target, flag) in [
        (
            "https://api.example.com:443",
            "--allow-http api.example.com",
        ),
        ("http://[::1]:8080", "--allow-http [::1]:8080"),
    ] {
        assert_eq!(AllowedHosts::DESCRIPTION.flag_for(target), flag);
    }
}
