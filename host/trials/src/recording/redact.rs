//! Redacts a message before it is recorded. Pure.

use dispatcher_core::json::{Token, Tokens};
use dispatcher_core::message::{AttributeValue, Message};
use std::fmt;
use std::str::FromStr;

/// The replacement for a redacted value.
pub const BLOT: &str = "[redacted]";
/// The prefix of a rule about an attribute.
const ATTRIBUTE: &str = "attribute:";

/// A redaction rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A path in a JSON body, as steps from its root; `None` matches any step. If the body has
    /// another shape, everything that may hold the value is redacted: a body that is not JSON, a
    /// text or a number in place of an object, an array in place of an object with names. A missing
    /// name has no effect.
    Body(Vec<Option<String>>),
    /// The value of the attribute with this name; `*` matches all attributes.
    Attribute(String),
}

impl FromStr for Rule {
    type Err = &'static str;

    /// Parses `/customer/email`, `/items/*/name`, `/` for the whole body, or `attribute:token`.
    /// Rejects a superfluous slash, because it would name another place than intended.
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
        Ok(Self::Body(match path {
            "" => Vec::new(),
            path => path
                .split('/')
                .map(|step: &str| match step {
                    "*" => None,
                    step => Some(unescaped(step)),
                })
                .collect(),
        }))
    }
}

/// Returns a step of a JSON pointer as it is named: pointers escape `/` and `~` (RFC 6901).
fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

impl Rule {
    /// Whether the rule redacts the attribute of this name.
    pub fn covers_attribute(&self, attribute: &str) -> bool {
        matches!(self, Self::Attribute(name) if name == attribute || name == "*")
    }

    /// Whether the rule redacts the place in the body at this JSON pointer, or one around it.
    pub fn covers_pointer(&self, pointer: &str) -> bool {
        let Self::Body(steps) = self else {
            return false;
        };
        let place: Vec<String> = pointer.split('/').skip(1).map(unescaped).collect();
        let both = steps.iter().zip(&place);
        let mut is_same = both.map(|(step, of)| step.as_ref().is_none_or(|step| step == of));
        steps.len() <= place.len() && is_same.all(|same| same)
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

/// Returns a copy of the message, redacted by the rules.
pub fn message(rules: &[Rule], message: &Message) -> Message {
    let mut copy = message.clone();
    copy.body = body(rules, &message.body);
    for rule in rules {
        for attribute in &mut copy.attributes {
            if rule.covers_attribute(&attribute.name) {
                attribute.value = match attribute.value {
                    AttributeValue::Text(_) => AttributeValue::Text(BLOT.into()),
                    AttributeValue::Binary(_) => AttributeValue::Binary(BLOT.into()),
                };
            }
        }
    }
    copy
}

/// Returns a body, redacted by the rules. Everything else keeps its exact text: the digits of a
/// number, the order of names, spaces.
pub fn body(rules: &[Rule], body: &str) -> String {
    let steps: Vec<Steps<'_>> = rules
        .iter()
        .filter_map(|rule| match rule {
            Rule::Body(steps) => Some(&steps[..]),
            Rule::Attribute(_) => None,
        })
        .collect();
    if steps.is_empty() {
        return body.to_owned();
    }
    let mut redaction = Redaction {
        text: body,
        copied: 0,
        out: String::with_capacity(body.len()),
        open: Vec::new(),
        next: steps,
        meant: None,
    };
    let mut tokens = Tokens::new(body);
    while let Some(token) = tokens.next() {
        let Ok(token) = token else {
            return BLOT.to_owned();
        };
        redaction.take(token, tokens.begin(), tokens.end());
    }
    redaction.out.push_str(&body[redaction.copied..]);
    redaction.out
}

/// The remaining steps of a rule at a place in a body.
type Steps<'a> = &'a [Option<String>];

/// Walks over a JSON text and copies it without the redacted values.
struct Redaction<'a> {
    text: &'a str,
    /// The offset up to which the text is copied or redacted.
    copied: usize,
    out: String,
    /// The open objects and arrays.
    open: Vec<RedactionLevel<'a>>,
    /// The remaining steps for the next value of an object, or for the whole body.
    next: Vec<Steps<'a>>,
    /// The offset of the value that is being redacted, and the number of levels around it.
    meant: Option<(usize, usize)>,
}

/// An object or an array.
struct RedactionLevel<'a> {
    steps: Vec<Steps<'a>>,
    /// The index of the next element, in an array.
    place: Option<usize>,
}

