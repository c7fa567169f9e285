//! Who acts: tokens with names, wrong tokens, and the people whom a trusted proxy names.

use super::admin::{request, start, token};
use dispatcher_tests::PATIENCE;
use dispatcher_tests::child::{RunningProgram, Signal};
use dispatcher_tests::http;
use dispatcher_tests::identity::IdentityProvider;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

const ISSUER: &str = "https://id.example.com";
const AUDIENCE: &str = "dispatcher";
/// The wrong tokens that an address may send within a minute.
const WRONG_TOKENS: usize = 20;

/// Returns the status of a request with this token that reads (GET) or acts (POST) from a page of
/// the program.
fn ask(at: SocketAddr, method: &str, token: &str) -> u16 {
    let token = format!("Bearer {token}");
    let (host, origin) = (at.to_string(), format!("http://{at}"));
    let headers = [
        ("Host", &*host),
        ("Origin", &*origin),
        ("Authorization", &*token),
    ];
    request(at, method, "/plugins", &headers).status
}

/// The callers in the log lines of actions.
fn actors(running: &RunningProgram, what: &str) -> Vec<(String, String)> {
    let message = format!("\"message\":\"{what}\"");
    let lines = running.lines(|line| line.contains(&message));
    let mut actors = Vec::new();
    for line in lines {
        let line: Value = serde_json::from_str(&line).expect("JSON");
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        actors.push((text("user"), text("role")));
    }
    actors
}

fn pair(user: &str, role: &str) -> (String, String) {
    (user.to_owned(), role.to_owned())
}

#[test]
fn names_of_tokens_are_in_the_audit_log_and_a_removed_one_ends() {
    let (_folder, file) = token("# of the platform team\nci first\nanna second\n");
    let (mut running, at) = start(&["--admin-token-file", &file.display().to_string()]);
    assert_eq!(
        (ask(at, "POST", "first"), ask(at, "POST", "second")),
        (200, 200)
    );
    std::fs::write(&file, "anna second\n").expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("admin token replaced"));
    assert_eq!(
        (ask(at, "POST", "first"), ask(at, "POST", "second")),
        (401, 200)
    );
    running.stop();
    let wanted = ["ci", "anna", "anna"].map(|name| pair(name, "operate"));
    assert_eq!(actors(&running, "admin action"), wanted);
}

#[test]
fn sign_in_is_logged_with_the_name_and_the_token() {
    let (_folder, file) = token("anna second");
    let (mut running, at) = start(&["--admin-token-file", &file.display().to_string()]);
    let form = "token=second&user=Anna+%28proxy%29";
    http::post(&format!("http://{at}/ui/sign-in"), &[], form);
    running.stop();
    assert_eq!(
        actors(&running, "admin action"),
        [pair("Anna proxy (anna)", "operate")]
    );
}

#[test]
fn address_with_too_many_wrong_tokens_waits() {
    let (_folder, file) = token("right");
    let (mut running, at) = start(&["--admin-token-file", &file.display().to_string()]);
    for number in 0..WRONG_TOKENS {
        assert_eq!(ask(at, "GET", &format!("wrong-{number}")), 401, "{number}");
    }
    running.wait_for_line(|line| line.contains("too many wrong tokens"));
    for token in ["wrong", "right"] {
        assert_eq!(ask(at, "GET", token), 429, "{token}");
    }
    let host = at.to_string();
    let told = request(
        at,
        "GET",
        "/plugins",
        &[("Host", &host), ("Authorization", "Bearer x")],
    );
    assert!(told.body.contains("Try again in "), "{told:?}");
    let refused = |line: &str| line.contains("\"status\":429");
    assert_eq!(ask(at, "POST", "right"), 429);
    running.wait_for_line(refused);
    // Who offers no token is told so, and probes are answered.
    assert_eq!(
        request(at, "GET", "/plugins", &[("Host", &host)]).status,
        401
    );
    assert_eq!(
        request(at, "GET", "/readyz", &[("Host", &host)]).status,
        200
    );
    running.stop();
}

/// The claims of a person in this group, valid for ten minutes.
fn claims(email: &str, groups: &Value) -> Value {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs();
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600,
        "sub": "42", "email": email, "groups": groups,
    })
}

fn start_behind(keys: &str) -> (RunningProgram, SocketAddr) {
    start(&[
        "--admin-proxy-keys",
        keys,
        "--admin-proxy-issuer",
        ISSUER,
        "--admin-proxy-audience",
        AUDIENCE,
        "--admin-proxy-operate",
        "groups=operators",
        "--admin-proxy-read",
        "groups=staff",
    ])
}

