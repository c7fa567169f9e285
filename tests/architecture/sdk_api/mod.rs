//! What `guest-sdk` offers, held to the list in `guest-sdk/API.txt`: nothing is added without the
//! list, and nothing is taken away or changed without a version that says so. How the sources are
//! read is in `sdk_api/listing.rs`.
//!
//! `RENEW_API=1 cargo test --test architecture sdk_api` writes the list anew.

mod listing;

use crate::tree::{read, root};
use std::collections::BTreeSet;

const LIST: &str = "guest-sdk/API.txt";

/// A version and all that it offers, a line each.
struct Offer {
    version: String,
    items: BTreeSet<String>,
}

impl Offer {
    fn of_sources() -> Self {
        let version = |path: &str| {
            let manifest = read(&root().join(path));
            let mut lines = manifest.lines();
            lines.find_map(|line| Some(line.strip_prefix("version = \"")?.trim_matches('"').into()))
        };
        let own = version("guest-sdk/Cargo.toml").or_else(|| version("Cargo.toml"));
        Self {
            version: own.expect("a version in guest-sdk/Cargo.toml or in Cargo.toml"),
            items: listing::items(&root().join("guest-sdk/src/lib.rs")),
        }
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines().map(str::to_owned);
        Self {
            version: lines.next().unwrap_or_default(),
            items: lines.collect(),
        }
    }

    fn text(&self) -> String {
        let lines = std::iter::once(&self.version).chain(&self.items);
        lines.map(|line| format!("{line}\n")).collect()
    }
}

/// The part of a version that promises compatibility: `1` of 1.4.2, `0.3` of 0.3.1.
fn promise(version: &str) -> &str {
    let mut dots = version.match_indices('.').map(|(at, _)| at);
    let first = dots.next().unwrap_or(version.len());
    if version.starts_with("0.") {
        &version[..dots.next().unwrap_or(version.len())]
    } else {
        &version[..first]
    }
}

/// Whether what is offered now may follow what was listed.
fn may_follow(listed: &Offer, now: &Offer) -> Result<(), String> {
    let gone: Vec<&str> = listed
        .items
        .difference(&now.items)
        .map(|it| &**it)
        .collect();
    if gone.is_empty() || promise(&listed.version) != promise(&now.version) {
        return Ok(());
    }
    Err(format!(
        "guest-sdk {}: changed or gone, which needs a new version (`version` in guest-sdk/Cargo.toml):\n{}",
        now.version,
        gone.join("\n")
    ))
}

#[test]
fn sdk_api_is_as_listed() {
    let path = root().join(LIST);
    let listed = Offer::parse(&std::fs::read_to_string(&path).unwrap_or_default());
    let now = Offer::of_sources();
    may_follow(&listed, &now).unwrap_or_else(|why| panic!("\n{why}\n"));
    if std::env::var_os("RENEW_API").is_some() {
        std::fs::write(&path, now.text()).expect("a writable list");
        return;
    }
    let new: Vec<_> = now
        .items
        .difference(&listed.items)
        .map(|it| &**it)
        .collect();
    assert!(
        listed.text() == now.text(),
        "\n{LIST} is not of now; RENEW_API=1 cargo test --test architecture sdk_api\n\
         writes it anew. Version {}; not in it:\n{}\n",
        now.version,
        new.join("\n")
    );
}

#[test]
fn sdk_api_offers_what_users_import() {
    let items = Offer::of_sources().items;
    for line in [
        "macro handler!",
        "use batch::each",
        "fn queues::send(queue: impl AsRef<str>, message: impl Borrow<Outgoing>) -> Result<String, SendError>",
        "impl Message: fn extend(&mut self, by: Duration)",
        "const http::LIMIT: usize",
        "impl From<Error> for Failure in http",
        "fn testing::grant() -> Granted",
        "struct Reject<E>(pub E) derive(Debug, Clone, Copy, PartialEq, Eq)",
    ] {
        assert!(items.contains(line), "not found: {line}\n{items:#?}");
    }
    for hidden in ["one_async", "bindings::", "written", "World", "mod tests"] {
        let found: Vec<_> = items.iter().filter(|it| it.contains(hidden)).collect();
        let found: Vec<_> = found.iter().filter(|it| !it.starts_with("use ")).collect();
        assert!(found.is_empty(), "not for users: {found:?}");
    }
}

#[test]
fn incompatible_sdk_change_needs_a_version() {
    let offer = |version: &str, items: &[&str]| Offer {
        version: version.into(),
        items: items.iter().map(|&item| item.into()).collect(),
    };
    let listed = offer("0.1.0", &["fn a()", "fn b()"]);
    let follows = |version, items: &[&str]| may_follow(&listed, &offer(version, items)).is_ok();
    assert!(follows("0.1.0", &["fn a()", "fn b()"]));
    assert!(follows("0.1.1", &["fn a()", "fn b()", "fn c()"]));
    assert!(!follows("0.1.0", &["fn a()"]));
    assert!(!follows("0.1.1", &["fn a()", "fn b(x: u8)"]));
    assert!(follows("0.2.0", &["fn a()"]));
    assert!(follows("1.0.0", &["fn a()"]));
    assert_eq!(
        ["1.4.2", "0.3.1", "12.0.0"].map(promise),
        ["1", "0.3", "12"]
    );
}

/// A test of a handler is to meet the bounds that the handler meets.
#[test]
fn test_store_has_the_limits_of_the_real_one() {
    let [host, guest] = ["host/core/src/keyvalue/mod.rs", "guest-sdk/src/store.rs"].map(|path| {
        let text = read(&root().join(path));
        let bounds = text.lines().map(|line| line.trim_start_matches("pub "));
        let bounds = bounds.filter(|line| line.starts_with("const LONGEST_"));
        bounds.map(str::to_owned).collect::<BTreeSet<_>>()
    });
    assert!(!guest.is_empty() && guest.is_subset(&host), "{guest:?}");
}
