//! Redacts a message before it is recorded. Pure.

use crate::message::{AttributeValue, Message};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// What is in the place of what is redacted.
pub const BLOT: &str = "[redacted]";
/// What a rule about an attribute begins with.
const ATTRIBUTE: &str = "attribute:";

/// What is redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A place in a body that is JSON, as steps from its top; `None` stands for any step. Where
    /// nobody can say where the place is, all that may hold it is redacted: a body that is no
    /// JSON, a text or a number that should have been an object, a list that should have had names.
    /// A name that is not there says nothing.
    Body(Vec<Option<String>>),
    /// The value of the attribute of this name; `*` is all of them.
    Attribute(String),
}

impl FromStr for Rule {
    type Err = &'static str;

    /// `/customer/email`, `/items/*/name`, `/` for the whole body, `attribute:token`. A slash too
    /// many would name something else than what is meant, so it is refused.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted =
            "a place in the body, such as /customer/email or /items/*/name, or attribute:NAME";
        if let Some(name) = text.strip_prefix(ATTRIBUTE) {
            return match name {
                "" => Err(wanted),
                name => Ok(Self::Attribute(name.to_owned())),
            };
        }
        let path = text.strip_prefix('/').ok_or(wanted)?;
        if !path.is_empty() && path.split('/').any(str::is_empty) {
            return Err(wanted);
        }
        let step = |step: &str| match step {
            "*" => None,
            // As JSON pointers have it (RFC 6901).
            step => Some(step.replace("~1", "/").replace("~0", "~")),
        };
        Ok(Self::Body(match path {
            "" => Vec::new(),
            path => path.split('/').map(step).collect(),
        }))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(name) => write!(out, "{ATTRIBUTE}{name}"),
            Self::Body(steps) if steps.is_empty() => out.write_str("/"),
            Self::Body(steps) => steps.iter().try_for_each(|step| match step {
                None => out.write_str("/*"),
                Some(step) => write!(out, "/{}", step.replace('~', "~0").replace('/', "~1")),
            }),
        }
    }
}

/// A copy of the message without what the rules name.
pub fn message(rules: &[Rule], message: &Message) -> Message {
    let mut copy = message.clone();
    copy.body = body(rules, &message.body);
    for rule in rules {
        let Rule::Attribute(name) = rule else {
            continue;
        };
        for attribute in &mut copy.attributes {
            if name == "*" || attribute.name == *name {
                attribute.value = match attribute.value {
                    AttributeValue::Text(_) => AttributeValue::Text(BLOT.into()),
                    AttributeValue::Binary(_) => AttributeValue::Binary(BLOT.into()),
                };
            }
        }
    }
    copy
}

/// A body without what the rules name. All else stays as it is written: the digits of a number, the
/// order of names, spaces.
pub(crate) fn body(rules: &[Rule], body: &str) -> String {
    let steps = rules.iter().filter_map(|rule| match rule {
        Rule::Body(steps) => Some(&steps[..]),
        Rule::Attribute(_) => None,
    });
    let steps: Vec<Steps<'_>> = steps.collect();
    if steps.is_empty() {
        return body.to_owned();
    }
    // What follows need not look for mistakes.
    if serde_json::from_str::<Value>(body).is_err() {
        return BLOT.to_owned();
    }
    let mut redaction = Redaction {
        text: body,
        at: 0,
        copied: 0,
        out: String::with_capacity(body.len()),
    };
    redaction.value(&steps);
    redaction.out.push_str(&body[redaction.copied..]);
    redaction.out
}

/// What is left of a rule at some place of a body.
type Steps<'a> = &'a [Option<String>];

/// Walks over a text that is JSON and copies it without what is redacted.
struct Redaction<'a> {
    text: &'a str,
    /// What is before this was walked over.
    at: usize,
    /// What is before this was copied or redacted.
    copied: usize,
    out: String,
}

