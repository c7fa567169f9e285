//! `dispatcher man`: writes manual pages, one for each command, from the text of `--help`.

use super::output;
use crate::error::{Exit, Failure};
use clap_mangen::Man;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  dispatcher man ~/.local/share/man/man1   then: man dispatcher-run
  dispatcher man .                         and read one: man ./dispatcher-run.1";

/// Write the manual pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The folder for the pages; it is created if it is missing
    pub folder: PathBuf,
}

/// Writes all pages and prints how many there are.
pub(super) fn run(args: &Args, program: clap::Command) -> Result<(), Failure> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let pages = pages(program);
    for (name, text) in &pages {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(|error| failed(&file, &error))?;
    }
    output::line(format!("{} pages in {}", pages.len(), folder.display()))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
}

/// Returns every page with the name of its file.
fn pages(program: clap::Command) -> Vec<(String, String)> {
    let version = program.get_version().unwrap_or_default().to_owned();
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut commands = vec![program];
    let mut at = 0;
    while at < commands.len() {
        let inner: Vec<_> = commands[at].get_subcommands().cloned().collect();
        commands.extend(inner);
        at += 1;
    }
    commands
        .into_iter()
        .map(|command| page(command, &version))
        .collect()
}

fn page(command: clap::Command, version: &str) -> (String, String) {
    let has_commands = command.has_subcommands();
    let see = related(&command);
    let after = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command);
    let name = man.get_filename();
    let title = name.trim_end_matches(".1").to_uppercase();
    // Has no date: the version says which program it describes.
    let heading = format!(".TH {title} 1 \"\" \"dispatcher {version}\" \"Dispatcher Manual\"\n");
    let mut text = heading.into_bytes();
    let rendered = (|| {
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        if has_commands {
            man.render_subcommands_section(&mut text)?;
        }
        text.write_all(
            after
                .as_deref()
                .map(verbatim)
                .unwrap_or_default()
                .as_bytes(),
        )?;
        text.write_all(see.as_bytes())
    })();
    rendered.expect("memory can be written to");
    (name, String::from_utf8_lossy(&text).into_owned())
}

/// Formats the examples and notes at the end of the help text, unchanged and line by line.
fn verbatim(text: &str) -> String {
    let (heading, lines) = match text.strip_prefix("Examples:\n") {
        Some(lines) => ("EXAMPLES", lines),
        None => ("NOTES", text),
    };
    let lines: String = lines.lines().map(|line| escaped(line) + "\n").collect();
    format!(".SH {heading}\n.nf\n{lines}.fi\n")
}

/// Escapes a line of text for roff.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

/// Refers to the page of the parent command.
fn related(command: &clap::Command) -> String {
    let name = command.get_display_name().unwrap_or_default();
    let above = name.rsplit_once('-').map(|(above, _)| above.to_owned());
    above.map_or_else(String::new, |above| {
        format!(".SH SEE ALSO\n.BR {} (1)\n", escaped(&above))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::program;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let pages = pages(program());
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for wanted in [
            "dispatcher.1",
            "dispatcher-run.1",
            "dispatcher-plugin-new.1",
        ] {
            assert!(names.contains(&wanted), "{wanted}: {names:?}");
        }
        for (name, text) in &pages {
            assert!(text.contains(".SH EXAMPLES\n"), "{name}");
            assert!(text.contains("Dispatcher Manual"), "{name}: {text}");
        }
    }

    #[test]
    fn page_of_a_command_names_its_variables_and_the_page_above() {
        let pages = pages(program());
        let run = pages.iter().find(|(name, _)| name == "dispatcher-run.1");
        let (_, run) = run.expect("the page of run");
        assert!(run.contains("DISPATCHER_POLL_FOR"), "{run}");
        assert!(run.ends_with(".SH SEE ALSO\n.BR dispatcher (1)\n"), "{run}");
    }

    #[test]
    fn lines_that_look_like_requests_are_escaped() {
        assert_eq!(escaped(".SH x"), "\\&.SH x");
        assert_eq!(escaped("  --a \\"), "  \\-\\-a \\e");
    }
}
