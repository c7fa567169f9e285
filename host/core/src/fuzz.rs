//! Helpers of the fuzz targets: choices read from arbitrary bytes, and the replay of a corpus in
//! ordinary tests. Not part of the program: only for tests and `--cfg fuzzing`. Knows no target.

/// Arbitrary bytes as a series of choices. Never runs dry: at the end of the bytes every further
/// choice is the first one.
#[derive(Debug)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Reads choices from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether no byte is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Chooses any byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// Chooses any number. Small numbers take few bytes.
    pub fn number(&mut self) -> u64 {
        let length = usize::from(self.byte() % 9);
        let bytes = self.bytes(length).iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Chooses a number below `end`, which is 1 to 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Chooses true or false.
    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// Chooses whether to call `choose`.
    pub fn option<T>(&mut self, choose: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| choose(self))
    }

    /// Calls `choose` fewer than `end` times.
    pub fn list<T>(&mut self, end: usize, mut choose: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(end)).map(|_| choose(self)).collect()
    }

    /// Chooses any text of at most 255 bytes, or of three times as many if the bytes are not UTF-8.
    pub fn text(&mut self) -> String {
        let length = usize::from(self.byte());
        String::from_utf8_lossy(self.bytes(length)).into_owned()
    }

    /// Takes `length` bytes, or all that are left.
    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        first
    }

    /// Takes all bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }
}

/// Feeds every input in `tests/fuzz/corpus/NAME.hex` to a target. Each line is one input in
/// hexadecimal digits.
///
/// # Panics
/// Panics if the file is missing or not of that form, and if the target panics. The last
/// line printed is the input that caused the panic.
#[cfg(any(test, feature = "samples"))]
#[allow(clippy::print_stdout, reason = "shown where the target fails")]
pub fn replay(name: &str, target: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus");
    let path = std::path::Path::new(folder)
        .join(name)
        .with_extension("hex");
    let text = std::fs::read_to_string(&path).expect("the corpus has a file for each target");
    assert!(!text.is_empty(), "no inputs in {}", path.display());
    for (number, line) in text.lines().enumerate() {
        println!("{}:{}", path.display(), number + 1);
        let input: Vec<u8> = (0..line.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&line[at..at + 2], 16).expect("two digits"))
            .collect();
        target(&input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_come_from_the_input_and_never_run_out() {
        let mut choices = Choices::new(&[7, 2, 1, 1, 3, b'a', b'b', 0xff, 9]);
        assert_eq!((choices.byte(), choices.number()), (7, 0x0101));
        assert_eq!(choices.text(), "ab\u{fffd}");
        assert_eq!(choices.list(5, Choices::flag), [false; 4]);
        assert!(choices.is_empty());
        assert_eq!((choices.below(3), choices.text()), (0, String::new()));
    }
}
