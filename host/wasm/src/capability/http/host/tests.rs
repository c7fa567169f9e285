//! What is granted by which words.

use super::*;
use proptest::prelude::*;

fn hosts(texts: &[&str]) -> Vec<HttpHost> {
    let read = |text: &&str| text.parse().unwrap_or_else(|_| panic!("{text}"));
    texts.iter().map(read).collect()
}

fn target(text: &str) -> RequestTarget {
    RequestTarget::of(&text.parse().expect(text)).expect(text)
}

#[test]
fn hosts_round_trip() {
    for text in [
        "api.example.com",
        "api.example.com:8443",
        "*.example.org",
        "https://*.example.org:8443",
        "http://localhost:8080",
        "192.0.2.7",
        "192.0.2.7:7000",
        "10.0.0.0/8",
        "10.0.0.0/8:8080",
        "::1",
        "[::1]:8080",
        "fd00::/8",
        "[fd00::/8]:8080",
        "_service.example.com",
    ] {
        assert_eq!(hosts(&[text])[0].to_string(), text);
    }
    for (text, is) in [
        ("API.Example.com", "api.example.com"),
        (" https://api.example.com/ ", "https://api.example.com"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.1.2.3/8", "10.0.0.0/8"),
    ] {
        assert_eq!(hosts(&[text])[0].to_string(), is);
    }
    for text in [
        "",
        "*",
        "*.",
        "*example.org",
        "a.*.org",
        "api.example.com/path",
        "ftp://example.com",
        "user@example.com",
        "example.com:0",
        "example.com:65536",
        "example.com:x",
        "10.0.0.0/33",
        "1.2.3",
        "0x7f.1",
        "2130706433",
        "[::1",
        "[::1]8080",
        "a..b",
        "a b",
        "exämple.com",
        "example.com.",
    ] {
        assert!(text.parse::<HttpHost>().is_err(), "{text}");
    }
}

#[test]
fn request_is_allowed_by_host_scheme_and_port() {
    for (host, to, granted) in [
        ("api.example.com", "https://api.example.com/x", true),
        ("api.example.com", "http://api.example.com/x", true),
        ("api.example.com", "http://API.EXAMPLE.COM./x", true),
        ("api.example.com", "http://api.example.com:443/", true),
        ("api.example.com", "https://api.example.com:8443/", false),
        ("api.example.com", "https://example.com/", false),
        (
            "api.example.com",
            "https://api.example.com.evil.org/",
            false,
        ),
        (
            "api.example.com:8443",
            "https://api.example.com:8443/",
            true,
        ),
        ("api.example.com:8443", "https://api.example.com/", false),
        ("https://api.example.com", "http://api.example.com/", false),
        (
            "https://api.example.com",
            "https://api.example.com:80/",
            false,
        ),
        ("*.example.org", "https://a.b.example.org/", true),
        ("*.example.org", "https://example.org/", false),
        ("*.example.org", "https://badexample.org/", false),
        ("localhost", "http://127.0.0.1/", false),
        ("127.0.0.1", "http://127.0.0.1/", true),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/", true),
        ("127.0.0.1", "http://localhost/", false),
        ("10.0.0.0/8", "http://10.9.8.7/", true),
        ("10.0.0.0/8", "http://11.0.0.1/", false),
        ("0.0.0.0/0", "http://169.254.169.254/", false),
        ("0.0.0.0/0", "http://1.1.1.1/", true),
        ("::1", "http://[::1]/", true),
        ("*.example.org", "http://127.0.0.1/", false),
    ] {
        assert_eq!(
            is_granted(&hosts(&[host]), &target(to)),
            granted,
            "{host} {to}"
        );
    }
    assert!(!is_granted(&[], &target("https://api.example.com/")));
}

#[test]
fn name_that_may_lead_anywhere_leads_to_private_addresses_at_its_own_port_alone() {
    let host = || hosts(&["http://worker:8080"]).remove(0);
    let may = |hosts: &[HttpHost], to: &str, address: &str| {
        may_connect(hosts, &target(to), address.parse().expect(address))
    };
    let named = [host()];
    assert!(!may(&named, "http://worker:8080/jobs", "10.0.0.7"));
    let anywhere = [host().anywhere()];
    for address in ["10.0.0.7", "127.0.0.1", "::1", "1.1.1.1"] {
        assert!(may(&anywhere, "http://worker:8080/jobs", address));
    }
    for elsewhere in [
        "http://worker:8081/",
        "https://worker:8080/",
        "http://other:8080/",
    ] {
        assert!(!may(&anywhere, elsewhere, "10.0.0.7"), "{elsewhere}");
    }
    assert_eq!(anywhere[0].to_string(), "http://worker:8080");
}

#[test]
fn private_address_is_allowed_only_by_its_exact_name() {
    let name = "http://internal.example.com/";
    for (granted, to, address, may) in [
        (&["internal.example.com"][..], name, "1.1.1.1", true),
        (&["internal.example.com"], name, "10.0.0.1", false),
        (&["internal.example.com"], name, "127.0.0.1", false),
        (&["internal.example.com"], name, "::ffff:127.0.0.1", false),
        (&["internal.example.com"], name, "169.254.169.254", false),
        (
            &["internal.example.com", "10.0.0.0/8"],
            name,
            "10.0.0.1",
            true,
        ),
        (
            &["internal.example.com", "10.0.0.0/8:81"],
            name,
            "10.0.0.1",
            false,
        ),
        (
            &["internal.example.com", "0.0.0.0/0"],
            name,
            "10.0.0.1",
            false,
        ),
        // The network alone grants no name.
        (&["10.0.0.0/8"], name, "10.0.0.1", false),
        (
            &["internal.example.com", "localhost"],
            name,
            "127.0.0.1",
            false,
        ),
        (&["localhost"], "http://localhost/", "127.0.0.1", true),
        (&["localhost"], "http://localhost/", "::1", true),
        (&["localhost"], "http://localhost/", "10.0.0.1", false),
        (&["localhost"], "http://localhost/", "1.1.1.1", true),
    ] {
        let address = address.parse().expect("an address");
        let found = may_connect(&hosts(granted), &target(to), address);
        assert_eq!(found, may, "{granted:?} {to} {address}");
    }
}

#[test]
fn url_without_a_plain_host_is_no_target() {
    for text in [
        "/path",
        "http://user@example.com/",
        "http://a:b@c/",
        "ftp://example.com/",
    ] {
        let uri: http::Uri = text.parse().expect(text);
        assert_eq!(RequestTarget::of(&uri), None, "{text}");
    }
}

fn any_host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,2}(\\.[a-c]{1,2}){0,2}",
        any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|address| format!("[{address}]")),
    ]
}

proptest! {
    #[test]
    fn host_parser_accepts_or_refuses_any_text(text in "[*a-z0-9.:/\\[\\]@-]{0,20}") {
        if let Ok(host) = text.parse::<HttpHost>() {
            prop_assert_eq!(host.to_string().parse(), Ok(host));
        }
    }

    /// Nothing is connected to that no word of the configuration speaks of.
    #[test]
    fn granted_names_do_not_reach_private_networks(
        name in "[a-c]{1,2}(\\.[a-c]{1,2}){0,2}",
        to in any_host(),
        address: std::net::IpAddr,
    ) {
        let granted = hosts(&[&name, &format!("*.{name}")]);
        let to = target(&format!("http://{to}/"));
        if may_connect(&granted, &to, address) {
            prop_assert!(address::is_public(address));
            let under = format!(".{name}");
            prop_assert!(to.host == name || to.host.ends_with(&under));
        }
    }
}