/// Waits until a token is accepted.
fn wait_for(at: SocketAddr, token: &str) {
    let deadline = Instant::now() + PATIENCE;
    while ask(at, "GET", token) != 200 {
        assert!(Instant::now() < deadline, "the keys do not come");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn trusted_proxy_names_the_person_and_the_role() {
    let provider = IdentityProvider::start();
    let (mut running, at) = start_behind(&provider.keys_url());
    let signed = |claims: &Value| provider.token(claims, &json!({}));
    let anna = claims("anna@example.com", &json!(["staff", "operators"]));
    wait_for(at, &signed(&anna));
    assert_eq!(ask(at, "POST", &signed(&anna)), 200);
    assert_eq!(
        ask(at, "POST", &provider.token(&anna, &json!({"alg": "ES256"}))),
        200
    );
    // One group, and a person without an address of mail.
    let mut operator = claims("", &json!("operators"));
    operator["email"].take();
    assert_eq!(ask(at, "POST", &signed(&operator)), 200);
    let reader = signed(&claims("bert@example.com", &json!(["staff"])));
    assert_eq!(
        (ask(at, "GET", &reader), ask(at, "POST", &reader)),
        (200, 403)
    );
    let stranger = signed(&claims("carl@example.com", &json!(["guests"])));
    assert_eq!(
        (ask(at, "GET", &stranger), ask(at, "POST", &stranger)),
        (403, 403)
    );
    // A browser has the proxy's cookie on every site, so an action names the page it comes from.
    let (host, bearer) = (at.to_string(), format!("Bearer {}", signed(&anna)));
    let base = [("Host", &*host), ("Authorization", &*bearer)];
    assert_eq!(request(at, "POST", "/plugins", &base).status, 403);
    let foreign = [base[0], base[1], ("Origin", "https://evil.example.com")];
    assert_eq!(request(at, "POST", "/plugins", &foreign).status, 403);
    assert_eq!(request(at, "GET", "/plugins", &base[..1]).status, 401);
    running.stop();
    let wanted = [
        "anna@example.com (proxy)",
        "anna@example.com (proxy)",
        "42 (proxy)",
    ];
    let wanted = wanted.map(|name| pair(name, "operate"));
    assert_eq!(actors(&running, "admin action"), wanted);
    let refused = actors(&running, "admin action refused");
    assert_eq!(refused[0], pair("bert@example.com (proxy)", "read"));
    assert_eq!(refused[1], pair("carl@example.com (proxy)", ""));
    let anna = pair("anna@example.com (proxy)", "operate");
    assert_eq!(refused[2..], [anna.clone(), anna]);
}

#[test]
fn tokens_that_the_proxy_did_not_sign_for_this_program_are_refused() {
    let provider = IdentityProvider::start();
    let (mut running, at) = start_behind(&provider.keys_url());
    let anna = claims("anna@example.com", &json!(["operators"]));
    wait_for(at, &provider.token(&anna, &json!({})));
    let with = |name: &str, value: Value| {
        let mut claims = anna.clone();
        claims[name] = value;
        claims
    };
    let mut endless = anna.clone();
    endless.as_object_mut().expect("an object").remove("exp");
    let hour_ago = anna["iat"].as_u64().expect("a number") - 3_600;
    for (claims, how) in [
        (with("exp", json!(hour_ago)), json!({})),
        (with("nbf", json!(hour_ago + 7_200)), json!({})),
        (with("iss", json!("https://evil.example.com")), json!({})),
        (with("aud", json!("another")), json!({})),
        (endless, json!({})),
        (anna.clone(), json!({"alg": "none"})),
        (anna.clone(), json!({"alg": "HS256"})),
        (anna.clone(), json!({"alg": "HS256", "kid": "RS256-1"})),
        (anna.clone(), json!({"forged": true})),
        (anna.clone(), json!({"kid": "ES256-1"})),
    ] {
        let token = provider.token(&claims, &how);
        assert_eq!(ask(at, "GET", &token), 401, "{claims} {how}");
    }
    // Whoever guesses tokens through the proxy does not keep its people out. The one without a
    // signature was the first guess.
    for number in 1..WRONG_TOKENS {
        assert_eq!(ask(at, "GET", &format!("guess-{number}")), 401);
    }
    assert_eq!(ask(at, "GET", "guess"), 429);
    let bearer = format!("bearer {}", provider.token(&anna, &json!({})));
    let host = at.to_string();
    let headers = [("Host", &*host), ("Authorization", &*bearer)];
    assert_eq!(request(at, "GET", "/plugins", &headers).status, 200);
    // Keys are fetched if the proxy has new
    // ones.
    provider.rotate();
    let token = provider.token(&anna, &json!({}));
    assert_eq!(ask(at, "GET", &token), 401);
    wait_for(at, &token);
    running.stop();
}

#[test]
fn keys_of_a_proxy_may_be_in_a_file() {
    let provider = IdentityProvider::start();
    let (_folder, file) = token(&provider.keys());
    let (mut running, at) = start_behind(&file.display().to_string());
    let anna = claims("anna@example.com", &json!(["operators"]));
    let old = provider.token(&anna, &json!({}));
    assert_eq!(ask(at, "GET", &old), 200);
    provider.rotate();
    let new = provider.token(&anna, &json!({}));
    std::fs::write(&file, "{}").expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("proxy keys not replaced"));
    assert_eq!((ask(at, "GET", &old), ask(at, "GET", &new)), (200, 401));
    std::fs::write(&file, provider.keys()).expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("\"proxy keys replaced\""));
    assert_eq!(ask(at, "GET", &new), 200);
    assert_eq!(ask(at, "GET", &old), 401);
    running.stop();
}
