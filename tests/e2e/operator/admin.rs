//! The admin address is safe by default: who may ask for what, and that nobody keeps probes out.

use crate::lambda::scene::admin;
use crate::scene::run;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::http::{self, HttpAnswer};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// Three times the connections that are served at once.
const SILENT: usize = 200;

pub(super) fn start(more: &[&str]) -> (RunningProgram, SocketAddr) {
    let running = run("hello", &[&["--admin", "127.0.0.1:0"], more].concat()).start();
    let at = admin(&running);
    let at = at.trim_start_matches("http://").parse();
    (running, at.expect("an address"))
}

/// What is answered to a request with these headers and no others.
pub(super) fn request(
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> HttpAnswer {
    let mut stream = TcpStream::connect(at).expect("it listens");
    let patience = stream.set_read_timeout(Some(dispatcher_tests::PATIENCE));
    patience.expect("a time-out");
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let lines: String = lines.collect();
    let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    is_safe_for_browsers(head);
    let status = head.split(' ').nth(1).expect("a status");
    HttpAnswer {
        status: status.parse().expect("a number"),
        body: body.to_owned(),
    }
}

/// Every answer tells a browser to do nothing with it.
fn is_safe_for_browsers(head: &str) {
    for wanted in [
        "x-content-type-options: nosniff",
        "content-security-policy: default-src 'none';",
        "frame-ancestors 'none'",
    ] {
        assert!(head.contains(wanted), "no {wanted} in {head}");
    }
    assert!(!head.to_lowercase().contains("access-control-"), "{head}");
    let status = head.split(' ').nth(1).expect("a status");
    let report = head.contains("application/json") || head.contains("text/plain");
    if !status.starts_with('2') && !report {
        assert!(
            head.contains("content-type: application/problem+json"),
            "{head}"
        );
    }
}

fn status(at: SocketAddr, method: &str, headers: &[(&str, &str)]) -> u16 {
    request(at, method, "/plugins", headers).status
}

/// A file with a token, for its owner alone.
pub(super) fn token(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, text).expect("written");
    set_mode(&file, 0o600);
    (folder, file)
}

fn set_mode(file: &Path, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(file, permissions).expect("it is ours");
}

#[test]
fn finding_18_foreign_host_header_gets_only_probes_and_metrics() {
    let (mut running, at) = start(&["--admin-host", "queues.example.com"]);
    let evil = ("Host", "evil.example.com:9090");
    let refused = request(at, "GET", "/plugins", &[evil]);
    assert_eq!(refused.status, 421, "{refused:?}");
    assert!(refused.body.contains("--admin-host"), "{refused:?}");
    assert_eq!(request(at, "GET", "/", &[evil]).status, 421);
    assert_eq!(request(at, "POST", "/healthz", &[evil]).status, 421);
    for path in PROBES {
        assert_eq!(request(at, "GET", path, &[evil]).status, 200, "{path}");
    }
    let address = at.to_string();
    for good in [
        address.as_str(),
        "localhost",
        "[::1]:1",
        "queues.example.com:80",
    ] {
        assert_eq!(status(at, "GET", &[("Host", good)]), 200, "{good}");
    }
    assert_eq!(
        request(at, "GET", "/nothing", &[("Host", "localhost")]).status,
        404
    );
    assert_eq!(
        request(at, "DELETE", "/plugins", &[("Host", "localhost")]).status,
        403
    );
    running.stop();
}

#[test]
fn finding_18_actions_need_a_token() {
    let (mut running, at) = start(&[]);
    let own = ("Host", "localhost");
    for origin in [None, Some(("Origin", "http://evil.example.com"))] {
        let headers: Vec<_> = [own].into_iter().chain(origin).collect();
        assert_eq!(status(at, "POST", &headers), 403, "{origin:?}");
    }
    let told = request(at, "POST", "/plugins", &[own]).body;
    assert!(told.contains("--admin-token-file"), "{told}");
    assert_eq!(status(at, "GET", &[own]), 200);
    running.stop();
    let taken = |line: &str| line.contains("\"message\":\"admin action\"");
    assert_eq!(running.lines(taken), [""; 0]);
    let refused = running.lines(|line| line.contains("admin action refused"));
    assert_eq!(refused.len(), 1, "once a minute: {refused:?}");
}

