//! What answers and requests look like, declared once: from a declaration follow a Rust type, its
//! JSON, its schema in the OpenAPI document and, for requests, a reader that finds every problem at
//! once. Knows no endpoint.

use super::problem::FieldProblem;
use dispatcher_core::redrive::MOST_SCANNED;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// The largest whole number that every reader of JSON reads exactly: 2^53 − 1.
const LARGEST: u64 = (1 << 53) - 1;

/// The schemas of objects, by their names.
pub(super) type Components = BTreeMap<&'static str, Value>;

/// Something with a JSON schema.
pub(super) trait Schema {
    /// Its schema. Objects are added to `components` and referred to.
    fn schema(components: &mut Components) -> Value;
}

/// A whole number. One above 2^53 − 1, which JavaScript cannot hold exactly, is shown as that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count(pub u64);

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

impl Schema for Count {
    fn schema(_: &mut Components) -> Value {
        json!({"type": "integer", "minimum": 0, "maximum": LARGEST})
    }
}

impl Schema for String {
    fn schema(_: &mut Components) -> Value {
        json!({"type": "string"})
    }
}

impl Schema for &'static str {
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
pub(super) struct ObjectField {
    pub name: &'static str,
    pub help: &'static str,
    pub schema: Value,
}

/// Adds the schema of an object, and answers with a reference to it. An object has the fields that
/// are named, all those that are `required`, and no others.
pub(super) fn object(
    components: &mut Components,
    (name, help): (&'static str, &'static str),
    is_required: bool,
    fields: impl FnOnce(&mut Components) -> Vec<ObjectField>,
) -> Value {
    if !components.contains_key(name) {
        // Before its fields are looked at, so that each is looked at once.
        components.insert(name, Value::Null);
        let fields = fields(components);
        let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
        let mut schema = json!({
            "type": "object",
            "description": help.trim(),
            "additionalProperties": false,
        });
        if is_required {
            schema["required"] = json!(names);
        }
        let properties = fields.into_iter().map(|field| {
            let mut property = field.schema;
            // Beside a reference, too, in OpenAPI 3.1.
            property["description"] = json!(field.help.trim());
            (field.name.to_owned(), property)
        });
        schema["properties"] = Value::Object(properties.collect::<Map<_, _>>());
        components.insert(name, schema);
    }
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Declares the objects of answers: each a struct with its documentation, its JSON and its schema.
macro_rules! answers {
    ($(
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident { $( $(#[doc = $help:literal])+ $field:ident: $type:ty, )+ }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, serde::Serialize)]
        $vis struct $name { $( $(#[doc = $help])+ $vis $field: $type, )+ }

        impl $crate::admin::schema::Schema for $name {
            fn schema(components: &mut $crate::admin::schema::Components) -> serde_json::Value {
                let about = (stringify!($name), concat!($($about),+));
                $crate::admin::schema::object(components, about, true, |components| vec![$(
                    $crate::admin::schema::ObjectField {
                        name: stringify!($field),
                        help: concat!($($help),+),
                        schema: <$type as $crate::admin::schema::Schema>::schema(components),
                    },
                )+])
            }
        }
    )+};
}
pub(super) use answers;

/// Declares the objects of requests. Every field may be left out; `null` is `Some(None)`.
macro_rules! requests {
    ($(
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident { $( $(#[doc = $help:literal])+ $field:ident: $type:ty, )* }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default, PartialEq)]
        $vis struct $name { $( $(#[doc = $help])+ $vis $field: Option<$type>, )* }

        impl $crate::admin::schema::Schema for $name {
            fn schema(components: &mut $crate::admin::schema::Components) -> serde_json::Value {
                let about = (stringify!($name), concat!($($about),+));
                $crate::admin::schema::object(components, about, false, |_| vec![$(
                    $crate::admin::schema::ObjectField {
                        name: $crate::admin::schema::field_name(stringify!($field)),
                        help: concat!($($help),+),
                        schema: <$type as $crate::admin::schema::RequestField>::schema(),
                    },
                )*])
            }
        }

        impl $crate::admin::schema::ReadRequest for $name {
            fn read(fields: &mut $crate::admin::schema::Given) -> Self {
                let _ = &fields;
                Self { $( $field: fields.take($crate::admin::schema::field_name(stringify!($field))), )* }
            }
        }
    )+};
}
pub(super) use requests;

/// The name of a field in JSON, by that in Rust.
pub(super) fn field_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// A request that can be read.
pub(super) trait ReadRequest: Sized {
    fn read(fields: &mut Given) -> Self;
}

/// A value of a field of a request.
pub(super) trait RequestField: Sized {
    /// What is wanted, in words.
    const WANTED: &'static str;
    fn schema() -> Value;
    fn of(value: &Value) -> Option<Self>;
}

/// The fields of a request that were not taken yet, and what was wrong with the others.
pub(super) struct Given {
    fields: Map<String, Value>,
    known: Vec<&'static str>,
    problems: Vec<FieldProblem>,
}

impl Given {
    /// The value of a field, if it is there and good.
    pub(super) fn take<T: RequestField>(&mut self, name: &'static str) -> Option<T> {
        self.known.push(name);
        let value = self.fields.remove(name)?;
        let read = T::of(&value);
        if read.is_none() {
            let found = format!("{value} cannot be used");
            self.problems
                .push(FieldProblem::new(name, &found, T::WANTED));
        }
        read
    }
}

/// Reads a request: the body of a call, which may be empty.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn read<T: ReadRequest>(body: &[u8]) -> Result<T, Vec<FieldProblem>> {
    read_and_check(body, |_| Vec::new())
}

/// The same of a request whose fields `check` looks at as well: it sees those that can be used.
pub(super) fn read_and_check<T: ReadRequest>(
    body: &[u8],
    check: impl FnOnce(&T) -> Vec<FieldProblem>,
) -> Result<T, Vec<FieldProblem>> {
    let whole = |found: &str| vec![FieldProblem::new("", found, "a JSON object")];
    let fields = if body.trim_ascii().is_empty() {
        Map::new()
    } else {
        match serde_json::from_slice(body) {
            Ok(UniqueKeys(Value::Object(fields))) => fields,
            Ok(UniqueKeys(_)) => return Err(whole("the body is no object")),
            Err(error) if error.is_data() => return Err(whole(&error.to_string())),
            Err(error) => return Err(whole(&format!("the body is no JSON: {error}"))),
        }
    };
    let mut given = Given {
        fields,
        known: Vec::new(),
        problems: Vec::new(),
    };
    let request = T::read(&mut given);
    let Given {
        fields,
        known,
        mut problems,
    } = given;
    problems.extend(check(&request));
    problems.extend(
        fields
            .keys()
            .map(|name| FieldProblem::unknown(name, &known)),
    );
    if problems.is_empty() {
        Ok(request)
    } else {
        Err(problems)
    }
}

/// A value in which no object has a key twice: of two values for a key, one would be meant and the
/// other be dropped.
struct UniqueKeys(Value);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(UniqueKeysVisitor)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = UniqueKeys;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueKeys, A::Error> {
        let mut list = Vec::new();
        while let Some(UniqueKeys(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(UniqueKeys(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<UniqueKeys, A::Error> {
        let mut object = Map::new();
        while let Some((key, UniqueKeys(value))) = entries.next_entry::<String, UniqueKeys>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("`{key}` is there twice")));
            }
            object.insert(key, value);
        }
        Ok(UniqueKeys(object.into()))
    }
}

/// At least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtLeastOne(pub usize);

impl RequestField for AtLeastOne {
    const WANTED: &'static str = "a whole number of at least 1";

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 1, "maximum": MOST})
    }

    fn of(value: &Value) -> Option<Self> {
        let number = whole(value)?;
        (number > 0).then_some(Self(number))
    }
}

impl RequestField for usize {
    const WANTED: &'static str = "a whole number of at least 0";

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0, "maximum": MOST})
    }

    fn of(value: &Value) -> Option<Self> {
        whole(value)
    }
}

/// Far above any limit that makes sense.
const MOST: usize = 1_000_000;

fn whole(value: &Value) -> Option<usize> {
    let number = usize::try_from(value.as_u64()?).ok()?;
    (number <= MOST).then_some(number)
}

impl RequestField for f64 {
    const WANTED: &'static str = "a number greater than 0";

    fn schema() -> Value {
        json!({"type": "number", "exclusiveMinimum": 0})
    }

    fn of(value: &Value) -> Option<Self> {
        let number = value.as_f64()?;
        dispatcher_core::control::is_rate(number).then_some(number)
    }
}

impl RequestField for String {
    const WANTED: &'static str = "a text that is not empty";

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }

    fn of(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    }
}

impl RequestField for bool {
    const WANTED: &'static str = "true or false";

    fn schema() -> Value {
        json!({"type": "boolean"})
    }

    fn of(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

/// From 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share(pub f64);

impl RequestField for Share {
    const WANTED: &'static str = "a number from 0 to 1";

    fn schema() -> Value {
        json!({"type": "number", "minimum": 0, "maximum": 1})
    }

    fn of(value: &Value) -> Option<Self> {
        let number = value.as_f64()?;
        (0.0..=1.0).contains(&number).then_some(Self(number))
    }
}

/// How many messages are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scan(pub u64);

impl RequestField for Scan {
    const WANTED: &'static str = "a whole number from 1 to 100000";

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 1, "maximum": MOST_SCANNED})
    }

    fn of(value: &Value) -> Option<Self> {
        let number = value.as_u64()?;
        (1..=MOST_SCANNED).contains(&number).then_some(Self(number))
    }
}

/// The most texts of a list in a request.
const MOST_TEXTS: usize = 1_000;

/// Texts, none of which is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Texts(pub Vec<String>);

impl RequestField for Texts {
    const WANTED: &'static str = "a list of 1 to 1000 texts that are not empty";

    fn schema() -> Value {
        json!({
            "type": "array",
            "items": <String as RequestField>::schema(),
            "minItems": 1,
            "maxItems": MOST_TEXTS,
        })
    }

    fn of(value: &Value) -> Option<Self> {
        let texts = value.as_array()?;
        let texts: Option<Vec<String>> = texts.iter().map(RequestField::of).collect();
        texts
            .filter(|texts| (1..=MOST_TEXTS).contains(&texts.len()))
            .map(Self)
    }
}

/// Bodies by the ids of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bodies(pub Vec<(String, String)>);

impl RequestField for Bodies {
    const WANTED: &'static str = "an object of bodies by the ids of messages";

    fn schema() -> Value {
        json!({
            "type": "object",
            "minProperties": 1,
            "maxProperties": MOST_TEXTS,
            "additionalProperties": {"type": "string"},
        })
    }

    fn of(value: &Value) -> Option<Self> {
        let bodies = value.as_object()?;
        let bodies = bodies
            .iter()
            .map(|(id, body)| Some((id.clone(), body.as_str()?.to_owned())));
        let bodies: Option<Vec<(String, String)>> = bodies.collect();
        bodies
            .filter(|bodies| (1..=MOST_TEXTS).contains(&bodies.len()))
            .map(Self)
    }
}

/// A value, or `null` for the configured one.
impl<T: RequestField> RequestField for Option<T> {
    const WANTED: &'static str = T::WANTED;

    fn schema() -> Value {
        json!({"anyOf": [T::schema(), {"type": "null"}]})
    }

    fn of(value: &Value) -> Option<Self> {
        if value.is_null() {
            return Some(None);
        }
        T::of(value).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    requests! {
        /// A test.
        struct TestRequest {
            /// One.
            first: Option<AtLeastOne>,
            /// Two.
            second: f64,
            /// Three.
            r#try: Bodies,
        }
    }

    fn problems(body: &str) -> Vec<String> {
        let problems = read::<TestRequest>(body.as_bytes()).expect_err("it is wrong");
        problems.iter().map(FieldProblem::to_string).collect()
    }

    #[test]
    fn a_request_may_leave_fields_out_and_set_them_to_nothing() {
        let read = |body: &str| read::<TestRequest>(body.as_bytes()).expect("it is good");
        assert_eq!(read(""), TestRequest::default());
        assert_eq!(read("{}"), TestRequest::default());
        assert_eq!(read(r#"{"first":null}"#).first, Some(None));
        let first = read(r#"{"first":3, "second": 0.5}"#);
        assert_eq!(first.first, Some(Some(AtLeastOne(3))));
        assert_eq!(first.second, Some(0.5));
    }

    #[test]
    fn every_problem_of_a_request_is_named_at_once() {
        let found = problems(r#"{"first": 0, "second": "fast", "secnod": 1}"#);
        let wanted = [
            "first: 0 cannot be used; wanted a whole number of at least 1",
            "second: \"fast\" cannot be used; wanted a number greater than 0",
            "secnod: unknown field; wanted first, second, try; did you mean `second`?",
        ];
        assert_eq!(found, wanted);
        assert_eq!(
            problems("[]"),
            ["the body is no object; wanted a JSON object"]
        );
        assert!(problems("{")[0].starts_with("the body is no JSON"));
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_wherever_it_is() {
        for body in [
            r#"{"second": 1, "second": 2}"#,
            r#"{"try": {"second": "a", "second": "b"}}"#,
            r#"{"try": [{"second": 1, "second": null}]}"#,
        ] {
            let found = problems(body);
            assert!(found[0].contains("`second` is there twice"), "{found:?}");
        }
    }

    #[test]
    fn lists_shares_and_bodies_are_read_whole_or_not_at_all() {
        let body = serde_json::json!({"try": {"id": "body"}}).to_string();
        let request = read::<TestRequest>(body.as_bytes()).expect("it is good");
        assert_eq!(
            request.r#try,
            Some(Bodies(vec![("id".into(), "body".into())]))
        );
        assert_eq!(Bodies::of(&json!({"a": "x", "b": 1})), None);
        assert_eq!(Bodies::of(&json!({})), None);
        assert_eq!(Texts::of(&json!(["a", ""])), None);
        assert_eq!(Texts::of(&json!(["a"])), Some(Texts(vec!["a".into()])));
        assert_eq!(Share::of(&json!(1.5)), None);
        assert_eq!(Share::of(&json!(1)), Some(Share(1.0)));
        assert_eq!(Scan::of(&json!(100_001)), None);
    }

    #[test]
    fn numbers_are_exact_in_every_reader() {
        let number = |count: u64| serde_json::to_string(&Count(count)).expect("a number");
        assert_eq!(number(9_007_199_254_740_991), "9007199254740991");
        assert_eq!(number(u64::MAX), "9007199254740991");
    }
}
