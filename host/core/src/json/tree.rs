//! A JSON value in memory, for the few texts that are small and read as a whole.

use super::number::compare;
use super::text::Text;
use super::tokens::{NotJson, Token, Tokens};

/// The maximum depth of a value.
const DEEPEST: usize = 128;

/// A value and its JSON text.
#[derive(Debug, Clone)]
pub struct Json<'a> {
    /// The JSON text of the value.
    pub text: &'a str,
    /// The value.
    pub value: Value<'a>,
}

/// A value. Names may occur twice.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as written.
    Number(&'a str),
    /// A string.
    Text(Text<'a>),
    /// The elements of an array.
    Array(Vec<Json<'a>>),
    /// The members of an object, in their order.
    Object(Vec<(Text<'a>, Json<'a>)>),
}

/// The reason why a text has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The text is not JSON.
    NotJson(NotJson),
    /// The value is deeper than 128 levels.
    TooDeep,
}

impl<'a> Json<'a> {
    /// Reads a whole text.
    ///
    /// # Errors
    /// Fails if the text is not JSON or too deep.
    pub fn read(text: &'a str) -> Result<Self, Unreadable> {
        let mut reader = TreeReader {
            text,
            open: Vec::new(),
            whole: None,
        };
        let mut tokens = Tokens::new(text);
        while let Some(token) = tokens.next() {
            let token = token.map_err(Unreadable::NotJson)?;
            reader.take(token, tokens.begin(), tokens.end())?;
        }
        reader.whole.ok_or(Unreadable::TooDeep)
    }

    /// Whether both are the same value. Numbers are compared by value, and objects without the
    /// order of their names. If a name occurs twice, the last one counts.
    pub fn is_same(&self, other: &Json<'_>) -> bool {
        match (&self.value, &other.value) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(one), Value::Bool(other)) => one == other,
            (Value::Number(one), Value::Number(other)) => compare(one, other).is_eq(),
            (Value::Text(one), Value::Text(other)) => one.is_same(*other),
            (Value::Array(one), Value::Array(other)) => {
                let mut pairs = one.iter().zip(other);
                one.len() == other.len() && pairs.all(|(one, other)| one.is_same(other))
            }
            (Value::Object(_), Value::Object(_)) => self.holds(other) && other.holds(self),
            _ => false,
        }
    }

    /// Whether this object also has each member of the other.
    fn holds(&self, other: &Json<'_>) -> bool {
        let Value::Object(members) = &other.value else {
            return false;
        };
        members.iter().all(|(name, _)| {
            let own = self.last(*name);
            own.is_some_and(|own| other.last(*name).is_some_and(|other| own.is_same(other)))
        })
    }

    fn last(&self, name: Text<'_>) -> Option<&Json<'a>> {
        let Value::Object(members) = &self.value else {
            return None;
        };
        let mut members = members.iter().rev();
        let found = members.find(|(own, _)| own.is_same(name));
        found.map(|(_, value)| value)
    }
}

/// An open object or array, its start, and the name of its next member.
struct OpenTree<'a> {
    begin: usize,
    name: Option<Text<'a>>,
    value: Value<'a>,
}

struct TreeReader<'a> {
    text: &'a str,
    open: Vec<OpenTree<'a>>,
    whole: Option<Json<'a>>,
}

impl<'a> TreeReader<'a> {
    fn take(&mut self, token: Token<'a>, begin: usize, end: usize) -> Result<(), Unreadable> {
        let (begin, value) = match token {
            Token::Name(name) => {
                if let Some(open) = self.open.last_mut() {
                    open.name = Some(name);
                }
                return Ok(());
            }
            Token::ObjectBegins => return self.begin(begin, Value::Object(Vec::new())),
            Token::ArrayBegins => return self.begin(begin, Value::Array(Vec::new())),
            Token::ObjectEnds | Token::ArrayEnds => match self.open.pop() {
                Some(open) => (open.begin, open.value),
                None => return Ok(()),
            },
            Token::Text(text) => (begin, Value::Text(text)),
            Token::Number(number) => (begin, Value::Number(number)),
            Token::Bool(value) => (begin, Value::Bool(value)),
            Token::Null => (begin, Value::Null),
        };
        let text = &self.text[begin..end];
        self.add(Json { text, value });
        Ok(())
    }

    fn begin(&mut self, begin: usize, value: Value<'a>) -> Result<(), Unreadable> {
        if self.open.len() == DEEPEST {
            return Err(Unreadable::TooDeep);
        }
        self.open.push(OpenTree {
            begin,
            name: None,
            value,
        });
        Ok(())
    }

    fn add(&mut self, read: Json<'a>) {
        match self.open.last_mut() {
            None => self.whole = Some(read),
            Some(open) => match (&mut open.value, open.name.take()) {
                (Value::Object(members), Some(name)) => members.push((name, read)),
                (Value::Array(elements), _) => elements.push(read),
                _ => {}
            },
        }
    }
}
