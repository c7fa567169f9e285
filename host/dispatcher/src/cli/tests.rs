//! The command line as a whole: every command has its help and examples, every setting its variable,
//! and all unknown flags are told at once.

use super::*;
use dispatcher_config::declared;
use dispatcher_config::declared::variable;

fn commands() -> Vec<clap::Command> {
    let mut all = vec![program()];
    let mut at = 0;
    while at < all.len() {
        let inner: Vec<_> = all[at].get_subcommands().cloned().collect();
        all.extend(inner);
        at += 1;
    }
    all
}

fn typed(line: &str) -> Result<Option<(Cli, LooseArguments)>, Failure> {
    let parsed = parse(line.split(' ').map(OsString::from).collect())?;
    match parsed {
        ParsedCommand::Command(cli, typed) => Ok(Some((*cli, typed))),
        ParsedCommand::Help | ParsedCommand::Operation(..) => Ok(None),
    }
}

#[test]
fn command_definition_is_consistent() {
    program().debug_assert();
}

#[test]
fn every_command_has_help_with_examples() {
    let names: Vec<_> = commands()
        .iter()
        .map(|command| command.get_name().to_owned())
        .collect();
    assert_eq!(names.len(), 37, "{names:?}");
    for mut command in commands() {
        let help = command.render_long_help().to_string();
        assert!(help.contains("Examples:"), "{}", command.get_name());
        assert!(command.get_about().is_some(), "{}", command.get_name());
    }
}

/// A command that a terminal of the usual width wraps cannot be copied.
#[test]
fn examples_of_the_help_fit_a_terminal_of_80_columns() {
    for mut command in commands() {
        let help = command.render_long_help().to_string();
        let (_, examples) = help.split_once("Examples:").expect("as above");
        for line in examples.lines().filter(|line| line.starts_with("  ")) {
            assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
        }
    }
}

#[test]
fn exit_codes_are_documented() {
    let help = program().render_help().to_string();
    for code in [0, 1, 2, 3, 130, 143] {
        assert!(help.contains(&format!("\n  {code:<4} ")), "{code}");
    }
}

#[test]
fn finding_25_settings_have_variables_and_command_arguments_have_none() {
    for command in commands() {
        for arg in command.get_arguments() {
            let name = format!("{} {}", command.get_name(), arg.get_id());
            assert!(arg.get_help().is_some(), "{name}");
            let Some(long) = arg.get_long() else { continue };
            // What an operation is asked for may be called like a setting, and is none.
            if arg.get_id().as_str() == format!("asked-{long}") {
                assert_eq!(arg.get_env(), None, "{name}");
                continue;
            }
            let found = arg.get_env().map(|env| env.to_string_lossy().into_owned());
            assert_eq!(found.as_deref(), variable(long), "{name}");
            assert_eq!(long, arg.get_id().as_str().replace('_', "-"), "{name}");
        }
    }
}

#[test]
fn every_setting_with_a_flag_is_a_flag_of_some_command() {
    let commands = commands();
    let listed = |flag: &str| {
        let mut all = commands.iter().flat_map(clap::Command::get_arguments);
        all.any(|arg| arg.get_long() == Some(flag))
    };
    for flag in declared::all().filter_map(declared::Setting::flag_name) {
        assert!(listed(flag), "no command shows --{flag}");
    }
}

#[test]
fn finding_25_command_lists_no_location_it_does_not_use() {
    let listed = |name: &str| -> Vec<String> {
        let found = commands().into_iter().find(|one| one.get_name() == name);
        let command = found.expect("a command");
        let flags = command.get_arguments().filter_map(|arg| arg.get_long());
        flags.map(str::to_owned).collect()
    };
    for (command, used, unused) in [
        (
            "local",
            "data",
            &["redis-url", "redis-format", "endpoint-url"][..],
        ),
        (
            "backup",
            "data",
            &["redis-url", "redis-format", "endpoint-url"],
        ),
        (
            "workers",
            "redis-url",
            &["data", "redis-format", "endpoint-url"],
        ),
        (
            "init",
            "endpoint-url",
            &["data", "redis-url", "redis-format"],
        ),
    ] {
        let listed = listed(command);
        assert!(listed.iter().any(|flag| flag == used), "{command} {used}");
        for flag in unused {
            assert!(!listed.iter().any(|one| one == flag), "{command} --{flag}");
        }
    }
}

