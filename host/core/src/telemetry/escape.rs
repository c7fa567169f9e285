//! Escapes text from guests and senders for logs and terminals. Knows neither.

/// Escapes every character that controls a terminal or changes the direction of writing.
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

/// Escapes text with several lines; newlines stay.
pub fn escape_lines(text: &str) -> String {
    let lines = text.split('\n').map(escape_control_characters);
    lines.collect::<Vec<_>>().join("\n")
}

/// Escapes every such character in a JSON text as `\u`. Such characters occur only within strings,
/// so the value stays the same.
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        if steers(letter) {
            out.push_str(&format!("\\u{:04x}", u32::from(letter)))
        } else {
            out.push(letter)
        }
    }
    out
}

/// Returns whether this is a control character, such as a tab, or changes the direction of writing.
pub fn steers(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_and_steer_nothing() {
        let text = "one\r\ntwo\u{1b}]0;title\u{7}\n\u{202e}three";
        let escaped = escape_lines(text);
        assert_eq!(escaped.lines().count(), 3);
        let steering = escaped
            .chars()
            .filter(|letter| steers(*letter) && *letter != '\n');
        assert_eq!(steering.count(), 0, "{escaped:?}");
    }

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
