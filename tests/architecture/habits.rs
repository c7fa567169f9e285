//! Habits of the product's code that a reader stumbles over, each with a ceiling that may only fall.
//! The counts are a symptom: who lowers one reads the sentence or the code again.

use crate::tree::{nothing_wrong, sources};

/// A habit, how to find it in a file, and how often the whole product may have it.
struct Habit {
    name: &'static str,
    count: fn(&str) -> usize,
    ceiling: usize,
}

const HABITS: [Habit; 8] = [
    Habit {
        name: "a doc comment that begins with `What`",
        count: |text| docs(text).filter(|doc| doc.starts_with("What ")).count(),
        ceiling: 8,
    },
    Habit {
        name: "a comment that speaks of nobody, somebody, whoever, whatever or wherever",
        count: actors,
        ceiling: 5,
    },
    Habit {
        name: "a doc comment that is a fragment",
        count: |text| docs(text).filter(|doc| is_fragment(doc)).count(),
        ceiling: 12,
    },
    Habit {
        name: "a doc comment that begins with `The same` or `So many`",
        count: |text| docs(text).filter(|doc| is_comparison(doc)).count(),
        ceiling: 1,
    },
    Habit {
        name: "a closure with a name",
        count: |text| text.lines().filter(|line| names_closure(line)).count(),
        ceiling: 51,
    },
    Habit {
        name: "`filter(|_| …)` as an `if`",
        count: |text| text.matches("filter(|_|").count(),
        ceiling: 0,
    },
    Habit {
        name: "a poisoned lock that is handled by hand",
        count: |text| text.matches("PoisonError::into_inner").count(),
        ceiling: 5,
    },
    Habit {
        name: "a value that is named twice in a row",
        count: renames,
        ceiling: 0,
    },
];

/// The texts of doc comments, line by line.
fn docs(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start);
    lines.filter_map(|line| line.strip_prefix("/// ").or(line.strip_prefix("//! ")))
}

fn actors(text: &str) -> usize {
    const ACTORS: [&str; 5] = ["nobody", "somebody", "whoever", "whatever", "wherever"];
    let comments = text.lines().filter_map(|line| line.split_once("//"));
    let speaks = comments.filter(|(_, comment)| {
        let mut words = comment.split(|c: char| !c.is_alphanumeric());
        words.any(|word| ACTORS.contains(&word))
    });
    speaks.count()
}

fn is_fragment(doc: &str) -> bool {
    const BEGINNINGS: [&str; 15] = [
        "Of", "From", "As", "Until", "If", "For", "In", "By", "To", "With", "So", "Those",
        "Nothing", "None", "Beside",
    ];
    doc.split_once(' ')
        .is_some_and(|(first, _)| BEGINNINGS.contains(&first))
}

fn is_comparison(doc: &str) -> bool {
    ["The same", "So many", "So much", "So often", "So long"]
        .iter()
        .any(|beginning| doc.starts_with(beginning))
}

fn names_closure(line: &str) -> bool {
    let Some(named) = line.trim_start().strip_prefix("let ") else {
        return false;
    };
    let Some((name, value)) = named.split_once(" = ") else {
        return false;
    };
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name && value.trim_start_matches("move ").starts_with('|')
}

/// How often `let x = …;` is followed by `let x = x…`.
fn renames(text: &str) -> usize {
    let lets = |statement: &str| {
        let named = statement.trim_start().strip_prefix("let ")?;
        let (name, value) = named.split_once(" = ")?;
        let name = name.trim_start_matches("mut ").split(':').next()?;
        Some((name.to_owned(), value.to_owned()))
    };
    let statements: Vec<_> = text.split(";\n").map(lets).collect();
    let pairs = statements.windows(2);
    let renamed = pairs.filter(|pair| match pair {
        [Some((first, _)), Some((second, value))] => {
            let rest = value.strip_prefix(second.as_str());
            first == second && rest.is_some_and(|rest| rest.starts_with(['.', '?', '\n']))
        }
        _ => false,
    });
    renamed.count()
}

#[test]
fn habits_stay_below_their_ceilings() {
    let is_product = |name: &str| {
        let others = ["/benches/", "/tests/", "/tests.rs", "fuzz"];
        !others.iter().any(|other| name.contains(other))
    };
    let files = sources("host").into_iter();
    let files: Vec<_> = files.filter(|(name, _)| is_product(name)).collect();
    let mut complaints = Vec::new();
    for habit in HABITS {
        let count: usize = files.iter().map(|(_, text)| (habit.count)(text)).sum();
        if count > habit.ceiling {
            let Habit { name, ceiling, .. } = habit;
            complaints.push(format!("{name}: {count} times; at most {ceiling}"));
        }
    }
    nothing_wrong(&complaints);
}

#[test]
fn each_habit_is_seen() {
    let text = "\
/// What is meant.
/// Of a queue.
/// The same, later.
// Whether somebody waits.
let mapped = |x| x;
let a = b();
let a = a.c();
let d = a.filter(|_| true).unwrap_or_else(PoisonError::into_inner);
";
    for habit in HABITS {
        assert_eq!((habit.count)(text), 1, "{}", habit.name);
    }
}

/// Words that end as participles do and are nouns.
const NOUNS: [&str; 6] = ["Feed", "Finding", "Reading", "Ring", "Setting", "String"];
/// Participles with another ending.
const IRREGULAR: [&str; 21] = [
    "Bound", "Done", "Drawn", "Found", "Given", "Heard", "Held", "Kept", "Known", "Left", "Lost",
    "Made", "Met", "Said", "Seen", "Sent", "Shown", "Taken", "Told", "Unsent", "Written",
];

/// Whether a name is a participle alone: `Asked` says of nothing that it was asked.
fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|c| c.is_ascii_lowercase());
    let ends = name.ends_with("ed") || name.ends_with("ing");
    is_one_word && (ends || IRREGULAR.contains(&name)) && !NOUNS.contains(&name)
}

#[test]
fn no_type_is_named_by_a_participle_alone() {
    let mut complaints = Vec::new();
    for (file, text) in ["host", "tests"].into_iter().flat_map(sources) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let mut pairs = words.windows(2);
            let types = ["struct", "enum", "trait", "type"];
            let Some(named) = pairs.find(|pair| types.contains(&pair[0])) else {
                continue;
            };
            let name = named[1].split(|c: char| !c.is_alphanumeric()).next();
            let name = name.unwrap_or_default();
            if is_participle(name) && !line.trim_start().starts_with("//") {
                complaints.push(format!("{file}: `{name}` does not say what it is"));
            }
        }
    }
    assert!(is_participle("Asked") && is_participle("Told") && !is_participle("Setting"));
    nothing_wrong(&complaints);
}
