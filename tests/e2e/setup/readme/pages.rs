//! The pages of host/docs say what the program does: their commands and configurations have no
//! problem, their flags and variables exist, and what they show is what the program and its
//! sources have. Nothing here speaks to AWS.

use super::{
    blocks, call, commands_of, flags_exist, folder, help, is_understood, quoted, read, root,
};
use super::{settings_are_right, words};
use dispatcher_core::telemetry::metrics::queue::QUEUE_METRICS;

/// Each page by its path, with its text.
pub(super) fn pages() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(root().join("host/docs")).expect("a readable folder");
    let names = folder.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| format!("host/docs/{}", name.to_string_lossy()));
    let pages: Vec<_> = names
        .filter(|name| name.ends_with(".md"))
        .map(|name| (name.clone(), read(&name)))
        .collect();
    assert!(pages.len() >= 2, "the pages were not found");
    pages
}

const CLASSIC: &str = "host/docs/classic-mode.md";

#[test]
fn every_command_of_a_page_parses_with_valid_settings() {
    let mut tried = 0;
    for (_, page) in pages() {
        commands_of(&page).into_iter().for_each(is_understood);
        for block in blocks(&page, "sh") {
            let environment = exported(&block);
            let data = folder();
            for arguments in commands_of(&format!("```sh\n{block}```")) {
                // What needs no account is done, in the order of the text.
                if arguments[0] == "schedule" {
                    let ended = call(&data, &arguments);
                    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
                    continue;
                }
                // The others have no settings that could be wrong by themselves.
                if !["run", "doctor"].contains(&&*arguments[0]) {
                    continue;
                }
                settings_are_right(&arguments, &environment);
                tried += 1;
            }
        }
    }
    assert!(tried >= 5, "the commands were not found");
}

/// How a terminal shows that the program is called.
const SHOWN: [&str; 3] = ["dispatcher ", "$ dispatcher ", "sudo dispatcher "];

