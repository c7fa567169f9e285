//! The declaration of requests: each is declared once and yields a Rust type, a reader that finds
//! every problem at once, the schema in the OpenAPI document, the flags of a command and the fields
//! of a form. Knows no endpoint and no command.

use crate::problem::{FieldProblem, MOST_PROBLEMS, shortened};
use crate::redrive::MOST_SCANNED;
use crate::schema::{Components, ObjectField, Schema, object};
use dispatcher_core::queue::sharing::MOST_WEIGHT;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;

/// Declares the objects of requests. Every field is optional; `null` is `Some(None)`. The request
/// includes the fields of the requests named first, after `..`.
#[macro_export]
macro_rules! requests {
    ($(
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident {
            $( ..$part:ident: $part_type:ty, )*
            $( $(#[doc = $help:literal])+ $field:ident: $type:ty, )*
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default, PartialEq)]
        $vis struct $name {
            $(
                /// The fields that it shares with other requests.
                $vis $part: $part_type,
            )*
            $( $(#[doc = $help])+ $vis $field: Option<$type>, )*
        }

        impl $crate::request::Request for $name {
            const NAME: &'static str = stringify!($name);
            const ABOUT: &'static str = concat!($($about),+);

            fn fields() -> Vec<$crate::request::Field> {
                let parts: Vec<Vec<$crate::request::Field>> =
                    vec![$( <$part_type as $crate::request::Request>::fields(), )*];
                let own = vec![$( $crate::request::Field::of::<$type>(
                    $crate::request::field_name(stringify!($field)),
                    concat!($($help),+),
                ), )*];
                parts.into_iter().flatten().chain(own).collect()
            }

            fn read(given: &mut $crate::request::UnreadFields) -> Self {
                let _ = &given;
                Self {
                    $( $field: given.take($crate::request::field_name(stringify!($field))), )*
                    $( $part: <$part_type as $crate::request::Request>::read(given), )*
                }
            }

            fn write(&self, fields: &mut serde_json::Map<String, serde_json::Value>) {
                let _ = &fields;
                $( $crate::request::Request::write(&self.$part, fields); )*
                $( if let Some(value) = &self.$field {
                    let name = $crate::request::field_name(stringify!($field));
                    fields.insert(name.to_owned(), $crate::request::RequestField::json(value));
                } )*
            }
        }
    )+};
}

/// Returns the JSON name of a field, given its name in Rust.
pub fn field_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// The form of a field on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// None: only calls of the API have it.
    None,
    /// A switch.
    Switch,
    /// A number.
    Number,
    /// A queue.
    Queue,
    /// A text, with its name in the help.
    Text(&'static str),
    /// A text that only has a meaning on the command's machine: no call of the API has it.
    Local(&'static str),
    /// Any number of texts.
    Texts(&'static str),
    /// Any number of message ids. The flag is always `--id`.
    Ids,
    /// A duration: `36h`.
    Time,
    /// A rate: `10/s`.
    Rate,
    /// A share: `20%`.
    Share,
}

/// A field of a request.
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The description.
    pub help: &'static str,
    /// The schema of its values.
    pub schema: Value,
    /// Whether it is required.
    pub is_required: bool,
    /// The form on the command line.
    pub flag: Flag,
}

impl Field {
    /// Creates a field with values of a type.
    pub fn of<T: RequestField>(name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help: help.trim(),
            schema: T::schema(),
            is_required: T::IS_REQUIRED,
            flag: T::FLAG,
        }
    }

    /// Returns whether it only has a meaning on the command's machine.
    pub const fn is_local(&self) -> bool {
        matches!(self.flag, Flag::Local(_))
    }
}

/// A request.
pub trait Request: Sized {
    /// The name of its schema.
    const NAME: &'static str;
    /// The description.
    const ABOUT: &'static str;

    /// Returns its fields.
    fn fields() -> Vec<Field>;

    /// Reads its fields.
    fn read(given: &mut UnreadFields) -> Self;

    /// Adds its fields to an object.
    fn write(&self, fields: &mut Map<String, Value>);

    /// Returns its JSON form, which `read` accepts.
    fn json(&self) -> Value {
        let mut fields = Map::new();
        self.write(&mut fields);
        Value::Object(fields)
    }
}

impl<T: Request> Schema for T {
    fn schema(components: &mut Components) -> Value {
        object(components, (T::NAME, T::ABOUT), |_| {
            let fields = T::fields()
                .into_iter()
                .filter(|field| !field.is_local())
                .map(|field| ObjectField {
                    name: field.name,
                    help: field.help,
                    schema: field.schema,
                    is_required: field.is_required,
                });
            fields.collect()
        })
    }
}

/// A value of a field of a request.
pub trait RequestField: Sized {
    /// Whether the field is required.
    const IS_REQUIRED: bool = false;
    /// The description of valid values.
    const WANTED: &'static str;
    /// The form on the command line.
    const FLAG: Flag;

    /// Returns the schema of the value.
    fn schema() -> Value;

    /// Parses the value, if it is valid.
    fn of(value: &Value) -> Option<Self>;

    /// Returns its JSON form, which `of` accepts.
    fn json(&self) -> Value;

    /// Parses the value at `at`, if it is valid. Adds an error to `problems`.
    fn read(value: &Value, at: &str, problems: &mut Vec<FieldProblem>) -> Option<Self> {
        let read = Self::of(value);
        if read.is_none() {
            let found = format!("{} cannot be used", shortened(&value.to_string()));
            problems.push(FieldProblem::new(at, &found, Self::WANTED));
        }
        read
    }
}

/// The fields of a request that were not read yet, and the problems of the others.
pub struct UnreadFields {
    fields: Map<String, Value>,
    known: Vec<&'static str>,
    problems: Vec<FieldProblem>,
    is_typed: bool,
}

impl UnreadFields {
    /// Creates the fields from the object of an API call.
    pub fn new(fields: Map<String, Value>) -> Self {
        Self {
            fields,
            known: Vec::new(),
            problems: Vec::new(),
            is_typed: false,
        }
    }

    /// Creates the fields from the body of an API call, which may be empty.
    ///
    /// # Errors
    /// Fails if the body is not an object.
    pub fn of_body(body: &[u8]) -> Result<Self, Vec<FieldProblem>> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::new(Map::new()));
        }
        match serde_json::from_slice(body) {
            Ok(UniqueKeys(Value::Object(fields))) => Ok(Self::new(fields)),
            Ok(UniqueKeys(_)) => Err(of_whole("the body is not an object")),
            Err(error) if error.is_data() => Err(of_whole(&error.to_string())),
            Err(error) => Err(of_whole(&format!("the body is not JSON: {error}"))),
        }
    }

    /// Creates the fields from a command line on this machine.
    pub fn typed(fields: Map<String, Value>) -> Self {
        Self {
            is_typed: true,
            ..Self::new(fields)
        }
    }

    /// Reads the value of a field, if it exists and is valid.
    pub fn take<T: RequestField>(&mut self, name: &'static str) -> Option<T> {
        if matches!(T::FLAG, Flag::Local(_)) && !self.is_typed {
            return None;
        }
        self.known.push(name);
        let value = self.fields.remove(name)?;
        T::read(&value, name, &mut self.problems)
    }

    /// Returns the problems, including the unknown fields.
    pub fn problems(self) -> Vec<FieldProblem> {
        let unknown: Vec<_> = self
            .fields
            .keys()
            .take(MOST_PROBLEMS)
            .map(|name| FieldProblem::unknown(name, &self.known))
            .collect();
        self.problems.into_iter().chain(unknown).collect()
    }
}

