//! Reads the members of a JSON object one by one, so that those that are not looked at may be anything
//! that JSON's grammar allows: half a surrogate pair, `1e400`, any depth.

use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;

/// The members of an object, unread. Of a name that occurs twice the last one counts.
pub type Members<'a> = BTreeMap<Name, &'a RawValue>;

/// A member's name as bytes: it may hold half a surrogate pair.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Vec<u8>);

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(OfBytes)
    }
}

struct OfBytes;

impl Visitor<'_> for OfBytes {
    type Value = Name;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Name, E> {
        Ok(Name(bytes.to_owned()))
    }
}

/// A member, if the object has it and it is not null.
pub fn member<'a>(members: &Members<'a>, name: &str) -> Option<&'a [u8]> {
    let found = members.get(name.as_bytes())?.get();
    (found != "null").then_some(found.as_bytes())
}

/// A member that is a text. Half a surrogate pair is replaced.
pub fn text(members: &Members<'_>, name: &str) -> Option<String> {
    let bytes: Name = serde_json::from_slice(member(members, name)?).ok()?;
    Some(String::from_utf8_lossy(&bytes.0).into_owned())
}
