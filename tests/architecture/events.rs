//! Log lines are events: each has fixed words and one level, what varies is in fields, and
//! `host/docs/events.md` has every one of them and no other.

use crate::tree::{nothing_wrong, read, root, sources};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// What logs with these words, from a fixed set that another test compares with the page, or with
/// those of a handler.
const OTHER_WORDS: [&str; 2] = [
    "host/core/src/telemetry/events/mod.rs",
    "host/wasm/src/output.rs",
];

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "event"];

/// One call that logs.
#[derive(Debug, PartialEq)]
struct LogSite {
    level: String,
    fields: BTreeSet<String>,
    /// Its text, if it is fixed.
    words: Option<String>,
}

/// What the page, or the sources, know of an event.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Event {
    levels: BTreeSet<String>,
    fields: BTreeSet<String>,
}

/// The calls that log in these tokens, without what only tests compile.
fn sites(tokens: TokenStream, found: &mut Vec<Result<LogSite, String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_for_tests(&tokens[at..]) {
            at += 2;
            while at < tokens.len() && !ends_item(&tokens[at]) {
                at += 1;
            }
            at += 1;
            continue;
        }
        if let [TokenTree::Ident(level), bang, TokenTree::Group(call), ..] = &tokens[at..]
            && is_punct(bang, '!')
            && LEVELS.contains(&level.to_string().as_str())
        {
            let is_named = at >= 3
                && is_punct(&tokens[at - 1], ':')
                && matches!(&tokens[at - 3], TokenTree::Ident(name) if name == "tracing");
            found.push(match (is_named, level == "event") {
                (true, false) => Ok(site(&level.to_string(), call.stream())),
                _ => Err(format!("write `tracing::LEVEL!` for `{level}!`")),
            });
        }
        if let Some(TokenTree::Group(group)) = tokens.get(at) {
            sites(group.stream(), found);
        }
        at += 1;
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// Whether `#[cfg(test)]` begins here.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let [hash, TokenTree::Group(attribute), ..] = tokens else {
        return false;
    };
    is_punct(hash, '#') && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// Whether an item ends with this token.
fn ends_item(token: &TokenTree) -> bool {
    let is_body = matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    is_body || is_punct(token, ';')
}

/// What a call with these arguments logs.
fn site(level: &str, arguments: TokenStream) -> LogSite {
    let arguments: Vec<TokenTree> = arguments.into_iter().collect();
    let arguments = arguments.split(|token| is_punct(token, ','));
    let mut arguments: Vec<&[TokenTree]> = arguments.filter(|one| !one.is_empty()).collect();
    let words = arguments.pop().and_then(fixed_words);
    LogSite {
        level: level.to_owned(),
        fields: arguments.into_iter().filter_map(field).collect(),
        words,
    }
}

/// The text of a literal without variables.
fn fixed_words(argument: &[TokenTree]) -> Option<String> {
    let [TokenTree::Literal(literal)] = argument else {
        return None;
    };
    let literal: syn::LitStr = syn::parse_str(&literal.to_string()).ok()?;
    Some(literal.value()).filter(|words| !words.contains(['{', '`', '|']))
}

/// The name of a field; none for a target or a parent.
fn field(argument: &[TokenTree]) -> Option<String> {
    let is_setting = matches!(argument, [TokenTree::Ident(_), colon, ..] if is_punct(colon, ':'));
    let name = argument
        .iter()
        .skip_while(|token| is_punct(token, '%') || is_punct(token, '?'))
        .take_while(|token| !is_punct(token, '='));
    let name: String = name.map(TokenTree::to_string).collect();
    (!is_setting).then_some(name)
}

/// Whether only tests compile the file.
fn is_test_file(name: &str) -> bool {
    let is_test = |part: &str| part == "tests" || part == "benches";
    let stem = name.trim_end_matches(".rs");
    name.split('/').any(is_test) || stem.ends_with("/tests") || stem.ends_with("_tests")
}

