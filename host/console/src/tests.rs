//! The endpoints as a client of a few lines sees them.

use super::*;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::metrics::Meters;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct RunningAdmin {
    at: SocketAddr,
    state: AdminState,
    stop: CancellationToken,
    task: Task<()>,
}

async fn start() -> RunningAdmin {
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = listen(any, false).await.expect("a free port");
    let at = listener.local_addr().expect("it is bound");
    let state = AdminState {
        metrics: Registry {
            meters: Arc::new(Meters::new(["local:a"])),
            ..Registry::default()
        },
        ..AdminState::default()
    };
    let stop = CancellationToken::new();
    let task = tasks::spawn(serve(listener, state.clone(), stop.clone()));
    RunningAdmin {
        at,
        state,
        stop,
        task,
    }
}

/// One whose reload is this, with the token `operator`, whose file is in the folder.
async fn reloading(reload: Reload) -> (RunningAdmin, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "operator").expect("written");
    let any = "127.0.0.1:0".parse().expect("an address");
    let (listener, at) = http::listen(any).await.expect("a free port");
    let state = AdminState {
        reload: Some(reload),
        access: Arc::new(Access::of_token(&token)),
        ..AdminState::default()
    };
    let stop = CancellationToken::new();
    let task = tasks::spawn(serve_within(LIMITS, listener, state.clone(), stop.clone()));
    let running = RunningAdmin {
        at,
        state,
        stop,
        task,
    };
    (running, folder)
}

async fn get(at: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(at).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test]
async fn probes_report_alive_and_ready() {
    let running = start().await;
    let alive = get(running.at, "/healthz").await;
    assert!(
        alive.starts_with("HTTP/1.1 200 ") && alive.ends_with("\r\n\r\nok"),
        "{alive}"
    );
    let ready = get(running.at, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    assert!(ready.ends_with("\r\n\r\n{\"ready\":true}"), "{ready}");
    let nothing = get(running.at, "/nothing").await;
    assert!(nothing.starts_with("HTTP/1.1 404 "), "{nothing}");
}

#[tokio::test]
async fn the_address_leads_to_the_dashboard_without_a_token_as_well() {
    let reload: Reload = Arc::new(|| Box::pin(std::future::pending()));
    let (running, _folder) = reloading(reload).await;
    let root = get(running.at, "/").await;
    assert!(root.starts_with("HTTP/1.1 303 "), "{root}");
    assert!(root.contains("\r\nlocation: /ui\r\n"), "{root}");
    let page = get(running.at, "/ui").await;
    assert!(!page.starts_with("HTTP/1.1 200 "), "{page}");
    // A path that nobody made asks for the token still.
    let other = get(running.at, "/plugins").await;
    assert!(other.starts_with("HTTP/1.1 401 "), "{other}");
}

#[tokio::test]
async fn the_address_leads_to_the_dashboard_which_waits_for_the_start() {
    let running = start().await;
    let root = get(running.at, "/").await;
    assert!(root.starts_with("HTTP/1.1 303 "), "{root}");
    assert!(root.contains("\r\nlocation: /ui\r\n"), "{root}");
    let page = get(running.at, "/ui").await;
    assert!(page.starts_with("HTTP/1.1 503 "), "{page}");
    assert!(page.contains("\r\nrefresh: 1\r\n"), "{page}");
    assert!(page.contains("The program is starting."), "{page}");
    let unknown = get(running.at, "/ui/nothing").await;
    assert!(unknown.starts_with("HTTP/1.1 404 "), "{unknown}");
    assert!(unknown.contains("There is no such page."), "{unknown}");
    for answer in [page, unknown] {
        assert!(answer.contains("script-src 'self';"), "{answer}");
        assert!(!answer.contains("<script>"), "{answer}");
    }
}

#[tokio::test]
async fn readiness_names_each_failing_condition_until_it_passes() {
    let running = start().await;
    running.state.readiness.set("sqs:a", "no \"answer\"");
    let red = get(running.at, "/readyz").await;
    assert!(red.starts_with("HTTP/1.1 503 "), "{red}");
    let body = red.split("\r\n\r\n").last().expect("a body");
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let wanted = json!({"ready": false, "why": [{"what": "sqs:a", "reason": "no \"answer\""}]});
    assert_eq!(body, wanted);
    running.state.readiness.clear("sqs:a");
    let green = get(running.at, "/readyz").await;
    assert!(green.starts_with("HTTP/1.1 200 "), "{green}");
}

#[tokio::test]
async fn open_circuit_of_one_route_is_named_and_leaves_the_process_ready() {
    let running = start().await;
    let readiness = &running.state.readiness;
    readiness.add_route("a", 1);
    readiness.add_route("b", 1);
    readiness.close_route("a", "denied", true);
    let green = get(running.at, "/readyz").await;
    assert!(green.starts_with("HTTP/1.1 200 "), "{green}");
    let body = green.split("\r\n\r\n").last().expect("a body");
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let why = json!([{"what": "route a", "reason": "denied"}]);
    assert_eq!(body, json!({"ready": true, "why": why}));
    readiness.close_route("b", "denied", true);
    let red = get(running.at, "/readyz").await;
    assert!(red.starts_with("HTTP/1.1 503 "), "{red}");
}

#[tokio::test]
async fn metrics_are_counters_since_the_start() {
    let running = start().await;
    running.state.metrics.counters.done.many(3);
    running
        .state
        .metrics
        .meters
        .of("local:a")
        .expect("a")
        .done
        .many(3);
    // Publishing takes nothing away from here.
    running
        .state
        .metrics
        .meters
        .drain(dispatcher_core::clock::Timestamp(0));
    let metrics = get(running.at, "/metrics").await;
    assert!(
        metrics.contains("content-type: text/plain; version=0.0.4"),
        "{metrics}"
    );
    assert!(
        metrics.contains("\ndispatcher_messages_done_total 3\n"),
        "{metrics}"
    );
    let queue = "\ndispatcher_queue_messages_done_total{queue=\"local:a\"} 3\n";
    assert!(metrics.contains(queue), "{metrics}");
}

#[tokio::test]
async fn server_stops_while_a_silent_client_is_connected() {
    let running = start().await;
    let _silent = TcpStream::connect(running.at).await.expect("it listens");
    get(running.at, "/healthz").await;
    running.stop.cancel();
    running.task.finished().await;
}

/// Silent connections that are never closed for their silence, many more than may be open.
#[tokio::test]
async fn finding_18_silent_clients_block_no_probe() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let (listener, at) = http::listen(any).await.expect("a free port");
    let limits = ConnectionLimits {
        connections: 8,
        patience: Duration::from_secs(3_600),
    };
    let (state, stop) = (AdminState::default(), CancellationToken::new());
    let _served = tasks::spawn(serve_within(limits, listener, state, stop));
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(at).await.expect("it listens"));
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = get(at, path).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
}

