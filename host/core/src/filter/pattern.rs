//! The structure of a pattern: combinations of fields, one of which must match. Knows nothing of
//! messages.

use super::choice::Bits;
use super::rule::{BROKEN, OPERATORS, Rule, Scalar};
use super::{PART, PARTS};
use crate::json::{Json, Value};

/// A problem of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// The place in the pattern as a JSON pointer; empty for the whole pattern.
    pub at: String,
    /// The text that was found.
    pub found: String,
    /// The expected text.
    pub wanted: &'static str,
    /// A name that may be misspelt, and the known names.
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

/// A field of a message and its rules, one of which must match.
#[derive(Debug, Clone)]
pub(super) struct Field {
    /// The names that lead to it, joined with dots: `order.kind` may be one name or two.
    pub(super) name: String,
    rules: Vec<Rule>,
}

impl Field {
    /// Whether a value of the field matches.
    pub(super) fn matches(&self, value: Scalar<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(value))
    }

    /// Whether the field matches if the message does not have it.
    pub(super) fn may_be_absent(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| matches!(rule, Rule::Absent))
    }
}

/// Fields that must all match, with one alternative of each `$or`. Sorted by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Combination(pub(super) Vec<Field>);

impl Combination {
    /// Returns the bits of all fields, and of those that also match if a message does not have
    /// them.
    pub(super) fn bits(&self) -> (Bits, Bits) {
        let fields = self.0.iter().enumerate();
        fields.fold((0, 0), |(all, optional), (index, field)| {
            let bit = 1 << index;
            let may_be_absent = if field.may_be_absent() { bit } else { 0 };
            (all | bit, optional | may_be_absent)
        })
    }

    /// Whether the combination has a rule for the body as a text.
    pub(super) fn wants_text(&self) -> bool {
        self.0.iter().any(|field| field.name == BODY)
    }

    /// Whether the combination has rules for fields of the body.
    pub(super) fn wants_fields(&self) -> bool {
        let mut fields = self.0.iter();
        fields.any(|field| {
            let rest = field.name.strip_prefix(BODY);
            rest.is_some_and(|rest| rest.starts_with('.'))
        })
    }
}

/// The name of a body that is a text.
pub(super) const BODY: &str = "body";
/// The maximum number of combinations that the alternatives of a pattern may have.
const MOST_COMBINATIONS: usize = 1_000;
/// The maximum number of fields of a combination.
const MOST_FIELDS: usize = 128;

/// Names that AWS's engine reserves within alternatives, in addition to its operators.
const RESERVED: [&str; 16] = [
    "exactly",
    "=",
    "<",
    "<=",
    ">",
    ">=",
    "regex",
    "not-wildcard",
    "not-equals-ignore-case",
    "date-after",
    "date-on-or-after",
    "date-before",
    "date-on-or-before",
    "in-date-range",
    "ip-address-in-range",
    "ip-address-not-in-range",
];

/// Reads patterns and collects their problems.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) errors: Vec<PatternError>,
}

/// The reader's place in a pattern.
struct Place<'p> {
    /// The place as a JSON pointer.
    at: &'p str,
    /// The names so far, joined with dots.
    name: &'p str,
    is_alternative: bool,
}

const OR: &str = "$or";

impl Reader {
    /// Reads the combinations of a pattern.
    pub(super) fn pattern(&mut self, pattern: &Json<'_>) -> Vec<Combination> {
        let top = Place {
            at: "",
            name: "",
            is_alternative: false,
        };
        let mut combinations = vec![Combination::default()];
        self.fields(&top, pattern, &mut combinations);
        for combination in &mut combinations {
            combination
                .0
                .sort_by(|one, other| one.name.cmp(&other.name));
            if combination.0.len() > MOST_FIELDS {
                let found = format!("{} fields that must all match", combination.0.len());
                self.refuse_once("", found, "at most 128");
            }
            if combination.wants_text() && combination.wants_fields() {
                let found = "rules for the body as a text and for its fields".to_owned();
                self.refuse_once("/body", found, "one of them; no body has both");
            }
        }
        combinations
    }