impl<'a> Redaction<'a> {
    fn take(&mut self, token: Token<'_>, begin: usize, end: usize) {
        match token {
            // A name may occur more than once; the rule applies to each.
            Token::Name(name) => {
                let steps = self.open.last().map_or(&[][..], |level| &level.steps[..]);
                self.next = inner(steps, |step| name.is(step));
            }
            Token::ObjectBegins | Token::ArrayBegins => {
                let steps = self.steps();
                let is_array = token == Token::ArrayBegins;
                let is_meant = if is_array {
                    // An array has no names.
                    steps.iter().any(|steps| match steps.first() {
                        None => true,
                        Some(step) => step
                            .as_ref()
                            .is_some_and(|name| name.parse::<usize>().is_err()),
                    })
                } else {
                    steps.iter().any(|steps| steps.is_empty())
                };
                if is_meant {
                    self.meant = Some((begin, self.open.len()));
                }
                let steps = if is_meant { Vec::new() } else { steps };
                self.open.push(RedactionLevel {
                    steps,
                    place: is_array.then_some(0),
                });
            }
            Token::ObjectEnds | Token::ArrayEnds => {
                self.open.pop();
                if let Some((begin, depth)) = self.meant
                    && depth == self.open.len()
                {
                    self.meant = None;
                    self.blot(begin, end);
                }
            }
            Token::Null => {
                if self.steps().iter().any(|steps| steps.is_empty()) {
                    self.blot(begin, end);
                }
            }
            Token::Text(_) | Token::Number(_) | Token::Bool(_) => {
                if !self.steps().is_empty() {
                    self.blot(begin, end);
                }
            }
        }
    }

    /// Returns the remaining steps of the rules that lead to the value that begins here.
    fn steps(&mut self) -> Vec<Steps<'a>> {
        let level = self.open.last_mut();
        let Some((level, place)) =
            level.and_then(|level| Some((&level.steps, level.place.as_mut()?)))
        else {
            return std::mem::take(&mut self.next);
        };
        let steps = inner(level, |step| step.parse() == Ok(*place));
        *place += 1;
        steps
    }

    fn blot(&mut self, begin: usize, end: usize) {
        self.out.push_str(&self.text[self.copied..begin]);
        self.out.push('"');
        self.out.push_str(BLOT);
        self.out.push('"');
        self.copied = end;
    }
}

/// Returns the remaining steps of the rules whose next step `leads` accepts.
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
    use dispatcher_core::message::Attribute;
    use proptest::prelude::*;
    use serde_json::Value;

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
    fn odd_json_is_redacted_where_the_rules_say() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        for odd in [r#""\ud83d""#, "1e400", &deep] {
            let text = format!(r#"{{"a":1,"x":{odd},"\ud83d":[1]}}"#);
            let left = format!(r#"{{"a":"[redacted]","x":{odd},"\ud83d":[1]}}"#);
            assert_eq!(body(&rules(&["/a"]), &text), left, "{odd:.20}");
            let left = r#"{"a":1,"x":"[redacted]","\ud83d":[1]}"#;
            assert_eq!(body(&rules(&["/x"]), &text), left, "{odd:.20}");
        }
        assert_eq!(body(&rules(&["/a"]), r#"{"a":1}x"#), BLOT);
    }

    fn attribute(name: &str, value: AttributeValue) -> Attribute {
        Attribute {
            name: name.into(),
            data_type: "String".into(),
            value,
        }
    }

    #[test]
    fn attributes_are_redacted_by_name() {
        let whole = Message {
            attributes: vec![
                attribute("token", AttributeValue::Text("secret".into())),
                attribute("kind", AttributeValue::Binary(vec![1])),
            ],
            ..Message::default()
        };
        let (text, binary) = (
            AttributeValue::Text(BLOT.into()),
            AttributeValue::Binary(BLOT.into()),
        );
        let one = [text.clone(), AttributeValue::Binary(vec![1])];
        for (rule, wanted) in [("attribute:token", one), ("attribute:*", [text, binary])] {
            let left = message(&rules(&[rule]), &whole).attributes;
            let values: Vec<_> = left.into_iter().map(|left| left.value).collect();
            assert_eq!(values, wanted, "{rule}");
        }
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
            let text = if spaces { serde_json::to_string_pretty(&value).expect("JSON") } else { value.to_string() };
            let redacted = body(&rules(&["/a/*", "/*/1"]), &text);
            let left: Value = serde_json::from_str(&redacted).expect("JSON");
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
