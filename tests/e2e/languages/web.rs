//! What JavaScript and TypeScript have of the web, built as their users would, against a real HTTP
//! server: `fetch`, timers, `URL`, text, digests, `console`, and the SDK's own.

use crate::languages::{NAME, call, calls};
use crate::scene::{depth, send, until_depth};
use dispatcher_tests::child::Program;
use dispatcher_tests::toolchains;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

const CASES: &str = include_str!("handled/web.js");
/// Packages of npm: one that has a module for browsers beside the one for Node.js, and one that asks for
/// `process.env.NODE_ENV`.
const PACKAGES: [&str; 2] = ["nanoid@6.0.2", "immer@11.2.10"];

/// Answers by the path: `/moved` leads to `/ok`, `/echo` returns the body, `/slow` never answers,
/// `/flaky` fails twice.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (connection, asked) = (connection.expect("it connects"), asked.clone());
            std::thread::spawn(move || answer(connection, &asked));
        }
    });
    address
}

fn answer(mut connection: TcpStream, asked: &AtomicUsize) {
    let mut reader = BufReader::new(connection.try_clone().expect("a socket"));
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).expect("a request");
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        let header = header.trim().to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if header.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    let path = line.split([' ', '?']).nth(1).unwrap_or_default();
    let (status, more) = match path {
        "/moved" => ("302 Found", "location: /ok\r\n"),
        "/flaky" if asked.fetch_add(1, Ordering::SeqCst) < 2 => ("503 Busy", ""),
        "/broken" => ("500 Broken", ""),
        _ => ("200 OK", "content-type: text/plain\r\n"),
    };
    if path == "/slow" {
        std::thread::park();
    }
    if path != "/echo" {
        body = b"hello".to_vec();
    }
    let head = format!(
        "HTTP/1.1 {status}\r\n{more}connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // Whoever has had enough does not read it.
    let _ = connection.write_all(&[head.as_bytes(), &body].concat());
}

/// A new project whose world imports this as well.
fn project(language: &str, imports: &str) -> Arc<TempDir> {
    let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    calls(&data, &["plugin", "new", "--lang", language, NAME]);
    let world = data.path().join(NAME).join("wit/world.wit");
    let text = std::fs::read_to_string(&world).expect("it is ours");
    let with = format!("world plugin {{\n{imports}");
    std::fs::write(&world, text.replace("world plugin {\n", &with)).expect("it is ours");
    data
}

fn write(data: &TempDir, file: &str, text: &str) {
    let file = data.path().join(NAME).join(file);
    std::fs::create_dir_all(file.parent().expect("it is in a folder")).expect("it is ours");
    std::fs::write(file, text).expect("it is ours");
}

fn install(data: &TempDir) {
    let mut npm = std::process::Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund"])
        .args(PACKAGES);
    npm.envs(toolchains::environment());
    let installed = npm.current_dir(data.path().join(NAME)).output();
    let installed = installed.expect("npm starts");
    assert!(installed.status.success(), "{installed:?}");
}

/// Invokes it with all that it is granted: its verdict, its reason as JSON if it has one, and the log.
fn invoke(
    data: &Arc<TempDir>,
    component: &str,
    body: &str,
    server: &str,
) -> (Value, Value, String) {
    let ended = call(
        data,
        &[
            "plugin",
            "invoke",
            component,
            body,
            "--json",
            "--allow-http",
            server,
            "--allow-http",
            "127.0.0.1:1",
            "--allow-send",
            "local:later",
            "--max-timeout",
            "1h",
            "--log-level",
            "debug",
        ],
    );
    let log = String::from_utf8_lossy(&ended.stderr).into_owned();
    let verdict: Value =
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|why| panic!("{body}: {why}: {log}"));
    let why = verdict["why"].as_str().unwrap_or_default();
    let why = serde_json::from_str(why).unwrap_or_default();
    (verdict, why, log)
}

