//! The declaration of answers: each is declared once and yields a Rust type, its JSON and its
//! schema in the OpenAPI document. Knows no endpoint.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The largest whole number that every JSON parser reads exactly: 2^53 − 1.
const LARGEST: u64 = (1 << 53) - 1;

/// A word of a fixed list.
pub type Word = Cow<'static, str>;

/// The schemas of objects, by name.
pub type Components = BTreeMap<&'static str, Value>;

/// A type with a JSON schema.
pub trait Schema {
    /// Returns its schema. Adds objects to `components` and refers to them.
    fn schema(components: &mut Components) -> Value;
}

/// A whole number. A number above 2^53 − 1, which JavaScript cannot represent exactly, is shown as
/// 2^53 − 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl From<usize> for Count {
    fn from(count: usize) -> Self {
        Self(count as u64)
    }
}

impl From<u32> for Count {
    fn from(count: u32) -> Self {
        Self(u64::from(count))
    }
}

impl From<u64> for Count {
    fn from(count: u64) -> Self {
        Self(count)
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0.min(LARGEST))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        u64::deserialize(reader).map(Self)
    }
}

impl Schema for Count {
    fn schema(_: &mut Components) -> Value {
        json!({"type": "integer", "minimum": 0, "maximum": LARGEST})
    }
}

impl Schema for u64 {
    fn schema(components: &mut Components) -> Value {
        Count::schema(components)
    }
}

impl Schema for String {
    fn schema(_: &mut Components) -> Value {
        json!({"type": "string"})
    }
}

impl Schema for Word {
    fn schema(_: &mut Components) -> Value {
        json!({"type": "string"})
    }
}

impl Schema for bool {
    fn schema(_: &mut Components) -> Value {
        json!({"type": "boolean"})
    }
}

impl Schema for f64 {
    fn schema(_: &mut Components) -> Value {
        json!({"type": "number"})
    }
}

/// An object that another page describes.
impl Schema for Value {
    fn schema(_: &mut Components) -> Value {
        json!({"type": "object"})
    }
}

impl<T: Schema> Schema for Vec<T> {
    fn schema(components: &mut Components) -> Value {
        json!({"type": "array", "items": T::schema(components)})
    }
}

impl<T: Schema> Schema for Option<T> {
    fn schema(components: &mut Components) -> Value {
        json!({"anyOf": [T::schema(components), {"type": "null"}]})
    }
}

/// A field of an object, for its schema.
pub struct ObjectField {
    /// The name.
    pub name: &'static str,
    /// The description.
    pub help: &'static str,
    /// The schema of its values.
    pub schema: Value,
    /// Whether it is required.
    pub is_required: bool,
}

/// Adds the schema of an object and returns a reference to it. The schema lists all fields, permits
/// no others, and names the required ones.
pub fn object(
    components: &mut Components,
    (name, help): (&'static str, &'static str),
    fields: impl FnOnce(&mut Components) -> Vec<ObjectField>,
) -> Value {
    if !components.contains_key(name) {
        // Inserted before its fields are visited, so that each object is visited once.
        components.insert(name, Value::Null);
        let fields = fields(components);
        let required: Vec<&str> = fields
            .iter()
            .filter(|field| field.is_required)
            .map(|field| field.name)
            .collect();
        let mut schema = json!({
            "type": "object",
            "description": help.trim(),
            "additionalProperties": false,
        });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        let properties = fields.into_iter().map(|field| {
            let mut property = field.schema;
            // OpenAPI 3.1 also permits a description beside a reference.
            property["description"] = json!(field.help.trim());
            (field.name.to_owned(), property)
        });
        schema["properties"] = Value::Object(properties.collect::<Map<_, _>>());
        components.insert(name, schema);
    }
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Declares the objects of answers: each is a struct with its documentation, its JSON and its
/// schema.
#[macro_export]
macro_rules! answers {
    ($(
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident { $( $(#[doc = $help:literal])+ $field:ident: $type:ty, )+ }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        $vis struct $name { $( $(#[doc = $help])+ $vis $field: $type, )+ }

        impl $crate::schema::Schema for $name {
            fn schema(components: &mut $crate::schema::Components) -> serde_json::Value {
                let about = (stringify!($name), concat!($($about),+));
                $crate::schema::object(components, about, |components| vec![$(
                    $crate::schema::ObjectField {
                        name: stringify!($field),
                        help: concat!($($help),+),
                        schema: <$type as $crate::schema::Schema>::schema(components),
                        is_required: true,
                    },
                )+])
            }
        }
    )+};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_in_every_reader() {
        for count in [9_007_199_254_740_991, u64::MAX] {
            let number = serde_json::to_string(&Count(count)).expect("a number");
            assert_eq!(number, "9007199254740991");
        }
    }
}
