//! The two digests of SQS, for backends that do not tell them. Knows nothing of JSON.

use dispatcher_guest::{Attribute, AttributeValue};
use md5::{Digest, Md5};
use std::fmt::Write;

/// MD5 of a text, in lower-case hexadecimal.
pub fn of_text(text: &str) -> String {
    hexadecimal(Md5::new_with_prefix(text))
}

/// MD5 of the sender's attributes as SQS documents it: sorted by name; of each the name, the data
/// type, a byte for the kind of value, and the value; every text and value after its length in
/// four bytes, the most significant first.
pub fn of_attributes(attributes: &[Attribute]) -> String {
    let mut sorted: Vec<_> = attributes.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut digest = Md5::new();
    for attribute in sorted {
        let (kind, value) = match &attribute.value {
            AttributeValue::Text(text) => (1, text.as_bytes()),
            AttributeValue::Binary(bytes) => (2, bytes.as_slice()),
        };
        add(&mut digest, attribute.name.as_bytes());
        add(&mut digest, attribute.data_type.as_bytes());
        digest.update([kind]);
        add(&mut digest, value);
    }
    hexadecimal(digest)
}

fn add(digest: &mut Md5, part: &[u8]) {
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    digest.update(length.to_be_bytes());
    digest.update(part);
}

fn hexadecimal(digest: Md5) -> String {
    digest
        .finalize()
        .iter()
        .fold(String::with_capacity(32), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes any text");
            text
        })
}