impl Redaction<'_> {
    /// The next byte that is no space; stays before it.
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or_default()
    }

    /// A value, to which these steps lead.
    fn value(&mut self, steps: &[Steps<'_>]) {
        let kind = self.peek();
        let begins = self.at;
        let is_meant = match kind {
            _ if steps.is_empty() => false,
            _ if steps.iter().any(|steps| steps.is_empty()) => true,
            b'{' | b'n' => false,
            // A list has no names.
            b'[' => steps.iter().any(|steps| {
                let name = steps.first().and_then(Option::as_deref);
                name.is_some_and(|name| name.parse::<usize>().is_err())
            }),
            _ => true,
        };
        let inner: &[Steps<'_>] = if is_meant { &[] } else { steps };
        match kind {
            b'{' => self.object(inner),
            b'[' => self.list(inner),
            b'"' => drop(self.string()),
            _ => self.word(),
        }
        if is_meant {
            self.out.push_str(&self.text[self.copied..begins]);
            self.out.push('"');
            self.out.push_str(BLOT);
            self.out.push('"');
            self.copied = self.at;
        }
    }

    fn object(&mut self, steps: &[Steps<'_>]) {
        self.at += 1;
        while self.peek() != b'}' {
            let quoted = self.string();
            // A name may stand there more than once: each is meant.
            let name: String = match steps {
                [] => String::new(),
                _ => serde_json::from_str(quoted).unwrap_or_default(),
            };
            let inner = inner(steps, |step| step == name);
            self.peek();
            self.at += 1; // the colon
            self.value(&inner);
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
    }

    fn list(&mut self, steps: &[Steps<'_>]) {
        self.at += 1;
        let mut place = 0;
        while self.peek() != b']' {
            self.value(&inner(steps, |step| step.parse() == Ok(place)));
            place += 1;
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
    }

    /// A text, with its quotes.
    fn string(&mut self) -> &str {
        self.peek();
        let begins = self.at;
        let mut is_escaped = false;
        for byte in &self.text.as_bytes()[begins + 1..] {
            self.at += 1;
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => break,
                _ => {}
            }
        }
        self.at += 1;
        &self.text[begins..self.at]
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) {
        let rest = &self.text[self.at..];
        let ends = |letter: char| matches!(letter, ',' | ']' | '}') || letter.is_ascii_whitespace();
        self.at += rest.find(ends).unwrap_or(rest.len());
    }
}

/// What is left of the steps that lead on to one place.
fn inner<'a>(steps: &[Steps<'a>], leads: impl Fn(&str) -> bool) -> Vec<Steps<'a>> {
    let inner = steps.iter().filter_map(|steps| {
        let (step, rest) = steps.split_first()?;
        step.as_deref().is_none_or(&leads).then_some(rest)
    });
    inner.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Attribute;
    use proptest::prelude::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    #[test]
    fn matching_values_are_redacted_and_the_rest_stays() {
        let text = r#"{"customer":{"email":"a@b","n":1},"items":[{"sku":"x"},{"sku":"y"}]}"#;
        for (rule, left) in [
            (
                "/customer/email",
                r#"{"customer":{"email":"[redacted]","n":1},"items":[{"sku":"x"},{"sku":"y"}]}"#,
            ),
            (
                "/customer",
                r#"{"customer":"[redacted]","items":[{"sku":"x"},{"sku":"y"}]}"#,
            ),
            (
                "/items/*/sku",
                r#"{"customer":{"email":"a@b","n":1},"items":[{"sku":"[redacted]"},{"sku":"[redacted]"}]}"#,
            ),
            (
                "/items/1",
                r#"{"customer":{"email":"a@b","n":1},"items":[{"sku":"x"},"[redacted]"]}"#,
            ),
            ("/", r#""[redacted]""#),
            ("/nowhere/at/all", text),
            ("attribute:x", text),
        ] {
            assert_eq!(body(&rules(&[rule]), text), left, "{rule}");
        }
    }

    #[test]
    fn enclosing_value_is_redacted_when_the_shape_differs() {
        for (rule, text, left) in [
            (
                "/customer/email",
                r#"{"customer":{"email":"a@b"},"customer":{}}"#,
                r#"{"customer":{"email":"[redacted]"},"customer":{}}"#,
            ),
            (
                "/customer",
                r#"{"\u0063ustomer":1,"customer":2}"#,
                r#"{"\u0063ustomer":"[redacted]","customer":"[redacted]"}"#,
            ),
            (
                "/customer/email",
                r#"{"customer":"{\"email\":\"a@b\"}","n":1}"#,
                r#"{"customer":"[redacted]","n":1}"#,
            ),
            (
                "/customer/email",
                r#"{"customer":[{"email":"a@b"}],"n":1}"#,
                r#"{"customer":"[redacted]","n":1}"#,
            ),
            ("/customer", r#"[{"customer":"a@b"}]"#, r#""[redacted]""#),
            ("/customer", r#""{\"customer\":1}""#, r#""[redacted]""#),
            (
                "/card/number",
                r#"{"card":4111}"#,
                r#"{"card":"[redacted]"}"#,
            ),
            (
                "/items/*/sku",
                r#"{"items":[7,{}]}"#,
                r#"{"items":["[redacted]",{}]}"#,
            ),
            ("/items/3", r#"{"items":[7]}"#, r#"{"items":[7]}"#),
            (
                "/customer/email",
                r#"{"customer":null}"#,
                r#"{"customer":null}"#,
            ),
        ] {
            assert_eq!(body(&rules(&[rule]), text), left, "{rule} {text}");
        }
    }

    #[test]
    fn what_no_rule_names_stays_as_it_is_written() {
        let text =
            r#" { "z" : 12345678901234567890123, "a": [ 1.10, "\"}", {"s": 1} ], "s":"x" } "#;
        let left = r#" { "z" : 12345678901234567890123, "a": [ 1.10, "\"}", {"s": 1} ], "s":"[redacted]" } "#;
        assert_eq!(body(&rules(&["/s", "/b"]), text), left);
        let left = r#" { "z" : 12345678901234567890123, "a": [ 1.10, "\"}", {"s": "[redacted]"} ], "s":"x" } "#;
        assert_eq!(body(&rules(&["/a/2/s"]), text), left);
    }

    #[test]
    fn body_that_is_not_json_is_redacted_whole() {
        assert_eq!(body(&rules(&["/a"]), "email=a@b"), BLOT);
        assert_eq!(body(&rules(&["attribute:a"]), "email=a@b"), "email=a@b");
    }

    #[test]
    fn attributes_are_redacted_by_name() {
        let attribute = |name: &str, value| Attribute {
            name: name.into(),
            data_type: "String".into(),
            value,
        };
        let whole = Message {
            attributes: vec![
                attribute("token", AttributeValue::Text("secret".into())),
                attribute("kind", AttributeValue::Binary(vec![1])),
            ],
            ..Message::default()
        };
        let values = |rule| {
            let left = message(&rules(&[rule]), &whole).attributes;
            left.into_iter().map(|left| left.value).collect::<Vec<_>>()
        };
        let (text, binary) = (
            AttributeValue::Text(BLOT.into()),
            AttributeValue::Binary(BLOT.into()),
        );
        assert_eq!(
            values("attribute:token"),
            [text.clone(), AttributeValue::Binary(vec![1])]
        );
        assert_eq!(values("attribute:*"), [text, binary]);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\{}\\[\\], é]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab1\"]{1,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// The rule of the documentation, on values.
    fn blot(value: &mut Value, steps: &[Option<&str>]) {
        let Some((step, rest)) = steps.split_first() else {
            *value = BLOT.into();
            return;
        };
        match (&mut *value, step) {
            (Value::Object(fields), Some(name)) => {
                if let Some(field) = fields.get_mut(*name) {
                    blot(field, rest);
                }
            }
            (Value::Object(fields), None) => fields.values_mut().for_each(|one| blot(one, rest)),
            (Value::Array(items), None) => items.iter_mut().for_each(|one| blot(one, rest)),
            (Value::Array(items), Some(at)) => match at.parse::<usize>() {
                Ok(at) => {
                    if let Some(item) = items.get_mut(at) {
                        blot(item, rest);
                    }
                }
                Err(_) => *value = BLOT.into(),
            },
            (Value::Null, _) => {}
            _ => *value = BLOT.into(),
        }
    }

    #[test]
    fn invalid_redaction_rule_is_refused() {
        for text in [
            "",
            "customer/email",
            "attribute:",
            "$.a",
            "/a/",
            "//",
            "/a//b",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_redacted_body_is_json_of_the_same_shape(value in any_json(), spaces in any::<bool>()) {
            let text = match spaces {
                true => serde_json::to_string_pretty(&value).expect("JSON"),
                false => value.to_string(),
            };
            let left = body(&rules(&["/a/*", "/*/1"]), &text);
            let left: Value = serde_json::from_str(&left).expect("JSON");
            let mut wanted = value;
            blot(&mut wanted, &[Some("a"), None]);
            blot(&mut wanted, &[None, Some("1")]);
            prop_assert_eq!(left, wanted);
        }

        #[test]
        fn no_secret_remains_where_a_rule_points(
            names in prop::collection::vec("[a-z/~]{1,4}", 1..4),
            secret in "[0-9]{12}",
        ) {
            let mut value = Value::String(secret.clone());
            for name in names.iter().rev() {
                value = serde_json::json!({ name.as_str(): value, "else": 1 });
            }
            let steps = names.iter().map(|name| Some(name.clone())).collect();
            let rule = Rule::Body(steps);
            // A name that is `else` was overwritten on the way.
            prop_assume!(!names.contains(&"else".to_owned()));
            prop_assert_eq!(&rule.to_string().parse::<Rule>().expect("a rule"), &rule);
            prop_assert!(!body(&[rule], &value.to_string()).contains(&secret));
        }
    }
}
