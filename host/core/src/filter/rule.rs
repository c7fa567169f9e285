//! One rule at a leaf of a pattern: a value, or an operator with what it compares to.

use super::pattern::{PatternError, shown, unknown_operator};
use serde_json::{Number, Value};
use std::net::IpAddr;

/// The operators of EventBridge that compare values.
pub(super) const OPERATORS: [&str; 8] = [
    "prefix",
    "suffix",
    "anything-but",
    "numeric",
    "exists",
    "equals-ignore-case",
    "wildcard",
    "cidr",
];

/// What one of a field's values must be.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    /// Whether there is one at all.
    Exists(bool),
    /// One of the values passes the test.
    Is(Test),
    /// One of the values passes none of the tests.
    AnythingBut(Vec<Test>),
}

/// A test of one value.
#[derive(Debug, Clone)]
pub(super) enum Test {
    Equals(Value),
    EqualsIgnoreCase(String),
    Prefix(String, Case),
    Suffix(String, Case),
    /// The texts between the asterisks.
    Wildcard(Vec<String>),
    /// All of these comparisons.
    Numeric(Vec<(Comparison, f64)>),
    Cidr(IpAddr, u8),
}

/// Whether upper and lower case differ. What is compared without is in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Matters,
    Ignored,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Rule {
    pub(super) fn matches(&self, values: &[&Value]) -> bool {
        match self {
            Self::Exists(wanted) => values.is_empty() != *wanted,
            Self::Is(test) => values.iter().any(|value| test.passes(value)),
            Self::AnythingBut(tests) => {
                let is_other = |value: &&Value| !tests.iter().any(|test| test.passes(value));
                values.iter().any(is_other)
            }
        }
    }

    pub(super) fn read(rule: &Value) -> Result<Self, PatternError> {
        let Value::Object(operator) = rule else {
            let scalar = !rule.is_array();
            let wanted = "a text, a number, true, false, null or an operator";
            let equals = scalar.then(|| Self::Is(Test::Equals(rule.clone())));
            return equals.ok_or_else(|| error(rule, wanted));
        };
        let mut entries = operator.iter();
        let (Some((name, value)), None) = (entries.next(), entries.next()) else {
            return Err(error(rule, "one operator, as in {\"prefix\": \"or\"}"));
        };
        match name.as_str() {
            "exists" => {
                let wanted = value.as_bool();
                wanted
                    .map(Self::Exists)
                    .ok_or_else(|| error(value, "true or false"))
            }
            "anything-but" => anything_but(value).map(Self::AnythingBut),
            "numeric" => numeric(value).map(Self::Is),
            "cidr" => cidr(value).map(Self::Is),
            _ => of_text(name, value).map(Self::Is),
        }
    }
}

fn error(found: &Value, wanted: &'static str) -> PatternError {
    PatternError::new("", shown(found), wanted)
}

fn text(value: &Value) -> Result<&str, PatternError> {
    value.as_str().ok_or_else(|| error(value, "a text"))
}

/// An operator that compares texts.
fn of_text(name: &str, value: &Value) -> Result<Test, PatternError> {
    let with_case = || -> Result<(String, Case), PatternError> {
        let Value::Object(inner) = value else {
            return Ok((text(value)?.to_owned(), Case::Matters));
        };
        match inner.get("equals-ignore-case").filter(|_| inner.len() == 1) {
            Some(inner) => Ok((text(inner)?.to_lowercase(), Case::Ignored)),
            None => Err(error(value, "a text, or {\"equals-ignore-case\": TEXT}")),
        }
    };
    match name {
        "equals-ignore-case" => Ok(Test::EqualsIgnoreCase(text(value)?.to_lowercase())),
        "prefix" => with_case().map(|(text, case)| Test::Prefix(text, case)),
        "suffix" => with_case().map(|(text, case)| Test::Suffix(text, case)),
        "wildcard" => wildcard(value),
        other => Err(unknown_operator(other)),
    }
}

fn anything_but(value: &Value) -> Result<Vec<Test>, PatternError> {
    const WANTED: &str = "a text, a number, a list of one of them, or one of prefix, suffix, \
                          equals-ignore-case and wildcard";
    let equals = |value: &Value| {
        let plain = value.is_string() || value.is_number();
        let test = plain.then(|| Test::Equals(value.clone()));
        test.ok_or_else(|| error(value, WANTED))
    };
    match value {
        Value::Array(values) if !values.is_empty() => values.iter().map(equals).collect(),
        Value::Object(operator) if operator.len() == 1 => {
            let Some((name, value)) = operator.iter().next() else {
                return Err(error(value, WANTED));
            };
            match value {
                Value::Array(values) if !values.is_empty() => {
                    values.iter().map(|value| of_text(name, value)).collect()
                }
                value => Ok(vec![of_text(name, value)?]),
            }
        }
        value => Ok(vec![equals(value)?]),
    }
}

