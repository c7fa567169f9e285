//! Everything between the program and its queue breaks, and so do guests. Knows what is broken and
//! when.

use crate::Options;
use crate::backend::EnduranceBackend;
use crate::process::Dispatcher;
use crate::samples::{self, Sample};
use crate::scene::{LEASE, Site};
use crate::traffic::{Load, send_until};
use dispatcher_tests::bodies::AllowedCharacters;
use dispatcher_tests::chaos::Chaos;
use dispatcher_tests::child::Signal;
use dispatcher_tests::servers::MiniStack;
use fastrand::Rng;
use std::time::{Duration, Instant};
use tokio::sync::RwLock;

/// Of a thousand calls so many are broken.
const BROKEN_PERMILLE: u32 = 80;
/// Dispatchers of each backend.
const SEVERAL: usize = 2;
/// How often the processes are looked at.
const EVERY: Duration = Duration::from_secs(10);

const LOAD: Load = Load {
    per_second: [20.0, 10.0, 10.0, 2.0],
    large_permille: 5,
    odd: None,
};

/// Runs it; whether all holds.
pub(crate) async fn run(options: &Options) -> bool {
    let folder = options.folder();
    let until = Instant::now() + options.for_long();
    let (local, sqs) = tokio::join!(
        async {
            if options.backend.has_local() {
                local(options, &folder, until).await
            } else {
                true
            }
        },
        async {
            if options.backend.has_sqs() {
                sqs(options, &folder, until).await
            } else {
                true
            }
        }
    );
    local && sqs
}

async fn local(options: &Options, folder: &std::path::Path, until: Instant) -> bool {
    let backend = EnduranceBackend::local(folder);
    let site = Site::new(&options.binary(), folder, backend, None, false);
    let dispatchers: Vec<Dispatcher> = (0..SEVERAL).map(|_| site.start()).collect();
    let (gate, seed) = (RwLock::new(()), options.seed());
    let load = Load {
        odd: Some(AllowedCharacters::All),
        ..LOAD
    };
    let ((), (), (), table) = tokio::join!(
        send_until(&site, load, until, &gate, seed),
        stop_and_go(&site, &dispatchers, until, Rng::with_seed(seed ^ 1)),
        jump(until),
        watch(&dispatchers, until),
    );
    conclude(&site, dispatchers, &table).await
}

async fn sqs(options: &Options, folder: &std::path::Path, until: Instant) -> bool {
    let seed = options.seed();
    let server = MiniStack::start();
    let chaos = Chaos::before(server.address(), BROKEN_PERMILLE, seed);
    let backend = EnduranceBackend::sqs(folder, &server.url()).await;
    let site = Site::new(&options.binary(), folder, backend, Some(chaos.url()), true);
    let dispatchers: Vec<Dispatcher> = (0..SEVERAL).map(|_| site.start()).collect();
    let gate = RwLock::new(());
    let load = Load {
        odd: Some(AllowedCharacters::Xml),
        ..LOAD
    };
    let ((), (), table, server) = tokio::join!(
        send_until(&site, load, until, &gate, seed),
        stop_and_go(&site, &dispatchers, until, Rng::with_seed(seed ^ 2)),
        watch(&dispatchers, until),
        restart(server, &gate, until, Rng::with_seed(seed ^ 3)),
    );
    chaos.set(0);
    let holds = conclude(&site, dispatchers, &table).await;
    for ((target, fault), times) in chaos.counts() {
        let fault = fault.map_or("Passed".to_owned(), |fault| format!("{fault:?}"));
        crate::print(&format!("sqs: {target} {fault} {times}\n"));
    }
    drop(server);
    holds
}

/// Stops a process as a suspended machine would, now and then for longer than its leases.
async fn stop_and_go(site: &Site, dispatchers: &[Dispatcher], until: Instant, mut dice: Rng) {
    loop {
        tokio::time::sleep(Duration::from_millis(dice.u64(8_000..25_000))).await;
        if Instant::now() >= until {
            return;
        }
        let one = &dispatchers[dice.usize(..dispatchers.len())];
        let longest = u64::try_from(LEASE.as_millis()).expect("seconds") * 3 / 2;
        let from = site.account.now_ms();
        one.signal(Signal::STOP);
        tokio::time::sleep(Duration::from_millis(dice.u64(200..longest))).await;
        one.signal(Signal::CONT);
        let to = site.account.now_ms();
        site.account.ledger().stopped(one.number, from, to);
    }
}

/// Restarts the server now and then; nothing is sent meanwhile, and what it holds survives.
async fn restart(
    mut server: MiniStack,
    gate: &RwLock<()>,
    until: Instant,
    mut dice: Rng,
) -> MiniStack {
    loop {
        tokio::time::sleep(Duration::from_secs(dice.u64(40..90))).await;
        if Instant::now() + Duration::from_secs(20) >= until {
            return server;
        }
        let shut = gate.write().await;
        crate::print("sqs: the server is restarted\n");
        server = tokio::task::spawn_blocking(move || server.restart())
            .await
            .expect("the server starts again");
        drop(shut);
    }
}

/// Where libfaketime reads how far the clock is off, if the whole is run under it.
const CLOCK_FILE: &str = "FAKETIME_TIMESTAMP_FILE";

/// Sets the clock of all processes an hour forth, right, an hour back, right, and so on.
async fn jump(until: Instant) {
    let Some(file) = std::env::var_os(CLOCK_FILE) else {
        return;
    };
    for offset in ["+3600", "+0", "-3600", "+0"].iter().cycle() {
        tokio::time::sleep(Duration::from_secs(15)).await;
        let last = Instant::now() >= until;
        let offset = if last { "+0" } else { offset };
        crate::print(&format!("local: the clock is set to {offset} s\n"));
        std::fs::write(&file, format!("{offset}\n")).expect("the file is ours");
        if last {
            return;
        }
    }
}

async fn watch(dispatchers: &[Dispatcher], until: Instant) -> Vec<Vec<Sample>> {
    let began = Instant::now();
    let mut table = vec![Vec::new(); dispatchers.len()];
    let mut ticks = tokio::time::interval(EVERY);
    while Instant::now() + EVERY < until {
        ticks.tick().await;
        for (samples, dispatcher) in table.iter_mut().zip(dispatchers) {
            // Without the metrics page: a stopped process would not answer.
            samples.extend(samples::take(
                began.elapsed().as_secs_f64(),
                dispatcher.id(),
                None,
            ));
        }
    }
    table
}

async fn conclude(site: &Site, dispatchers: Vec<Dispatcher>, table: &[Vec<Sample>]) -> bool {
    let numbers: Vec<u32> = dispatchers.iter().map(|one| one.number).collect();
    let conclusion = site.conclude(dispatchers).await;
    let mut text = site.report(&conclusion);
    for (number, samples) in numbers.iter().zip(table) {
        let name = format!("{} {number}", site.backend.name());
        text.push_str(&samples::report(&name, samples).0);
    }
    crate::print(&text);
    conclusion.holds()
}