#[test]
fn all_unknown_flags_are_reported_and_the_rest_is_parsed() {
    let line = "dispatcher run --concurency 5 --plugin p.wasm --quues=a --queues a:0 stray";
    let (_, typed) = typed(line).expect("read").expect("no help");
    let lines: Vec<_> = typed.unknown.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "--concurency: unknown flag; did you mean `--concurrency`?",
            "--quues: unknown flag; did you mean `--queues`?",
            "stray: not a flag; see --help",
        ]
    );
    let flags = flags::settings(&typed.matches);
    assert_eq!(
        flags.plugin.one("file").map(|given| given.text.as_str()),
        Some("p.wasm")
    );
    assert_eq!(
        flags.route.one("queues").map(|given| given.at.as_str()),
        Some("--queues")
    );
}

#[test]
fn bad_usage_is_exit_code_2() {
    for line in [
        "dispatcher",
        "dispatcher rum",
        "dispatcher run --plugin",
        "dispatcher send",
        "dispatcher send q body --cout 3",
        "dispatcher send q body --count 0",
        "dispatcher send q body --file f",
        "dispatcher peek q -n 0",
        "dispatcher completions cmd",
        "dispatcher run --plugin a --plugin b",
    ] {
        let failure = typed(line).map(|_| ()).expect_err(line);
        assert_eq!(failure.exit, Exit::Usage, "{line}");
    }
    assert!(typed("dispatcher run --help").is_ok_and(|typed| typed.is_none()));
}

#[test]
fn negative_numbers_are_values() {
    let (_, typed) = typed("dispatcher run --poll-for -1")
        .expect("read")
        .expect("no help");
    assert!(typed.unknown.is_empty());
}

#[test]
fn switch_accepts_false_and_limits_may_be_repeated() {
    let line = "dispatcher run --partial-failures --function f --concurrency 50 \
                --concurrency payments=5 --rate payments=1/s,a=2/s --queues payments,a";
    let (_, read) = typed(line).expect("read").expect("no help");
    let flags = flags::settings(&read.matches);
    let switch = |flags: &dispatcher_config::flags::Flags| {
        let given = flags.plugin.one("partial-failures");
        given.map(|given| given.text.clone())
    };
    assert_eq!(switch(&flags).as_deref(), Some("true"));
    let (settings, problems) = dispatcher_config::settings(&flags);
    assert_eq!(problems, []);
    let route = &settings.routes[0];
    assert_eq!(
        (route.settings.concurrency, route.queues[0].concurrency),
        (50, Some(5))
    );
    assert_eq!(route.queues[1].rate, Some(2.0));
    let (_, read) = typed("dispatcher check --partial-failures=false")
        .expect("read")
        .expect("no help");
    assert_eq!(
        switch(&flags::settings(&read.matches)).as_deref(),
        Some("false")
    );
}

/// The page of all commands: what `--help` prints for each.
fn commands_page() -> String {
    let mut page = "\
<!-- Generated from the command line: UPDATE=1 cargo test commands_page -->

# Commands

What `dispatcher COMMAND --help` prints. [Settings](settings.md) explains the options that are also
keys of the configuration file.
"
    .to_owned();
    let mut root = program().term_width(100);
    root.build();
    let mut stack = vec![(root, "dispatcher".to_owned())];
    while let Some((mut command, name)) = stack.pop() {
        let help = command.render_long_help().to_string();
        let text: String = help
            .lines()
            .flat_map(|line| [line.trim_end(), "\n"])
            .collect();
        page += &format!("\n## {name}\n\n```text\n{}\n```\n", text.trim());
        let inner: Vec<_> = command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help" && !inner.is_hide_set())
            .map(|inner| (inner.clone(), format!("{name} {}", inner.get_name())))
            .collect();
        stack.extend(inner.into_iter().rev());
    }
    page
}

#[test]
fn commands_page_matches_the_command_line() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
    let page = commands_page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "host/docs/commands.md is not what the commands print: write it again with \
         `UPDATE=1 cargo test commands_page`"
    );
}