    /// Adds the fields of an object to each combination.
    fn fields(&mut self, place: &Place<'_>, pattern: &Json<'_>, into: &mut Vec<Combination>) {
        let members = match &pattern.value {
            Value::Object(members) if !members.is_empty() => members,
            _ => return self.refuse(place.at, pattern, "an object with at least one field"),
        };
        for (key, value) in members {
            let key = key.decode(BROKEN);
            let at = format!("{}/{}", place.at, key.replace('~', "~0").replace('/', "~1"));
            if key == OR {
                self.alternatives(&Place { at: &at, ..*place }, value, into);
                continue;
            }
            if place.name.is_empty() {
                self.check_part(&key);
            } else if place.is_alternative && is_reserved(&key) {
                let found = format!("`{key}` as a field of an alternative");
                let error = PatternError::new(&at, found, "another name; AWS reserves this one");
                self.errors.push(error);
            }
            let name = match place.name {
                "" => key.into_owned(),
                before => format!("{before}.{key}"),
            };
            let below = Place {
                at: &at,
                name: &name,
                ..*place
            };
            match &value.value {
                Value::Object(_) => self.fields(&below, value, into),
                Value::Array(rules) if !rules.is_empty() => self.leaf(&below, rules, into),
                _ => self.refuse(
                    &at,
                    value,
                    "a list of values or operators such as [\"order\"] or \
                     [{\"prefix\": \"or\"}], or an object with fields",
                ),
            }
        }
    }

    fn check_part(&mut self, key: &str) {
        let part = key.split('.').next().unwrap_or_default();
        if !PARTS.contains(&part) {
            let error = PatternError::new("", format!("`{key}` is not a part of a message"), PART);
            self.errors.push(error.nearest_of(key, &PARTS));
        }
    }

    fn alternatives(&mut self, place: &Place<'_>, value: &Json<'_>, into: &mut Vec<Combination>) {
        let list = match &value.value {
            Value::Array(list) if list.len() > 1 => list,
            _ => {
                let wanted = "a list of two or more patterns, of which one must match";
                return self.refuse(place.at, value, wanted);
            }
        };
        if into.len() * list.len() > MOST_COMBINATIONS {
            let found = format!("{} combinations of alternatives", into.len() * list.len());
            self.refuse_once(place.at, found, "at most 1000");
            return;
        }
        let mut all = Vec::with_capacity(into.len() * list.len());
        for (index, one) in list.iter().enumerate() {
            let at = format!("{}/{index}", place.at);
            let mut copies = into.clone();
            let place = Place {
                at: &at,
                name: place.name,
                is_alternative: true,
            };
            self.fields(&place, one, &mut copies);
            all.append(&mut copies);
        }
        *into = all;
    }

    fn leaf(&mut self, place: &Place<'_>, rules: &[Json<'_>], into: &mut [Combination]) {
        let mut read = Vec::with_capacity(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            match Rule::read(rule) {
                Ok(rule) => read.push(rule),
                Err(error) => {
                    let at = format!("{}/{index}", place.at);
                    self.errors.push(PatternError { at, ..error });
                }
            }
        }
        for combination in into {
            let mut fields = combination.0.iter();
            if fields.any(|field| field.name == place.name) {
                let found = format!("a second list for the field {}", place.name);
                let wanted = "one list; AWS's engine would ignore one of two";
                self.refuse_once(place.at, found, wanted);
                continue;
            }
            combination.0.push(Field {
                name: place.name.to_owned(),
                rules: read.clone(),
            });
        }
    }

    fn refuse(&mut self, at: &str, found: &Json<'_>, wanted: &'static str) {
        self.errors
            .push(PatternError::new(at, shown(found), wanted));
    }

    /// Adds a problem once, although many combinations may have it.
    fn refuse_once(&mut self, at: &str, found: String, wanted: &'static str) {
        let error = PatternError::new(at, found, wanted);
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

fn is_reserved(name: &str) -> bool {
    OPERATORS.contains(&name) || RESERVED.contains(&name)
}

/// Returns the beginning of a value, for error messages.
pub(super) fn shown(value: &Json<'_>) -> String {
    const MOST: usize = 60;
    let end = value.text.floor_char_boundary(MOST);
    if end == value.text.len() {
        return format!("`{}`", value.text);
    }
    format!("`{}…`", &value.text[..end])
}

/// Returns the error for an operator that AWS does not have.
pub(super) fn unknown_operator(name: &str) -> PatternError {
    let wanted =
        "prefix, suffix, anything-but, numeric, exists, equals-ignore-case, wildcard or cidr";
    let error = PatternError::new("", format!("`{name}` is not an operator"), wanted);
    error.nearest_of(name, &OPERATORS)
}