#[tokio::test]
async fn javascript_uses_fetch_timers_and_the_sdk() {
    if !toolchains::has(&["node", "npm"], "the handler in JavaScript") {
        return;
    }
    let imports = "    import dispatcher:plugin/queues@0.1.0;\n    \
                   import dispatcher:plugin/metrics@0.1.0;\n";
    let data = project("js", imports);
    // Its packages are installed by the first build.
    calls(&data, &["plugin", "build", NAME]);
    write(&data, "handler.js", CASES);
    install(&data);
    let component = calls(&data, &["plugin", "build", NAME]).0.trim().to_owned();
    let server = server();
    answers(&data, &component, &server);
    fails(&data, &component, &server);
    runs(&data, &component).await;
}

/// What it gets, by the reason of a rejection.
fn answers(data: &Arc<TempDir>, component: &str, server: &str) {
    let at = |path: &str| format!("http://{server}{path}");
    let said = |body: &str| {
        let (verdict, why, log) = invoke(data, component, body, server);
        assert!(!why.is_null(), "{body}: {verdict} {log}");
        why.to_string()
    };
    for (body, wanted) in [
        (
            format!("get {}", at("/ok")),
            r#"[200,true,false,"/ok","text/plain","hello"]"#,
        ),
        (
            format!("get {}", at("/moved")),
            r#"[200,true,true,"/ok","text/plain","hello"]"#,
        ),
        (format!("post {}", at("/")), r#"[200,"{\"amount\":250}"]"#),
        (format!("both {}", at("/ok")), "[200,200]"),
        (format!("retried {}", at("/flaky")), "[3,200]"),
        (format!("timeout {}", at("/slow")), r#"["TimeoutError"]"#),
        (
            "timers".into(),
            r#"["first","second","tick","tick","tick"]"#,
        ),
        (
            "url".into(),
            r#"["https://example.com:8443/a/b?x=1&y=%C3%A9#h","example.com:8443",false]"#,
        ),
        ("text".into(), "[8,\"a€𝄞\",\"\u{fffd}a\",\"hi\"]"),
        (
            "locales".into(),
            r#"["undefined","1234567.5","11/28/2026",0,"i"]"#,
        ),
        ("crypto".into(), r#"["a9993e36","ba7816bf",36,false]"#),
        ("notSent".into(), r#"["SendError","forbidden"]"#),
        ("message".into(), "[1,32,{},true]"),
        ("packaged".into(), "[21,{\"amount\":250}]"),
    ] {
        assert_eq!(said(&body), wanted, "{body}");
    }
    let denied = said("failing http://example.com/");
    assert!(
        denied.starts_with(r#"["TypeError","FORBIDDEN","fetch failed: the configuration"#),
        "{denied}"
    );
    let unheard = said("failing http://127.0.0.1:1/");
    assert!(
        unheard.starts_with(r#"["TypeError","UNREACHABLE","fetch failed: connection refused"#),
        "{unheard}"
    );
}

/// What becomes of its exceptions, and of what it leaves behind.
fn fails(data: &Arc<TempDir>, component: &str, server: &str) {
    let at = |path: &str| format!("http://{server}{path}");
    let verdict = |body: &str| invoke(data, component, body, server);
    let retry = verdict(&format!("retried {}", at("/broken"))).0;
    assert_eq!(retry["after_ms"], 7_000);
    assert_eq!(retry["why"], "the API answered 500");
    let (busy, closed) = (verdict("busy").0, verdict("closed").0);
    assert_eq!(
        (&busy["verdict"], &busy["why"]),
        (&"busy".into(), &"full".into())
    );
    assert_eq!(
        (&closed["verdict"], &closed["why"]),
        (&"closed".into(), &"no key".into())
    );
    let (race, _, log) = verdict("race");
    assert_eq!(race["verdict"], "done", "{log}");
    assert!(
        log.contains("the race is over") && log.contains("timers dropped"),
        "{log}"
    );
    let (lost, _, log) = verdict("rejectedLater");
    assert_eq!(lost["verdict"], "retry");
    assert!(
        log.contains("nobody awaits was rejected: Error: unheard"),
        "{log}"
    );
    assert_eq!(verdict("measured").0["verdict"], "done");
}

/// On a queue: the levels of `console`, and a message for later.
async fn runs(data: &Arc<TempDir>, component: &str) {
    let run = ["run", "--plugin", component, "--allow-send", "local:later"];
    let more = ["--log-format", "json", "--log-level", "debug"];
    let mut running = Program::new(run.into_iter().chain(more))
        .sharing(data)
        .start();
    running.wait_for_line(|line| line.contains("running"));
    send(data.path(), "default", ["levels", "sent"].map(String::from)).await;
    for (level, text) in [
        ("DEBUG", "looked"),
        ("INFO", r#"printed {\"a\":1}"#),
        ("WARN", "warned"),
        ("ERROR", "logged"),
    ] {
        let level = format!("\"level\":\"{level}\"");
        let line = running.wait_for_line(|line| line.contains(text) && line.contains(&level));
        assert!(line.contains("\"target\":\"guest\""), "{line}");
        if text == "logged" {
            assert!(line.contains(r#""fields":{"order":"o-1"}"#), "{line}");
        }
    }
    until_depth(data.path(), "later", |depth| depth.delayed == 1).await;
    running.stop();
    assert_eq!(depth(data.path(), "default").await, Default::default());
}

const TYPED: &str = r#"
import { Reject, Retry, count, log, send, type Handler, type Message } from "dispatcher-guest";

interface Order { id: string; amount: number }

async function price(order: Order, message: Message): Promise<number> {
  const headers = { "idempotency-key": message.idempotencyKey };
  const response = await fetch(new URL(`/echo?id=${order.id}`, SERVER), {
    method: "POST",
    headers,
    body: JSON.stringify({ amount: order.amount }),
    signal: AbortSignal.timeout(5_000),
  });
  if (response.status >= 500) throw new Retry({ afterMs: 1_000, reason: response.statusText });
  if (!response.ok) throw new Reject(`the API answered ${response.status}`);
  const { amount } = (await response.json()) as Order;
  return amount;
}

const SERVER = "http://HOST";

export const handler: Handler = {
  async handle(message) {
    const order = message.json<Order>();
    await new Promise<void>((resolve) => setTimeout(resolve, 1));
    const amount = await price(order, message);
    if (order.id === "o-3") return;
    log("info", "priced", { amount, key: crypto.randomUUID().length });
    throw new Reject(JSON.stringify([amount, message.attempt]));
  },
};
"#;

#[tokio::test]
async fn typescript_handler_calls_an_api_and_its_types_are_checked() {
    if !toolchains::has(&["node", "npm"], "the handler in TypeScript") {
        return;
    }
    let imports = "    import dispatcher:plugin/queues@0.1.0;\n    \
                   import dispatcher:plugin/metrics@0.1.0;\n";
    let data = project("ts", imports);
    let server = server();
    write(&data, "handler.ts", &TYPED.replace("HOST", &server));
    let component = calls(&data, &["plugin", "build", NAME]).0.trim().to_owned();
    let (_, why, log) = invoke(
        &data,
        &component,
        r#"{"id": "o-1", "amount": 250}"#,
        &server,
    );
    assert_eq!(why.to_string(), "[250,1]", "{log}");
    // Its signal is left, and nothing else.
    let order = r#"{"id": "o-3", "amount": 250}"#;
    let (done, _, log) = invoke(&data, &component, order, &server);
    assert_eq!(done["verdict"], "done", "{log}");
    let order = r#"{"id": "o-2", "amount": "#;
    let (malformed, _, log) = invoke(&data, &component, order, &server);
    assert_eq!(malformed["verdict"], "reject", "{log}");
    for wrong in [
        ("message.attempt", "message.attempts"),
        ("new Retry({ afterMs: 1_000", "new Retry({ after: 1_000"),
        ("setTimeout(resolve, 1)", "setImmediate(resolve)"),
    ] {
        let text = TYPED.replace("HOST", &server).replace(wrong.0, wrong.1);
        write(&data, "handler.ts", &text);
        let refused = call(&data, &["plugin", "build", NAME]);
        assert_eq!(refused.status.code(), Some(1), "{wrong:?}");
    }
}
