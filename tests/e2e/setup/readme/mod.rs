//! The documents as people use them: what README.md says to type is typed, what it says to save
//! is checked, and the tables name what exists. The pages of host/docs have their own file.

mod curl;
mod emulator;
mod fences;
mod pages;
mod threats;

use crate::scene::guest;
use dispatcher_tests::child::{ExitedProgram, Program};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How README.md calls the handler that its reader has built, and what stands in for it here.
const OWN_HANDLER: &str = "../my-handler/target/wasm32-wasip2/release/my_handler.wasm";
const STAND_IN: &str = "hello";

/// What the shell must be, before the first word of a command line, for it to be the program's.
const PROGRAM: [&str; 2] = ["dispatcher ", "cargo run -- "];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fenced blocks of a document that are written in this language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fences: Vec<&str> = document.split("```").collect();
    assert!(fences.len() % 2 == 1, "a fence is not closed");
    let inside = fences.iter().skip(1).step_by(2);
    inside
        .filter_map(|block| block.split_once('\n'))
        .filter(|(named, _)| *named == language)
        .map(|(_, text)| text.to_owned())
        .collect()
}

/// The words of a command line as a shell takes them; single quotes are all that README.md needs.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Every command line of a document that starts the program, as arguments.
fn commands_of(document: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for block in blocks(document, "sh") {
        for line in block.lines() {
            let arguments = PROGRAM.iter().find_map(|start| line.strip_prefix(start));
            commands.extend(arguments.map(words));
        }
    }
    commands
}

/// Those of README.md.
fn commands() -> Vec<Vec<String>> {
    let commands = commands_of(&read("README.md"));
    assert!(
        commands.len() >= 10,
        "the commands were not found: {commands:?}"
    );
    commands
}

/// With the files that README.md names where they are on this machine.
fn in_place(argument: &str) -> String {
    match argument {
        OWN_HANDLER => guest(STAND_IN),
        other => other.replace("plugins/prebuilt/", &guest("").replace(".wasm", "")),
    }
}

fn call(folder: &Arc<tempfile::TempDir>, arguments: &[String]) -> ExitedProgram {
    Program::new(arguments.iter().map(|argument| in_place(argument)))
        .sharing(folder)
        .run()
}

fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

#[test]
fn every_command_line_parses() {
    commands().into_iter().for_each(is_understood);
}

