//! The suites against an AWS account, which its owner starts by hand; see README.md beside this file.
//! Refuses to begin unless it is told what it may spend, and removes what it made however it ends.

#[path = "../conformance/checks.rs"]
#[macro_use]
mod checks;

#[allow(
    dead_code,
    reason = "here only accounts are opened, elsewhere only emulators"
)]
#[path = "../conformance/backend.rs"]
mod backend;
mod classic;
#[path = "../conformance/delivery.rs"]
mod delivery;
#[path = "../conformance/dispatchers.rs"]
mod dispatchers;
#[path = "../conformance/leases.rs"]
mod leases;
#[path = "../conformance/listing.rs"]
mod listing;
#[path = "../conformance/settling.rs"]
mod settling;

use backend::Backend;
use clap::{Parser, Subcommand};
use dispatcher_dynamodb::queue::Options;
use dispatcher_tests::account::{Account, AccountKind, Service};
use std::panic;
use std::pin::Pin;
use std::process::ExitCode;
use tokio::task::LocalSet;

/// A check that has begun.
type Begun = Pin<Box<dyn Future<Output = ()>>>;

/// A check, not begun.
type Check = fn(&'static Backend) -> Begun;

/// Calls that one check makes at most, with those of the program that some start.
const CALLS_OF_A_CHECK: u64 = 400;

/// Runs the conformance suite and the checks of classic mode in the AWS account of your credentials,
/// says what differs from the emulators, and removes everything that it made
#[derive(Debug, Parser)]
#[command(name = "real-aws", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create queues, tables and a function, run the checks, remove everything
    Run(Run),
    /// Remove what earlier runs left behind
    Clean(AwsPlace),
    /// Print what a run costs at most, and call nothing
    Estimate,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The most that the run may spend, in US dollars; without it nothing is called
    #[arg(long, value_name = "USD")]
    spend_up_to: Option<f64>,
    /// What the function runs as: the ARN of a role that Lambda may assume; without it the checks of
    /// classic mode are left out
    #[arg(long, value_name = "ARN")]
    role: Option<String>,
    /// Only checks whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    #[command(flatten)]
    place: AwsPlace,
}

#[derive(Debug, clap::Args)]
struct AwsPlace {
    /// What the names of everything that is made begin with
    #[arg(long, default_value = "dispatcher-suite")]
    prefix: String,
    /// An emulator, in place of AWS
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<String>,
}

macro_rules! table {
    ($($file:ident: [$($check:ident),* $(,)?]),* $(,)?) => {
        vec![$($((
            concat!(stringify!($file), "::", stringify!($check)),
            (|backend| Box::pin($file::$check(backend))) as Check,
        )),*),*]
    };
}

/// Every check of the suite with its name.
fn conformance() -> Vec<(&'static str, Check)> {
    with_checks!(table!())
}

/// What a run costs at most, in US dollars.
fn estimate() -> f64 {
    let price = |service: Service| u32::try_from(service.price_nano_usd()).map_or(0.0, f64::from);
    let count = |number: usize| u32::try_from(number).map_or(0.0, f64::from);
    let calls = u32::try_from(CALLS_OF_A_CHECK).map_or(0.0, f64::from);
    let conformance = count(conformance().len()) * calls;
    let classic = count(classic::NAMES.len()) * calls;
    let nano = conformance * (price(Service::Sqs) + price(Service::DynamoDb))
        + classic * (price(Service::Sqs) + price(Service::Lambda));
    nano / 1e9
}

#[tokio::main]
async fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Estimate => {
            print(&format!("at most ${:.2} a run", estimate()));
            ExitCode::SUCCESS
        }
        Command::Clean(place) => clean(&place).await,
        Command::Run(run) => match allowed(run.spend_up_to) {
            Ok(limit) => start(run, limit).await,
            Err(why) => {
                print_error(&why);
                ExitCode::from(2)
            }
        },
    }
}

/// The limit, if a run may begin.
fn allowed(limit: Option<f64>) -> Result<f64, String> {
    let estimate = estimate();
    match limit {
        None => Err(format!(
            "this calls the AWS account of your credentials and costs at most ${estimate:.2}; \
             --spend-up-to {:.2} allows it",
            (estimate * 100.0).ceil() / 100.0
        )),
        Some(limit) if limit < estimate => Err(format!(
            "--spend-up-to {limit}: a run may cost ${estimate:.2}; wanted that much or more"
        )),
        Some(limit) => Ok(limit),
    }
}

