//! The protocol of old SDKs: parameters as a form, numbered lists, responses in XML. Converts
//! requests to the shapes of the JSON protocol, and responses back. It knows the names of lists,
//! but no operations.

use super::fault::Fault;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The maximum number of parts of a parameter's name; SQS's own have at most six.
const DEEPEST: usize = 8;

const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";

/// The shape of a numbered parameter in the JSON protocol.
enum Shape {
    /// A list of texts, by its name.
    List(&'static str),
    /// A list of entries with parameters.
    Entries,
    /// A map, by its name and the name of the part that is an entry's key.
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

/// Returns the value of an empty list or map. Old SDKs send it under its current name.
fn empty(parameter: &str) -> Option<Value> {
    let list = parameter == "Entries" || parameter.ends_with("Names") || parameter == "TagKeys";
    let map = parameter.ends_with("Attributes") || parameter == "Tags";
    match (list, map) {
        (true, _) => Some(Value::Array(Vec::new())),
        (_, true) => Some(Value::Object(Map::new())),
        _ => None,
    }
}

/// Parameters by the parts of their names. A number is a part as well, so lists are in order.
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

    /// Converts it to the shape of the JSON protocol.
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

    /// Returns the items of a list. One without a number comes first: `AttributeName=All`,
    /// `Attribute.Name=…`.
    fn into_items(mut self) -> impl Iterator<Item = Self> {
        let numbered = std::mem::take(&mut self.numbered);
        let first = (!self.is_empty()).then_some(self);
        first.into_iter().chain(numbered.into_values())
    }

    fn into_shape(self, shape: Shape) -> (&'static str, Value) {
        let items = self.into_items();
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

/// Returns the operation of forms, if they name one, and its parameters in the shapes of the JSON
/// protocol.
pub(crate) fn read(forms: &[&[u8]]) -> (Option<String>, Value) {
    let mut tree = Tree::default();
    let mut action = None;
    let pairs = forms.iter().flat_map(|form| form_urlencoded::parse(form));
    for (name, value) in pairs {
        match &*name {
            "Action" => action = Some(value.into_owned()),
            "Version" => {}
            name => tree.insert(name, value.into_owned()),
        }
    }
    let value = if tree.named.is_empty() {
        Value::Object(Map::new())
    } else {
        tree.into_json()
    };
    (action, value)
}

/// Returns the response to an operation.
pub(crate) fn answer(action: &str, result: &Value, request: &str) -> impl fmt::Display {
    fmt::from_fn(move |xml| {
        write!(
            xml,
            "<?xml version=\"1.0\"?><{action}Response xmlns=\"{NAMESPACE}\">"
        )?;
        // Clients need the element even if it is empty, unless the operation has no result.
        if let Some(fields) = result.as_object() {
            write!(xml, "<{action}Result>")?;
            for (name, value) in fields {
                field(xml, action, name, value)?;
            }
            write!(xml, "</{action}Result>")?;
        }
        write!(
            xml,
            "<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata></{action}Response>"
        )
    })
}

/// Returns the response to an operation that is refused.
pub(crate) fn refusal(fault: &Fault, request: &str) -> impl fmt::Display {
    let who = if fault.kind.is_sender() {
        "Sender"
    } else {
        "Receiver"
    };
    fmt::from_fn(move |xml| {
        write!(
            xml,
            "<?xml version=\"1.0\"?><ErrorResponse xmlns=\"{NAMESPACE}\"><Error><Type>{who}</Type>"
        )?;
        element(xml, "Code", &fault.kind.query())?;
        element(xml, "Message", fault.query_message())?;
        xml.write_str("<Detail/></Error>")?;
        element(xml, "RequestId", request)?;
        xml.write_str("</ErrorResponse>")
    })
}

/// Returns the name of one item of a list; a list has no element of its own.
fn item_name(action: &str, name: &str) -> String {
    match name {
        "Messages" => "Message".into(),
        "QueueUrls" | "queueUrls" => "QueueUrl".into(),
        "Failed" => "BatchResultErrorEntry".into(),
        "Successful" | "Results" => format!("{action}ResultEntry"),
        other => other.into(),
    }
}

fn field(xml: &mut fmt::Formatter<'_>, action: &str, name: &str, value: &Value) -> fmt::Result {
    match (name, value) {
        ("Attributes" | "MessageAttributes" | "Tags", Value::Object(map)) => {
            let (item, key) = match name {
                "Tags" => ("Tag", "Key"),
                "Attributes" => ("Attribute", "Name"),
                _ => ("MessageAttribute", "Name"),
            };
            for (name, value) in map {
                write!(xml, "<{item}>")?;
                element(xml, key, name)?;
                field(xml, action, "Value", value)?;
                write!(xml, "</{item}>")?;
            }
            Ok(())
        }
        (_, Value::Array(items)) => {
            let item = item_name(action, name);
            let mut items = items.iter();
            items.try_for_each(|value| field(xml, action, &item, value))
        }
        (_, Value::Object(fields)) => {
            write!(xml, "<{name}>")?;
            for (name, value) in fields {
                field(xml, action, name, value)?;
            }
            write!(xml, "</{name}>")
        }
        (_, Value::String(text)) => element(xml, name, text),
        (_, Value::Null) => Ok(()),
        (_, other) => element(xml, name, &other.to_string()),
    }
}

/// Writes a text and escapes what has a meaning in XML. Carriage returns are escaped too: an XML
/// parser turns line ends into line feeds, and bodies must come back as they were sent.
fn element(xml: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    write!(xml, "<{name}>")?;
    for c in text.chars() {
        match c {
            '<' => xml.write_str("&lt;")?,
            '>' => xml.write_str("&gt;")?,
            '&' => xml.write_str("&amp;")?,
            '"' => xml.write_str("&quot;")?,
            '\r' => xml.write_str("&#xD;")?,
            // No body contains this, but an error message may quote a refused text.
            c if !super::content::is_xml(c) => xml.write_char('\u{fffd}')?,
            c => xml.write_char(c)?,
        }
    }
    write!(xml, "</{name}>")
}

#[cfg(test)]
mod tests;
