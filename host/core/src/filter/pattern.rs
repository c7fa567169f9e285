//! The structure of a pattern: fields that must all match, alternatives, and lists of rules at the
//! leaves. Knows nothing of messages.

use super::rule::{OPERATORS, Rule};
use serde_json::Value;

/// Something that is wrong with a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// Where in the pattern, as a JSON pointer; empty for all of it.
    pub at: String,
    /// What was found.
    pub found: String,
    /// What was wanted.
    pub wanted: &'static str,
    /// A name that may be misspelt, and those that are known.
    pub unknown: Option<(String, &'static [&'static str])>,
}

impl PatternError {
    pub(super) fn new(at: &str, found: impl Into<String>, wanted: &'static str) -> Self {
        Self {
            at: at.to_owned(),
            found: found.into(),
            wanted,
            unknown: None,
        }
    }

    pub(super) fn nearest_of(self, name: &str, known: &'static [&'static str]) -> Self {
        Self {
            unknown: Some((name.to_owned(), known)),
            ..self
        }
    }
}

/// Fields that must all match, and alternatives of which one must.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields {
    all: Vec<(String, Node)>,
    any: Option<Vec<Fields>>,
}

#[derive(Debug, Clone)]
enum Node {
    Fields(Fields),
    /// One of the rules must match.
    Leaf(Vec<Rule>),
}

impl Fields {
    /// The fields that it names, those of alternatives too.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        let of_any = self.any.iter().flatten().flat_map(|fields| &fields.all);
        let all = self.all.iter().chain(of_any);
        all.map(|(key, _)| key.as_str())
    }

    /// Whether a value matches. Of an array one element must, by itself.
    pub(super) fn match_value(&self, value: Option<&Value>) -> bool {
        if let Some(Value::Array(elements)) = value
            && !elements.is_empty()
        {
            let mut elements = elements.iter();
            return elements.any(|element| self.match_value(Some(element)));
        }
        let object = value.and_then(Value::as_object);
        let mut all = self.all.iter();
        all.all(|(key, node)| node.match_value(object.and_then(|object| object.get(key))))
            && self.any.as_ref().is_none_or(|any| {
                let mut any = any.iter();
                any.any(|fields| fields.match_value(value))
            })
    }
}

impl Node {
    fn match_value(&self, value: Option<&Value>) -> bool {
        match self {
            Self::Fields(fields) => fields.match_value(value),
            Self::Leaf(rules) => {
                let mut leaves = Vec::new();
                value
                    .into_iter()
                    .for_each(|value| collect(value, &mut leaves));
                rules.iter().any(|rule| rule.matches(&leaves))
            }
        }
    }
}

/// The values of a field that are compared: those of an array one by one. An object has none.
fn collect<'a>(value: &'a Value, leaves: &mut Vec<&'a Value>) {
    match value {
        Value::Object(_) => {}
        Value::Array(elements) => elements.iter().for_each(|one| collect(one, leaves)),
        scalar => leaves.push(scalar),
    }
}

/// Reads patterns, and collects what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) errors: Vec<PatternError>,
}

const OR: &str = "$or";

impl Reader {
    pub(super) fn fields(&mut self, at: &str, pattern: &Value) -> Fields {
        let Some(object) = pattern.as_object().filter(|object| !object.is_empty()) else {
            self.refuse(at, pattern, "an object with at least one field");
            return Fields::default();
        };
        let mut fields = Fields::default();
        for (key, value) in object {
            let below = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
            if key == OR {
                fields.any = self.alternatives(&below, value);
            } else if let Some(node) = self.node(&below, value) {
                fields.all.push((key.clone(), node));
            }
        }
        fields
    }

    fn alternatives(&mut self, at: &str, value: &Value) -> Option<Vec<Fields>> {
        let Some(list) = value.as_array().filter(|list| !list.is_empty()) else {
            self.refuse(at, value, "a list of patterns, of which one must match");
            return None;
        };
        let read = list.iter().enumerate();
        let read = read.map(|(index, one)| self.fields(&format!("{at}/{index}"), one));
        Some(read.collect())
    }

    fn node(&mut self, at: &str, value: &Value) -> Option<Node> {
        match value {
            Value::Object(_) => Some(Node::Fields(self.fields(at, value))),
            Value::Array(rules) if !rules.is_empty() => {
                let mut read = Vec::with_capacity(rules.len());
                for (index, rule) in rules.iter().enumerate() {
                    let at = format!("{at}/{index}");
                    match Rule::read(rule) {
                        Ok(rule) => read.push(rule),
                        Err(error) => self.errors.push(PatternError { at, ..error }),
                    }
                }
                Some(Node::Leaf(read))
            }
            other => {
                let wanted = "a list of values or operators such as [\"order\"] or \
                              [{\"prefix\": \"or\"}], or an object with fields";
                self.refuse(at, other, wanted);
                None
            }
        }
    }

    fn refuse(&mut self, at: &str, found: &Value, wanted: &'static str) {
        let found = shown(found);
        self.errors.push(PatternError::new(at, found, wanted));
    }
}

/// The beginning of a value, for messages.
pub(super) fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    let end = text.floor_char_boundary(MOST);
    if end == text.len() {
        return format!("`{text}`");
    }
    format!("`{}…`", &text[..end])
}

/// An operator that nobody knows.
pub(super) fn unknown_operator(name: &str) -> PatternError {
    let wanted =
        "prefix, suffix, anything-but, numeric, exists, equals-ignore-case, wildcard or cidr";
    let error = PatternError::new("", format!("`{name}` is no operator"), wanted);
    error.nearest_of(name, &OPERATORS)
}
