//! Steady, moderate load for long: nothing may grow. Knows no faults but those of one guest.

use crate::Options;
use crate::process::Dispatcher;
use crate::samples::{self, Sample};
use crate::scene::Site;
use crate::traffic::{Load, send_until};
use dispatcher_tests::servers::MiniStack;
use std::time::{Duration, Instant};
use tokio::sync::RwLock;

/// How often the processes are looked at.
const EVERY: Duration = Duration::from_secs(10);
/// Of each backend: about 60 messages a second together.
const LOAD: Load = Load {
    per_second: [30.0, 15.0, 14.0, 1.0],
    large_permille: 2,
    odd: None,
};

/// Runs it; whether all holds.
pub(crate) async fn run(options: &Options) -> bool {
    let server = MiniStack::start();
    let folder = options.folder();
    let sites = Site::all(options, &folder, &server.url()).await;
    let dispatchers: Vec<Dispatcher> = sites.iter().map(Site::start).collect();
    let began = Instant::now();
    let until = began + options.for_long();
    let gate = RwLock::new(());
    let sending = async {
        let seeds = options.seed()..;
        let streams = sites.iter().zip(seeds);
        let streams = streams.map(|(site, seed)| send_until(site, LOAD, until, &gate, seed));
        crate::all(streams).await;
    };
    let watching = watch(&sites, &dispatchers, began, until);
    let ((), table) = tokio::join!(sending, watching);
    let mut holds = true;
    let named: Vec<(&str, Vec<Sample>)> = sites
        .iter()
        .map(|site| site.backend.name())
        .zip(table)
        .collect();
    for (site, dispatcher) in sites.iter().zip(dispatchers) {
        let conclusion = site.conclude(vec![dispatcher]).await;
        holds &= conclusion.holds();
        crate::print(&site.report(&conclusion));
    }
    for (name, samples) in &named {
        let (report, flat) = samples::report(name, samples);
        holds &= flat;
        crate::print(&report);
    }
    let csv = options.csv();
    match samples::write_csv(&csv, &named) {
        Ok(()) => crate::print(&format!("samples in {}\n", csv.display())),
        Err(error) => crate::print(&format!("cannot write {}: {error}\n", csv.display())),
    }
    holds
}

/// Samples of every process until then.
async fn watch(
    sites: &[Site],
    dispatchers: &[Dispatcher],
    began: Instant,
    until: Instant,
) -> Vec<Vec<Sample>> {
    let pages: Vec<String> = dispatchers.iter().map(Dispatcher::admin).collect();
    let mut table = vec![Vec::new(); dispatchers.len()];
    let mut ticks = tokio::time::interval(EVERY);
    while Instant::now() + EVERY < until {
        ticks.tick().await;
        let at_s = began.elapsed().as_secs_f64();
        for (at, dispatcher) in dispatchers.iter().enumerate() {
            let sample = samples::take(at_s, dispatcher.id(), Some(&pages[at]));
            let Some(sample) = sample else {
                crate::print(&format!(
                    "{}: the process is gone\n",
                    sites[at].backend.name()
                ));
                continue;
            };
            table[at].push(sample);
            let [memory, files, threads, tasks] = sample.values;
            let (sent, printed) = {
                let ledger = sites[at].account.ledger();
                (ledger.sent(), ledger.printed())
            };
            crate::print(&format!(
                "{at_s:>7.0} s  {:<6} {memory:>7.1} MiB {files:>4} files {threads:>3} threads \
                 {tasks:>4} tasks  sent {sent} handled {printed}\n",
                sites[at].backend.name()
            ));
        }
    }
    table
}
