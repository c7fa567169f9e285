//! Who may use the admin address: by host, origin, token and session.

use super::*;
use axum::http::Request;

/// A request with these headers.
fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request").into_parts().0
}

fn access(token: Option<&str>) -> Access {
    let token = token.map(|token| TokenFile::of_text(Role::Operate, token));
    Access {
        hosts: vec!["queues.example.com".into()],
        tokens: token.into_iter().collect(),
        ..Access::default()
    }
}

#[test]
fn finding_18_admin_answers_only_ip_literals_loopback_and_configured_hosts() {
    let access = access(None);
    let host = |host: &str| {
        access
            .judge(&request("GET", "/plugins", &[("host", host)]))
            .map(drop)
    };
    for good in [
        "127.0.0.1:9090",
        "10.1.2.3",
        "[::1]:9090",
        "[fd00::1]",
        "localhost:9090",
        "LOCALHOST.",
        "admin.localhost:1",
        "Queues.Example.com:9090",
    ] {
        assert_eq!(host(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "evil.example.com",
        "evil.example.com:9090",
        "localhost.evil.com",
        "evillocalhost",
        "127.0.0.1.evil.com",
        "user@127.0.0.1",
        "sub.queues.example.com",
        "[::1",
        "[::1].evil.example",
        "[::1]:9090.evil.example",
        "localhost:9090@evil.example",
    ] {
        assert_eq!(host(bad), Err(Refusal::Host(bad.into())), "{bad}");
    }
    let none = access.judge(&request("GET", "/plugins", &[]));
    assert_eq!(none.map(drop), Err(Refusal::Host(String::new())));
    let two = [("host", "localhost"), ("host", "localhost")];
    assert!(access.judge(&request("GET", "/plugins", &two)).is_err());
    let absolute = request("GET", "http://evil.com/plugins", &[("host", "localhost")]);
    assert!(access.judge(&absolute).is_err());
}

#[test]
fn finding_18_cross_site_requests_are_refused() {
    let access = access(Some("secret"));
    let post = |more: &[(&str, &str)]| {
        let own = [("host", "localhost:9"), ("authorization", "Bearer secret")];
        access
            .judge(&request("POST", "/plugins", &[&own, more].concat()))
            .map(drop)
    };
    for good in [
        &[][..],
        &[("origin", "http://localhost:9")],
        &[
            ("origin", "https://LOCALHOST:9"),
            ("sec-fetch-site", "same-origin"),
        ],
        &[("sec-fetch-site", "none")],
    ] {
        assert_eq!(post(good), Ok(()), "{good:?}");
    }
    for bad in [
        &[("origin", "http://evil.com")][..],
        &[("origin", "http://localhost:8")],
        &[("origin", "null")],
        &[
            ("origin", "http://localhost:9"),
            ("origin", "http://evil.com"),
        ],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[
            ("origin", "http://localhost:9"),
            ("sec-fetch-site", "cross-site"),
        ],
    ] {
        assert!(matches!(post(bad), Err(Refusal::OtherSite(_))), "{bad:?}");
    }
}

#[test]
fn finding_18_token_is_accepted_as_bearer_or_basic_password() {
    let ask = |token, method, authorization: &[&str]| {
        let values = authorization.iter().map(|value| ("authorization", *value));
        let headers: Vec<_> = values.chain([("host", "[::1]:9")]).collect();
        access(token)
            .judge(&request(method, "/plugins", &headers))
            .map(drop)
    };
    let basic = |pair: &str| format!("basic {}", STANDARD.encode(pair));
    let good = [
        "Bearer secret".to_owned(),
        "bearer  secret".to_owned(),
        basic("anybody:secret"),
        basic(":secret"),
    ];
    for good in good {
        for method in ["GET", "POST", "DELETE"] {
            assert_eq!(ask(Some("secret"), method, &[&good]), Ok(()), "{good}");
        }
    }
    let bad = [
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer secre".to_owned(),
        "Bearer secret2".to_owned(),
        "secret".to_owned(),
        basic("secret:"),
        basic("secret"),
        "Basic ?".to_owned(),
    ];
    for bad in bad {
        let got = ask(Some("secret"), "GET", &[&bad]);
        assert_eq!(got, Err(Refusal::Unauthorized), "{bad}");
    }
    let twice = ["Bearer secret", "Bearer secret"];
    let (unsaid, twice) = (
        ask(Some("s"), "GET", &[]),
        ask(Some("secret"), "GET", &twice),
    );
    assert_eq!(
        (unsaid, twice),
        (Err(Refusal::Unauthorized), Err(Refusal::Unauthorized))
    );
    assert_eq!(ask(None, "GET", &[]), Ok(()));
    assert_eq!(ask(None, "POST", &[]), Err(Refusal::NoTokenConfigured));
    assert_eq!(ask(None, "BREW", &[]), Err(Refusal::NoTokenConfigured));
}

/// An address of a process without tokens.
fn open_address() -> Admin {
    Admin {
        address: "127.0.0.1:9".parse().expect("an address"),
        or_any_port: false,
        prints_sign_in: false,
        token_file: None,
        read_token_file: None,
        send_token_file: None,
        proxy: None,
        send_queues: Vec::new(),
        hosts: Vec::new(),
        bodies: false,
        prefix: String::new(),
        environment: None,
    }
}

#[test]
fn a_token_for_sending_permits_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, name).expect("written");
        Some(path)
    };
    let alone = Access::open(&Admin {
        send_token_file: file("producer"),
        ..open_address()
    });
    let all = Access::open(&Admin {
        token_file: file("operator"),
        read_token_file: file("reader"),
        send_token_file: file("producer"),
        ..open_address()
    });
    let (alone, all) = (alone.expect("a token"), all.expect("three tokens"));
    let ask = |access: &Access, method: &str, path: &str, token: Option<&str>| {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let bearer = bearer.as_deref().map(|text| ("authorization", text));
        let headers: Vec<_> = bearer.into_iter().chain([("host", "localhost")]).collect();
        let judged = access.judge(&request(method, path, &headers));
        judged.map(|caller| caller.role_name())
    };
    let send = "/api/v1/queues/local%3Aorders/messages";
    for access in [&alone, &all] {
        let sent = ask(access, "POST", send, Some("producer"));
        assert_eq!(sent, Ok(Some("send")));
        assert!(ask(access, "POST", send, None).is_err());
        assert!(ask(access, "POST", send, Some("wrong")).is_err());
        for (method, path) in [
            ("GET", send),
            ("GET", "/api/v1/overview"),
            ("DELETE", send),
            ("POST", "/api/v1/queues/local%3Aorders/purge"),
            ("POST", "/api/v1/queues/messages"),
            ("POST", "/api/v1/queues/a/b/messages"),
            ("POST", "/api/v1/queues//messages"),
            ("POST", "/plugins"),
            ("GET", "/ui"),
        ] {
            let refused = ask(access, method, path, Some("producer"));
            assert!(refused.is_err(), "{method} {path}");
        }
        let pages = access.sign_in(&request("POST", "/ui", &[]), "producer", "");
        assert!(pages.is_none());
    }
    assert_eq!(
        ask(&all, "POST", send, Some("operator")),
        Ok(Some("operate"))
    );
    assert!(matches!(
        ask(&all, "POST", send, Some("reader")),
        Err(Refusal::ReadOnly(_))
    ));
    assert!(ask(&all, "GET", "/api/v1/overview", None).is_err());
    // It protects sending alone: reading is as open as without any token.
    assert_eq!(ask(&alone, "GET", "/api/v1/overview", None), Ok(None));
    let same = Access::open(&Admin {
        token_file: file("operator"),
        send_token_file: file("operator"),
        ..open_address()
    });
    let same = same.expect_err("the same token");
    assert!(same[0].to_string().contains("--admin-send-token-file"));
}

