//! Compares numbers by their decimal digits, exactly and at any length.

use std::cmp::Ordering;

/// A number as `0.DIGITS * 10^magnitude`. Neither the first nor the last digit is zero.
struct Decimal<'a> {
    is_negative: bool,
    /// The digits before and after the point.
    parts: [&'a str; 2],
    /// The number of leading zeros in `parts`.
    skip: usize,
    /// The number of significant digits.
    count: usize,
    magnitude: i128,
}

/// The largest exponent; larger ones are clamped to it.
const HIGHEST_EXPONENT: i128 = i128::MAX / 4;

/// Compares two valid JSON numbers. Exact unless both have an exponent that [`is_exact`] refuses.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    let (one, other) = (Decimal::read(one), Decimal::read(other));
    let signs = one.sign().cmp(&other.sign());
    if signs.is_ne() || one.count == 0 {
        return signs;
    }
    let magnitudes = one.magnitude.cmp(&other.magnitude);
    let size = magnitudes.then_with(|| one.digits().cmp(other.digits()));
    if one.is_negative {
        return size.reverse();
    }
    size
}

/// Returns whether a valid number can be compared exactly with every other. Only numbers with
/// exponents of more than 37 digits cannot.
pub fn is_exact(number: &str) -> bool {
    let number = Decimal::read(number);
    number.count == 0 || number.magnitude.abs() < HIGHEST_EXPONENT / 2
}

/// Returns a number in a form that all numbers of the same value share: `7` for `7.0` and `70e-1`.
pub fn canonical(number: &str) -> String {
    const LONGEST: i128 = 64;
    let number = Decimal::read(number);
    let digits: String = number.digits().map(char::from).collect();
    if digits.is_empty() {
        return "0".to_owned();
    }
    let sign = if number.is_negative { "-" } else { "" };
    let point = usize::try_from(number.magnitude).unwrap_or(usize::MAX);
    if !(1..=LONGEST).contains(&number.magnitude) {
        return format!("{sign}0.{digits}e{}", number.magnitude);
    }
    if point >= digits.len() {
        return format!("{sign}{digits:0<point$}");
    }
    let (whole, fraction) = digits.split_at(point);
    format!("{sign}{whole}.{fraction}")
}

impl<'a> Decimal<'a> {
    fn read(number: &'a str) -> Self {
        let is_negative = number.starts_with('-');
        let number = number.trim_start_matches('-');
        let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let parts = [whole, fraction];
        let total = whole.len() + fraction.len();
        let skip = bytes_of(parts).take_while(|digit| *digit == b'0').count();
        let zeros_at_end = bytes_of(parts)
            .rev()
            .take_while(|digit| *digit == b'0')
            .count();
        // Lengths of texts are far below the bounds of exponents, so this cannot overflow.
        let lead = whole.len() as i128 - skip as i128;
        Self {
            is_negative,
            parts,
            skip,
            count: total.saturating_sub(skip + zeros_at_end),
            magnitude: read_exponent(exponent) + lead,
        }
    }

    fn sign(&self) -> i8 {
        match (self.count, self.is_negative) {
            (0, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        }
    }

    fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        bytes_of(self.parts).skip(self.skip).take(self.count)
    }
}

fn bytes_of(parts: [&str; 2]) -> impl DoubleEndedIterator<Item = u8> {
    parts.into_iter().flat_map(str::bytes)
}

fn read_exponent(text: &str) -> i128 {
    let digits = text.trim_start_matches(['+', '-']);
    let size = digits
        .bytes()
        .fold(0, |size: i128, digit| {
            let size = size.saturating_mul(10);
            size.saturating_add(i128::from(digit - b'0'))
        })
        .min(HIGHEST_EXPONENT);
    if text.starts_with('-') { -size } else { size }
}
