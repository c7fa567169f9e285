//! The manual pages, which packages contain.

use dispatcher_tests::child::Program;
use dispatcher_tests::packaging::{checker, output_of};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Without the bold and underlined letters, which are struck twice.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for letter in text.chars() {
        if letter == '\u{8}' {
            plain.pop();
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[test]
fn manual_pages_are_well_formed_and_everybody_may_read_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("share/man1");
    let ended = Program::new(["man", pages.to_str().expect("UTF-8")]).run();
    assert_eq!(ended.code, 0, "{ended:?}");
    let pages: Vec<_> = fs::read_dir(&pages)
        .expect("the pages")
        .map(|page| page.expect("an entry").path())
        .collect();
    assert!(pages.len() >= 30, "{pages:?}");
    assert!(ended.stdout.starts_with(&pages.len().to_string()));
    for page in &pages {
        let mode = fs::metadata(page).expect("a file").permissions().mode();
        assert_eq!(mode & 0o044, 0o044, "{}", page.display());
    }
    output_of(
        checker("mandoc")
            .args(["-T", "lint", "-W", "error"])
            .args(&pages),
    );
    let run = folder.path().join("share/man1/dispatcher-run.1");
    let text = output_of(checker("mandoc").args(["-T", "ascii"]).arg(run));
    let text = plain(&text);
    assert!(text.contains("Dispatcher Manual"), "{text}");
    assert!(text.contains("DISPATCHER_POLL_FOR"), "{text}");
}
