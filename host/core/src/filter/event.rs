//! A message in the form that the engine matches: names joined with dots, each with its values and
//! the array elements that hold them.

use super::choice::{Choices, Elements};
use super::pattern::{BODY, Combination};
use super::rule::{BROKEN, Scalar};
use crate::json::{self, Token, Tokens};
use crate::message::{AttributeValue, Message};
use std::collections::HashMap;

/// The form in which patterns match a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    /// A JSON object or array.
    Fields,
    /// A single JSON value, which is also a text.
    Value,
    /// A text.
    Text,
}

impl BodyKind {
    fn of(body: &str) -> Self {
        match Tokens::new(body).next() {
            Some(Ok(_)) if !json::is_valid(body) => Self::Text,
            Some(Ok(Token::ObjectBegins | Token::ArrayBegins)) => Self::Fields,
            Some(Ok(_)) => Self::Value,
            _ => Self::Text,
        }
    }
}

/// A place where a name occurs: the index of the combination and of the field in it.
type Use = (usize, usize);

/// The combinations of a pattern, one of which must match, and the places of each name in them.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    combinations: Vec<Combination>,
    uses: HashMap<String, Vec<Use>>,
    /// Whether any name is of the body, and whether any is not.
    reads: [bool; 2],
}

impl Plan {
    pub(super) fn new(combinations: Vec<Combination>) -> Self {
        let mut uses: HashMap<String, Vec<Use>> = HashMap::new();
        for (index, combination) in combinations.iter().enumerate() {
            for (field, one) in combination.0.iter().enumerate() {
                let found = uses.entry(one.name.clone()).or_default();
                found.push((index, field));
            }
        }
        let reads = [
            uses.keys().any(|name| is_of_body(name)),
            uses.keys().any(|name| !is_of_body(name)),
        ];
        Self {
            combinations,
            uses,
            reads,
        }
    }

    /// Whether one of the combinations matches a message.
    pub(super) fn matches(&self, message: &Message) -> bool {
        let mut reading = MessageReader {
            plan: self,
            path: String::new(),
            scopes: vec![Vec::new()],
            open: Vec::new(),
        };
        let [reads_body, reads_metadata] = self.reads;
        if reads_metadata {
            reading.metadata(message);
        }
        let mut kind = BodyKind::Text;
        if reads_body {
            kind = BodyKind::of(&message.body);
            reading.body(kind, &message.body);
        }
        reading.scopes[0].resize(self.combinations.len(), Choices::default());
        let mut all = self.combinations.iter().zip(&reading.scopes[0]);
        all.any(|(combination, choices)| {
            let is_other_body = match kind {
                BodyKind::Fields => combination.wants_text(),
                BodyKind::Value | BodyKind::Text => combination.wants_fields(),
            };
            let (all, optional) = combination.bits();
            !is_other_body && choices.is_match(all, optional)
        })
    }
}

fn is_of_body(name: &str) -> bool {
    name.split('.').next() == Some(BODY)
}

/// A message that is being read.
struct MessageReader<'p> {
    plan: &'p Plan,
    /// The names that lead to the next value, joined with dots.
    path: String,
    /// The matching fields in the whole message and within each open array element, by combination.
    /// Empty where nothing matches.
    scopes: Vec<Vec<Choices>>,
    open: Vec<OpenValue>,
}

/// An open object or array.
struct OpenValue {
    /// The length of the path without the names of its members.
    path: usize,
    /// Whether it is an element of an array.
    is_element: bool,
    /// The elements, if it is an array.
    elements: Option<Vec<Elements>>,
}