/// The command lines of blocks that show a terminal, up to what the shell does with their output.
fn shown_commands(page: &str) -> Vec<Vec<String>> {
    let terminals = ["text", ""].iter().flat_map(|name| blocks(page, name));
    let text = terminals
        .collect::<Vec<_>>()
        .join("\n")
        .replace("\\\n", " ");
    let called = text
        .lines()
        .filter_map(|line| SHOWN.iter().find_map(|start| line.strip_prefix(start)));
    let ends = |word: &String| ["|", ">", "&", "#", "&&"].contains(&word.as_str());
    let commands = called.map(|line| {
        let words = words(line).into_iter();
        words.take_while(|word| !ends(word)).collect::<Vec<_>>()
    });
    // Its version is output.
    commands
        .filter(|command| !command[0].starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

#[test]
fn every_command_beside_its_output_parses_and_has_the_token_that_it_needs() {
    let acts = ["pause", "resume", "limit", "cancel"];
    let mut tried = 0;
    for (name, page) in pages() {
        let shown = shown_commands(&page);
        for command in shown.iter().chain(&commands_of(&page)) {
            let has = |flag: &str| command.iter().any(|word| word == flag);
            let needs_token = acts.contains(&&*command[0]) && has("--admin");
            assert!(
                !needs_token || has("--admin-token-file"),
                "{name}: {command:?}"
            );
        }
        tried += shown.len();
        shown.into_iter().for_each(is_understood);
    }
    assert!(tried >= 25, "the commands were not found: {tried}");
}

#[test]
fn every_command_of_an_example_parses() {
    let folders = std::fs::read_dir(root().join("host/docs/examples")).expect("a readable folder");
    let mut tried = 0;
    for folder in folders {
        let page = folder.expect("an entry").path().join("README.md");
        let Ok(page) = std::fs::read_to_string(page) else {
            continue;
        };
        for command in commands_of(&page) {
            is_understood(command);
            tried += 1;
        }
    }
    assert!(tried >= 2, "the commands were not found");
}

/// The variables that a block of commands sets first.
fn exported(block: &str) -> Vec<(String, String)> {
    let lines = block
        .lines()
        .filter_map(|line| line.strip_prefix("export "));
    let pairs = lines.flat_map(words);
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').expect("a name and a value");
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

#[test]
fn every_configuration_of_a_page_is_accepted() {
    let mut tried = 0;
    for (_, page) in pages() {
        for text in blocks(&page, "toml") {
            let folder = folder();
            let file = folder.path().join("dispatcher.toml");
            std::fs::write(&file, text).expect("written");
            let file = file.display().to_string();
            settings_are_right(&["run".into(), "--config".into(), file], &[]);
            tried += 1;
        }
    }
    assert!(tried >= 2, "the configurations were not found");
}

#[test]
fn every_flag_and_variable_of_a_page_exists_in_the_program() {
    let run = help(&["run"]);
    let local = help(&["local"]);
    let granted = read("host/wasm/src/capability/variables/environment.rs");
    let (mut flags, mut variables) = (0, 0);
    for (name, page) in pages() {
        flags += flags_exist(&name, &page);
        for variable in quoted(&page, "WORKERLESS_") {
            // The help says the common beginning once.
            let end = &variable["WORKERLESS".len()..];
            assert!(run.contains(end), "{name} names {variable}");
            variables += 1;
        }
        for variable in quoted(&page, "DISPATCHER_") {
            // What a program is given is not one of our settings.
            let is_given = granted.contains(&format!("\"{variable}"));
            let is_known = run.contains(&variable) || local.contains(&variable) || is_given;
            assert!(is_known, "{name} names {variable}");
        }
    }
    assert!(flags >= 100, "the flags were not found");
    assert!(variables >= 7, "the variables were not found");
}

/// The only block of a page in this language that begins so.
fn shown(page: &str, start: &str) -> String {
    let all = blocks(page, "json");
    let mut found = all.into_iter().filter(|block| block.starts_with(start));
    let first = found.next().unwrap_or_else(|| panic!("no {start}"));
    assert_eq!(found.next(), None);
    first
}

#[test]
fn printed_policy_matches_the_page() {
    let page = read(CLASSIC);
    let mut commands = commands_of(&page);
    commands.retain(|arguments| arguments.iter().any(|word| word == "--iam"));
    let [command] = &commands[..] else {
        panic!("one command prints the policy: {commands:?}");
    };
    let printed = settings_are_right(command, &[]).stdout;
    assert_eq!(shown(&page, "{\n  \"Version\""), printed);
}

#[test]
fn example_event_is_one_that_the_forwarder_tests() {
    let golden = read("plugins/lambda-forward/golden/fifo.json");
    let event = shown(&read(CLASSIC), "{\"Records\"");
    assert_eq!(event.trim_end(), golden.trim_end());
}

#[test]
fn metrics_of_the_page_match_the_source() {
    let page = read(CLASSIC);
    let published = QUEUE_METRICS
        .iter()
        .filter_map(|metric| Some((metric.cloudwatch?, metric.cloudwatch_unit().name())));
    let mut count = 0;
    for (name, unit) in published {
        let row = format!("| `{name}` | {unit} | ");
        assert!(page.contains(&row), "no row {row}");
        count += 1;
    }
    assert!(count >= 7, "the metrics were not found");
}

/// How the page calls what the source calls so.
const PROOFS: [(&str, &str); 4] = [
    ("DidNotRun", "| **it did not run** |"),
    ("MayHaveRun", "| **it may have run** |"),
    ("Refused", "| **it refuses the event** |"),
    ("Permanent", "| **permanent** |"),
];

#[test]
fn every_lambda_error_is_in_the_row_of_its_class() {
    let source = read("host/aws/src/lambda/sort.rs");
    let (_, table) = source.split_once("const CODES").expect("the table");
    let (table, _) = table.split_once("];").expect("its end");
    let page = read(CLASSIC);
    let mut known = Vec::new();
    for line in table.lines() {
        let entry = line.trim().strip_prefix("(\"").and_then(|rest| {
            let (code, kind) = rest.split_once("\", ")?;
            Some((code, kind.trim_end_matches("),")))
        });
        let Some((code, kind)) = entry else { continue };
        let (_, start) = PROOFS.iter().find(|(name, _)| *name == kind).expect(kind);
        let row = page.lines().find(|line| line.starts_with(start));
        let row = row.unwrap_or_else(|| panic!("no row {start}"));
        // Other services' words for a throttle are summed up.
        let throttle = code.contains("Throttl") && !code.starts_with("EC2");
        let limit = code == "RequestLimitExceeded";
        let stands = row.contains(&format!("`{code}`")) || throttle || limit;
        assert!(stands, "{code} does not stand in {start}");
        known.push(code.to_owned());
    }
    assert!(known.len() >= 40, "the errors were not found");
    let named = page.split('`').filter(|word| word.ends_with("Exception"));
    for code in named {
        assert!(known.iter().any(|one| one == code), "{code} is not known");
    }
}