/// The events that the sources log, and complaints of texts that are not fixed.
fn logged() -> (BTreeMap<String, Event>, Vec<String>) {
    let (mut events, mut complaints) = (BTreeMap::<String, Event>::new(), Vec::new());
    let sources = sources("host").into_iter();
    for (name, text) in sources.filter(|(name, _)| !is_test_file(name)) {
        let mut found = Vec::new();
        sites(text.parse().expect("Rust"), &mut found);
        for one in found {
            match one {
                Err(complaint) => complaints.push(format!("{name}: {complaint}")),
                Ok(LogSite {
                    level,
                    fields,
                    words: Some(words),
                }) => {
                    let event = events.entry(words).or_default();
                    event.levels.insert(level);
                    event.fields.extend(fields);
                }
                Ok(_) if OTHER_WORDS.contains(&name.as_str()) => {}
                Ok(site) => complaints.push(format!("{name}: the words of {site:?} vary")),
            }
        }
    }
    (events, complaints)
}

/// The events of the page's tables, but for the first, which has the events of messages and of
/// functions; and complaints of those that it has twice.
pub(crate) fn listed(page: &str) -> (BTreeMap<String, Event>, Vec<String>) {
    let quoted = |cell: &str| -> BTreeSet<String> {
        let words = cell.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect()
    };
    let tables = page.split("\n| event ").skip(2);
    let rows = tables.flat_map(|table| table.lines().skip(2).take_while(|line| !line.is_empty()));
    let (mut events, mut complaints) = (BTreeMap::new(), Vec::new());
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for words in quoted(cells[1]) {
            let event = Event {
                levels: [cells[2].to_owned()].into(),
                fields: quoted(cells[3]),
            };
            if events.insert(words.clone(), event).is_some() {
                complaints.push(format!("the page has `{words}` twice"));
            }
        }
    }
    (events, complaints)
}

#[test]
fn every_log_line_is_an_event_of_the_page_with_its_level_and_fields() {
    let (logged, mut complaints) = logged();
    assert!(logged.len() > 100, "only {} were found", logged.len());
    let (listed, twice) = listed(&read(&root().join("host/docs/events.md")));
    complaints.extend(twice);
    for (words, event) in &logged {
        match listed.get(words) {
            None => complaints.push(format!("the page lacks `{words}`: {event:?}")),
            Some(row) if row == event => {}
            Some(row) => complaints.push(format!("`{words}` is {event:?}, not {row:?}")),
        }
    }
    let unknown = listed.keys().filter(|words| !logged.contains_key(*words));
    complaints.extend(unknown.map(|words| format!("nothing logs `{words}`")));
    nothing_wrong(&complaints);
}

#[test]
fn scan_finds_every_form_of_a_call() {
    let text = r#"
        macro_rules! m { () => { tracing::debug!("in a macro") } }
        fn f() {
            tracing::warn!(target: TARGET, queue, count = all.len(), %error, ?left = a(b, c), "fixed \"words\"",);
            match x { _ => tracing::info!("took {n}") }
            tracing::error!(job, "{}", words());
            warn!("short");
            tracing::event!(Level::INFO, "by level");
        }
        #[cfg(test)]
        mod tests { fn g() { tracing::info!("of a test"); } }
        #[cfg(test)]
        const C: f64 = 1.0;
        fn h() { tracing::trace!("after tests") }
    "#;
    let mut found = Vec::new();
    sites(text.parse().expect("Rust"), &mut found);
    let wanted = |level: &str, fields: &[&str], words: Option<&str>| {
        Ok(LogSite {
            level: level.to_owned(),
            fields: fields.iter().map(|name| (*name).to_owned()).collect(),
            words: words.map(str::to_owned),
        })
    };
    let short = |level: &str| Err(format!("write `tracing::LEVEL!` for `{level}!`"));
    assert_eq!(
        found,
        [
            wanted("debug", &[], Some("in a macro")),
            wanted(
                "warn",
                &["queue", "count", "error", "left"],
                Some("fixed \"words\"")
            ),
            wanted("info", &[], None),
            wanted("error", &["\"{}\"", "job"], None),
            short("warn"),
            short("event"),
            wanted("trace", &[], Some("after tests")),
        ]
    );
}
