//! Validates the content of a message: its characters, its size and its attributes. Computes the
//! digests by which SDKs check it. Pure.

use super::fault::{Fault, FaultKind};
use super::input;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dispatcher_core::message::{Attribute, AttributeValue};
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::fmt::Write;

/// SQS's limits.
const MOST_ATTRIBUTES: usize = 10;
const LONGEST_NAME: usize = 256;

/// Whether XML 1.0 allows the character, and therefore SQS.
pub(crate) fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Validates a body.
pub(crate) fn body(text: Option<String>) -> Result<String, Fault> {
    let text = text
        .filter(|text| !text.is_empty())
        .ok_or_else(|| Fault::missing("MessageBody"))?;
    if text.chars().all(is_xml) {
        Ok(text)
    } else {
        Err(Fault::new(
            FaultKind::InvalidMessageContents,
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to \
             #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        ))
    }
}

/// Validates the sender's attributes. Returns them sorted by name.
pub(crate) fn attributes(
    given: Option<BTreeMap<String, input::Attribute>>,
) -> Result<Vec<Attribute>, Fault> {
    let given = given.unwrap_or_default();
    if given.len() > MOST_ATTRIBUTES {
        return Err(invalid(format!(
            "Number of message attributes [{}] exceeds the allowed maximum [{MOST_ATTRIBUTES}].",
            given.len()
        )));
    }
    given
        .into_iter()
        .map(|(name, given)| attribute(name, given))
        .collect()
}

fn invalid(message: String) -> Fault {
    Fault::new(FaultKind::InvalidParameterValue, message)
}

/// Validates one attribute.
pub(crate) fn attribute(name: String, given: input::Attribute) -> Result<Attribute, Fault> {
    let lower = name.to_ascii_lowercase();
    let bad = name.is_empty()
        || name.chars().count() > LONGEST_NAME
        || !name
            .chars()
            .all(|c: char| c.is_alphanumeric() || "_-.".contains(c))
        || name.starts_with('.')
        || name.ends_with('.')
        || name.contains("..")
        || lower.starts_with("aws.")
        || lower.starts_with("amazon.");
    if bad {
        return Err(invalid(format!(
            "The message attribute name '{name}' is invalid. It may be up to {LONGEST_NAME} \
             letters, digits, hyphens, underscores and single periods, not at either end, and not \
             begin with AWS. or Amazon."
        )));
    }
    let data_type = given.data_type.unwrap_or_default();
    let (kind, _) = data_type.split_once('.').unwrap_or((&data_type, ""));
    if data_type.chars().count() > LONGEST_NAME {
        return Err(invalid(format!(
            "Message (user) attribute types must be shorter than {LONGEST_NAME} Bytes"
        )));
    }
    let value = match kind {
        "String" | "Number" => {
            let text = given
                .string_value
                .filter(|text| !text.is_empty())
                .ok_or_else(|| empty(&name, kind))?;
            if !text.chars().all(is_xml) {
                return Err(invalid(format!(
                    "The message attribute '{name}' has characters that XML does not allow."
                )));
            }
            if kind == "Number" && !is_number(&text) {
                return Err(invalid(format!(
                    "Can't cast the value of message (user) attribute '{name}' to a number."
                )));
            }
            AttributeValue::Text(text)
        }
        "Binary" => {
            let text = given.binary_value.filter(|text| !text.is_empty());
            let bytes = STANDARD
                .decode(text.ok_or_else(|| empty(&name, kind))?)
                .map_err(|_| {
                    invalid(format!("The message attribute '{name}' is not in base 64."))
                })?;
            AttributeValue::Binary(bytes)
        }
        "" => {
            return Err(invalid(format!(
                "The message attribute '{name}' must contain a non-empty message attribute type."
            )));
        }
        _ => {
            return Err(invalid(format!(
                "The type of message attribute '{name}' is invalid. You must use only the \
                 following supported type prefixes: Binary, Number, String."
            )));
        }
    };
    Ok(Attribute {
        name,
        data_type,
        value,
    })
}

fn empty(name: &str, kind: &str) -> Fault {
    invalid(format!(
        "Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'."
    ))
}

/// Whether a text is a number in digits, not a word that stands for one.
fn is_number(text: &str) -> bool {
    let text = text.trim();
    text.chars()
        .all(|c: char| c.is_ascii_digit() || "+-.eE".contains(c))
        && text.parse::<f64>().is_ok()
}

/// Encodes bytes as the JSON and the Query protocol do.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns the digest in hexadecimal.
pub(crate) fn md5(bytes: &[u8]) -> String {
    hexadecimal(&Md5::digest(bytes))
}

/// Returns the digest of attributes (SQS developer guide, "calculating the MD5 message digest for
/// message attributes"): by name, each name, type and value after its length, the value also after
/// 1 for a text and 2 for bytes. `None` if there are no attributes.
pub(crate) fn attributes_md5(attributes: &[Attribute]) -> Option<String> {
    if attributes.is_empty() {
        return None;
    }
    let mut sorted: Vec<&Attribute> = attributes.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut digest = Md5::new();
    for attribute in sorted {
        part(&mut digest, attribute.name.as_bytes());
        part(&mut digest, attribute.data_type.as_bytes());
        match &attribute.value {
            AttributeValue::Text(text) => {
                digest.update([1]);
                part(&mut digest, text.as_bytes());
            }
            AttributeValue::Binary(bytes) => {
                digest.update([2]);
                part(&mut digest, bytes);
            }
        }
    }
    Some(hexadecimal(&digest.finalize()))
}

/// Adds the length of these bytes to a digest, then the bytes.
fn part(digest: &mut Md5, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    digest.update(length.to_be_bytes());
    digest.update(bytes);
}

/// Encodes bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests;
