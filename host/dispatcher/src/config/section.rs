//! Unparsed texts with the place where each was written. File and flags are both converted to this,
//! so that one parser serves both.

use super::declared::is_key;
use std::collections::BTreeMap;

/// One value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Where: `dispatcher.toml:12`, `--queues`, `DISPATCHER_QUEUES`.
    pub at: String,
    /// The text; a number of the file as the file's reader understood it.
    pub text: String,
}

impl Given {
    /// A text and its place.
    pub fn new(at: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            text: text.into(),
        }
    }
}

/// The values of one section of the file, or those that flags say about it. Tables are flat:
/// `retry = { first = "1s" }` is the key `retry.first`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// Where the section begins.
    pub at: String,
    values: BTreeMap<String, Vec<Given>>,
}

impl Section {
    /// An empty section.
    pub fn new(at: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            values: BTreeMap::new(),
        }
    }

    /// Adds a value; a list is a key with many.
    pub fn push(&mut self, key: impl Into<String>, value: Given) {
        self.values.entry(key.into()).or_default().push(value);
    }

    /// Records that a list was written, though nothing may be in it.
    pub fn open(&mut self, key: impl Into<String>) {
        self.values.entry(key.into()).or_default();
    }

    /// The last value of the key.
    pub fn one(&self, key: &str) -> Option<&Given> {
        self.values.get(key)?.last()
    }

    /// All values of the key, if it was written.
    pub fn list(&self, key: &str) -> Option<&[Given]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Puts a relative path, or those of a table, under a folder; an empty one stays empty, and what
    /// is no path as it is.
    pub fn root_at(&mut self, key: &str, folder: &std::path::Path) {
        let is_it = |name: &str| {
            let rest = name.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let named = self.values.iter_mut().filter(|(name, _)| is_it(name));
        for given in named.flat_map(|(_, values)| values) {
            if !given.text.is_empty() && !given.text.contains("://") {
                given.text = folder.join(&given.text).to_string_lossy().into_owned();
            }
        }
    }

    /// Whether the key or, for a table, one of its keys was written.
    pub fn has(&self, key: &str) -> bool {
        self.values.contains_key(key) || self.entries(key).next().is_some()
    }

    /// The keys and last values of a table, in order of the keys.
    pub fn entries(&self, table: &str) -> impl Iterator<Item = (&str, &Given)> {
        self.values.iter().filter_map(move |(key, values)| {
            let key = key.strip_prefix(table)?.strip_prefix('.')?;
            Some((key, values.last()?))
        })
    }

    /// All values, for problems about the section as a whole.
    pub fn all(&self) -> impl Iterator<Item = &Given> {
        self.values.values().flatten()
    }
}

/// Sections laid over each other: the first that has a key wins. Only keys of declared settings are
/// asked for; a test build refuses others, which nobody could ever set.
#[derive(Debug, Clone, Copy)]
pub struct Layers<'a>(pub &'a [&'a Section]);

impl<'a> Layers<'a> {
    /// The winning value of the key.
    pub fn one(self, key: &str) -> Option<&'a Given> {
        debug_assert!(is_key(key), "no setting is called `{key}`");
        self.0.iter().find_map(|section| section.one(key))
    }

    /// The winning list of the key.
    pub fn list(self, key: &str) -> Option<&'a [Given]> {
        debug_assert!(is_key(key), "no setting is called `{key}`");
        self.0.iter().find_map(|section| section.list(key))
    }

    /// Whether any layer has the key, or one of the table's.
    pub fn has(self, key: &str) -> bool {
        debug_assert!(is_key(key), "no setting is called `{key}`");
        self.0.iter().any(|section| section.has(key))
    }

    /// The winning values of a table, merged key by key.
    pub fn entries(self, table: &str) -> BTreeMap<&'a str, &'a Given> {
        debug_assert!(is_key(table), "no setting is called `{table}`");
        let mut merged = BTreeMap::new();
        for section in self.0.iter().rev() {
            merged.extend(section.entries(table));
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_layer_wins_key_by_key() {
        let (mut flags, mut file) = (Section::new("flags"), Section::new("file"));
        flags.push("timeout", Given::new("--timeout", "1s"));
        flags.push("env.A", Given::new("--env", "1"));
        file.push("timeout", Given::new("f:1", "2s"));
        file.push("env.A", Given::new("f:2", "2"));
        file.push("env.B", Given::new("f:3", "2"));
        file.open("queues");
        let both = [&flags, &file];
        let layers = Layers(&both);
        assert_eq!(layers.one("timeout").map(|g| g.text.as_str()), Some("1s"));
        let env = layers.entries("env");
        assert_eq!((env["A"].text.as_str(), env["B"].text.as_str()), ("1", "2"));
        assert_eq!(layers.list("queues"), Some(&[][..]));
        assert!(layers.has("env") && layers.has("queues") && !layers.has("retry"));
    }
}
