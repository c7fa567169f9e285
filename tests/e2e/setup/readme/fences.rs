//! Every block of code in a page is checked by what reads its language, so that a typing error is
//! found. The tests beside this one run the commands and read the configurations.

use super::{pages, read, root, sources};
use crate::setup::packaging::yaml_documents;
use std::io::Write;
use std::process::{Command, Stdio};

/// What no program reads: output, file lists, parts of a file, and Ruby, which tests do not need.
const NOT_CHECKED: [&str; 4] = ["", "text", "rust,ignore", "ruby"];
/// Checked by another test: `toml` as a configuration, `rust` as the architecture test parses it.
const ELSEWHERE: [&str; 2] = ["toml", "rust"];
/// Its handlers are built and run, whatever their language.
const EXAMPLE: &str = "host/docs/example.md";
/// Its handlers are built with files that their tools generate.
const GENERATED: &str = "host/docs/any-language.md";
/// The languages of code that is run, and not only read.
const CODE: [&str; 11] = [
    "js",
    "javascript",
    "typescript",
    "python",
    "rust",
    "rust,ignore",
    "go",
    "c",
    "ruby",
    "wit",
    "java",
];
/// Words that tell a page's code from its other code, and the test that runs it to what the page says.
/// Without a test it is a program of others, which the page replaces.
const RUN: [(&str, &str, &str); 35] = [
    ("host/docs/adding-a-backend.md", "main_with", "main"),
    (
        "host/docs/classic-mode.md",
        "create_function",
        "classic_mode_works_on_the_emulator_as_its_page_says",
    ),
    (
        "host/docs/enqueue.md",
        "urllib.request",
        "python_of_the_page_enqueues",
    ),
    (
        "host/docs/enqueue.md",
        "encodeURIComponent",
        "javascript_of_the_page_enqueues",
    ),
    (
        "host/docs/enqueue.md",
        "net/http",
        "ruby_of_the_page_enqueues",
    ),
    (
        "host/docs/languages.md",
        "AbortSignal.timeout",
        "javascript_of_the_page_calls_its_api_once",
    ),
    (
        "host/docs/languages.md",
        "safeParse",
        "schema_of_the_page_is_prepared_in_the_build_and_rejects_malformed_orders",
    ),
    ("host/docs/languages.md", "http.post", PYTHON_OF_THE_PAGES),
    ("host/docs/languages.md", "fake_host", PYTHON_OF_THE_PAGES),
    (
        "host/docs/local-sqs.md",
        "create_queue",
        SCRIPTS_OF_THE_PAGE,
    ),
    ("host/docs/local-sqs.md", "def advance", SCRIPTS_OF_THE_PAGE),
    ("host/docs/moving-libraries.md", "Consumer.create", ""),
    (
        "host/docs/moving-libraries.md",
        "createServer(",
        "service_that_replaces_a_worker_of_sqs_consumer_works_as_its_page_says",
    ),
    ("host/docs/moving-libraries.md", "new Worker", ""),
    (
        "host/docs/moving-libraries.md",
        "InvoiceWorker.new",
        "service_that_replaces_a_worker_of_sidekiq_works_as_its_page_says",
    ),
    ("host/docs/moving-libraries.md", "Celery(", ""),
    (
        "host/docs/moving-libraries.md",
        "FastAPI()",
        "service_that_replaces_a_worker_of_celery_works_as_its_page_says",
    ),
    (
        "host/docs/postgres.md",
        "def place_order",
        "python_of_the_page_sends_in_its_transaction",
    ),
    (
        "host/docs/postgres.md",
        "function placeOrder",
        "javascript_of_the_page_sends_in_its_transaction",
    ),
    (
        "host/docs/postgres.md",
        "fn place_order",
        "rust_of_the_page_sends_in_its_transaction",
    ),
    (
        "host/docs/testing.md",
        "def test_order",
        "test_of_the_page_passes_with_the_recipe_for_pytest",
    ),
    (
        "host/docs/tutorial.md",
        "nobody to greet",
        RUST_OF_THE_PAGES,
    ),
    ("host/docs/tutorial.md", "stranger", RUST_OF_THE_PAGES),
    (
        "host/docs/ways-in.md",
        "stdin",
        "command_in_c_of_the_page_exits_as_it_says",
    ),
    ("README.md", "nobody to greet", RUST_OF_THE_PAGES),
    ("guest-sdk/README.md", "Json<Order>", RUST_OF_THE_PAGES),
    ("guest-sdk/README.md", "#[plugin]", RUST_OF_THE_PAGES),
    (
        "guest-sdk/README.md",
        "an_unknown_customer",
        "test_in_rust_of_the_page_passes",
    ),
    (
        "guest-sdk/python/README.md",
        "nothing was ordered",
        PYTHON_OF_THE_PAGES,
    ),
    ("plugins/README.md", "fn hello", RUST_OF_THE_PAGES),
    (
        GENERATED,
        "wit_bindgen::generate!",
        "rust_with_wit_bindgen_handles_messages",
    ),
    (
        GENERATED,
        "plain_handler.h",
        "c_with_wit_bindgen_handles_messages",
    ),
    (
        GENERATED,
        "package export_dispatcher",
        "go_with_wit_bindgen_handles_messages",
    ),
    (
        GENERATED,
        "componentize_py_types",
        "python_by_componentize_py_handles_messages",
    ),
    (
        GENERATED,
        "export const handler",
        "javascript_by_componentize_js_handles_messages",
    ),
];
const PYTHON_OF_THE_PAGES: &str = "python_of_the_pages_calls_its_api_once_and_passes_its_test";
const RUST_OF_THE_PAGES: &str = "rust_of_the_pages_does_what_they_say";
const SCRIPTS_OF_THE_PAGE: &str =
    "scripts_of_the_page_receive_what_they_send_and_again_a_minute_later";

struct Fence {
    at: String,
    language: String,
    text: String,
}

fn fences() -> Vec<Fence> {
    let mut documents = pages::pages();
    for name in [
        "README.md",
        "guest-sdk/README.md",
        "guest-sdk/python/README.md",
        "plugins/README.md",
    ] {
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
        let is_built =
            fence.at.starts_with(EXAMPLE) || fence.at.starts_with(GENERATED) && language != "sh";
        !is_built && !NOT_CHECKED.contains(&language) && !ELSEWHERE.contains(&language)
    });
    let wrong = checked.filter_map(|fence| Some((&fence.at, check(fence)?)));
    assert_eq!(wrong.collect::<Vec<_>>(), []);
}

#[test]
fn every_block_of_code_is_run_to_what_its_page_says() {
    let mut tests = String::new();
    for folder in ["tests/e2e", "tests/directory"] {
        sources(&root().join(folder), &mut tests);
    }
    let fences = fences();
    let code = fences
        .iter()
        .filter(|fence| CODE.contains(&fence.language.as_str()) && !fence.at.starts_with(EXAMPLE));
    let mut run = 0;
    for fence in code {
        let rows = RUN.iter().filter(|(page, words, _)| {
            fence.at.starts_with(&format!("{page},")) && fence.text.contains(words)
        });
        let rows: Vec<_> = rows.collect();
        let [(.., test)] = &rows[..] else {
            panic!(
                "{}: wanted one row that says which test runs it: {rows:?}",
                fence.at
            );
        };
        let is_test = test.is_empty() || tests.contains(&format!("fn {test}("));
        assert!(is_test, "{}: no test {test}", fence.at);
        run += 1;
    }
    assert_eq!(run, RUN.len(), "each row has its block");
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
