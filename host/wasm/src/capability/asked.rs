//! What a component asks for by its imports, and what opens each. Pure; knows nothing of what is
//! granted. To import is not to use: many toolchains import files, variables or HTTP unasked.

use std::fmt;

/// Something that is shut unless it is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Lambda functions.
    Functions,
    /// Sending to queues.
    Queues,
    /// Outgoing HTTP.
    Http,
    /// Settings.
    Settings,
    /// Keys and values.
    Stores,
    /// Files.
    Files,
    /// TCP connections.
    Connections,
    /// Environment variables.
    Variables,
}

/// All, with the beginnings of the interfaces that ask for it, the word, the key of the file and what
/// its flag wants.
const ALL: [(Asked, &[&str], &str, &str, &str); 8] = [
    (
        Asked::Functions,
        &[
            "dispatcher:plugin/lambda@",
            "dispatcher:plugin/lambda-async@",
        ],
        "Lambda functions",
        "allow-lambda",
        "PATTERN",
    ),
    (
        Asked::Queues,
        &[
            "dispatcher:plugin/queues@",
            "dispatcher:plugin/queues-async@",
        ],
        "sending to queues",
        "allow-send",
        "QUEUE",
    ),
    (
        Asked::Http,
        &["wasi:http/outgoing-handler@", "wasi:http/client@"],
        "outgoing HTTP",
        "allow-http",
        "HOST",
    ),
    (
        Asked::Settings,
        &["wasi:config/store@"],
        "settings",
        "setting",
        "K=V",
    ),
    (
        Asked::Stores,
        &["wasi:keyvalue/store@"],
        "keys and values",
        "store",
        "NAME=WHERE",
    ),
    (
        Asked::Files,
        &["wasi:filesystem/preopens@"],
        "files",
        "allow-read",
        "FOLDER",
    ),
    (
        Asked::Connections,
        &["wasi:sockets/tcp@", "wasi:sockets/types@"],
        "TCP connections",
        "allow-connect",
        "IP:PORT",
    ),
    (
        Asked::Variables,
        &["wasi:cli/environment@"],
        "environment variables",
        "env",
        "K=V",
    ),
];

impl Asked {
    /// All there are, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|(asked, ..)| *asked)
    }

    /// What a component of these imports asks for.
    pub fn of(imports: &[String]) -> Vec<Self> {
        let asks = |asked: &Self| {
            let begin = |start: &&str| imports.iter().any(|import| import.starts_with(start));
            asked.row().1.iter().any(begin)
        };
        Self::all().filter(asks).collect()
    }

    /// The key in the file; its flag has two dashes before it.
    pub fn key(self) -> &'static str {
        self.row().3
    }

    /// `--allow-http HOST`.
    pub fn flag(self) -> String {
        format!("--{} {}", self.key(), self.row().4)
    }

    fn row(
        self,
    ) -> &'static (
        Self,
        &'static [&'static str],
        &'static str,
        &'static str,
        &'static str,
    ) {
        let row = ALL.iter().find(|(asked, ..)| *asked == self);
        row.expect("every one has a row, as a test sees to")
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.row().2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_asked_for_in_words() {
        let imports = [
            "wasi:cli/environment@0.2.3",
            "wasi:http/types@0.2.0",
            "wasi:http/client@0.3.0",
            "wasi:sockets/types@0.3.0",
            "dispatcher:plugin/queues-types@0.1.0",
            "wasi:keyvalue/store@0.2.0-draft2",
        ]
        .map(String::from);
        let asked = Asked::of(&imports);
        let words: Vec<_> = asked.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            [
                "outgoing HTTP",
                "keys and values",
                "TCP connections",
                "environment variables"
            ]
        );
        assert_eq!(asked[0].flag(), "--allow-http HOST");
        assert!(Asked::of(&[]).is_empty());
    }

    #[test]
    fn every_one_has_a_row_of_its_own() {
        let all: Vec<_> = Asked::all().collect();
        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len());
        assert!(all.contains(&Asked::Functions) && all.last() == Some(&Asked::Variables));
    }
}
