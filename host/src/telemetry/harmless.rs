//! What a guest or a sender wrote, for a log or a terminal. Knows neither.

/// The text with every character that steers a terminal or turns the direction of writing spelt
/// out.
pub fn harmless(text: &str) -> String {
    let steers = |letter: char| {
        (letter.is_control() && letter != '\t')
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if steers(letter) {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out
}
