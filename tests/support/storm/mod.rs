//! A storm over the limits of a fleet: processes start messages under limits while one of them is
//! killed each second and others lose their store for a while. Each process writes a log of its starts;
//! an oracle reads all logs. Knows neither queues nor the program.

mod gate;
mod holder;
mod oracle;

use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::fleet::limit::{Limit, LimitNumbers, LimitWeight, Rate};
use dispatcher_core::message::place::{MessageKey, MessagePlace};
use gate::{Gate, GateMode};
pub use holder::hold;
pub use oracle::StormReport;
use oracle::{Fate, Witness};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The time between two kills, and between two processes that lose the store.
const STRIKES: Duration = Duration::from_secs(1);
/// How long a process is without its store, in milliseconds: some for longer than its permits last.
const CUTS_MS: Range<u64> = 200..25_000;
/// How long all processes are, once, if the storm is long enough for it.
const ALL_CUT: Duration = Duration::from_secs(16);
/// The time after which a process that was asked to end is late.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of messages: what each needs, by the index of the limit, the number of its keys (0 for a
/// limit without keys) and the weight.
type KindNeeds = &'static [(usize, u32, u32)];

const WIDE: usize = 0;
const FULL: usize = 1;
const PACED: usize = 2;
const CUSTOMER: usize = 3;
const LONE: usize = 4;
const TENANT: usize = 5;

/// The loops of each process, each with messages of one kind, one after the other.
const LOOPS: [KindNeeds; 14] = [
    &[(WIDE, 0, 1)],
    &[(WIDE, 0, 1)],
    &[(WIDE, 0, 1)],
    &[(WIDE, 0, 1)],
    &[(FULL, 0, 1)],
    &[(FULL, 0, 1)],
    &[(PACED, 0, 1)],
    &[(PACED, 0, 2)],
    &[(LONE, 24, 1)],
    &[(LONE, 24, 1)],
    &[(CUSTOMER, 40, 1)],
    &[(WIDE, 0, 1), (CUSTOMER, 40, 1)],
    &[(WIDE, 0, 3), (TENANT, 10, 1)],
    &[(PACED, 0, 1), (CUSTOMER, 40, 2)],
];

/// The limits: one that is never reached, others that always are, with and without keys.
fn limits() -> Vec<Limit> {
    let all = [
        ("wide", false, Some(600), None),
        ("full", false, Some(24), None),
        ("paced", false, None, Some((300.0, 60))),
        ("customer", true, Some(3), None),
        ("lone", true, Some(1), None),
        ("tenant", true, Some(4), Some((40.0, 10))),
    ];
    let limits = all.map(|(name, has_keys, concurrency, rate)| Limit {
        name: name.to_owned(),
        numbers: LimitNumbers {
            concurrency,
            rate: rate.map(|(per_second, burst)| Rate { per_second, burst }),
        },
        key: has_keys.then(|| MessageKey::Place(MessagePlace::Pointer("/key".to_owned()))),
        overrides: HashMap::new(),
        weight: LimitWeight::Fixed(1),
        shadow: false,
        hides_keys: false,
    });
    limits.into()
}

/// The store that the processes of a storm share.
#[derive(Debug, Clone)]
pub enum StormStore {
    /// A Redis server. Processes reach it through gates that the storm closes.
    Redis(SocketAddr),
    /// A data folder.
    Local(PathBuf),
}

/// A storm to come.
#[derive(Debug, Clone)]
pub struct StormPlan {
    /// How many processes run at a time.
    pub processes: usize,
    /// How long the kills go on.
    pub lasts: Duration,
    /// Their store.
    pub store: StormStore,
    /// The folder of their logs.
    pub logs: PathBuf,
}

/// A running process.
struct Holder {
    child: Child,
    name: String,
    /// When it had no store.
    cuts: Vec<(BootInstant, BootInstant)>,
}

struct Storm<'a> {
    plan: &'a StormPlan,
    command: &'a (dyn Fn() -> Command + Sync),
    /// One for each place of a process, if the store is behind gates.
    gates: Vec<Gate>,
    /// When the gate of each place opens again.
    closed: Vec<Option<BootInstant>>,
    holders: Vec<Holder>,
    witnesses: Vec<Witness>,
    partitions: u64,
}

impl StormPlan {
    /// Runs the storm. `command` starts a process that calls `hold` with the arguments which the
    /// storm adds.
    ///
    /// # Panics
    /// Panics if a process cannot be started, or its log cannot be read.
    #[must_use]
    pub fn run(&self, command: &(dyn Fn() -> Command + Sync)) -> StormReport {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut storm = Storm {
                plan: self,
                command,
                gates: Vec::new(),
                closed: vec![None; self.processes],
                holders: Vec::new(),
                witnesses: Vec::new(),
                partitions: 0,
            };
            if let StormStore::Redis(server) = self.store {
                for _ in 0..self.processes {
                    storm.gates.push(Gate::before(server).await);
                }
            }
            storm.rage().await;
            storm.end().await;
            oracle::judge(&limits(), &storm.witnesses, storm.partitions)
        })
    }
}

