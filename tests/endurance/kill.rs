//! Several dispatchers on the same queues, one of them killed every few seconds. Knows no other
//! fault.

use crate::Options;
use crate::process::Dispatcher;
use crate::scene::Site;
use crate::traffic::{Load, send_until};
use dispatcher_tests::servers::MiniStack;
use fastrand::Rng;
use std::time::{Duration, Instant};
use tokio::sync::RwLock;

/// Dispatchers of each backend at once.
const SEVERAL: usize = 3;

const LOAD: Load = Load {
    per_second: [20.0, 10.0, 10.0, 1.0],
    large_permille: 2,
    odd: None,
};

/// Runs it; whether all holds.
pub(crate) async fn run(options: &Options) -> bool {
    let folder = options.folder();
    let until = Instant::now() + options.for_long();
    let server = MiniStack::start();
    let sites = Site::all(options, &folder, &server.url()).await;
    let gate = RwLock::new(());
    let mut holds = true;
    let seeds = options.seed()..;
    let runs: Vec<_> = sites.iter().zip(seeds).collect();
    let mut left: Vec<Vec<Dispatcher>> = sites.iter().map(|_| Vec::new()).collect();
    {
        let streams = runs
            .iter()
            .map(|(site, seed)| send_until(site, LOAD, until, &gate, *seed));
        let killers = runs
            .iter()
            .zip(&mut left)
            .map(|((site, seed), left)| async {
                *left = kill_until(site, until, Rng::with_seed(*seed ^ 7)).await;
            });
        tokio::join!(crate::all(streams), crate::all(killers));
    }
    for (site, dispatchers) in sites.iter().zip(left) {
        let conclusion = site.conclude(dispatchers).await;
        holds &= conclusion.holds();
        crate::print(&site.report(&conclusion));
    }
    holds
}

/// Kills one after the other and starts another in its place; those that are left.
async fn kill_until(site: &Site, until: Instant, mut dice: Rng) -> Vec<Dispatcher> {
    let mut running: Vec<Dispatcher> = (0..SEVERAL).map(|_| site.start()).collect();
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(dice.u64(500..5_000))).await;
        running.swap_remove(dice.usize(..running.len())).kill();
        running.push(site.start());
    }
    for dispatcher in &running {
        // Before it is up, SIGTERM is a kill like any other.
        dispatcher.admin();
    }
    running
}
