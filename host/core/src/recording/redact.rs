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

fn body(rules: &[Rule], body: &str) -> String {
    let mut steps = rules.iter().filter_map(|rule| match rule {
        Rule::Body(steps) => Some(steps),
        Rule::Attribute(_) => None,
    });
    let Some(first) = steps.next() else {
        return body.to_owned();
    };
    let Ok(mut value) = serde_json::from_str::<Value>(body) else {
        return BLOT.to_owned();
    };
    redact(&mut value, first);
    for steps in steps {
        redact(&mut value, steps);
    }
    // What was searched, and never the text: a name may stand twice in it.
    value.to_string()
}

fn redact(value: &mut Value, steps: &[Option<String>]) {
    let Some((step, rest)) = steps.split_first() else {
        *value = Value::String(BLOT.into());
        return;
    };
    match (&mut *value, step) {
        (Value::Object(fields), Some(name)) => {
            if let Some(field) = fields.get_mut(name) {
                redact(field, rest);
            }
        }
        (Value::Object(fields), None) => fields.values_mut().for_each(|field| redact(field, rest)),
        (Value::Array(items), None) => items.iter_mut().for_each(|item| redact(item, rest)),
        (Value::Array(items), Some(index)) => match index.parse::<usize>() {
            Ok(at) => {
                if let Some(item) = items.get_mut(at) {
                    redact(item, rest);
                }
            }
            Err(_) => *value = Value::String(BLOT.into()),
        },
        // It holds nothing.
        (Value::Null, _) => {}
        (Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {
            *value = Value::String(BLOT.into());
        }
    }
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
            // The first of two would be left if the text were kept.
            (
                "/customer/email",
                r#"{"customer":{"email":"a@b"},"customer":{}}"#,
                r#"{"customer":{}}"#,
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
