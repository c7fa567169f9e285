//! Attributes of messages as HTTP headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_guest::AttributeValue;
use std::fmt::Write;

/// A name that can be a header's: what may not be in one is percent-encoded as UTF-8, so that two names
/// stay two.
pub fn name(text: &str) -> String {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    encoded(text, is_legal)
}

/// A value that can be a header's: visible ASCII and single spaces as they are, all else, and `%`,
/// percent-encoded as UTF-8 where the text has any of it. A text that reads as if it were encoded
/// already is encoded, too, so that two values stay two.
pub fn value(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if text.bytes().all(is_plain) && text.trim() == text && !has_escape(text) {
        return text.to_owned();
    }
    encoded(text, |byte| byte.is_ascii_graphic() && byte != b'%')
}

/// Whether a `%` has two hexadecimal digits behind it.
fn has_escape(text: &str) -> bool {
    let mut threes = text.as_bytes().windows(3);
    threes.any(|three| three[0] == b'%' && three[1..].iter().all(u8::is_ascii_hexdigit))
}

fn encoded(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(byte.into());
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes any text");
        }
    }
    encoded
}

/// The value of an attribute: bytes in base64.
pub fn of_attribute(attribute: &AttributeValue) -> String {
    match attribute {
        AttributeValue::Text(text) => value(text),
        AttributeValue::Binary(bytes) => STANDARD.encode(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_sent_as_they_are_or_percent_encoded() {
        for (text, sent) in [
            ("", ""),
            ("order", "order"),
            ("100% of it", "100% of it"),
            ("Zürich", "Z%C3%BCrich"),
            ("50% in Zürich", "50%25%20in%20Z%C3%BCrich"),
            ("a\r\nx-admin: yes", "a%0D%0Ax-admin:%20yes"),
            (" padded", "%20padded"),
            ("a%0D", "a%250D"),
            ("100%", "100%"),
            ("100%25", "100%2525"),
        ] {
            assert_eq!(value(text), sent);
        }
        let bytes = AttributeValue::Binary(vec![0, 255]);
        assert_eq!(of_attribute(&bytes), "AP8=");
    }

    #[test]
    fn names_stay_apart() {
        for (text, sent) in [
            ("order.kind_2", "order.kind_2"),
            ("ab", "ab"),
            ("a b:\r\n", "a%20b%3A%0D%0A"),
            ("ü%", "%C3%BC%25"),
        ] {
            assert_eq!(name(text), sent);
        }
    }
}