#[tokio::test]
async fn an_action_goes_on_when_its_client_goes_away() {
    let (begun, go, ended) = (
        CancellationToken::new(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let steps = (begun.clone(), go.clone(), ended.clone());
    let reload: Reload = Arc::new(move || {
        let (begun, go, ended) = steps.clone();
        Box::pin(async move {
            begun.cancel();
            go.cancelled().await;
            ended.cancel();
            Ok((0, ReloadResult::default()))
        })
    });
    let (running, _folder) = reloading(reload).await;
    let at = running.at;
    let mut client = TcpStream::connect(at).await.expect("it listens");
    let request = "POST /plugins HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
                   Authorization: Bearer operator\r\n\r\n";
    let sent = client.write_all(request.as_bytes()).await;
    sent.expect("it reads");
    begun.cancelled().await;
    drop(client);
    // By then the server has seen that nobody waits for the answer.
    get(at, "/healthz").await;
    go.cancel();
    ended.cancelled().await;
}

#[tokio::test]
async fn a_full_server_answers_the_address_of_a_page_with_a_page() {
    let begun = Arc::new(Semaphore::new(0));
    let steps = begun.clone();
    let reload: Reload = Arc::new(move || {
        steps.add_permits(1);
        Box::pin(std::future::pending())
    });
    let (running, _folder) = reloading(reload).await;
    let at = running.at;
    let request = |line: &str| {
        format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
                 Connection: close\r\nAuthorization: Bearer operator\r\n\r\n"
        )
    };
    let mut clients = Vec::new();
    for _ in 0..OTHERS {
        let mut client = TcpStream::connect(at).await.expect("it listens");
        let sent = client.write_all(request("POST /plugins").as_bytes()).await;
        sent.expect("it reads");
        clients.push(client);
    }
    let all = begun
        .acquire_many(u32::try_from(OTHERS).expect("few"))
        .await;
    all.expect("it is open").forget();
    let mut waiting = Vec::new();
    for (path, wanted) in [
        ("GET /ui", "content-type: text/html"),
        (
            "GET /api/v1/overview",
            "content-type: application/problem+json",
        ),
    ] {
        let mut client = TcpStream::connect(at).await.expect("it listens");
        let sent = client.write_all(request(path).as_bytes()).await;
        sent.expect("it reads");
        waiting.push((client, path, wanted));
    }
    for (mut client, path, wanted) in waiting {
        let mut answer = String::new();
        let read = client.read_to_string(&mut answer).await;
        read.expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
        assert!(answer.contains(wanted), "{path}: {answer}");
        assert!(answer.contains("already in progress"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn address_in_use_is_named() {
    let running = start().await;
    let error = listen(running.at, false).await.expect_err("it is taken");
    assert!(
        error.starts_with(&format!("cannot listen on {}: ", running.at)),
        "{error}"
    );
}
