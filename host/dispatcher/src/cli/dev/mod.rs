//! `dispatcher dev`: builds the handler of a folder, runs it on the embedded queue, serves that
//! queue to AWS SDKs, and rebuilds whenever a source changes. Knows no language.

mod built;
mod grants;
mod sources;
mod token;

use super::flags::{self, DevArgs};
use super::local::exports;
use super::plugin::build::{self, Project};
use super::plugin::language::Language;
use super::plugin::template::SAMPLE;
use super::{LooseArguments, block_on_beside_guests, output};
use crate::app;
use crate::app::build::plugins;
use crate::app::drain::Signals;
use crate::error::{Exit, Failure};
use built::BuildRecord;
use dispatcher_config as config;
use dispatcher_config::declared::LocalSettings;
use dispatcher_config::flags::Flags;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_config::section::{Layers, WrittenValue};
use dispatcher_config::{Settings, SettingsSource};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_served as served;
use dispatcher_served::ServedFolder;
use dispatcher_telemetry::log;
use sources::Sources;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use tokio_util::sync::{CancellationToken, DropGuard};

const EXAMPLES: &str = r#"Examples:
  dispatcher plugin new --lang python orders && dispatcher dev orders
      build the handler, run it, and build it again at each save
  dispatcher send local:orders '{"id": "o-1", "amount": 250}'
      from another terminal: the handler runs
  dispatcher dev orders --queues local:invoices --max-attempts 3
      another queue, and the limits that `dispatcher run` would have

The queue is named after the folder. It is served over the SQS protocol, for AWS SDKs: the `export`
lines that it prints set them up. Health, metrics and the dashboard are at --admin, by default
127.0.0.1:9090 or a free port. The dashboard shows the bodies of messages; --admin-bodies false
hides them. It always needs a token: `dev` keeps one in the data folder, and prints an address that
signs you in. With --admin-token-file, sign in with the token of that file.
If a build fails, its errors are shown and the old version keeps running. Hidden folders and the
folders that builds write (target, node_modules, build, dist) are not watched. Of files outside of
the folder, only those are watched that a link in the folder points to.
A start does not build again what is unchanged since the last build here: the watched files, lock
files, installed packages, PATH and dispatcher itself."#;

/// The most characters of a queue's name that are taken from the folder.
const LONGEST_NAME: usize = 60;
/// The default admin address.
const ADMIN: &str = "127.0.0.1:9090";

/// Build a handler, run it on the embedded queue, and rebuild it whenever its source changes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The project's folder, as `dispatcher plugin new` makes it
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub folder: PathBuf,
    /// The language, where the files are of several
    #[arg(long, value_enum)]
    pub lang: Option<Language>,
    #[command(flatten)]
    pub run: DevArgs,
}

/// Builds, then runs until a signal.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let project = Project::open(&args.folder)?;
    let lang = project.language(args.lang)?;
    let flags = flags::settings(&typed.matches);
    let flags = with_defaults(&flags, &project)?;
    // The path of the component is known after the build; all other problems are found before it.
    let (settings, _, mut problems) = settings_of(&flags, &project.usual_component(lang));
    problems.extend(grants::missing(&project, lang, &flags));
    let listen = LocalSettings::read(Layers(&[&flags.program]), &mut problems).listen;
    // Without a progress line, because tools print to the same terminal.
    log::start(settings.log.format, &settings.log.level);
    flags::log_notices(&flags);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let handler = Handler { project, lang };
    block_on_beside_guests(develop(handler, settings, flags, listen))?
}

/// Adds the settings that a developer expects: a queue of the project's own, and a dashboard with
/// bodies and actions.
fn with_defaults(given: &Flags, project: &Project) -> Result<Flags, Failure> {
    let mut flags = given.clone();
    if !flags.is_set("queues") {
        let queue = format!("local:{}", queue_name(project.name()));
        flags.take("queues", WrittenValue::new("the folder's queue", queue));
    }
    if !flags.is_set("admin-bodies") {
        flags.take("admin-bodies", WrittenValue::new("the dashboard", "true"));
    }
    if !flags.is_set("admin-token-file") {
        let file = token::made_in(&data_folder(&flags))?;
        let written = WrittenValue::new("the dashboard's token", file.to_string_lossy());
        flags.take("admin-token-file", written);
    }
    Ok(flags)
}

/// Returns the data folder of a command with these flags.
fn data_folder(flags: &Flags) -> PathBuf {
    config::settings(flags).0.stores.data
}

/// Returns the name of a folder in the characters that names of queues may have.
fn queue_name(folder: &str) -> String {
    let name: String = folder
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(LONGEST_NAME)
        .collect();
    if name.chars().any(char::is_alphanumeric) {
        name
    } else {
        "default".to_owned()
    }
}

/// Returns the settings of the run, from flags without the component and perhaps without an admin
/// address.
fn settings_of(given: &Flags, component: &Path) -> (Settings, SettingsSource, Vec<Problem>) {
    let mut flags = given.clone();
    flags.take(
        "plugin",
        WrittenValue::new("FOLDER", component.to_string_lossy()),
    );
    let is_usual = !flags.is_set("admin");
    if is_usual {
        flags.take("admin", WrittenValue::new("the admin address", ADMIN));
    }
    let source = SettingsSource::read(&flags);
    let (mut settings, problems) = source.written();
    settings.functions = plugins::functions();
    if let Some(admin) = &mut settings.admin {
        // Another `dispatcher dev` may use the default port.
        admin.or_any_port = is_usual;
        // A token that the user brought does not belong in the log.
        admin.prints_sign_in = admin.token_file == Some(token::file_in(&settings.stores.data));
    }
    (settings, source, problems)
}

