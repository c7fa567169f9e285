//! Escapes text of guests and senders for logs and terminals. Knows neither.

/// The text with every character that steers a terminal or turns the direction of writing spelt
/// out.
pub fn escape_control_characters(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter != '\t' && steers(letter) {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out
}

/// The text of a JSON value with every such character as a `\u` escape. They stand within strings
/// alone, so the value is the same.
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        match steers(letter) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => out.push(letter),
        }
    }
    out
}

/// Whether it is a control character, tabs included, or turns the direction of writing.
pub fn steers(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_29_escaped_json_keeps_its_value_without_control_characters() {
        let value = serde_json::json!({"why": "\u{1b}[2J \u{9b}31m \u{202e}back\u{7f}\n", "n": 1});
        let text = escape_json(&value.to_string());
        assert_eq!(
            text.chars().find(|letter| steers(*letter)),
            None,
            "{text:?}"
        );
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, value);
    }
}