impl Storm<'_> {
    /// Kills and cuts off until the time is over.
    async fn rage(&mut self) {
        for place in 0..self.plan.processes {
            let holder = self.start(place);
            self.holders.push(holder);
        }
        let began = clock::now();
        let ends = began + self.plan.lasts;
        let mut cuts_all = self.plan.lasts >= 4 * ALL_CUT;
        let mut strike = began + STRIKES;
        while strike <= ends {
            clock::sleep_until(Some(strike)).await;
            strike = strike + STRIKES;
            self.open_gates(clock::now());
            let place = fastrand::usize(..self.holders.len());
            self.kill(place);
            let place = fastrand::usize(..self.holders.len());
            self.cut(place, Duration::from_millis(fastrand::u64(CUTS_MS)));
            if cuts_all && clock::now() >= began + self.plan.lasts / 2 {
                cuts_all = false;
                for place in 0..self.holders.len() {
                    self.cut(place, ALL_CUT);
                }
            }
        }
        self.open_gates(BootInstant::from_boot(Duration::MAX));
    }

    fn start(&self, place: usize) -> Holder {
        let name = format!("p{}", self.witnesses.len() + self.holders.len());
        let store = match &self.plan.store {
            StormStore::Redis(_) => format!("redis://{}", self.gates[place].address()),
            StormStore::Local(folder) => folder.display().to_string(),
        };
        let mut command = (self.command)();
        command
            .args([&name, &store])
            .arg(self.log(&name))
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Holder {
            child: command.spawn().expect("a process of the storm starts"),
            name,
            cuts: Vec::new(),
        }
    }

    fn log(&self, name: &str) -> PathBuf {
        self.plan.logs.join(format!("{name}.log"))
    }

    fn kill(&mut self, place: usize) {
        let child = &mut self.holders[place].child;
        child.kill().expect("it runs");
        child.wait().expect("it is our child");
        let new = self.start(place);
        let old = std::mem::replace(&mut self.holders[place], new);
        if let Some(opens) = self.closed[place] {
            // The new process has the same gate.
            self.holders[place].cuts.push((clock::now(), opens));
        }
        self.testify(old, Fate::Killed);
    }

    fn testify(&mut self, holder: Holder, fate: Fate) {
        let at = clock::now();
        let log = std::fs::read_to_string(self.log(&holder.name));
        self.witnesses.push(Witness {
            name: holder.name,
            fate,
            ended: at,
            cuts: holder.cuts,
            log: log.unwrap_or_default(),
        });
    }

    /// Closes the gate of a place, if it has one that is open.
    fn cut(&mut self, place: usize, lasts: Duration) {
        let Some(gate) = self.gates.get(place).filter(|gate| gate.is_open()) else {
            return;
        };
        let modes = [GateMode::Cut, GateMode::Held, GateMode::Deaf];
        gate.set(modes[fastrand::usize(..modes.len())]);
        let now = clock::now();
        self.closed[place] = Some(now + lasts);
        self.holders[place].cuts.push((now, now + lasts));
        self.partitions += 1;
    }

    /// Opens the gates whose time is over, and tells until when they were closed.
    fn open_gates(&mut self, until: BootInstant) {
        let now = clock::now();
        for (place, closed) in self.closed.iter_mut().enumerate() {
            if closed.take_if(|opens| *opens <= until).is_some() {
                self.gates[place].set(GateMode::Open);
                if let Some(cut) = self.holders[place].cuts.last_mut() {
                    cut.1 = now;
                }
            }
        }
    }

    /// Asks all processes to end, which give their permits back.
    async fn end(&mut self) {
        let mut holders = std::mem::take(&mut self.holders);
        for holder in &mut holders {
            drop(holder.child.stdin.take());
        }
        let late = clock::now() + PATIENCE;
        for mut holder in holders {
            let status = loop {
                match holder.child.try_wait().expect("it is our child") {
                    Some(status) => break Some(status),
                    None if clock::now() >= late => break None,
                    None => {
                        let look = clock::now() + Duration::from_millis(10);
                        clock::sleep_until(Some(look)).await;
                    }
                }
            };
            if status.is_none() {
                holder.child.kill().expect("it runs");
                holder.child.wait().expect("it is our child");
            }
            let fate = if status.is_some_and(|status| status.success()) {
                Fate::Left
            } else {
                Fate::Failed(format!("{status:?}"))
            };
            self.testify(holder, fate);
        }
    }
}
