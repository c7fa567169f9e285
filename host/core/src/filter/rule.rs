//! One rule at a leaf of a pattern: a value, or an operator with its operand.

use super::address::{self, Network};
use super::pattern::{PatternError, shown, unknown_operator};
use super::text::{AnyCase, Wildcard};
use crate::json::{Json, Value, compare, is_exact};
use std::borrow::Cow;
use std::cmp::Ordering;
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

/// A value of a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// The number as written in JSON.
    Number(&'a str),
    Text(&'a str),
}

/// A condition on a field's value.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    /// The field has any value.
    Exists,
    /// The field has no value.
    Absent,
    /// The value passes the test.
    Is(Test),
    /// The value passes none of the tests.
    AnythingBut(Vec<Test>),
}

/// A test of one value.
#[derive(Debug, Clone)]
pub(super) enum Test {
    Null,
    Bool(bool),
    Text(String),
    /// A text that stands for this address.
    Address(IpAddr),
    AnyCase(AnyCase),
    Prefix(String),
    PrefixAnyCase(AnyCase),
    Suffix(String),
    SuffixAnyCase(AnyCase),
    Wildcard(Wildcard),
    /// Comparisons that must all hold.
    Numeric(Vec<(Comparison, String)>),
    Cidr(Network),
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
    /// Whether an existing value matches.
    pub(super) fn matches(&self, value: Scalar<'_>) -> bool {
        match self {
            Self::Exists => true,
            Self::Absent => false,
            Self::Is(test) => test.passes(value),
            Self::AnythingBut(tests) => !tests.iter().any(|test| test.passes(value)),
        }
    }

    pub(super) fn read(rule: &Json<'_>) -> Result<Self, PatternError> {
        let Value::Object(members) = &rule.value else {
            return equals(rule).map(Self::Is);
        };
        let [(name, value)] = &members[..] else {
            return Err(error(rule, "one operator, as in {\"prefix\": \"or\"}"));
        };
        match &*name.decode(BROKEN) {
            "exists" => match value.value {
                Value::Bool(true) => Ok(Self::Exists),
                Value::Bool(false) => Ok(Self::Absent),
                _ => Err(error(value, "true or false")),
            },
            "anything-but" => anything_but(value).map(Self::AnythingBut),
            "numeric" => numeric(value).map(Self::Is),
            "cidr" => cidr(value).map(Self::Is),
            name => of_text(name, value).map(Self::Is),
        }
    }
}

/// The replacement for half a surrogate pair. AWS's engine compares texts in UTF-8, and Java writes
/// half a pair as this character.
pub(super) const BROKEN: char = '?';

fn error(found: &Json<'_>, wanted: &'static str) -> PatternError {
    PatternError::new("", shown(found), wanted)
}

fn text<'a>(value: &Json<'a>) -> Result<Cow<'a, str>, PatternError> {
    match value.value {
        Value::Text(text) => Ok(text.decode(BROKEN)),
        _ => Err(error(value, "a text")),
    }
}

fn equals(rule: &Json<'_>) -> Result<Test, PatternError> {
    match rule.value {
        Value::Null => Ok(Test::Null),
        Value::Bool(value) => Ok(Test::Bool(value)),
        Value::Number(_) => Ok(Test::Numeric(vec![(Comparison::Equal, number(rule)?)])),
        Value::Text(text) => {
            let text = text.decode(BROKEN);
            let address = address::parse(&text).map(Test::Address);
            Ok(address.unwrap_or_else(|| Test::Text(text.into_owned())))
        }
        _ => Err(error(
            rule,
            "a text, a number, true, false, null or an operator",
        )),
    }
}

fn number(value: &Json<'_>) -> Result<String, PatternError> {
    match value.value {
        Value::Number(number) if is_exact(number) => Ok(number.to_owned()),
        Value::Number(_) => Err(error(value, "an exponent of at most 37 digits")),
        _ => Err(error(value, "a number")),
    }
}

/// Reads an operator that compares texts.
fn of_text(name: &str, value: &Json<'_>) -> Result<Test, PatternError> {
    match name {
        "prefix" => match any_case_of(value)? {
            Some(inner) => any_case(inner).map(Test::PrefixAnyCase),
            None => Ok(Test::Prefix(text(value)?.into_owned())),
        },
        "suffix" => match any_case_of(value)? {
            Some(inner) => any_case(inner).map(Test::SuffixAnyCase),
            None => Ok(Test::Suffix(text(value)?.into_owned())),
        },
        "equals-ignore-case" => any_case(value).map(Test::AnyCase),
        "wildcard" => {
            let wildcard = Wildcard::parse(&text(value)?).map(Test::Wildcard);
            wildcard.ok_or_else(|| error(value, WILDCARD))
        }
        other => Err(unknown_operator(other)),
    }
}

const WILDCARD: &str = "a text in which * stands for any characters, \\* for an asterisk and \\\\ \
                        for a backslash, and no two * follow each other";

/// Returns the text of `{"equals-ignore-case": TEXT}` within another operator.
fn any_case_of<'v, 'a>(value: &'v Json<'a>) -> Result<Option<&'v Json<'a>>, PatternError> {
    let Value::Object(members) = &value.value else {
        return Ok(None);
    };
    match &members[..] {
        [(name, inner)] if name.is("equals-ignore-case") => Ok(Some(inner)),
        _ => Err(error(value, "a text, or {\"equals-ignore-case\": TEXT}")),
    }
}