fn numeric(value: &Value) -> Result<Test, PatternError> {
    const WANTED: &str = "comparisons and numbers in turns, as in [\">\", 0, \"<=\", 100]";
    let list = value.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| error(value, WANTED))?;
    let pairs = list.chunks(2).map(|pair| {
        let comparison = match pair[0].as_str() {
            Some("=") => Comparison::Equal,
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::AtMost,
            Some(">") => Comparison::Greater,
            Some(">=") => Comparison::AtLeast,
            _ => return Err(error(&pair[0], "one of =, <, <=, > and >=")),
        };
        let number = pair.get(1).and_then(Value::as_f64);
        let number = number.ok_or_else(|| error(value, WANTED))?;
        Ok((comparison, number))
    });
    pairs.collect::<Result<_, _>>().map(Test::Numeric)
}

fn cidr(value: &Value) -> Result<Test, PatternError> {
    let parsed = value.as_str().and_then(|text| {
        let (address, bits) = text.split_once('/')?;
        let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Test::Cidr(address, bits))
    });
    parsed.ok_or_else(|| error(value, "a network such as 10.0.0.0/24"))
}

/// `*` stands for any characters; `\*` and `\\` for themselves.
fn wildcard(value: &Value) -> Result<Test, PatternError> {
    const WANTED: &str = "a text in which * stands for any characters, \\* for an asterisk and \\\\ \
                          for a backslash, and no two * follow each other";
    let refused = || error(value, WANTED);
    let mut parts = vec![String::new()];
    let mut letters = text(value)?.chars().peekable();
    while let Some(letter) = letters.next() {
        let part = match letter {
            '*' if letters.peek() == Some(&'*') => return Err(refused()),
            '*' => {
                parts.push(String::new());
                continue;
            }
            '\\' => match letters.next() {
                Some(escaped @ ('*' | '\\')) => escaped,
                _ => return Err(refused()),
            },
            other => other,
        };
        parts
            .last_mut()
            .into_iter()
            .for_each(|last| last.push(part));
    }
    Ok(Test::Wildcard(parts))
}

impl Test {
    fn passes(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Equals(Value::Number(one)), Value::Number(other)) => same_number(one, other),
            (Self::Equals(wanted), value) => wanted == value,
            (Self::Numeric(comparisons), Value::Number(number)) => {
                let holds = |number: f64| {
                    let mut all = comparisons.iter();
                    all.all(|(comparison, bound)| comparison.holds(number, *bound))
                };
                number.as_f64().is_some_and(holds)
            }
            (test, Value::String(text)) => test.passes_text(text),
            _ => false,
        }
    }

    fn passes_text(&self, text: &str) -> bool {
        match self {
            Self::EqualsIgnoreCase(wanted) => text.to_lowercase() == *wanted,
            Self::Prefix(wanted, Case::Matters) => text.starts_with(wanted),
            Self::Prefix(wanted, Case::Ignored) => text.to_lowercase().starts_with(wanted),
            Self::Suffix(wanted, Case::Matters) => text.ends_with(wanted),
            Self::Suffix(wanted, Case::Ignored) => text.to_lowercase().ends_with(wanted),
            Self::Wildcard(parts) => fits(parts, text),
            Self::Cidr(network, bits) => {
                let address = text.parse::<IpAddr>();
                address.is_ok_and(|address| is_within(address, *network, *bits))
            }
            Self::Equals(_) | Self::Numeric(_) => false,
        }
    }
}

impl Comparison {
    fn holds(self, number: f64, bound: f64) -> bool {
        match self {
            Self::Equal => number.total_cmp(&bound).is_eq(),
            Self::Less => number < bound,
            Self::AtMost => number <= bound,
            Self::Greater => number > bound,
            Self::AtLeast => number >= bound,
        }
    }
}

/// Whole numbers exactly, all others as floating-point numbers.
fn same_number(one: &Number, other: &Number) -> bool {
    let whole = |number: &Number| number.as_i128();
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.as_f64() == other.as_f64(),
    }
}

/// Whether a text consists of these parts in order, with anything between them.
fn fits(parts: &[String], text: &str) -> bool {
    let Some((first, others)) = parts.split_first() else {
        return false;
    };
    let Some((last, between)) = others.split_last() else {
        return text == first;
    };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else {
        return false;
    };
    for part in between {
        let Some(at) = rest.find(part.as_str()) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last.as_str())
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (address, network, all) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (
            u128::from(address.to_bits()),
            u128::from(network.to_bits()),
            32,
        ),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let host_bits = u32::from(all - bits);
    address.checked_shr(host_bits) == network.checked_shr(host_bits)
}
