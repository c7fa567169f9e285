//! Reads JSON by its grammar (RFC 8259), so that decisions about messages do not depend on the
//! limits of a library. Half a surrogate pair, `1e400`, numbers of any length, repeated names and
//! any depth are valid JSON. Pure; nothing here recurses over text from a sender.

mod number;
mod place;
mod text;
mod tokens;
mod tree;

#[cfg(test)]
mod tests;

pub(crate) use number::compare;
pub use number::{canonical, is_exact};
pub use place::find;
use std::borrow::Cow;
pub use text::Text;
pub use tokens::{NotJson, Token, Tokens};
pub use tree::{Json, Unreadable, Value};

/// Returns whether a text is JSON.
pub fn is_valid(text: &str) -> bool {
    Tokens::new(text).all(|token| token.is_ok())
}

/// Returns the string at a JSON pointer. Half a surrogate pair is replaced.
pub fn text_at<'a>(text: &'a str, pointer: &str) -> Option<Cow<'a, str>> {
    match Tokens::new(find(text, pointer)?).next() {
        Some(Ok(Token::Text(found))) => Some(found.decode(char::REPLACEMENT_CHARACTER)),
        _ => None,
    }
}

/// Returns whether an object has a member of this name at its top level.
pub fn has_member(text: &str, name: &str) -> bool {
    let mut depth = 0_usize;
    let mut tokens = Tokens::new(text).map_while(Result::ok);
    tokens.any(|token| {
        match token {
            Token::ObjectBegins | Token::ArrayBegins => depth += 1,
            Token::ObjectEnds | Token::ArrayEnds => depth -= 1,
            _ => {}
        }
        depth == 1 && matches!(token, Token::Name(own) if own.is(name))
    })
}

/// Returns whether both texts are JSON of the same value. Numbers are compared by value, and
/// objects without the order of their names. Values deeper than 128 levels are never the same.
pub fn is_same(one: &str, other: &str) -> bool {
    if is_nested(one) != is_nested(other) {
        return false;
    }
    match (Json::read(one), Json::read(other)) {
        (Ok(one), Ok(other)) => one.is_same(&other),
        _ => false,
    }
}

fn is_nested(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}
