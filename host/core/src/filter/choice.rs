//! Finds which fields of a combination match together. Only one element of each array in a message
//! counts: the fields within the array must all match in that element. Pure.

/// Fields of one combination: one bit per field, by index.
pub(super) type Bits = u128;

/// The maximum number of different results that the elements of arrays may have. A pattern of up to
/// seven fields always has fewer.
const MOST: usize = 64;

/// One way to choose an element of each array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Choice {
    /// The fields with a matching value.
    met: Bits,
    /// The fields with any value; they are not absent.
    present: Bits,
}

impl Choice {
    fn with(self, other: Self) -> Self {
        Self {
            met: self.met | other.met,
            present: self.present | other.present,
        }
    }

    /// Whether every combination that matches with `other` also matches with this choice.
    fn covers(self, other: Self) -> bool {
        self.met & other.met == other.met && self.present & other.present == self.present
    }
}

/// The choices that are worth keeping: none covers another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choices {
    /// The choices. Empty stands for one choice in which no field has a value.
    kept: Vec<Choice>,
    /// The fields with a value in any element.
    seen: Bits,
    /// Whether there were too many choices to decide. The message then counts as matching, because
    /// a message that AWS would deliver must not be deleted.
    is_open: bool,
}

/// The elements of an array that is being read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Elements(Choices);

impl Choices {
    /// Adds a value of a field outside of arrays.
    pub(super) fn add(&mut self, field: usize, is_met: bool) {
        let bit = 1 << field;
        let value = Choice {
            met: if is_met { bit } else { 0 },
            present: bit,
        };
        self.seen |= bit;
        if self.kept.is_empty() {
            self.kept.push(Choice::default());
        }
        let with_value: Vec<_> = self.kept.drain(..).map(|one| one.with(value)).collect();
        with_value.into_iter().for_each(|one| self.keep(one));
    }

    /// Adds an array: each choice so far combines with one of its elements.
    pub(super) fn add_array(&mut self, elements: &Elements) {
        self.is_open |= elements.0.is_open;
        self.seen |= elements.0.seen;
        if elements.0.kept.is_empty() {
            return;
        }
        if self.kept.is_empty() {
            self.kept.push(Choice::default());
        }
        let before = std::mem::take(&mut self.kept);
        for one in before {
            for element in elements.outcomes() {
                self.keep(one.with(element));
            }
        }
    }

    /// Whether `all` fields match together. Those in `optional` also match if they are absent.
    pub(super) fn is_match(&self, all: Bits, optional: Bits) -> bool {
        let none = [Choice::default()];
        let kept = if self.kept.is_empty() {
            &none
        } else {
            &self.kept[..]
        };
        self.is_open
            || kept
                .iter()
                .any(|one| one.met | (optional & !one.present) == all)
    }

    fn keep(&mut self, new: Choice) {
        if self.is_open || self.kept.iter().any(|one| one.covers(new)) {
            return;
        }
        self.kept.retain(|one| !new.covers(*one));
        self.kept.push(new);
        self.is_open = self.kept.len() > MOST;
    }
}

impl Elements {
    /// Adds the possible results of the fields within one element.
    pub(super) fn add(&mut self, element: &Choices) {
        self.0.is_open |= element.is_open;
        self.0.seen |= element.seen;
        element.kept.iter().for_each(|one| self.0.keep(*one));
    }

    /// Returns the choices that the array adds. AWS's engine checks the fields in the order of
    /// their names, and the first field that matches within an element selects that element. A
    /// field before that one is absent only if no element has it.
    fn outcomes(&self) -> impl Iterator<Item = Choice> + '_ {
        self.0.kept.iter().map(|one| {
            let until_chosen = one.met ^ one.met.wrapping_sub(1);
            Choice {
                met: one.met,
                present: one.present | (self.0.seen & until_chosen),
            }
        })
    }
}
