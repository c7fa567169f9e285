//! Unparsed texts with their places in the configuration. The file and the flags are both converted
//! to this form, so that one parser serves both.

use super::declared::is_key;
use std::collections::BTreeMap;

/// A value as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenValue {
    /// The place: `dispatcher.toml:12`, `--queues`, `DISPATCHER_QUEUES`.
    pub at: String,
    /// The text; a number in the file is in decimal notation.
    pub text: String,
}

impl WrittenValue {
    /// Creates a value from a text and its place.
    pub fn new(at: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            text: text.into(),
        }
    }
}

/// The values of one section of the file, or of the flags for it. Tables are flat: `retry = { first
/// = "1s" }` is the key `retry.first`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// The place where the section begins.
    pub at: String,
    values: BTreeMap<String, Vec<WrittenValue>>,
}

impl Section {
    /// Creates an empty section.
    pub fn new(at: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            values: BTreeMap::new(),
        }
    }

    /// Adds a value; a list is a key with several values.
    pub fn push(&mut self, key: impl Into<String>, value: WrittenValue) {
        self.values.entry(key.into()).or_default().push(value);
    }

    /// Records that a list was written, even if it is empty.
    pub fn open(&mut self, key: impl Into<String>) {
        self.values.entry(key.into()).or_default();
    }

    /// Returns the last value of the key.
    pub fn one(&self, key: &str) -> Option<&WrittenValue> {
        self.values.get(key)?.last()
    }

    /// Returns all values of the key, if it was written.
    pub fn list(&self, key: &str) -> Option<&[WrittenValue]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Makes a relative path, or those of a table, relative to a folder. Leaves empty texts and
    /// texts that are not paths unchanged.
    pub fn root_at(&mut self, key: &str, folder: &std::path::Path) {
        let named = self.values.iter_mut().filter(|(name, _)| {
            let rest = name.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        for given in named.flat_map(|(_, values)| values) {
            if !given.text.is_empty() && !given.text.contains("://") {
                given.text = folder.join(&given.text).to_string_lossy().into_owned();
            }
        }
    }

    /// Replaces the values of a key, and the names of a table's entries, whose values then have the
    /// place of the new name.
    pub fn replace(&mut self, key: &str, mut new: impl FnMut(WrittenValue) -> WrittenValue) {
        for (written, mut values) in std::mem::take(&mut self.values) {
            let entry = written.strip_prefix(key).map(|rest| rest.strip_prefix('.'));
            let known = match (entry, values.first()) {
                (Some(Some(name)), Some(first)) => {
                    let renamed = new(WrittenValue::new(&first.at, name));
                    for value in &mut values {
                        value.at.clone_from(&renamed.at);
                    }
                    format!("{key}.{}", renamed.text)
                }
                _ if written == key => {
                    values = values.into_iter().map(&mut new).collect();
                    written
                }
                _ => written,
            };
            self.values.insert(known, values);
        }
    }

    /// Whether the key or, for a table, one of its keys was written.
    pub fn has(&self, key: &str) -> bool {
        self.values.contains_key(key) || self.entries(key).next().is_some()
    }

    /// Iterates over the keys and last values of a table, in the order of the keys.
    pub fn entries(&self, table: &str) -> impl Iterator<Item = (&str, &WrittenValue)> {
        self.values.iter().filter_map(move |(key, values)| {
            let key = key.strip_prefix(table)?.strip_prefix('.')?;
            Some((key, values.last()?))
        })
    }

    /// Iterates over all values, for problems about the whole section.
    pub fn all(&self) -> impl Iterator<Item = &WrittenValue> {
        self.values.values().flatten()
    }
}

/// A stack of sections: the first one with a key has priority. Only keys of declared settings may
/// be read; a debug build panics for other keys, which no user could ever set.
#[derive(Debug, Clone, Copy)]
pub struct Layers<'a>(pub &'a [&'a Section]);

impl<'a> Layers<'a> {
    /// Returns the value of the key from the first section that has it.
    pub fn one(self, key: &str) -> Option<&'a WrittenValue> {
        debug_assert!(is_key(key), "no setting is called `{key}`");
        self.0.iter().find_map(|section| section.one(key))
    }

    /// Returns the list of the key from the first section that has it.
    pub fn list(self, key: &str) -> Option<&'a [WrittenValue]> {
        debug_assert!(is_key(key), "no setting is called `{key}`");
        self.0.iter().find_map(|section| section.list(key))
    }

    /// Whether any section has the key or one of the table's keys.
    pub fn has(self, key: &str) -> bool {
        debug_assert!(is_key(key), "no setting is called `{key}`");
        self.0.iter().any(|section| section.has(key))
    }

    /// Returns the values of a table, merged key by key.
    pub fn entries(self, table: &str) -> BTreeMap<&'a str, &'a WrittenValue> {
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
        flags.push("timeout", WrittenValue::new("--timeout", "1s"));
        flags.push("env.A", WrittenValue::new("--env", "1"));
        file.push("timeout", WrittenValue::new("f:1", "2s"));
        file.push("env.A", WrittenValue::new("f:2", "2"));
        file.push("env.B", WrittenValue::new("f:3", "2"));
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
