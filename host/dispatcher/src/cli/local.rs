//! `dispatcher local`: serves the embedded queue over the SQS protocol.

use super::{LooseArguments, block_on, flags, output};
use crate::app::drain::Signals;
use crate::app::embedded::EmbeddedAdmin;
use crate::error::{Exit, Failure};
use dispatcher_config as config;
use dispatcher_config::backends::embedded;
use dispatcher_config::declared::LocalSettings;
use dispatcher_config::problem::Problem;
use dispatcher_config::section::Layers;
use dispatcher_config::{Admin, Places};
use dispatcher_console::reached_here;
use dispatcher_served as served;
use dispatcher_served::ServedFolder;
use std::net::SocketAddr;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  dispatcher local
      AWS SDKs use the embedded queue with the `export` lines that it prints
  eval \"$(dispatcher local --print-env)\"
      in another shell: sets the variables for SDKs; serves nothing
  dispatcher local --listen 127.0.0.1:0 --data ./queues
      on a free port, with a separate folder
  dispatcher local --memory --config dispatcher.toml
      for a test suite: the queues of its [queue.NAME] sections, all in memory
  dispatcher local --admin 127.0.0.1:9090 --admin-token-file token
      with the admin API, to look at queues and messages, redrive and purge

All commands share the queues: `dispatcher run --queues local:payments` receives what an SDK sends
to `payments`, and `dispatcher send local:payments` reaches the SDK. Signatures are not checked:
anyone who reaches the address may do everything.";

/// Serve the embedded queue over the SQS protocol, so that any AWS SDK can use it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub listen: flags::ListenArgs,
    /// Keep everything in memory until the end, write nothing to disk, and serve /_dispatcher/reset
    /// and /_dispatcher/clock for tests
    #[arg(long)]
    pub memory: bool,
    /// Print the `export` lines for the address of --listen and exit; serve nothing
    #[arg(long)]
    pub print_env: bool,
    #[command(flatten)]
    pub admin: flags::ServedAdminArgs,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub data: flags::DataArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Serves until a signal, or prints the variables for an SDK.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, _screen, mut problems) = flags::places(&typed.matches);
    let typed_flags = flags::settings(&typed.matches);
    let admin = config::served_admin(&typed_flags, &mut problems);
    let given = typed_flags.program;
    let address = LocalSettings::read(Layers(&[&given]), &mut problems).listen;
    if args.print_env && address.port() == 0 {
        problems.push(Problem::new(
            "--listen",
            "port 0 is any free port, known only once the server listens",
            "the port that the server listens on, with --print-env",
        ));
    }
    let folder = given.one("data").filter(|data| data.at.starts_with("--"));
    if args.memory && folder.is_some() {
        let found = "--memory keeps nothing on disk, and --data names a folder";
        problems.push(Problem::new("--memory", found, "one of the two"));
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    if args.print_env {
        output::line(exports(address))
    } else {
        block_on(serve(&places, address, admin.as_ref(), args.memory))?
    }
}

/// Returns the shell lines that set the variables with which every AWS SDK uses the server at this
/// address. SDKs differ in the name of the variable for the region.
pub(super) fn exports(at: SocketAddr) -> String {
    let at = reached_here(at);
    format!(
        "export AWS_ENDPOINT_URL_SQS=http://{at}\n\
         export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1\n\
         export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local"
    )
}

async fn serve(
    places: &Places,
    address: SocketAddr,
    admin: Option<&Admin>,
    memory: bool,
) -> Result<(), Failure> {
    let mut signals = Signals::listen(true).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot listen for signals: {error}"))
    })?;
    let mut served = if memory {
        ServedFolder::open_in_memory()?
    } else {
        ServedFolder::open(&places.stores.data)?
    };
    let contradictions = served.declare(&places.queues).await?;
    if !contradictions.is_empty() {
        let problems = contradictions
            .into_iter()
            .map(|one| Problem::new(one.at, one.found, one.wanted));
        return Err(problems.collect::<Vec<_>>().into());
    }
    let listening = served::listen(address).await;
    let (listener, at) = listening.map_err(|line| Failure::new(Exit::Failed, line))?;
    if !at.ip().is_loopback() {
        tracing::warn!(
            address = %at,
            "signatures are not checked: anyone who reaches this address may read, send and delete"
        );
    }
    let data = (!memory).then_some(&*places.stores.data);
    let client = served.client(data);
    let admin = match (admin, embedded()) {
        (Some(admin), Some(backend)) => {
            let queues = (client, !memory);
            Some(EmbeddedAdmin::start(admin, &places.stores, backend, queues).await?)
        }
        _ => None,
    };
    if memory && at.ip().is_loopback() {
        served = served.with_test_calls(places.queues.clone());
    }
    let folder = if memory {
        "none: in memory".to_owned()
    } else {
        places.stores.data.display().to_string()
    };
    tracing::info!(
        address = %at,
        folder,
        "serving the embedded queue over the SQS protocol"
    );
    output::note(exports(at));
    let stop = CancellationToken::new();
    let answering = dispatcher_core::tasks::spawn(served.serve(listener, stop.clone()));
    let drained = async {
        match &admin {
            Some(admin) => admin.drain.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = signals.next() => {}
        () = drained => {}
    }
    tracing::info!("stopping");
    if let Some(admin) = admin {
        admin.finish().await;
    }
    stop.cancel();
    answering.finished().await;
    tracing::info!("stopped");
    Ok(())
}
