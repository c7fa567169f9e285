//! The protocol of old SDKs: parameters as a form, numbered lists, responses in XML. Converts
//! requests to the shapes of the JSON protocol, and responses back. Knows no operation beyond the
//! names of its lists.

use super::fault::Fault;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The most parts of a parameter's name; SQS's own have at most six.
const DEEPEST: usize = 8;

const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";

/// What a numbered parameter is in the JSON protocol.
enum Shape {
    /// Texts.
    List(&'static str),
    /// Entries with parameters.
    Entries,
    /// A map, each entry of which has its key and its value under these names.
    Map(&'static str, &'static str),
}

fn shape(parameter: &str) -> Option<Shape> {
    Some(match parameter {
        "AttributeName" => Shape::List("AttributeNames"),
        "MessageAttributeName" => Shape::List("MessageAttributeNames"),
        "MessageSystemAttributeName" => Shape::List("MessageSystemAttributeNames"),
        "TagKey" => Shape::List("TagKeys"),
        "AWSAccountId" => Shape::List("AWSAccountIds"),
        "ActionName" => Shape::List("Actions"),
        "SendMessageBatchRequestEntry"
        | "DeleteMessageBatchRequestEntry"
        | "ChangeMessageVisibilityBatchRequestEntry" => Shape::Entries,
        "Attribute" => Shape::Map("Attributes", "Name"),
        "MessageAttribute" => Shape::Map("MessageAttributes", "Name"),
        "MessageSystemAttribute" => Shape::Map("MessageSystemAttributes", "Name"),
        "Tag" => Shape::Map("Tags", "Key"),
        _ => return None,
    })
}

/// What a list or map with nothing in it is: old SDKs then write its name of today.
fn empty(parameter: &str) -> Option<Value> {
    let list = parameter == "Entries" || parameter.ends_with("Names") || parameter == "TagKeys";
    let map = parameter.ends_with("Attributes") || parameter == "Tags";
    match (list, map) {
        (true, _) => Some(Value::Array(Vec::new())),
        (_, true) => Some(Value::Object(Map::new())),
        _ => None,
    }
}

/// Parameters by the parts of their names; a number is a part as well, so lists are in order.
#[derive(Default)]
struct Tree {
    text: Option<String>,
    named: BTreeMap<String, Tree>,
    numbered: BTreeMap<u32, Tree>,
}

impl Tree {
    fn is_empty(&self) -> bool {
        self.text.as_deref().is_none_or(str::is_empty)
            && self.named.is_empty()
            && self.numbered.is_empty()
    }

    fn insert(&mut self, name: &str, text: String) {
        if name.split('.').count() > DEEPEST {
            return;
        }
        let mut at = self;
        for part in name.split('.') {
            at = match part.parse::<u32>() {
                Ok(number) => at.numbered.entry(number).or_default(),
                Err(_) => at.named.entry(part.to_owned()).or_default(),
            };
        }
        at.text = Some(text);
    }

    /// As the JSON protocol would have it.
    fn into_json(self) -> Value {
        if self.named.is_empty() {
            return Value::String(self.text.unwrap_or_default());
        }
        let mut object = Map::new();
        for (name, tree) in self.named {
            match shape(&name) {
                None => {
                    let value = match (tree.is_empty(), empty(&name)) {
                        (true, Some(value)) => value,
                        _ => tree.into_json(),
                    };
                    object.insert(name, value);
                }
                Some(shape) => {
                    let (name, value) = tree.into_shape(shape);
                    object.insert(name.into(), value);
                }
            }
        }
        Value::Object(object)
    }

