//! Splits a text that may be JSON into tokens, and reports where it is not JSON.

use super::text::Text;
use std::fmt;

/// A token of a JSON text. Names and strings are still escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// `{`.
    ObjectBegins,
    /// `}`.
    ObjectEnds,
    /// `[`.
    ArrayBegins,
    /// `]`.
    ArrayEnds,
    /// The name of an object's member; its value follows.
    Name(Text<'a>),
    /// A string.
    Text(Text<'a>),
    /// A number as written.
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

/// The place at which a text is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJson {
    line: usize,
    column: usize,
    /// Whether the text ends too early.
    is_cut: bool,
}

impl fmt::Display for NotJson {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_cut {
            "the text ends too early"
        } else {
            "unexpected character"
        };
        write!(out, "{what} at line {} column {}", self.line, self.column)
    }
}

/// An iterator over the tokens of a text. It ends after an error.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
    /// The start of the last token.
    begin: usize,
    /// The open objects (`true`) and arrays.
    open: Vec<bool>,
    expected: ExpectedToken,
}

/// The tokens that may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedToken {
    Value,
    /// A value, or the end of the array that has just begun.
    ValueOrEnd,
    Name,
    /// A name, or the end of the object that has just begun.
    NameOrEnd,
    /// A comma, or the end of the open object or array.
    Next,
    /// Only the end of the text.
    Nothing,
}

impl<'a> Tokens<'a> {
    /// Makes an iterator over the tokens of this text.
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            begin: 0,
            open: Vec::new(),
            expected: ExpectedToken::Value,
        }
    }

    /// Returns the start of the last token.
    pub fn begin(&self) -> usize {
        self.begin
    }

    /// Returns the end of the last token.
    pub fn end(&self) -> usize {
        self.at
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn next_token(&mut self) -> Option<Token<'a>> {
        self.skip_spaces();
        if self.expected == ExpectedToken::Next && self.peek() == Some(b',') {
            self.at += 1;
            self.skip_spaces();
            let is_object = self.open.last() == Some(&true);
            self.expected = if is_object {
                ExpectedToken::Name
            } else {
                ExpectedToken::Value
            };
        }
        self.begin = self.at;
        let first = self.peek()?;
        match (self.expected, first) {
            (ExpectedToken::Next | ExpectedToken::NameOrEnd, b'}') => self.leave(true),
            (ExpectedToken::Next | ExpectedToken::ValueOrEnd, b']') => self.leave(false),
            (ExpectedToken::Name | ExpectedToken::NameOrEnd, b'"') => {
                let name = self.string()?;
                self.skip_spaces();
                self.take(b':')?;
                self.expected = ExpectedToken::Value;
                Some(Token::Name(name))
            }
            (ExpectedToken::Value | ExpectedToken::ValueOrEnd, _) => self.value(first),
            _ => None,
        }
    }

    fn value(&mut self, first: u8) -> Option<Token<'a>> {
        let token = match first {
            b'{' => return Some(self.enter(true)),
            b'[' => return Some(self.enter(false)),
            b'"' => Token::Text(self.string()?),
            b't' => self.word("true", Token::Bool(true))?,
            b'f' => self.word("false", Token::Bool(false))?,
            b'n' => self.word("null", Token::Null)?,
            _ => Token::Number(self.number()?),
        };
        self.value_ended();
        Some(token)
    }

    fn value_ended(&mut self) {
        self.expected = if self.open.is_empty() {
            ExpectedToken::Nothing
        } else {
            ExpectedToken::Next
        };
    }

    fn enter(&mut self, is_object: bool) -> Token<'a> {
        self.at += 1;
        self.open.push(is_object);
        if is_object {
            self.expected = ExpectedToken::NameOrEnd;
            return Token::ObjectBegins;
        }
        self.expected = ExpectedToken::ValueOrEnd;
        Token::ArrayBegins
    }

    fn leave(&mut self, is_object: bool) -> Option<Token<'a>> {
        if self.open.pop() != Some(is_object) {
            return None;
        }
        self.at += 1;
        self.value_ended();
        if is_object {
            return Some(Token::ObjectEnds);
        }
        Some(Token::ArrayEnds)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        if self.peek() != Some(byte) {
            return None;
        }
        self.at += 1;
        Some(())
    }

    fn word(&mut self, word: &str, token: Token<'a>) -> Option<Token<'a>> {
        for byte in word.bytes() {
            self.take(byte)?;
        }
        Some(token)
    }

    /// Reads a string with its quotes, and returns the text between them.
    fn string(&mut self) -> Option<Text<'a>> {
        self.at += 1;
        let begin = self.at;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.peek()? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                        b'u' => {
                            self.at += 1;
                            for _ in 0..4 {
                                self.peek().filter(u8::is_ascii_hexdigit)?;
                                self.at += 1;
                            }
                        }
                        _ => return None,
                    }
                }
                byte if byte < b' ' => return None,
                _ => self.at += 1,
            }
        }
        let text = Text::of_json(&self.text[begin..self.at]);
        self.at += 1;
        Some(text)
    }

    fn number(&mut self) -> Option<&'a str> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(&self.text[self.begin..self.at])
    }

    /// Reads one or more digits.
    fn digits(&mut self) -> Option<()> {
        self.peek().filter(u8::is_ascii_digit)?;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Some(())
    }

    fn error(&self) -> NotJson {
        let at = self.text.floor_char_boundary(self.at);
        let before = &self.text[..at];
        let line = before.rfind('\n').map_or(0, |newline| newline + 1);
        NotJson {
            line: before.matches('\n').count() + 1,
            column: before[line..].chars().count() + 1,
            is_cut: at == self.text.len(),
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token<'a>, NotJson>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.expected == ExpectedToken::Nothing {
            self.skip_spaces();
            if self.at == self.text.len() {
                return None;
            }
        }
        if let Some(token) = self.next_token() {
            return Some(Ok(token));
        }
        let error = self.error();
        self.at = self.text.len();
        self.expected = ExpectedToken::Nothing;
        Some(Err(error))
    }
}