impl MessageReader<'_> {
    /// Adds everything except the body.
    fn metadata(&mut self, message: &Message) {
        self.text("messageId", &message.id);
        self.text("eventSourceARN", &message.source);
        for (name, value) in &message.system_attributes {
            if name != RECEIVES && (name != GROUP || message.group.is_none()) {
                self.text(&format!("attributes.{name}"), value);
            }
        }
        let receives = message.receive_count.to_string();
        self.text(&format!("attributes.{RECEIVES}"), &receives);
        if let Some(group) = &message.group {
            self.text(&format!("attributes.{GROUP}"), group);
        }
        for attribute in &message.attributes {
            let name = format!("messageAttributes.{}", attribute.name);
            self.text(&format!("{name}.dataType"), &attribute.data_type);
            if let AttributeValue::Text(text) = &attribute.value {
                self.text(&format!("{name}.stringValue"), text);
            }
        }
    }

    /// Adds the body.
    fn body(&mut self, kind: BodyKind, body: &str) {
        BODY.clone_into(&mut self.path);
        if kind != BodyKind::Fields {
            self.scalar(Scalar::Text(body));
        }
        if kind == BodyKind::Text {
            return;
        }
        for token in Tokens::new(body).map_while(Result::ok) {
            match token {
                Token::Name(name) => self.name(&name.decode(BROKEN)),
                Token::ObjectBegins => self.begin(false),
                Token::ArrayBegins => self.begin(true),
                Token::ObjectEnds | Token::ArrayEnds => self.end(),
                Token::Text(text) => self.scalar(Scalar::Text(&text.decode(BROKEN))),
                Token::Number(number) => self.scalar(Scalar::Number(number)),
                Token::Bool(value) => self.scalar(Scalar::Bool(value)),
                Token::Null => self.scalar(Scalar::Null),
            }
        }
    }

    fn text(&mut self, name: &str, text: &str) {
        name.clone_into(&mut self.path);
        self.scalar(Scalar::Text(text));
    }

    fn name(&mut self, name: &str) {
        if let Some(object) = self.open.last() {
            self.path.truncate(object.path);
            self.path.push('.');
            self.path.push_str(name);
        }
    }

    fn scalar(&mut self, value: Scalar<'_>) {
        let (Some(uses), Some(scope)) = (self.plan.uses.get(&*self.path), self.scopes.last_mut())
        else {
            return;
        };
        if scope.is_empty() {
            scope.resize(self.plan.combinations.len(), Choices::default());
        }
        for (index, field) in uses {
            let is_met = self.plan.combinations[*index].0[*field].matches(value);
            scope[*index].add(*field, is_met);
        }
    }

    fn begin(&mut self, is_array: bool) {
        let is_element = self.open.last().is_some_and(|open| open.elements.is_some());
        if is_element {
            self.scopes.push(Vec::new());
        }
        self.open.push(OpenValue {
            path: self.path.len(),
            is_element,
            elements: is_array.then(Vec::new),
        });
    }

    fn end(&mut self) {
        let Some(ended) = self.open.pop() else {
            return;
        };
        self.path.truncate(ended.path);
        let elements = ended.elements.unwrap_or_default();
        if !elements.is_empty() {
            self.add_array(&elements);
        }
        if ended.is_element
            && let Some(scope) = self.scopes.pop()
            && !scope.is_empty()
        {
            self.add_element(&scope);
        }
    }

    fn add_array(&mut self, elements: &[Elements]) {
        let Some(scope) = self.scopes.last_mut() else {
            return;
        };
        scope.resize(self.plan.combinations.len(), Choices::default());
        for (choices, elements) in scope.iter_mut().zip(elements) {
            choices.add_array(elements);
        }
    }

    fn add_element(&mut self, scope: &[Choices]) {
        let array = self.open.last_mut().and_then(|open| open.elements.as_mut());
        let Some(array) = array else {
            return;
        };
        array.resize(self.plan.combinations.len(), Elements::default());
        for (elements, choices) in array.iter_mut().zip(scope) {
            elements.add(choices);
        }
    }
}

const RECEIVES: &str = "ApproximateReceiveCount";
const GROUP: &str = "MessageGroupId";