async fn clean(place: &AwsPlace) -> ExitCode {
    let account = Account::connect(place.endpoint_url.as_deref(), &place.prefix, 0.01).await;
    let account = match account {
        Ok(account) => account,
        Err(why) => {
            print_error(&why);
            return ExitCode::from(2);
        }
    };
    removed(&account, AccountKind::All).await
}

async fn removed(account: &Account, which: AccountKind) -> ExitCode {
    match account.remove(which).await {
        Ok(left) if left.is_empty() => ExitCode::SUCCESS,
        Ok(left) => {
            for (resource, why) in left {
                print_error(&format!("{resource} is still there: {why}"));
            }
            ExitCode::FAILURE
        }
        Err(why) => {
            print_error(&why);
            ExitCode::FAILURE
        }
    }
}

async fn start(run: Run, limit: f64) -> ExitCode {
    let place = &run.place;
    let account = Account::connect(place.endpoint_url.as_deref(), &place.prefix, limit).await;
    let account: &'static Account = match account {
        Ok(account) => Box::leak(Box::new(account)),
        Err(why) => {
            print_error(&why);
            return ExitCode::from(2);
        }
    };
    print(&format!(
        "in {}, with at most ${limit}; {}-… is removed at the end",
        account.place(),
        run.place.prefix
    ));
    // Left by a run that was killed; what cannot be removed now is retried at the end.
    let _ = account.remove(AccountKind::OwnAndAbandoned).await;
    let differences = tokio::select! {
        differences = check_all(account, &run) => Some(differences),
        _ = tokio::signal::ctrl_c() => None,
    };
    let cleaned = removed(account, AccountKind::OwnAndAbandoned).await;
    let (spent, calls) = account.meter.spent();
    print(&format!("spent at most ${spent:.4} in {calls} calls"));
    match differences {
        Some(0) => cleaned,
        Some(count) => {
            print(&format!("{count} checks differ from the emulators"));
            ExitCode::FAILURE
        }
        None => ExitCode::from(130),
    }
}

/// How many checks differ.
async fn check_all(account: &'static Account, run: &Run) -> usize {
    // A check that differs says so by a panic, which is told in its line.
    panic::set_hook(Box::new(|_| {}));
    let wanted = |name: &str| run.only.as_ref().is_none_or(|only| name.contains(only));
    let queues: &'static Backend = leak(account, None);
    let tables: &'static Backend = leak(account, Some(Options::default()));
    let mut differences = 0;
    for (backend, title) in [(queues, "sqs"), (tables, "dynamodb")] {
        for (name, check) in conformance() {
            let name = format!("{title} {name}");
            if wanted(&name) {
                differences += usize::from(!run_check(account, &name, check(backend)).await);
            }
        }
    }
    match &run.role {
        Some(role) => {
            for name in classic::NAMES {
                let full = format!("classic {name}");
                if wanted(&full) {
                    let check = Box::pin(classic::check(account, role.clone(), name));
                    differences += usize::from(!run_check(account, &full, check).await);
                }
            }
        }
        None => print("left out: the checks of classic mode, which need --role"),
    }
    differences
}

fn leak(account: &'static Account, tables: Option<Options>) -> &'static Backend {
    Box::leak(Box::new(Backend::Account { account, tables }))
}

/// Runs a check and says how it went.
async fn run_check(account: &Account, name: &str, check: Begun) -> bool {
    // What the program that it may start calls is not seen by our own client.
    if let Err(why) = account.meter.spend(Service::Sqs, CALLS_OF_A_CHECK / 2) {
        print(&format!("left out  {name}: {why}"));
        return false;
    }
    let local = LocalSet::new();
    let running = local.spawn_local(check);
    match local.run_until(running).await {
        Ok(()) => {
            print(&format!("ok        {name}"));
            true
        }
        Err(error) => {
            let why = error.into_panic();
            let text = why
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| why.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a message");
            print(&format!(
                "DIFFERS   {name}: {}",
                dispatcher_aws::one_line(text)
            ));
            false
        }
    }
}

#[expect(clippy::print_stdout, reason = "what this program is for")]
fn print(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "what this program is for")]
fn print_error(line: &str) {
    eprintln!("error: {line}");
}
