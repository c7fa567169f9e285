//! `dispatcher local`: serve the embedded queue over the SQS protocol.

use super::{Typed, block_on, flags, output};
use crate::app::drain::Signals;
use crate::config::Places;
use crate::config::problem::Problem;
use crate::error::{Exit, Failure};
use crate::served::{self, Served};
use std::net::{Ipv4Addr, SocketAddr};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  dispatcher local
      any AWS SDK uses the embedded queue with the two lines that this prints
  dispatcher local --listen 127.0.0.1:0 --data ./queues
      on a free port, with a folder of its own

A queue is the same here and elsewhere: what an SDK sends to `payments` is received by
`dispatcher run --queues local:payments`, and `dispatcher send local:payments` reaches the SDK.
Signatures are not checked: who reaches the address may do everything.";

/// Serve the embedded queue over the SQS protocol, so that any AWS SDK can use it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The address to listen on; port 0 is any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9324")]
    pub listen: String,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Serves until a signal.
pub fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let (places, _screen, mut problems) = flags::places(&typed.matches);
    match args.listen.parse() {
        Ok(address) if problems.is_empty() => block_on(serve(&places, address))?,
        Ok(_) => Err(problems.into()),
        Err(_) => {
            let found = format!("`{}` is not an address", args.listen);
            problems.push(Problem::new(
                "--listen",
                found,
                "ADDRESS:PORT, as in 127.0.0.1:9324",
            ));
            Err(problems.into())
        }
    }
}

async fn serve(places: &Places, address: SocketAddr) -> Result<(), Failure> {
    let failed = |line: String| Failure::new(Exit::Failed, line);
    let mut signals = Signals::listen(true)
        .map_err(|error| failed(format!("cannot listen for signals: {error}")))?;
    let served = Served::open(&places.stores.data)?;
    let (listener, at) = served::listen(address).await.map_err(failed)?;
    if !at.ip().is_loopback() {
        tracing::warn!(
            address = %at,
            "signatures are not checked: everybody who reaches this address may read, send and delete"
        );
    }
    tracing::info!(
        address = %at,
        folder = %places.stores.data.display(),
        "serving the embedded queue over the SQS protocol"
    );
    // Where all addresses are listened on, this one is among them.
    let mut reached = at;
    if at.ip().is_unspecified() {
        reached.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    output::note(format!(
        "export AWS_ENDPOINT_URL_SQS=http://{reached} AWS_REGION=us-east-1\n\
         export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local"
    ));
    let stop = CancellationToken::new();
    let answering = crate::tasks::spawn(served.serve(listener, stop.clone()));
    signals.next().await;
    tracing::info!("stopping");
    stop.cancel();
    answering.finished().await;
    tracing::info!("stopped");
    Ok(())
}