/// Returns the problem of a body that is no object.
fn of_whole(found: &str) -> Vec<FieldProblem> {
    vec![FieldProblem::new("", found, "a JSON object")]
}

/// Reads the fields of a request; `check` finds the problems beyond single fields.
///
/// # Errors
/// Returns all problems.
pub fn read_given<T: Request>(
    mut given: UnreadFields,
    check: impl FnOnce(&T) -> Vec<FieldProblem>,
) -> Result<T, Vec<FieldProblem>> {
    let request = T::read(&mut given);
    given.problems.extend(check(&request));
    let problems = given.problems();
    if problems.is_empty() {
        Ok(request)
    } else {
        Err(problems)
    }
}

/// A value in which no object has a key twice: one of two values for a key would be dropped,
/// although either may be intended.
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
                return Err(A::Error::custom(format_args!("`{key}` appears twice")));
            }
            object.insert(key, value);
        }
        Ok(UniqueKeys(object.into()))
    }
}

/// Declares values of fields: the description of valid values, their form on the command line,
/// their schema, and how they are parsed.
macro_rules! values {
    ($($(#[$about:meta])+
        $name:ident($type:ty): $wanted:expr, $flag:expr, $schema:expr, $of:expr
            $(, required = $required:expr)?;
    )+) => {$(
        $(#[$about])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name(pub $type);

        impl RequestField for $name {
            $( const IS_REQUIRED: bool = $required; )?
            const WANTED: &'static str = $wanted;
            const FLAG: Flag = $flag;

            fn schema() -> Value {
                $schema
            }

            fn of(value: &Value) -> Option<Self> {
                let of: fn(&Value) -> Option<$type> = $of;
                of(value).map(Self)
            }

            fn json(&self) -> Value {
                json!(self.0)
            }
        }
    )+};
}

values! {
    /// At least one.
    #[derive(Copy)]
    AtLeastOne(usize): "a whole number of at least 1", Flag::Number,
        json!({"type": "integer", "minimum": 1, "maximum": MOST}),
        |value| whole(value).filter(|number| *number > 0);

    /// How many messages are inspected.
    #[derive(Copy)]
    Scan(u64): "a whole number from 1 to 100000", Flag::Number,
        json!({"type": "integer", "minimum": 1, "maximum": MOST_SCANNED}),
        |value| value.as_u64().filter(|number| (1..=MOST_SCANNED).contains(number));

    /// How many times the share of another tenant one gets.
    #[derive(Copy)]
    Weight(u32): "a whole number from 1 to 1000", Flag::Number,
        json!({"type": "integer", "minimum": 1, "maximum": MOST_WEIGHT}),
        |value| {
            let number = u32::try_from(value.as_u64()?).ok()?;
            (1..=MOST_WEIGHT).contains(&number).then_some(number)
        },
        required = true;

    /// The name of a tenant.
    TenantName(String): String::WANTED, Flag::Text("TENANT"), text_schema(), String::of,
        required = true;

    /// A share from 0 to 1.
    #[derive(Copy)]
    Share(f64): "a number from 0 to 1", Flag::Share,
        json!({"type": "number", "minimum": 0, "maximum": 1}),
        |value| value.as_f64().filter(|number| (0.0..=1.0).contains(number));

    /// A number per second.
    #[derive(Copy)]
    PerSecond(f64): f64::WANTED, Flag::Rate, <f64 as RequestField>::schema(), f64::of;

    /// A queue, as it is written.
    QueueText(String): String::WANTED, Flag::Queue, text_schema(), String::of;

    /// A plugin: of a process by its name, or for a command by itself its file.
    PluginText(String): String::WANTED, Flag::Text("PLUGIN"), text_schema(), String::of;

    /// The id of a message.
    MessageId(String): String::WANTED, Flag::Text("ID"), text_schema(), String::of;

    /// A key of a limit.
    LimitKeyText(String): String::WANTED, Flag::Text("KEY"), text_schema(), String::of;

    /// A command of the shell, which is run where the command was typed.
    ShellCommand(String): String::WANTED, Flag::Local("COMMAND"), text_schema(), String::of;

    /// The ids of messages.
    MessageIds(Vec<String>): "a list of 1 to 1000 texts that are not empty", Flag::Ids,
        texts_schema(), texts;
}

/// Returns the schema of a text.
fn text_schema() -> Value {
    <String as RequestField>::schema()
}

impl RequestField for usize {
    const WANTED: &'static str = "a whole number of at least 0";
    const FLAG: Flag = Flag::Number;

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0, "maximum": MOST})
    }

    fn of(value: &Value) -> Option<Self> {
        whole(value)
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

/// The maximum of whole numbers, far above any sensible limit.
const MOST: usize = 1_000_000;

fn whole(value: &Value) -> Option<usize> {
    let number = usize::try_from(value.as_u64()?).ok()?;
    (number <= MOST).then_some(number)
}

impl RequestField for f64 {
    const WANTED: &'static str = "a number greater than 0";
    const FLAG: Flag = Flag::Number;

    fn schema() -> Value {
        json!({"type": "number", "exclusiveMinimum": 0})
    }

    fn of(value: &Value) -> Option<Self> {
        let number = value.as_f64()?;
        dispatcher_core::control::is_rate(number).then_some(number)
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

impl RequestField for String {
    const WANTED: &'static str = "a text that is not empty";
    const FLAG: Flag = Flag::Text("TEXT");

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }

    fn of(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

impl RequestField for bool {
    const WANTED: &'static str = "true or false";
    const FLAG: Flag = Flag::Switch;

    fn schema() -> Value {
        json!({"type": "boolean"})
    }

    fn of(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

/// A minimum age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age(pub Duration);

impl RequestField for Age {
    const WANTED: &'static str = "a duration as in 90s or 36h";
    const FLAG: Flag = Flag::Time;

    fn schema() -> Value {
        <String as RequestField>::schema()
    }

    fn of(value: &Value) -> Option<Self> {
        humantime::parse_duration(value.as_str()?).ok().map(Self)
    }

    fn json(&self) -> Value {
        json!(humantime::format_duration(self.0).to_string())
    }

    fn read(value: &Value, at: &str, problems: &mut Vec<FieldProblem>) -> Option<Self> {
        let read = Self::of(value);
        if read.is_none() {
            let found = match value.as_str() {
                Some(text) => format!("`{text}` is not a duration"),
                None => format!("{} is not a duration", shortened(&value.to_string())),
            };
            problems.push(FieldProblem::new(at, &found, Self::WANTED));
        }
        read
    }
}

/// The maximum number of texts in a list of a request.
const MOST_TEXTS: usize = 1_000;

/// Parses a list of 1 to 1000 texts that are not empty.
pub(crate) fn texts(value: &Value) -> Option<Vec<String>> {
    let texts: Option<Vec<String>> = value.as_array()?.iter().map(RequestField::of).collect();
    texts.filter(|texts| (1..=MOST_TEXTS).contains(&texts.len()))
}

/// Returns the schema of such a list.
pub(crate) fn texts_schema() -> Value {
    json!({
        "type": "array",
        "items": <String as RequestField>::schema(),
        "minItems": 1,
        "maxItems": MOST_TEXTS,
    })
}

/// Bodies by message id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bodies(pub Vec<(String, String)>);

impl RequestField for Bodies {
    const WANTED: &'static str = "an object of bodies by the ids of messages";
    const FLAG: Flag = Flag::None;

    fn schema() -> Value {
        json!({
            "type": "object",
            "minProperties": 1,
            "maxProperties": MOST_TEXTS,
            "additionalProperties": {"type": "string"},
        })
    }

    fn of(value: &Value) -> Option<Self> {
        let bodies: Option<Vec<(String, String)>> = value
            .as_object()?
            .iter()
            .map(|(id, body)| Some((id.clone(), body.as_str()?.to_owned())))
            .collect();
        bodies
            .filter(|bodies| (1..=MOST_TEXTS).contains(&bodies.len()))
            .map(Self)
    }

    fn json(&self) -> Value {
        let bodies = self.0.iter().cloned();
        Value::Object(bodies.map(|(id, body)| (id, json!(body))).collect())
    }
}

/// A value, or `null` for the configured one.
impl<T: RequestField> RequestField for Option<T> {
    const IS_REQUIRED: bool = T::IS_REQUIRED;
    const WANTED: &'static str = T::WANTED;
    const FLAG: Flag = T::FLAG;

    fn schema() -> Value {
        json!({"anyOf": [T::schema(), {"type": "null"}]})
    }

    fn of(value: &Value) -> Option<Self> {
        if value.is_null() {
            return Some(None);
        }
        T::of(value).map(Some)
    }

    fn json(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Request>(body: &[u8]) -> Result<T, Vec<FieldProblem>> {
        read_given(UnreadFields::of_body(body)?, |_| Vec::new())
    }

    requests! {
        /// A part.
        struct TestPart {
            /// Zero.
            older: Age,
        }

        /// A test.
        struct TestRequest {
            ..part: TestPart,
            /// One.
            first: Option<AtLeastOne>,
            /// Two.
            second: f64,
            /// Three.
            r#try: Bodies,
            /// Four.
            edit: ShellCommand,
        }
    }

    fn problems(body: &str) -> Vec<String> {
        let problems = read::<TestRequest>(body.as_bytes()).expect_err("it is wrong");
        problems.iter().map(FieldProblem::to_string).collect()
    }

    fn read_good(body: &str) -> TestRequest {
        read(body.as_bytes()).expect("it is good")
    }

    #[test]
    fn a_request_may_leave_fields_out_and_set_them_to_nothing() {
        for nothing in ["", "{}"] {
            assert_eq!(read_good(nothing), TestRequest::default());
        }
        assert_eq!(read_good(r#"{"first":null}"#).first, Some(None));
        let first = read_good(r#"{"first":3, "second": 0.5}"#);
        assert_eq!(first.first, Some(Some(AtLeastOne(3))));
        assert_eq!(first.second, Some(0.5));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let body = br#"{"older":"36h","first":null,"second":2.5,"try":{"a":"b"}}"#;
        let request = read::<TestRequest>(body).expect("it is good");
        let again = read::<TestRequest>(request.json().to_string().as_bytes());
        assert_eq!(again.as_ref(), Ok(&request));
    }

    #[test]
    fn what_means_something_to_a_command_alone_is_no_field_of_a_call() {
        assert_eq!(
            problems(r#"{"edit": "cat"}"#),
            ["edit: unknown field; wanted first, second, try, older"]
        );
        let fields = serde_json::from_value(json!({"edit": "cat"})).expect("an object");
        let typed = read_given::<TestRequest>(UnreadFields::typed(fields), |_| Vec::new());
        assert!(typed.expect("it is good").edit.is_some());
        let mut components = Components::new();
        TestRequest::schema(&mut components);
        let properties = &components["TestRequest"]["properties"];
        assert!(properties["edit"].is_null() && !properties["older"].is_null());
    }

    #[test]
    fn every_problem_of_a_request_is_named_at_once() {
        let found = problems(r#"{"first": 0, "second": "fast", "secnod": 1}"#);
        let wanted = [
            "first: 0 cannot be used; wanted a whole number of at least 1",
            "second: \"fast\" cannot be used; wanted a number greater than 0",
            "secnod: unknown field; wanted first, second, try, older; did you mean `second`?",
        ];
        assert_eq!(found, wanted);
        assert_eq!(
            problems("[]"),
            ["the body is not an object; wanted a JSON object"]
        );
        assert!(problems("{")[0].starts_with("the body is not JSON"));
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_wherever_it_is() {
        for body in [
            r#"{"second": 1, "second": 2}"#,
            r#"{"try": {"second": "a", "second": "b"}}"#,
            r#"{"try": [{"second": 1, "second": null}]}"#,
        ] {
            let found = problems(body);
            assert!(found[0].contains("`second` appears twice"), "{found:?}");
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
        assert_eq!(MessageIds::of(&json!(["a", ""])), None);
        assert_eq!(
            MessageIds::of(&json!(["a"])),
            Some(MessageIds(vec!["a".into()]))
        );
        assert_eq!(Share::of(&json!(1.5)), None);
        assert_eq!(Share::of(&json!(1)), Some(Share(1.0)));
        assert_eq!(Scan::of(&json!(100_001)), None);
        assert_eq!(Weight::of(&json!(0)), None);
        assert_eq!(Weight::of(&json!(MOST_WEIGHT)), Some(Weight(MOST_WEIGHT)));
        assert_eq!(Weight::of(&json!(MOST_WEIGHT + 1)), None);
    }
}