fn any_case(value: &Json<'_>) -> Result<AnyCase, PatternError> {
    let wanted = "letters up to U+FFFF; AWS's engine treats a letter beyond as two others";
    AnyCase::new(&text(value)?).ok_or_else(|| error(value, wanted))
}

fn anything_but(value: &Json<'_>) -> Result<Vec<Test>, PatternError> {
    const WANTED: &str = "a text, a number, a list of texts, a list of numbers, or one of prefix, \
                          suffix, equals-ignore-case and wildcard";
    match &value.value {
        Value::Text(text) => Ok(vec![Test::Text(text.decode(BROKEN).into_owned())]),
        Value::Number(_) => Ok(vec![equals(value)?]),
        Value::Array(values) if !values.is_empty() => {
            if !values
                .iter()
                .all(|value: &Json<'_>| matches!(value.value, Value::Text(_)))
                && !values
                    .iter()
                    .all(|value: &Json<'_>| matches!(value.value, Value::Number(_)))
            {
                return Err(error(value, WANTED));
            }
            let tests = values.iter().map(anything_but);
            Ok(tests.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Value::Object(members) => {
            let [(name, inner)] = &members[..] else {
                return Err(error(value, WANTED));
            };
            anything_but_operator(&name.decode(BROKEN), inner)
        }
        _ => Err(error(value, WANTED)),
    }
}

/// Reads an operator within `anything-but`, with a text or a list of them.
fn anything_but_operator(name: &str, value: &Json<'_>) -> Result<Vec<Test>, PatternError> {
    match &value.value {
        Value::Array(values) if !values.is_empty() => values
            .iter()
            .map(|value| anything_but_text(name, value))
            .collect(),
        _ => Ok(vec![anything_but_text(name, value)?]),
    }
}

fn anything_but_text(name: &str, value: &Json<'_>) -> Result<Test, PatternError> {
    if matches!(name, "prefix" | "suffix") && text(value)?.is_empty() {
        return Err(error(value, "a text that is not empty; nothing can match"));
    }
    of_text(name, value)
}

fn numeric(value: &Json<'_>) -> Result<Test, PatternError> {
    const WANTED: &str = "= and a number, or one or two bounds, the lower one first, as in \
                          [\">\", 0, \"<=\", 100]";
    let Value::Array(list) = &value.value else {
        return Err(error(value, WANTED));
    };
    let pairs = list.chunks(2).map(|pair| {
        let Value::Text(name) = pair[0].value else {
            return Err(error(&pair[0], "one of =, <, <=, > and >="));
        };
        let comparison = match &*name.decode(BROKEN) {
            "=" => Comparison::Equal,
            "<" => Comparison::Less,
            "<=" => Comparison::AtMost,
            ">" => Comparison::Greater,
            ">=" => Comparison::AtLeast,
            _ => return Err(error(&pair[0], "one of =, <, <=, > and >=")),
        };
        let bound = pair.get(1).ok_or_else(|| error(value, WANTED))?;
        Ok((comparison, number(bound)?))
    });
    let pairs: Vec<_> = pairs.collect::<Result<_, _>>()?;
    match &pairs[..] {
        [_] => {}
        [
            (Comparison::Greater | Comparison::AtLeast, bottom),
            (Comparison::Less | Comparison::AtMost, top),
        ] => {
            if compare(bottom, top).is_ge() {
                let wanted = "a lower bound that is less than the upper one; nothing can match";
                return Err(error(value, wanted));
            }
        }
        _ => return Err(error(value, WANTED)),
    }
    Ok(Test::Numeric(pairs))
}

fn cidr(value: &Json<'_>) -> Result<Test, PatternError> {
    let wanted = "a network of more than one address, such as 10.0.0.0/24; one address is written \
                  as a text";
    let network = Network::parse(&text(value)?).map(Test::Cidr);
    network.ok_or_else(|| error(value, wanted))
}

impl Test {
    fn passes(&self, value: Scalar<'_>) -> bool {
        match (self, value) {
            (Self::Null, Scalar::Null) => true,
            (Self::Bool(wanted), Scalar::Bool(value)) => *wanted == value,
            (Self::Numeric(comparisons), Scalar::Number(number)) => {
                let mut all = comparisons.iter();
                all.all(|(comparison, bound)| comparison.holds(compare(number, bound)))
            }
            (test, Scalar::Text(text)) => test.passes_text(text),
            _ => false,
        }
    }

    fn passes_text(&self, text: &str) -> bool {
        match self {
            Self::Text(wanted) => text == wanted,
            Self::Address(wanted) => address::parse(text) == Some(*wanted),
            Self::AnyCase(wanted) => wanted.is(text),
            Self::Prefix(wanted) => text.starts_with(wanted),
            Self::PrefixAnyCase(wanted) => wanted.begins(text),
            Self::Suffix(wanted) => text.ends_with(wanted),
            Self::SuffixAnyCase(wanted) => wanted.ends(text),
            Self::Wildcard(wanted) => wanted.is(text),
            Self::Cidr(network) => address::parse(text).is_some_and(|one| network.contains(one)),
            Self::Null | Self::Bool(_) | Self::Numeric(_) => false,
        }
    }
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}
