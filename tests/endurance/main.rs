//! Runs the real program for minutes or hours while things break, and accounts for every message;
//! see README.md beside this file. Knows the command line; each command has its file.

mod backend;
mod faults;
mod kill;
mod process;
mod samples;
mod scene;
mod soak;
mod traffic;

use clap::{Parser, Subcommand, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs the real program for long while things break, and accounts for every message. Ends with 1
/// if one is lost, comes twice without a reason, or something grows.
#[derive(Debug, Parser)]
#[command(name = "endurance")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Command {
    /// Cuts, delays, truncates and refuses calls, restarts the server, stops the program for a
    /// while, beside guests that misbehave
    Faults,
    /// Kills dispatchers with `kill -9` every few seconds
    Kill,
    /// Steady load; memory, files, threads and tasks must stay flat
    Soak,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Backends {
    Local,
    Sqs,
    Both,
}

impl Backends {
    fn has_local(self) -> bool {
        !matches!(self, Self::Sqs)
    }

    fn has_sqs(self) -> bool {
        !matches!(self, Self::Local)
    }
}

#[derive(Debug, clap::Args)]
struct Options {
    /// How long messages are sent, as in 10m
    #[arg(long = "for", global = true, default_value = "1m")]
    length: String,
    /// Where messages lie
    #[arg(long, global = true, value_enum, default_value = "both")]
    backend: Backends,
    /// Repeats the dice of another run [default: new ones]
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// The program [default: built from this tree, as for the tests]
    #[arg(long, global = true, env = "ENDURANCE_BINARY")]
    binary: Option<PathBuf>,
    /// Where logs, queues and samples are kept; a folder of this run's own is made within
    #[arg(long, global = true, default_value = "endurance-runs")]
    folder: PathBuf,
    #[arg(skip = std::sync::OnceLock::new())]
    chosen: std::sync::OnceLock<(u64, PathBuf)>,
}

impl Options {
    fn for_long(&self) -> Duration {
        humantime::parse_duration(&self.length).expect("it was parsed at the start")
    }

    fn binary(&self) -> PathBuf {
        let built = || dispatcher_tests::child::binary();
        self.binary.clone().unwrap_or_else(built)
    }

    fn chosen(&self) -> &(u64, PathBuf) {
        self.chosen.get_or_init(|| {
            let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
            let folder = self
                .folder
                .join(format!("run-{}-{seed}", std::process::id()));
            std::fs::create_dir_all(&folder)
                .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
            let folder = folder.canonicalize().expect("it was just made");
            (seed, folder)
        })
    }

    fn seed(&self) -> u64 {
        self.chosen().0
    }

    fn folder(&self) -> PathBuf {
        self.chosen().1.clone()
    }

    fn csv(&self) -> PathBuf {
        self.folder().join("samples.csv")
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { command, options } = Cli::parse();
    if let Err(error) = humantime::parse_duration(&options.length) {
        print(&format!(
            "--for {}: {error}; wanted a time such as 10m\n",
            options.length
        ));
        return ExitCode::from(2);
    }
    print(&format!(
        "{command:?} for {}, seed {}, {} in {}\n",
        options.length,
        options.seed(),
        options.binary().display(),
        options.folder().display()
    ));
    let holds = match command {
        Command::Faults => faults::run(&options).await,
        Command::Kill => kill::run(&options).await,
        Command::Soak => soak::run(&options).await,
    };
    print(if holds {
        "it holds\n"
    } else {
        "IT DOES NOT HOLD\n"
    });
    ExitCode::from(u8::from(!holds))
}

/// Prints at once: the output may be a file that somebody follows.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody to tell.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Waits for all of them, concurrently.
async fn all(futures: impl IntoIterator<Item = impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}
