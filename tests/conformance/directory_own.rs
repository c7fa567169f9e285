//! What the example has beside the suite: a setting, which nothing but its crate names.

use dispatcher_tests::child::{ExitedProgram, Program};

fn program(arguments: &[&str]) -> Program {
    Program::of(env!("CARGO_BIN_EXE_dispatcher-with-directory"), arguments)
}

fn refused(program: Program, words: &[&str]) {
    let ExitedProgram { code, stderr, .. } = program.run();
    assert_eq!(code, 2, "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "no `{word}` in: {stderr}");
    }
}

/// Sends a message, and says whether it is in this folder.
fn sends_to(folder: &std::path::Path, set: impl FnOnce(Program, &str) -> Program) {
    let text = folder.to_string_lossy();
    let ended = set(program(&["send", "directory:orders", "hello"]), &text).run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let files = std::fs::read_dir(folder.join("orders")).expect("the queue is here");
    assert_eq!(files.count(), 1);
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn declared_setting_of_a_backend_is_a_flag_a_variable_and_a_key_of_the_file() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("queues");
    let flag = |_, folder: &str| {
        program(&[
            "send",
            "directory:orders",
            "hello",
            "--directory-folder",
            folder,
        ])
    };
    sends_to(&folder, flag);
    sends_to(&folder, |program, folder| {
        program.env("DISPATCHER_DIRECTORY_FOLDER", folder)
    });
    // Relative to the file's folder, not to that in which the program runs.
    let config = data.path().join("dispatcher.toml");
    std::fs::write(&config, "[backend.directory]\nfolder = 'queues'\n")
        .expect("the folder is ours");
    let config = config.to_string_lossy().into_owned();
    sends_to(&folder, |program, _| {
        program.env("DISPATCHER_CONFIG", &config)
    });
}

#[test]
fn misspelt_setting_of_a_backend_is_refused_with_the_nearest_name() {
    let file = |text: &str| {
        program(&["check", "--config", "dispatcher.toml"]).file("dispatcher.toml", text)
    };
    refused(
        file("[backend.directory]\nfoldr = 'x'\n"),
        &[
            "dispatcher.toml:2",
            "unknown key `foldr` in [backend.directory]",
            "did you mean `folder`?",
        ],
    );
    refused(
        file("[backend.directory]\nfolder = ''\n"),
        &["dispatcher.toml:2", "the path of a file or folder"],
    );
    refused(
        file("[backend.directry]\nfolder = 'x'\n"),
        &["dispatcher.toml:1", "did you mean `directory`?"],
    );
    refused(
        program(&["send", "directory:orders", "x", "--directory-foldr", "x"]),
        &["--directory-folder"],
    );
    refused(
        program(&["check"]).env("DISPATCHER_DIRECTORY_FOLDR", "x"),
        &["DISPATCHER_DIRECTORY_FOLDER"],
    );
}

#[test]
fn help_shows_the_flag_of_a_backend_where_it_applies() {
    let help = |command: &str| program(&[command, "--help"]).run().stdout;
    for command in ["run", "send", "queues"] {
        let help = help(command);
        assert!(
            help.contains("--directory-folder <FOLDER>"),
            "{command}: {help}"
        );
        assert!(
            help.contains("DISPATCHER_DIRECTORY_FOLDER"),
            "{command}: {help}"
        );
    }
    assert!(!help("completions").contains("--directory-folder"));
}
