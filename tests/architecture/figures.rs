//! Figures on pages are those of the measurement that they name: after a line with
//! `<!-- measured: NAME; NAME -->` each number must be in one of these rows or sections of
//! `host/benches/README.md`, rounded as the page likes.

use crate::tree::{files, nothing_wrong, read, root};

const MEASURED: &str = "host/benches/README.md";
const MARK: &str = "<!-- measured:";

/// The numbers of a text, each with its count of decimals. Leaves out addresses, code and comments.
fn numbers(text: &str) -> Vec<(f64, i32)> {
    let mut plain = String::new();
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 0 {
            plain.push_str(part);
        }
    }
    for (open, close) in [("<!--", "-->"), ("](", ")")] {
        while let Some(start) = plain.find(open) {
            let end = plain[start..]
                .find(close)
                .map_or(plain.len(), |at| start + at + close.len());
            plain.replace_range(start..end, " ");
        }
    }
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let words = plain.split(|c| !is_part(c));
    words
        .filter_map(|word| {
            let word = word.trim_matches(['.', ',']).replace(',', "");
            let decimals = word
                .split_once('.')
                .map_or(0, |(_, decimals)| decimals.len());
            let number = word.parse().ok()?;
            Some((number, i32::try_from(decimals).ok()?))
        })
        .collect()
}

/// Whether a page may write `shown` for what was `measured`: the same to as many decimals, or of a
/// number of four digits and more to the first two.
fn agrees(measured: f64, (shown, decimals): (f64, i32)) -> bool {
    let mut unit = 10_f64.powi(-decimals);
    while shown >= 1_000.0 && decimals == 0 && shown / unit >= 100.0 {
        unit *= 10.0;
    }
    let is_round = (shown / unit).fract() == 0.0;
    measured == shown || is_round && (measured - shown).abs() <= unit / 2.0
}

/// The row whose first cell is `name`, or the section of this heading.
fn measurement<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let row = format!("| {name} |");
    if let Some(row) = page.lines().find(|line| line.starts_with(&row)) {
        return Some(row);
    }
    let title = format!("### {name}\n");
    let start = page.find(&title)? + title.len();
    let end = page[start..].find("\n## ").unwrap_or(page.len() - start);
    let end = page[start..].find("\n### ").unwrap_or(end).min(end);
    Some(&page[start..start + end])
}

/// Complains about each number of the line that none of its measurements has.
fn check(at: &str, line: &str, page: &str, complaints: &mut Vec<String>) {
    let names = line
        .split(MARK)
        .nth(1)
        .and_then(|rest| rest.split("-->").next());
    let mut measured = Vec::new();
    for name in names.unwrap_or_default().split(';').map(str::trim) {
        match measurement(page, name) {
            Some(text) => measured.extend(numbers(text)),
            None => complaints.push(format!("{at}: {MEASURED} has no row or section `{name}`")),
        }
    }
    for shown in numbers(line) {
        if !measured.iter().any(|(number, _)| agrees(*number, shown)) {
            complaints.push(format!("{at}: {} is not in what it names", shown.0));
        }
    }
}

#[test]
fn figures_of_pages_are_in_the_measurements_that_they_name() {
    let page = read(&root().join(MEASURED));
    let pages = files("host/docs", |name| name.ends_with(".md"));
    let readme = ("README.md".to_owned(), root().join("README.md"));
    let (mut complaints, mut marked) = (Vec::new(), 0);
    for (name, path) in pages.into_iter().chain([readme]) {
        for (number, line) in read(&path).lines().enumerate() {
            let at = format!("{name}:{}", number + 1);
            if line.contains(MARK) {
                marked += 1;
                check(&at, line, &page, &mut complaints);
            } else if line.contains("benches/README.md") && !numbers(line).is_empty() {
                complaints.push(format!("{at}: has figures; wanted {MARK} NAME -->"));
            }
        }
    }
    assert!(marked >= 15, "{marked} lines name their measurement");
    nothing_wrong(&complaints);
}

#[test]
fn other_figures_are_found() {
    let page = "| attempt | ≤ 18 µs | 17.3 µs; 78,300/s | met |\n### Pool\n\n2.6 µs\n";
    for (line, complaints) in [
        ("17 µs `9` [x](y2) <!-- measured: attempt -->", 0),
        ("17.2 µs <!-- measured: attempt -->", 1),
        ("78,000 and 2.6 <!-- measured: attempt; Pool -->", 0),
        ("79,000 <!-- measured: attempt -->", 1),
        ("1 <!-- measured: attempts -->", 2),
    ] {
        let mut found = Vec::new();
        check("page:1", line, page, &mut found);
        assert_eq!(found.len(), complaints, "{line}: {found:?}");
    }
}