#[test]
fn finding_18_token_allows_actions_except_from_pages_of_another_site() {
    let (_folder, file) = token("s3cret-token\n");
    let (mut running, at) = start(&["--admin-token-file", &file.display().to_string()]);
    let bearer = ("Authorization", "Bearer s3cret-token");
    // Any user with the token as the password, as a browser sends it.
    let basic = ("Authorization", "Basic bWU6czNjcmV0LXRva2Vu");
    let host = ("Host", "localhost:9090");
    for method in ["GET", "POST"] {
        assert_eq!(status(at, method, &[host]), 401, "{method}");
        let wrong = ("Authorization", "Bearer s3cret-toke");
        assert_eq!(status(at, method, &[host, wrong]), 401, "{method}");
        assert_eq!(status(at, method, &[host, bearer]), 200, "{method}");
        assert_eq!(status(at, method, &[host, basic]), 200, "{method}");
    }
    assert_eq!(status(at, "GET", &[("Host", "evil.com"), bearer]), 421);
    for (name, bad, good) in [
        ("Origin", "http://evil.example.com", "http://localhost:9090"),
        ("Sec-Fetch-Site", "cross-site", "same-origin"),
        ("Sec-Fetch-Site", "same-site", "none"),
    ] {
        assert_eq!(
            status(at, "POST", &[host, basic, (name, bad)]),
            403,
            "{bad}"
        );
        assert_eq!(
            status(at, "POST", &[host, basic, (name, good)]),
            200,
            "{good}"
        );
    }
    for path in PROBES {
        assert_eq!(
            request(at, "GET", path, &[("Host", "10.0.0.7")]).status,
            200,
            "{path}"
        );
    }
    running.stop();
    let acted = running.lines(|line| line.contains("\"message\":\"admin action\""));
    assert_eq!(acted.len(), 5, "{acted:?}");
    assert!(
        acted
            .iter()
            .all(|line| line.contains("\"peer\":\"127.0.0.1:")),
        "{acted:?}"
    );
}

#[test]
fn finding_18_sighup_reloads_the_token() {
    let (_folder, file) = token("first");
    let (mut running, at) = start(&["--admin-token-file", &file.display().to_string()]);
    let with = |token: &str| {
        let token = format!("Bearer {token}");
        status(
            at,
            "GET",
            &[("Host", "localhost"), ("Authorization", &token)],
        )
    };
    assert_eq!((with("first"), with("second")), (200, 401));
    std::fs::write(&file, "second\n").expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("admin token replaced"));
    assert_eq!((with("first"), with("second")), (401, 200));
    std::fs::write(&file, "\n").expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("admin token not replaced"));
    assert_eq!((with(""), with("second")), (401, 200));
    running.stop();
}

#[test]
fn finding_18_start_off_loopback_needs_a_token() {
    let (_folder, file) = token("secret");
    let path = file.display().to_string();
    let everywhere = ["--admin", "0.0.0.0:0"];
    let refused = run("hello", &everywhere).run();
    assert_eq!(refused.code, 2, "{refused:?}");
    for word in ["0.0.0.0:0", "--admin-token-file", "127.0.0.1"] {
        assert!(refused.stderr.contains(word), "no {word}: {refused:?}");
    }
    let guarded = [&everywhere[..], &["--admin-token-file", &path]].concat();
    std::fs::write(&file, "").expect("written");
    // Every problem at once, of the plugin as well.
    let words = [&["run", "--plugin", "none.wasm"], &guarded[..]].concat();
    for command in ["run", "check"] {
        let words: Vec<_> = [command]
            .into_iter()
            .chain(words[1..].iter().copied())
            .collect();
        let refused = Program::new(words).run();
        assert_eq!(refused.code, 2, "{refused:?}");
        for word in ["it is empty", "none.wasm"] {
            assert!(refused.stderr.contains(word), "no {word}: {refused:?}");
        }
    }
    std::fs::write(&file, "secret").expect("written");
    set_mode(&file, 0o644);
    let mut running = run("hello", &guarded).start();
    running.wait_for_line(|line| line.contains("readable by every user"));
    let line = running.wait_for_line(|line| line.contains("health and metrics served"));
    let port = line.rsplit("http://0.0.0.0:").next().expect("a port");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let at = SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a port")));
    assert_eq!(status(at, "GET", &[("Host", "localhost")]), 401);
    running.stop();
}

/// A connection that asks for nothing, or not to the end, or for nothing more.
fn silent(at: SocketAddr, number: usize) -> TcpStream {
    let words: &[u8] = match number % 3 {
        0 => b"",
        1 => b"GET /healthz HTTP/1.1\r\nHost",
        _ => b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    };
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(words).expect("it is open");
    stream
}

#[test]
fn finding_18_silent_clients_block_no_probe() {
    let (mut running, at) = start(&[]);
    let _kept: Vec<TcpStream> = (0..SILENT).map(|number| silent(at, number)).collect();
    for path in PROBES {
        let answer = http::get(&format!("http://{at}{path}"));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    running.stop();
}
