//! `dispatcher backup`: copies a data folder while it is in use.

use super::{LooseArguments, flags, output};
use crate::app::build::versions;
use crate::error::{Exit, Failure};
use dispatcher_config::problem::Problem;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::files;
use dispatcher_sqlite as sqlite;
use dispatcher_sqlite::Copy;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  dispatcher backup /backups/monday
      copies this user's data folder; /backups/monday is new, or empty
  dispatcher backup --data ./queues /backups/monday
  dispatcher queues --data /backups/monday
      inspects the copy, which is a data folder

To restore: stop every process that uses the data folder, move the folder away, put the copy in
its place, start again.";

/// Copy a data folder while it is in use: queues, schedule, idempotency records, key-value buckets
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The folder to create; an existing one must be empty
    #[arg(value_name = "TO")]
    pub to: PathBuf,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub data: flags::DataArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// The possible databases of a data folder.
const DATABASES: [&str; 4] = ["local.db", "schedule.db", "idempotency.db", "keyvalue.db"];

/// Copies to a folder beside `TO` and renames it to `TO` when it is complete.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, _screen, problems) = flags::places(&typed.matches);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let data = &places.stores.data;
    let databases = present(data)?;
    check_target(&args.to, data)?;
    let partial = partial(&args.to);
    let copied = copy(data, &databases, &partial).and_then(|sizes| {
        let moved = std::fs::rename(&partial, &args.to).and_then(|()| sync_parent(&args.to));
        moved.map_err(|error| write_failure(&args.to, &error))?;
        Ok(sizes)
    });
    if copied.is_err() {
        // If this fails, the name of the folder shows that it is partial.
        let _ = std::fs::remove_dir_all(&partial);
    }
    for (name, bytes) in copied? {
        output::line(format!("{name}  {bytes} bytes"))?;
    }
    output::note(format!(
        "copied {} to {}",
        data.display(),
        args.to.display()
    ));
    Ok(())
}

fn present(data: &Path) -> Result<Vec<&'static str>, Failure> {
    let databases: Vec<_> = DATABASES
        .into_iter()
        .filter(|name| data.join(name).exists())
        .collect();
    if databases.is_empty() {
        let found = format!("there is no database in `{}`", data.display());
        let wanted = "the data folder of `dispatcher run` or `dispatcher local`";
        Err(Problem::new("--data", found, wanted).into())
    } else {
        Ok(databases)
    }
}

/// Checks that nothing is overwritten, and that the copy is not inside the data folder, where the
/// next copy would include it.
fn check_target(to: &Path, data: &Path) -> Result<(), Failure> {
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if std::fs::canonicalize(data).is_ok_and(|data: PathBuf| {
        let parent = std::fs::canonicalize(parent);
        parent.is_ok_and(|parent| parent.starts_with(data))
    }) {
        let found = format!("`{}` is in the data folder itself", to.display());
        return Err(unusable_target(found));
    }
    let found = match std::fs::read_dir(to) {
        Ok(mut entries) => match entries.next() {
            None => return Ok(()),
            Some(_) => format!("`{}` is not empty", to.display()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if parent.is_dir() {
                return Ok(());
            }
            format!("there is no folder `{}`", parent.display())
        }
        Err(error) => format!("`{}`: {error}", to.display()),
    };
    Err(unusable_target(found))
}

fn unusable_target(found: String) -> Failure {
    let wanted = "a folder that does not exist, or is empty";
    Problem::new("TO", found, wanted).into()
}

/// Returns the path of an incomplete copy.
fn partial(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".partial-{}", std::process::id()));
    name.into()
}

/// Copies the databases and files. Returns each name with its number of bytes.
fn copy(data: &Path, databases: &[&str], to: &Path) -> Result<Vec<(String, u64)>, Failure> {
    let plain = |error: io::Error| write_failure(to, &error);
    std::fs::create_dir(to).map_err(plain)?;
    let copies: Vec<_> = databases
        .iter()
        .map(|name| Copy {
            from: data.join(name),
            to: to.join(name),
        })
        .collect();
    sqlite::copy(&copies).map_err(failure)?;
    let mut sizes = Vec::new();
    for name in databases {
        let length = std::fs::metadata(to.join(name)).map_err(plain)?.len();
        sizes.push(((*name).to_owned(), length));
    }
    let images = versions::images(data);
    if images.is_dir() {
        let bytes = copy_files(&images, &versions::images(to)).map_err(plain)?;
        sizes.push(("images".to_owned(), bytes));
    }
    File::open(to).and_then(|to| to.sync_all()).map_err(plain)?;
    Ok(sizes)
}

/// Copies the files of a folder and its subfolders. Returns their number of bytes.
fn copy_files(from: &Path, to: &Path) -> io::Result<u64> {
    files::make_folder(to)?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            bytes += copy_files(&entry.path(), &target)?;
        } else if kind.is_file() {
            let mut target = files::create_private(&target)?;
            bytes += io::copy(&mut File::open(entry.path())?, &mut target)?;
            target.sync_all()?;
        }
    }
    Ok(bytes)
}

fn sync_parent(to: &Path) -> io::Result<()> {
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all())
}

fn write_failure(to: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("`{}`: {error}", to.display()))
}

/// Converts an error: a locked database is unreachable; with a full disk or a damaged database, the
/// copy failed.
fn failure(error: CallError) -> Failure {
    let exit = match error.kind {
        ErrorKind::Unreachable => Exit::Unreachable,
        ErrorKind::Transient
        | ErrorKind::NotFound
        | ErrorKind::AccessDenied
        | ErrorKind::Invalid => Exit::Failed,
    };
    Failure::new(exit, error.message)
}
