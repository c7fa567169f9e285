//! What a guest or a sender wrote, for a log or a terminal. Knows neither.

/// The text with every character that steers a terminal or turns the direction of writing spelt
/// out.
pub fn harmless(text: &str) -> String {
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

/// Whether it is a control character, tabs included, or turns the direction of writing.
pub(super) fn steers(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
