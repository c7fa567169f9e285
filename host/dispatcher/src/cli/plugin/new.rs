//! `dispatcher plugin new`: creates a project in one of the languages.

use super::language::Language;
use super::template;
use super::template::SAMPLE;
use crate::cli::output;
use crate::error::{Exit, Failure};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin new --lang rust orders
  dispatcher plugin new --lang python ~/work/resize

Creates the folder with a small handler that checks orders, and a README with the next steps. The
folder's name becomes the project's: lower-case letters, digits, - and _, a letter first.";

/// Create a plugin project in one of the languages
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The folder to create; it must not exist, or be empty
    #[arg(value_name = "NAME")]
    pub folder: PathBuf,
    /// The language
    #[arg(long, value_enum)]
    pub lang: Language,
}

/// Writes the project, and prints its folder and the next steps.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (folder, lang) = (&args.folder, args.lang);
    let name = name(folder).map_err(|why| Failure::new(Exit::Usage, why))?;
    is_free(folder)?;
    for (path, bytes) in template::project(lang, &name) {
        write(&folder.join(path), &bytes)?;
    }
    output::line(folder.display().to_string())?;
    let component = lang.component(folder, &name);
    let (folder, component) = (folder.display(), component.display());
    output::note(format!("{name}: a handler in {}; next:", lang.title()));
    let mut steps = vec![
        (
            format!("dev {folder}"),
            "build it, run it, and build it again at each save",
        ),
        (
            format!("plugin build {folder}"),
            "or step by step: build it",
        ),
        (
            format!("plugin invoke {component} '{SAMPLE}'"),
            "try it on a message",
        ),
        (format!("run --plugin {component}"), "run it"),
    ];
    if lang.starts_slowly() {
        steps.push((
            format!("run --plugin {component} --reuse 1000"),
            "or with instances that handle many messages: faster, without isolation between them",
        ));
    }
    for (command, about) in steps {
        output::note(format!("  dispatcher {command}"));
        output::note(format!("      {about}"));
    }
    Ok(())
}

/// Returns the name of the project: the last part of its folder, if it is valid in every language.
fn name(folder: &Path) -> Result<String, String> {
    let at = folder.display();
    let wanted = "wanted lower-case letters, digits, - and _, a letter first";
    let last = folder.file_name().and_then(|name| name.to_str());
    let name = last.ok_or_else(|| format!("{at}: not a project name; {wanted}"))?;
    if name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
    {
        return Ok(name.to_owned());
    }
    Err(format!("{name}: not a project name; {wanted}"))
}

/// Checks that no existing file would be overwritten.
fn is_free(folder: &Path) -> Result<(), Failure> {
    let at = folder.display();
    let taken = match folder.read_dir() {
        Ok(mut entries) => entries
            .next()
            .is_some()
            .then(|| format!("{at}: exists and is not empty; wanted a new folder")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(format!("{at}: {error}; wanted a new folder")),
    };
    taken.map_or(Ok(()), |why| Err(Failure::new(Exit::Usage, why)))
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = file.parent().expect("a project's file is in its folder");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(file, bytes));
    written.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_name_must_be_valid_in_every_language() {
        for good in ["orders", "a", "x-1_b", "deep/down/orders", "../orders"] {
            let last = good.rsplit('/').next().map(str::to_owned);
            assert_eq!(name(Path::new(good)).ok(), last, "{good}");
        }
        for bad in ["Orders", "1st", "", "..", "/", "a b", "-a", "ä", "a.b"] {
            let why = name(Path::new(bad)).expect_err(bad);
            assert!(why.contains("a letter first"), "{why}");
        }
    }

    #[test]
    fn new_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut args = Args {
            folder: folder.path().join("orders"),
            lang: Language::C,
        };
        run(&args).unwrap();
        let again = run(&args).unwrap_err();
        assert_eq!(again.exit, Exit::Usage);
        assert!(again.lines[0].contains("not empty"), "{again:?}");
        args.folder = folder.path().join("orders/handler.c");
        assert!(run(&args).is_err());
        args.folder = folder.path().join("empty");
        std::fs::create_dir(&args.folder).unwrap();
        run(&args).unwrap();
    }
}
