//! Finds the value at a place of a JSON text.

use super::tokens::{Token, Tokens};

/// A step that a JSON pointer takes.
struct Step {
    name: String,
    /// The index in an array, if the name is one.
    index: Option<usize>,
}

/// Returns the JSON text of the value at a JSON pointer (RFC 6901), or `None` if there is none or
/// the text is not JSON. If a name occurs twice, the last one counts.
pub fn find<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
    let steps = steps(pointer)?;
    let mut search = Search {
        steps: &steps,
        depth: 0,
        on_path: Vec::new(),
        is_next: true,
        target_begins: None,
        found: None,
    };
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next() {
        search.take(token.ok()?, tokens.begin(), tokens.end());
    }
    search.found.map(|(begin, end)| &text[begin..end])
}

fn steps(pointer: &str) -> Option<Vec<Step>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let steps = pointer.strip_prefix('/')?.split('/').map(|step| {
        let name = step.replace("~1", "/").replace("~0", "~");
        let is_plain = step.bytes().all(|byte| byte.is_ascii_digit())
            && (step.len() == 1 || !step.starts_with('0'));
        let index = if is_plain { step.parse().ok() } else { None };
        Step { name, index }
    });
    Some(steps.collect())
}

struct Search<'s> {
    steps: &'s [Step],
    /// The number of open objects and arrays.
    depth: usize,
    /// The open objects and arrays that lead to the place, from the top. An array has the index of
    /// its next element.
    on_path: Vec<Option<usize>>,
    /// Whether the last name is on the path, or the next value is the whole text.
    is_next: bool,
    /// The start of the value at the place and its depth, while the value is open.
    target_begins: Option<(usize, usize)>,
    found: Option<(usize, usize)>,
}

impl Search<'_> {
    fn take(&mut self, token: Token<'_>, begin: usize, end: usize) {
        match token {
            Token::Name(name) => {
                let step = self.steps.get(self.on_path.len().wrapping_sub(1));
                let is_here = self.depth == self.on_path.len();
                self.is_next = is_here && step.is_some_and(|step| name.is(&step.name));
            }
            Token::ObjectBegins => self.open(None, begin),
            Token::ArrayBegins => self.open(Some(0), begin),
            Token::ObjectEnds | Token::ArrayEnds => {
                self.depth -= 1;
                self.on_path.truncate(self.depth);
                if let Some((at, depth)) = self.target_begins
                    && depth == self.depth
                {
                    self.found = Some((at, end));
                    self.target_begins = None;
                }
            }
            Token::Text(_) | Token::Number(_) | Token::Bool(_) | Token::Null => {
                if self.leads_here() && self.on_path.len() == self.steps.len() {
                    self.found = Some((begin, end));
                }
            }
        }
    }

    fn open(&mut self, array: Option<usize>, begin: usize) {
        if self.leads_here() {
            if self.on_path.len() == self.steps.len() {
                self.target_begins = Some((begin, self.depth));
            } else {
                self.on_path.push(array);
            }
        }
        self.depth += 1;
        self.is_next = false;
    }

    /// Returns whether the value that begins is at the place or leads to it.
    fn leads_here(&mut self) -> bool {
        if self.depth != self.on_path.len() || self.target_begins.is_some() {
            return false;
        }
        let step = self.steps.get(self.depth.wrapping_sub(1));
        let leads = match (self.on_path.last_mut(), step) {
            (Some(Some(index)), Some(step)) => {
                *index += 1;
                step.index == Some(*index - 1)
            }
            _ => self.is_next,
        };
        if leads {
            self.found = None;
        }
        leads
    }
}
