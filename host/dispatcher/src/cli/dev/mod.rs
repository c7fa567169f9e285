//! `dispatcher dev`: build the handler of a folder, run it on the embedded queue, serve that queue to
//! AWS SDKs, and build again whenever a source changes. Knows no language.

mod sources;

use super::flags::{self, DevArgs};
use super::local::exports;
use super::plugin::build::{self, Project};
use super::plugin::language::Language;
use super::plugin::template::SAMPLE;
use super::{Typed, block_on_beside_guests, output};
use crate::app;
use crate::app::build::plugins;
use crate::app::drain::Signals;
use crate::config;
use crate::config::Settings;
use crate::config::declared::LocalSettings;
use crate::config::flags::Flags;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::error::{Exit, Failure};
use crate::telemetry::log;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_served as served;
use dispatcher_served::Served;
use sources::Sources;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use tokio_util::sync::{CancellationToken, DropGuard};

const EXAMPLES: &str = r#"Examples:
  dispatcher plugin new --lang python orders && dispatcher dev orders
      build the handler, run it, and build it again at each save
  dispatcher send local:default '{"id": "o-1", "amount": 250}'
      from another terminal in the same folder: the handler runs
  dispatcher dev orders --queues local:orders --max-attempts 3
      another queue, and the limits that `dispatcher run` would have

Serves the embedded queue over the SQS protocol, for AWS SDKs: the `export` lines that it prints set
them up. Health, metrics and what runs are at --admin, 127.0.0.1:9090 or a free port. A build that
fails is shown, and the old version keeps running. Files in hidden folders and in those that builds
write (target, node_modules, build, dist) are not watched, nor is what lies outside of the folder,
apart from files that links in it lead to."#;

/// The admin address, where none is given.
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
pub(super) fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let project = Project::open(&args.folder)?;
    let lang = project.language(args.lang)?;
    let flags = flags::settings(&typed.matches);
    // Where the component will be is known after the build; all other problems are found before it.
    let (settings, _, mut problems) = settings_of(&flags, &project.usual_component(lang));
    let listen = LocalSettings::read(Layers(&[&flags.program]), &mut problems).listen;
    // Without its progress line: tools print beside it.
    log::start(settings.log.format, &settings.log.level);
    flags::log_notices(&flags);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let handler = Handler { project, lang };
    block_on_beside_guests(develop(handler, settings, flags, listen))?
}

/// What is run, from flags that name neither the component nor, perhaps, an admin address.
fn settings_of(given: &Flags, component: &Path) -> (Settings, Flags, Vec<Problem>) {
    let mut flags = given.clone();
    flags.take("plugin", Given::new("FOLDER", component.to_string_lossy()));
    let is_usual = !flags.is_set("admin");
    if is_usual {
        flags.take("admin", Given::new("the admin address", ADMIN));
    }
    let (mut settings, problems) = config::settings(&flags);
    settings.functions = plugins::functions();
    if let Some(admin) = &mut settings.admin {
        // Another `dispatcher dev` may have the usual port.
        admin.or_any_port = is_usual;
    }
    (settings, flags, problems)
}

/// What is built.
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
}

async fn develop(
    handler: Handler,
    settings: Settings,
    flags: Flags,
    listen: SocketAddr,
) -> Result<(), Failure> {
    let failed = |line: String| Failure::new(Exit::Failed, line);
    let mut signals = Signals::listen(true)
        .map_err(|error| failed(format!("cannot listen for signals: {error}")))?;
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
    let (settings, flags, problems) = settings_of(&flags, &component);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    for name in settings.queue_names() {
        output::note(format!("try it: dispatcher send {name} '{SAMPLE}'"));
    }
    let rebuilding = tasks::spawn(rebuild(handler, component, sources));
    let ended = app::run(settings, flags, Arc::new(Counters::default())).await;
    drop(rebuilding);
    build::end();
    Ok(ended?)
}

/// Builds. A change meanwhile ends the build, and the next one has it.
async fn build_latest(handler: &Handler, sources: &mut Sources) -> Result<PathBuf, Failure> {
    loop {
        build::begin();
        let mut building = pin!(handler.build());
        tokio::select! {
            built = &mut building => return built,
            changed = sources.changed() => note_changed(&changed),
        }
        build::cancel();
        // What came of it is of the sources before.
        let _ = building.await;
    }
}

fn note_changed(files: &[String]) {
    output::note(format!("changed: {}", files.join(", ")));
}

/// Builds until it works once.
async fn first_build(handler: &Handler, sources: &mut Sources) -> PathBuf {
    loop {
        match build_latest(handler, sources).await {
            Ok(component) => return component,
            Err(failure) => {
                failure.report();
                output::note("waiting for a change of the sources");
            }
        }
        note_changed(&sources.changed().await);
    }
}

/// Builds at each change. The run sees the component change, and replaces it.
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
                failure.report();
                output::note("the version before keeps running");
            }
        }
    }
}

/// The embedded queue on its way to SDKs. Ends when dropped.
struct Serving {
    _stop: DropGuard,
    _answering: Task<()>,
}

async fn serve(settings: &Settings, flags: &Flags, listen: SocketAddr) -> Result<Serving, Failure> {
    let served = Served::open(&settings.stores.data)?;
    let listening = if flags.is_set("listen") {
        served::listen(listen).await
    } else {
        served::listen_or_any_port(listen).await
    };
    let (listener, at) = listening.map_err(|line| Failure::new(Exit::Failed, line))?;
    tracing::info!(address = %at, "serving the embedded queue over the SQS protocol");
    output::note(exports(at));
    let stop = CancellationToken::new();
    Ok(Serving {
        _answering: tasks::spawn(served.serve(listener, stop.clone())),
        _stop: stop.drop_guard(),
    })
}
