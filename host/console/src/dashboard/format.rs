//! Formats numbers, times and amounts of money for people. Pure.

/// Formats a whole number exactly, with commas.
pub(super) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a whole number, if it is known.
pub(super) fn count_or_dash(number: Option<u64>) -> String {
    number.map_or("–".to_owned(), count)
}

/// Formats a number with its noun, in the singular or plural.
pub(super) fn counted(number: u64, one: &str, more: &str) -> String {
    let word = if number == 1 { one } else { more };
    format!("{} {word}", count(number))
}

/// Rounds to the nearest whole number; a negative number becomes 0.
#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
pub(super) fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// Formats a rate per second, with only the significant digits.
pub(super) fn rate(rate: f64) -> String {
    if rate >= 99.95 {
        return count(rounded(rate));
    }
    if rate >= 9.95 || rate == 0.0 {
        return trimmed(format!("{rate:.1}"));
    }
    if rate < 0.005 {
        return "<0.01".to_owned();
    }
    trimmed(format!("{rate:.2}"))
}

fn trimmed(text: String) -> String {
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// Formats a duration or an age.
pub(super) fn time(seconds: f64) -> String {
    let whole = rounded(seconds);
    match seconds {
        s if s <= 0.0 => "0 s".to_owned(),
        s if s < 0.000_999_5 => format!("{:.0} µs", (s * 1e6).max(1.0)),
        s if s < 0.009_95 => format!("{} ms", trimmed(format!("{:.1}", s * 1e3))),
        s if s < 0.999_5 => format!("{:.0} ms", s * 1e3),
        s if s < 9.95 => format!("{} s", trimmed(format!("{s:.1}"))),
        _ if whole < 60 => format!("{whole} s"),
        _ if whole < 3_600 => in_two(whole / 60, "min", whole % 60, "s"),
        _ if whole < 86_400 => in_two(whole / 3_600, "h", whole % 3_600 / 60, "min"),
        _ => in_two(whole / 86_400, "d", whole % 86_400 / 3_600, "h"),
    }
}

/// Formats a duration or an age, if it is known.
pub(super) fn time_or_dash(seconds: Option<f64>) -> String {
    seconds.map_or("–".to_owned(), time)
}

/// Formats a duration in two units, or in one if nothing is left for the smaller.
fn in_two(big: u64, unit: &str, small: u64, smaller: &str) -> String {
    match small {
        0 => format!("{big} {unit}"),
        _ => format!("{big} {unit} {small} {smaller}"),
    }
}

/// Formats an amount in US dollars.
pub(super) fn dollars(dollars: f64) -> String {
    if dollars == 0.0 {
        return "$0".to_owned();
    }
    if dollars < 0.000_1 {
        return "<$0.0001".to_owned();
    }
    if dollars < 1.0 {
        return format!("${}", trimmed(format!("{dollars:.4}")));
    }
    let cents = rounded(dollars * 100.0);
    format!("${}.{:02}", count(cents / 100), cents % 100)
}

/// Formats a number of bytes with a suitable unit.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1_024.0, 0);
    while value >= 1_023.95 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1_024.0, unit + 1);
    }
    format!("{} {}", trimmed(format!("{value:.1}")), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_exact() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
            (9_007_199_254_740_993, "9,007,199,254,740,993"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(1, "message", "messages"), "1 message");
        assert_eq!(counted(1_000, "message", "messages"), "1,000 messages");
    }

    #[test]
    fn rates_have_the_digits_that_matter() {
        for (number, text) in [
            (0.0, "0"),
            (0.001, "<0.01"),
            (0.25, "0.25"),
            (3.0, "3"),
            (12.34, "12.3"),
            (100.4, "100"),
            (12_345.6, "12,346"),
        ] {
            assert_eq!(rate(number), text, "{number}");
        }
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.000_000_1, "1 µs"),
            (0.000_34, "340 µs"),
            (0.002_34, "2.3 ms"),
            (0.25, "250 ms"),
            (1.0, "1 s"),
            (3.25, "3.2 s"),
            (59.4, "59 s"),
            (59.6, "1 min"),
            (130.0, "2 min 10 s"),
            (3_700.0, "1 h 1 min"),
            (90_000.0, "1 d 1 h"),
        ] {
            assert_eq!(time(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn money_and_bytes_are_short() {
        for (amount, text) in [
            (0.0, "$0"),
            (0.000_01, "<$0.0001"),
            (0.002_5, "$0.0025"),
            (1.5, "$1.50"),
            (1_234.567, "$1,234.57"),
        ] {
            assert_eq!(dollars(amount), text);
        }
        for (number, text) in [(0, "0 B"), (1_536, "1.5 KiB"), (1_048_576, "1 MiB")] {
            assert_eq!(bytes(number), text);
        }
    }
}