    fn into_shape(self, shape: Shape) -> (&'static str, Value) {
        let items = self.numbered.into_values();
        match shape {
            Shape::List(name) => (name, items.map(Self::into_json).collect()),
            Shape::Entries => ("Entries", items.map(Self::into_json).collect()),
            Shape::Map(name, key) => {
                let mut map = Map::new();
                for mut item in items {
                    let key = item.named.remove(key).and_then(|key| key.text);
                    let value = item.named.remove("Value").unwrap_or_default();
                    map.insert(key.unwrap_or_default(), value.into_json());
                }
                (name, Value::Object(map))
            }
        }
    }
}

/// The operation of a form, if it names one, and its parameters in the shapes of the JSON protocol.
pub(crate) fn read(form: &[u8]) -> (Option<String>, Value) {
    let mut tree = Tree::default();
    let mut action = None;
    for (name, value) in form_urlencoded::parse(form) {
        match &*name {
            "Action" => action = Some(value.into_owned()),
            "Version" => {}
            name => tree.insert(name, value.into_owned()),
        }
    }
    let value = match tree.named.is_empty() {
        true => Value::Object(Map::new()),
        false => tree.into_json(),
    };
    (action, value)
}

/// The answer to an operation.
pub(crate) fn answer(action: &str, result: &Value, request: &str) -> String {
    let mut xml = format!("<?xml version=\"1.0\"?><{action}Response xmlns=\"{NAMESPACE}\">");
    // Readers want the element even if nothing is in it, unless the operation has no result.
    if let Some(fields) = result.as_object() {
        let _ = write!(xml, "<{action}Result>");
        for (name, value) in fields {
            field(&mut xml, action, name, value);
        }
        let _ = write!(xml, "</{action}Result>");
    }
    let _ = write!(
        xml,
        "<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata></{action}Response>"
    );
    xml
}

/// The answer to one that is refused.
pub(crate) fn refusal(fault: &Fault, request: &str) -> String {
    let who = match fault.kind.is_sender() {
        true => "Sender",
        false => "Receiver",
    };
    let mut xml = format!(
        "<?xml version=\"1.0\"?><ErrorResponse xmlns=\"{NAMESPACE}\"><Error><Type>{who}</Type>"
    );
    element(&mut xml, "Code", &fault.kind.query());
    element(&mut xml, "Message", &fault.message);
    xml.push_str("<Detail/></Error>");
    element(&mut xml, "RequestId", request);
    xml.push_str("</ErrorResponse>");
    xml
}

/// What one item of a list is called, since lists have no element.
fn item_name(action: &str, name: &str) -> String {
    match name {
        "Messages" => "Message".into(),
        "QueueUrls" | "queueUrls" => "QueueUrl".into(),
        "Failed" => "BatchResultErrorEntry".into(),
        "Successful" | "Results" => format!("{action}ResultEntry"),
        other => other.into(),
    }
}

fn field(xml: &mut String, action: &str, name: &str, value: &Value) {
    match (name, value) {
        ("Attributes" | "MessageAttributes" | "Tags", Value::Object(map)) => {
            let (item, key) = match name {
                "Tags" => ("Tag", "Key"),
                "Attributes" => ("Attribute", "Name"),
                _ => ("MessageAttribute", "Name"),
            };
            for (name, value) in map {
                let _ = write!(xml, "<{item}>");
                element(xml, key, name);
                field(xml, action, "Value", value);
                let _ = write!(xml, "</{item}>");
            }
        }
        (_, Value::Array(items)) => {
            let item = item_name(action, name);
            for value in items {
                field(xml, action, &item, value);
            }
        }
        (_, Value::Object(fields)) => {
            let _ = write!(xml, "<{name}>");
            for (name, value) in fields {
                field(xml, action, name, value);
            }
            let _ = write!(xml, "</{name}>");
        }
        (_, Value::String(text)) => element(xml, name, text),
        (_, Value::Null) => {}
        (_, other) => element(xml, name, &other.to_string()),
    }
}

/// A text with what XML would take for its own written otherwise. Line ends too: a reader of XML
/// makes a line feed of each, and bodies come back as they were sent.
fn element(xml: &mut String, name: &str, text: &str) {
    let _ = write!(xml, "<{name}>");
    for c in text.chars() {
        match c {
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '&' => xml.push_str("&amp;"),
            '"' => xml.push_str("&quot;"),
            '\r' => xml.push_str("&#xD;"),
            // Not in any body, but a message may quote what was refused.
            c if !super::content::is_xml(c) => xml.push('\u{fffd}'),
            c => xml.push(c),
        }
    }
    let _ = write!(xml, "</{name}>");
}

#[cfg(test)]
mod tests;