#[test]
fn a_token_for_reading_permits_no_action_and_names_its_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, token: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, token).expect("written");
        Some(path)
    };
    let settings = |token_file, read_token_file| Admin {
        token_file,
        read_token_file,
        ..open_address()
    };
    let both = Access::open(&settings(file("o", "operator"), file("r", "reader")));
    let both = both.expect("two tokens");
    let ask = |access: &Access, method: &str, token: &str| {
        let pair = format!("Basic {}", STANDARD.encode(format!("Ann:{token}")));
        let headers = [("host", "localhost"), ("authorization", &pair)];
        access.judge(&request(method, "/api/v1/queues", &headers))
    };
    let reader = ask(&both, "GET", "reader").expect("it reads");
    assert_eq!((reader.role_name(), &*reader.name()), (Some("read"), "Ann"));
    let refused = ask(&both, "POST", "reader");
    assert_eq!(refused, Err(Refusal::ReadOnly(reader)));
    let operator = ask(&both, "POST", "operator").expect("it acts");
    assert_eq!(operator.role_name(), Some("operate"));
    assert!(ask(&both, "GET", "nobody").is_err());
    let alone = Access::open(&settings(None, file("r", "reader"))).expect("one token");
    assert!(ask(&alone, "GET", "reader").is_ok());
    let acts = ask(&alone, "POST", "reader");
    assert_eq!(acts, Err(Refusal::NoTokenConfigured));
    let same = Access::open(&settings(file("o", "x"), file("r", "x"))).expect_err("the same");
    assert!(
        same[0].to_string().contains("--admin-read-token-file"),
        "{same:?}"
    );
}

/// Returns who sends a request to this address, from its own page, with this header.
fn caller_of(access: &Access, method: &str, header: (&str, &str)) -> Result<String, Refusal> {
    let own = [("host", "localhost:9"), ("origin", "http://localhost:9")];
    let request = request(method, "/plugins", &[&own[..], &[header]].concat());
    let judged = access.judge(&request);
    judged.map(|caller| caller.name().into_owned())
}

#[test]
fn each_token_of_a_file_has_its_role_its_name_and_its_sessions() {
    let access = Access {
        tokens: vec![
            TokenFile::of_text(Role::Operate, "ci a1\nanna b2"),
            TokenFile::of_text(Role::Read, "c3"),
        ],
        ..Access::default()
    };
    for (token, name) in [
        ("a1", Ok("ci")),
        ("b2", Ok("anna")),
        ("ci", Err(Refusal::Unauthorized)),
    ] {
        let header = format!("Bearer {token}");
        let by_token = caller_of(&access, "POST", ("authorization", &header));
        assert_eq!(by_token, name.map(str::to_owned));
    }
    let basic = format!("Basic {}", STANDARD.encode("joe:b2"));
    assert_eq!(
        caller_of(&access, "POST", ("authorization", &basic)),
        Ok("joe (anna)".to_owned())
    );
    let reads = caller_of(&access, "GET", ("authorization", "Bearer c3"));
    assert_eq!(reads, Ok("token".to_owned()));
    let page = request("POST", "/ui/sign-in", &[("host", "localhost:9")]);
    let (caller, name, value) = access.sign_in(&page, "b2", "eve").expect("signed in");
    assert_eq!(caller.name(), "eve (anna)");
    let cookie = format!("{name}={value}");
    assert_eq!(
        caller_of(&access, "POST", ("cookie", &cookie)),
        Ok("eve (anna)".to_owned())
    );
    let same = TokenFile::of_text(Role::Send, "x c3");
    assert!(access.tokens[1].shares(&same) && !access.tokens[0].shares(&same));
}