/// The project to build.
#[derive(Debug, Clone)]
struct Handler {
    project: Project,
    lang: Language,
}

impl Handler {
    /// Builds on a thread that may block.
    async fn build(&self) -> Result<PathBuf, Failure> {
        let Self { project, lang } = self.clone();
        let building = tasks::blocking(move || project.build(lang));
        building.finished().await
    }

    fn record(&self) -> BuildRecord {
        BuildRecord::of(&self.project, self.lang)
    }
}

async fn develop(
    handler: Handler,
    settings: Settings,
    flags: Flags,
    listen: SocketAddr,
) -> Result<(), Failure> {
    let mut signals = Signals::listen(true).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot listen for signals: {error}"))
    })?;
    let mut sources = Sources::of(&handler.project.folder).await;
    let first = tokio::select! {
        component = first_build(&handler, &mut sources) => Some(component),
        _ = signals.next() => None,
    };
    let Some(component) = first else {
        build::end();
        return Ok(());
    };
    let _serving = serve(&settings, &flags, listen).await?;
    let (settings, source, problems) = settings_of(&flags, &component);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    grants::note_ungranted(&component, source.flags()).await;
    for name in settings.queue_names() {
        output::note(format!("try it: {}", send_command(name, &settings)));
    }
    let rebuilding = tasks::spawn(rebuild(handler, component, sources));
    let ended = app::run(settings, source, Arc::new(Counters::default())).await;
    drop(rebuilding);
    build::end();
    Ok(ended?)
}

/// Returns a command that sends a sample to the queue from any terminal. A variable that names the
/// data folder may be set in this terminal only.
fn send_command(queue: &QueueName, settings: &Settings) -> String {
    let data = &settings.stores.data;
    let command = format!("dispatcher send {queue} '{SAMPLE}'");
    if *data == data_folder(&Flags::default()) {
        return command;
    }
    let quoted = data.to_string_lossy().replace('\'', r"'\''");
    format!("{command} --data '{quoted}'")
}

/// Builds the component. A change during the build restarts it.
async fn build_latest(handler: &Handler, sources: &mut Sources) -> Result<PathBuf, Failure> {
    loop {
        build::begin();
        let mut building = pin!(handler.build());
        tokio::select! {
            built = &mut building => {
                if built.is_ok() {
                    handler.record().keep(sources).await;
                }
                return built;
            }
            changed = sources.changed() => note_changed(&changed),
        }
        build::cancel();
        // The result belongs to outdated sources.
        let _ = building.await;
    }
}

fn note_changed(files: &[String]) {
    output::note(format!("changed: {}", files.join(", ")));
}

/// Builds until it succeeds once. Builds nothing if the last build was of the same sources.
async fn first_build(handler: &Handler, sources: &mut Sources) -> PathBuf {
    let record = handler.record();
    if record.is_of(sources).await {
        let component = record.component;
        let root = &handler.project.folder;
        let shown = component.strip_prefix(root).unwrap_or(&component).display();
        output::note(format!(
            "unchanged; using {shown} (delete it to build it anyway)"
        ));
        return component;
    }
    loop {
        match build_latest(handler, sources).await {
            Ok(component) => return component,
            Err(failure) => {
                failure.report(None);
                output::note("waiting for a change to the sources");
            }
        }
        note_changed(&sources.changed().await);
    }
}

/// Rebuilds after each change. The run detects the new component and replaces it.
async fn rebuild(handler: Handler, component: PathBuf, mut sources: Sources) {
    loop {
        note_changed(&sources.changed().await);
        match build_latest(&handler, &mut sources).await {
            Ok(built) if built == component => {}
            Ok(built) => output::note(format!(
                "the component is now {}; start `dispatcher dev` again to run it",
                built.display()
            )),
            Err(failure) => {
                failure.report(None);
                output::note("the version before keeps running");
            }
        }
    }
}

/// The embedded queue, served to SDKs until dropped.
struct ServedEndpoint {
    _stop: DropGuard,
    _answering: Task<()>,
}

async fn serve(
    settings: &Settings,
    flags: &Flags,
    listen: SocketAddr,
) -> Result<ServedEndpoint, Failure> {
    let served = ServedFolder::open(&settings.stores.data)?;
    let listening = if flags.is_set("listen") {
        served::listen(listen).await
    } else {
        served::listen_or_any_port(listen).await
    };
    let (listener, at) = listening.map_err(|line| Failure::new(Exit::Failed, line))?;
    tracing::info!(address = %at, "serving the embedded queue over the SQS protocol");
    output::note(exports(at));
    let stop = CancellationToken::new();
    Ok(ServedEndpoint {
        _answering: tasks::spawn(served.serve(listener, stop.clone())),
        _stop: stop.drop_guard(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_named_after_the_folder() {
        for (folder, queue) in [
            ("orders", "orders"),
            ("my orders (2)", "my-orders--2-"),
            ("Größe", "Gr--e"),
            ("…", "default"),
        ] {
            assert_eq!(queue_name(folder), queue, "{folder}");
        }
        assert_eq!(queue_name(&"x".repeat(300)).len(), LONGEST_NAME);
    }
}