/// The command exists, and has every flag that is given to it.
fn is_understood(mut arguments: Vec<String>) {
    arguments.push("--help".into());
    let ended = call(&folder(), &arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
    let known = flags(&ended.stdout);
    for flag in arguments.iter().filter(|word| word.starts_with("--")) {
        assert!(known.contains(&**flag), "{arguments:?}: no {flag}");
    }
}

#[test]
fn without_arguments_the_first_steps_are_shown() {
    let ended = call(&folder(), &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for step in ["1. ", "2. ", "3. "] {
        assert!(ended.stdout.lines().any(|line| line.starts_with(step)));
    }
    let lines = ended.stdout.lines().map(str::trim_start);
    let commands: Vec<_> = lines
        .filter_map(|line| line.strip_prefix("dispatcher "))
        .filter(|line| !line.starts_with("takes ") && !line.starts_with("--help"))
        .map(words)
        .collect();
    assert_eq!(commands.len(), 5, "{commands:?}");
    commands.into_iter().for_each(is_understood);
}

/// What a command would do at AWS is not done: the settings that it gives are only read, which
/// finds every problem that needs no call.
fn settings_are_right(arguments: &[String], environment: &[(String, String)]) -> ExitedProgram {
    let options = arguments.iter().skip(1).filter(|word| *word != "--iam");
    let options = options.map(|argument| in_place(argument));
    let doctor = ["doctor", "--iam"].map(str::to_owned);
    let mut program = Program::new(doctor.into_iter().chain(options));
    for (name, value) in environment {
        program = program.env(name, value);
    }
    let ended = program.run();
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
    ended
}

/// The words of a help text that may be flags.
fn flags(help: &str) -> BTreeSet<&str> {
    help.split(|c: char| !(c.is_alphanumeric() || c == '-'))
        .collect()
}

#[test]
fn commands_work_in_the_order_of_the_text() {
    let folder = folder();
    std::fs::write(folder.path().join("dispatcher.toml"), example()).expect("written");
    let mut ran = BTreeSet::new();
    for mut arguments in commands() {
        if arguments
            .windows(2)
            .any(|pair| pair[0] == "--queues" && !pair[1].starts_with("local:"))
        {
            settings_are_right(&arguments, &[]);
            continue;
        }
        // Languages have separate tests, from nothing to a queue.
        let second = arguments.get(1).map_or("", |word| word);
        if ["new", "build"].contains(&second) {
            is_understood(arguments);
            continue;
        }
        // A run continues until it is stopped: what would begin it is checked instead.
        if arguments[0] == "run" {
            arguments[0] = "check".into();
        }
        let ended = call(&folder, &arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
        ran.insert(arguments[0].clone());
    }
    let wanted = ["check", "peek", "plugin", "queues", "send"];
    assert_eq!(ran.iter().collect::<Vec<_>>(), wanted);
}

#[test]
fn reminder_example_works_in_the_order_of_its_text() {
    let folder = folder();
    let commands = commands_of(&read("plugins/examples/reminder/README.md"));
    assert_eq!(commands.len(), 3, "{commands:?}");
    for mut arguments in commands {
        if arguments[0] == "run" {
            arguments[0] = "check".into();
        }
        let ended = call(&folder, &arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn keeper_example_commands_parse() {
    let commands = commands_of(&read("plugins/examples/keeper/README.md"));
    assert_eq!(commands.len(), 3, "{commands:?}");
    let folder = folder();
    for mut arguments in commands {
        if arguments[0] == "run" {
            arguments[0] = "check".into();
            let ended = call(&folder, &arguments);
            assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
        } else {
            is_understood(arguments);
        }
    }
}

/// The configuration file that its page shows, with the plugins where they are.
fn example() -> String {
    let examples = blocks(&read("host/docs/configuration.md"), "toml");
    let [example] = &examples[..] else {
        panic!("one configuration was expected, not {}", examples.len());
    };
    in_place(example)
}

#[test]
fn configuration_example_is_accepted_also_uncommented() {
    let folder = folder();
    let data = folder.path().join("elsewhere").display().to_string();
    let opened = example()
        .replace("# [backend.", "[backend.")
        .replace("# admin-", "admin-")
        .replace(
            "# data = \"/var/lib/dispatcher\"",
            &format!("data = \"{data}\""),
        )
        .replace("# endpoint-url", "endpoint-url")
        .replace("# url", "url")
        .replace("# prefix", "prefix")
        .replace("# format", "format")
        .replace("# worqr-prefix", "worqr-prefix");
    let closed = opened.lines().find(|line| line.starts_with('#'));
    assert_eq!(closed, None, "this line is not tried out");
    std::fs::write(folder.path().join("admin-token"), "secret").expect("written");
    for text in [example(), opened] {
        std::fs::write(folder.path().join("dispatcher.toml"), text).expect("written");
        let arguments = ["check", "--config", "dispatcher.toml"].map(str::to_owned);
        let ended = call(&folder, &arguments);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(
            ended.stderr.matches("ok: route").count(),
            2,
            "{}",
            ended.stderr
        );
    }
}

/// `cargo test` compiles the SDK's own example and does not see README.md's: they are the same.
#[test]
fn handler_example_is_the_one_the_sdk_tests() {
    let handlers = blocks(&read("README.md"), "rust");
    let sdk = read("guest-sdk/src/lib.rs");
    let documentation: String = sdk
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect();
    let shown: String = blocks(&documentation, "")[0]
        .lines()
        .filter(|line| !line.starts_with("# "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(handlers, [shown]);
}

/// Every word of the text in back quotes that begins as this does.
fn quoted(document: &str, start: &str) -> BTreeSet<String> {
    document
        .split('`')
        .filter(|word| word.starts_with(start) && !word.contains('\n'))
        .map(|word| word.split([' ', '=']).next().unwrap_or_default().to_owned())
        .collect()
}

/// What the program says about a command.
fn help(command: &[&str]) -> String {
    let words = command.iter().chain(&["--help"]);
    let words: Vec<String> = words.map(|&word| word.into()).collect();
    call(&folder(), &words).stdout
}

/// Every flag that a document names is one of some command. So many it names.
fn flags_exist(name: &str, document: &str) -> usize {
    let all: String = [
        &["run"][..],
        &["send"],
        &["queues"],
        &["limit"],
        &["peek"],
        &["redrive"],
        &["move"],
        &["purge"],
        &["local"],
        &["check"],
        &["doctor"],
        &["dev"],
        &["schedule", "add"],
        &["schedule", "list"],
        &["postgres", "init"],
        &["plugin", "new"],
        &["plugin", "build"],
        &["plugin", "check"],
        &["plugin", "invoke"],
        &["plugin", "replay"],
    ]
    .map(help)
    .concat();
    let known = flags(&all);
    let named = quoted(document, "--");
    let found = named.len();
    for flag in named {
        assert!(
            known.contains(&*flag),
            "{name} names {flag}, which no command has"
        );
    }
    found
}

#[test]
fn every_exit_code_is_on_its_page() {
    let page = read("host/docs/operate.md");
    let summary = help(&[]);
    let (_, codes) = summary
        .split_once("Exit codes:\n")
        .expect("help tells exit codes");
    for line in codes.lines() {
        let (code, meaning) = line.trim().split_once(' ').expect("a code and its meaning");
        let row = format!("| {code} | {} |", meaning.trim());
        assert!(page.contains(&row), "operate.md lacks the row {row}");
    }
}

fn sources(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *found += &std::fs::read_to_string(&path).expect("a readable file");
        }
    }
}

#[test]
fn table_of_lessons_names_existing_tests_and_every_lesson() {
    let mut code = String::new();
    for folder in ["host", "tests/e2e", "tests/conformance", "tests/simulation"] {
        sources(&root().join(folder), &mut code);
    }
    let table = read("tests/README.md");
    let tests: BTreeSet<String> = code
        .split("fn ")
        .filter(|rest| rest.starts_with("lesson_"))
        .filter_map(|rest| rest.split('(').next().map(str::to_owned))
        .filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        .collect();
    assert!(tests.len() >= 10, "the lessons were not found: {tests:?}");
    for name in quoted(&table, "lesson_")
        .iter()
        .filter(|name| name.len() > "lesson_00".len())
    {
        assert!(
            tests.contains(name),
            "tests/README.md names {name}, which does not exist"
        );
    }
    for name in &tests {
        let number = &name["lesson_".len().."lesson_00".len()];
        let row = format!("| {number} |");
        assert!(
            table.contains(&row),
            "tests/README.md has no row for {name}"
        );
    }
}
