//! Runs a scenario: the world, its processes, what happens to them, and a quiet end in which
//! everything must come to rest.

use crate::circumstances::MetCircumstances;
use crate::process::Process;
use crate::scenario::{HappeningKind, Scenario, SimulatedEvent};
use crate::world::port::sleep;
use crate::world::{Broken, Calls, Event, NONE, Sim, World};
use dispatcher_core::clock;
use dispatcher_core::clock::simulated;
use dispatcher_core::clock::simulated::Simulation;
use dispatcher_core::clock::{BootInstant, Timestamp};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The date on which every run begins.
const DATE: Timestamp = Timestamp(1_800_000_000_000);
/// The grace of the last stop.
const LAST_GRACE: Duration = Duration::from_secs(30);
/// What waits for a number of events waits no longer than this.
const EVENTS_COME_WITHIN: Duration = Duration::from_secs(60);
/// Time moves at most so often in a run, for each event: whoever wakes more often spins.
const WAKES_PER_EVENT: u64 = 40;

thread_local! {
    static WAKES: Cell<u64> = const { Cell::new(0) };
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndedRun {
    pub broken: Vec<Broken>,
    pub trace: Vec<Event>,
    pub calls: Calls,
    pub met: BTreeSet<MetCircumstances>,
    pub took: Duration,
    pub wakes: u64,
}

/// Runs it to its end, in this thread.
pub(crate) fn run(scenario: &Scenario) -> EndedRun {
    fastrand::seed(scenario.seed);
    WAKES.set(0);
    let simulation = Simulation::begin(DATE);
    simulated::set_step(Duration::from_micros(scenario.step_us));
    let sim = Sim::new(World::new(Arc::new(scenario.clone())));
    let parked = sim.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || {
            WAKES.set(WAKES.get() + 1);
            if let Some(now) = simulated::before_jump() {
                parked.lock().check_workers(now);
            }
            simulated::advance();
        })
        .build()
        .expect("a runtime of one thread needs nothing that could be missing");
    runtime.block_on(drive(&sim));
    let took = clock::now().since(BootInstant::default());
    drop(runtime);
    drop(simulation);
    let mut world = sim.lock();
    let wakes = WAKES.get();
    let seconds = took.as_secs();
    if wakes > WAKES_PER_EVENT * (world.trace.len() as u64 + seconds + 100) {
        let why = format!("{wakes} wakes in {took:?} and {} events", world.trace.len());
        world.broken.push(Broken {
            rule: "spins",
            at: BootInstant::default() + took,
            why,
        });
    }
    EndedRun {
        broken: std::mem::take(&mut world.broken),
        trace: std::mem::take(&mut world.trace),
        calls: world.calls,
        met: std::mem::take(&mut world.met),
        took,
        wakes,
    }
}

async fn drive(sim: &Sim) {
    let scenario = sim.lock().scenario.clone();
    let start = |_| Process::start(sim);
    let mut slots: Vec<Process> = (0..scenario.processes).map(start).collect();
    let mut former: Vec<Process> = Vec::new();
    let sending = tokio::spawn(send(sim.clone()));
    for happening in &scenario.happenings {
        wait(sim, happening).await;
        befall(sim, happening.what, &mut slots, &mut former);
    }
    // A failed send would be the world's own fault.
    sending.await.expect("sending goes on to its end");
    {
        let mut world = sim.lock();
        world.trouble(false);
        world.closed = false;
        world.quiet = true;
        world.limits.reached = clock::now();
        world.note("quiet", NONE, NONE, vec![]);
    }
    for slot in &mut slots {
        slot.resume_all(sim);
        if !slot.is_running() {
            former.push(std::mem::replace(slot, Process::start(sim)));
        }
    }
    rest(sim, &slots).await;
    for slot in &mut slots {
        slot.stop(sim, LAST_GRACE);
    }
    let everyone = || slots.iter().chain(&former);
    let within = clock::now() + Duration::from_secs(3_600);
    while everyone().any(|one| !sim.lock().lives[one.life].dead) && clock::now() < within {
        wait_for_event(sim, within).await;
    }
    for one in everyone().filter(|one| one.broken.is_cancelled()) {
        let life = one.life;
        if !sim.lock().lives[life].dead {
            sim.lock().fails("broken", format!("process {life}"));
        }
    }
    // Whoever still calls now would be heard of.
    sleep(Duration::from_secs(1)).await;
    sim.lock().check_end();
}

async fn send(sim: Sim) {
    let scenario = sim.lock().scenario.clone();
    for sending in &scenario.sends {
        let at = BootInstant::from_boot(Duration::from_millis(sending.at_ms));
        clock::sleep_until(Some(at)).await;
        sim.lock().send(*sending);
    }
}

/// Until something happens, or until `at`.
async fn wait_for_event(sim: &Sim, at: BootInstant) {
    let happened = sim.lock().happened.clone();
    tokio::select! {
        biased;
        () = happened.notified() => {}
        () = clock::sleep_until(Some(at)) => {}
    }
}

async fn wait(sim: &Sim, happening: &SimulatedEvent) {
    if happening.after_events == 0 {
        return sleep(Duration::from_millis(happening.after_ms)).await;
    }
    let events = sim.lock().trace.len() as u64 + happening.after_events;
    let within = clock::now() + EVENTS_COME_WITHIN;
    while (sim.lock().trace.len() as u64) < events && clock::now() < within {
        wait_for_event(sim, within).await;
    }
}

fn befall(sim: &Sim, what: HappeningKind, slots: &mut [Process], former: &mut Vec<Process>) {
    match what {
        HappeningKind::Crash(slot) => slots[slot].crash(sim),
        HappeningKind::Stop(slot, grace_ms) => {
            slots[slot].stop(sim, Duration::from_millis(grace_ms))
        }
        HappeningKind::Start(slot) if !slots[slot].is_running() => {
            let new = Process::start(sim);
            former.push(std::mem::replace(&mut slots[slot], new));
        }
        HappeningKind::Start(_) => {}
        HappeningKind::Pause(slot, queue, paused) => slots[slot].pause(sim, queue, paused),
        HappeningKind::Limit(slot, attempts) => slots[slot].limit(sim, attempts),
        HappeningKind::Weight(slot, tenant, weight) => slots[slot].weigh(sim, tenant, weight),
        HappeningKind::Reload(slot) => slots[slot].reload(sim),
        HappeningKind::Parted(slot, parted) => {
            let life = slots[slot].life;
            sim.lock().part(life, parted);
        }
        HappeningKind::Suspend(ms) => sim.lock().stand_still(Duration::from_millis(ms)),
        HappeningKind::Date(on_ms) => sim.lock().set_date(on_ms),
        HappeningKind::Faults(on) => sim.lock().trouble(on),
        HappeningKind::Closed(closed) => {
            let mut world = sim.lock();
            world.closed = closed;
            world.note(if closed { "closed" } else { "open" }, NONE, NONE, vec![]);
        }
    }
}

/// Until nothing is left in any queue, but no longer than it may take.
async fn rest(sim: &Sim, slots: &[Process]) {
    let within = clock::now() + sim.lock().patience();
    while !sim.lock().is_at_rest() && clock::now() < within {
        let over = slots.iter().any(|slot| slot.broken.is_cancelled());
        if over || !sim.lock().broken.is_empty() {
            return; // there is nothing more to learn
        }
        wait_for_event(sim, within).await;
    }
}
