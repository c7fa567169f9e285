//! Every block of code in a page is checked by what reads its language, so that a typing error is
//! found. The tests beside this one run the commands and read the configurations.

use super::{pages, read};
use crate::packaging::yaml_documents;
use std::io::Write;
use std::process::{Command, Stdio};

/// What no program reads: output, file lists, parts of a file, and Ruby, which tests do not need.
const NOT_CHECKED: [&str; 4] = ["", "text", "rust,ignore", "ruby"];
/// Checked by another test: `toml` as a configuration, `rust` as the architecture test parses it.
const ELSEWHERE: [&str; 2] = ["toml", "rust"];
/// Its handlers are built and run, whatever their language.
const EXAMPLE: &str = "host/docs/example.md";

struct Fence {
    at: String,
    language: String,
    text: String,
}

fn fences() -> Vec<Fence> {
    let mut documents = pages::pages();
    for name in ["README.md", "guest-sdk/README.md", "plugins/README.md"] {
        documents.push((name.to_owned(), read(name)));
    }
    let mut fences = Vec::new();
    for (name, document) in documents {
        let parts = document.split("```").enumerate();
        for (number, block) in parts.filter(|(number, _)| number % 2 == 1) {
            let (language, text) = block.split_once('\n').expect("a block has lines");
            fences.push(Fence {
                at: format!("{name}, block {}", number / 2 + 1),
                language: language.to_owned(),
                text: text.to_owned(),
            });
        }
    }
    fences
}

/// What a program that reads the text on its standard input has against it.
fn complaint(program: &str, arguments: &[&str], text: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped());
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} reads the pages' code: {error}"));
    let mut input = child.stdin.take().expect("it is piped");
    // One that ends early says why.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    let ended = child.wait_with_output().expect("it ends");
    let why = String::from_utf8_lossy(&ended.stderr).into_owned();
    (!ended.status.success()).then_some(why)
}

fn check(fence: &Fence) -> Option<String> {
    let text = &fence.text;
    match fence.language.as_str() {
        "sh" => complaint("bash", &["-n"], text),
        "json" => {
            let read = serde_json::from_str::<serde_json::Value>(text);
            read.err().map(|error| error.to_string())
        }
        "python" => {
            let parse = "import ast, sys; ast.parse(sys.stdin.read())";
            complaint("python3", &["-c", parse], text)
        }
        "js" | "javascript" => complaint("node", &["--check", "--input-type=module"], text),
        "c" => complaint("cc", &["-fsyntax-only", "-x", "c", "-"], text),
        "yaml" => {
            yaml_documents(text);
            None
        }
        other => Some(format!("nothing reads `{other}`")),
    }
}

#[test]
fn every_block_of_code_is_read_by_its_language() {
    let fences = fences();
    assert!(fences.len() > 150, "the blocks were not found");
    let checked = fences.iter().filter(|fence| {
        let language = fence.language.as_str();
        let is_built = fence.at.starts_with(EXAMPLE);
        !is_built && !NOT_CHECKED.contains(&language) && !ELSEWHERE.contains(&language)
    });
    let wrong = checked.filter_map(|fence| Some((&fence.at, check(fence)?)));
    assert_eq!(wrong.collect::<Vec<_>>(), []);
}

#[test]
fn a_typing_error_is_found_in_each_language() {
    for (language, text) in [
        ("sh", "for one in\n"),
        ("json", "{\"a\": }"),
        ("python", "def f(:\n"),
        ("js", "const = 1;"),
        ("c", "int main(void { return 0; }"),
        ("brainfuck", "+"),
    ] {
        let fence = Fence {
            at: "here".to_owned(),
            language: language.to_owned(),
            text: text.to_owned(),
        };
        assert!(check(&fence).is_some(), "{language}");
    }
}
