//! Jobs of one queue that wait for limits.

use super::*;
use crate::fleet::WhenAway;
use crate::fleet::keeper::FleetPermit;
use crate::fleet::ledger::{LimitRecord, decide};
use crate::fleet::limit::{Limit, LimitNeed, LimitNumbers, LimitWeight};
use crate::message::place::{MessageKey, MessagePlace};

#[derive(Debug)]
struct LimitedJob {
    number: u32,
    needs: Needs,
    last_chance: bool,
    permit: Option<FleetPermit>,
    tenant: &'static str,
    hastens_ms: Option<u64>,
}

impl WaitingJob for LimitedJob {
    fn group(&self) -> Option<&str> {
        None
    }

    fn needs(&self) -> Option<&Needs> {
        Some(&self.needs)
    }

    fn tenant(&self) -> &str {
        self.tenant
    }

    fn hastens(&self) -> Option<BootInstant> {
        self.hastens_ms.map(at)
    }

    fn permitted(&mut self, permit: FleetPermit) {
        self.permit = Some(permit);
    }

    fn may_be_given_back(&self) -> bool {
        !self.last_chance
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_millis(1_000_000 + ms))
}

fn job(number: u32, key: Option<&str>) -> LimitedJob {
    let need = LimitNeed {
        limit: usize::from(key.is_some()),
        key: key.map(Arc::from),
        weight: 1,
    };
    LimitedJob {
        number,
        needs: [need].into(),
        last_chance: false,
        permit: None,
        tenant: "",
        hastens_ms: None,
    }
}

/// Lets a process ask the store of these records until it has nothing to ask at this time.
pub(in crate::scheduler) fn ask_store(
    fleet: &Fleet,
    kept: &mut HashMap<String, LimitRecord>,
    now: BootInstant,
) {
    while let (_, Some(request)) = fleet.next(now) {
        let accounts = request.accounts.iter();
        let records: Vec<_> = accounts
            .map(|account| kept.get(&account.record).cloned())
            .collect();
        let (written, grant) = decide(&request, &records, 1_000);
        for (account, record) in request.accounts.iter().zip(written) {
            kept.insert(account.record.clone(), record);
        }
        fleet.answered(&grant, now);
    }
}

/// The jobs of a queue, and the records of the store that the fleet shares.
struct LimitedWorld {
    fleet: Arc<Fleet>,
    jobs: LimitedJobs<LimitedJob>,
    turns: Option<Turns>,
    records: HashMap<String, LimitRecord>,
}

impl LimitedWorld {
    /// Has a limit of two for all jobs, and one of one for each key.
    fn new() -> Self {
        let fleet = Self::process("p");
        Self {
            jobs: LimitedJobs::new(fleet.clone(), Sequence::Fifo, false, false),
            turns: None,
            fleet,
            records: HashMap::new(),
        }
    }

    /// A process of this name.
    fn process(name: &str) -> Arc<Fleet> {
        let limit = |name: &str, most, key| Limit {
            name: name.to_owned(),
            numbers: LimitNumbers {
                concurrency: Some(most),
                rate: None,
            },
            key,
            overrides: HashMap::new(),
            weight: LimitWeight::Fixed(1),
            shadow: false,
            hides_keys: false,
        };
        let key = MessageKey::Place(MessagePlace::Attribute("k".to_owned()));
        let limits = vec![limit("all", 2, None), limit("each", 1, Some(key))];
        Arc::new(Fleet::new(name.to_owned(), limits, WhenAway::Closed))
    }

    /// Lets the process ask the store until it has nothing to ask at this time.
    fn ask(&mut self, now: BootInstant) {
        ask_store(&self.fleet, &mut self.records, now);
        self.jobs.changed();
    }

    /// Shares the jobs among tenants.
    fn share_out(&mut self) {
        self.jobs.has_tenants = true;
        self.turns = Some(Turns::new(Arc::default()));
    }

    /// Decides about a job that is the next that has not waited for limits.
    fn admit(&mut self, job: LimitedJob, now: BootInstant) -> Admission<LimitedJob> {
        let turn = self.turns.as_mut().map_or(HASTENED, |turns| {
            let turn = turns.add(job.priority(), job.tenant());
            turns.remove(turn, Lack::Worker);
            turn
        });
        self.jobs.admit(job, turn, self.turns.as_mut(), now)
    }

    fn next(&mut self, now: BootInstant) -> Option<LimitedJob> {
        self.jobs.next(|_| true, self.turns.as_mut(), now)
    }

    fn extract(&mut self, which: impl Fn(&LimitedJob) -> bool) -> Vec<LimitedJob> {
        self.jobs.extract(which, self.turns.as_mut())
    }

    fn waits(&mut self, job: LimitedJob, now: BootInstant) -> bool {
        matches!(self.admit(job, now), Admission::Waits)
    }
}

#[test]
fn jobs_that_need_the_same_start_in_their_order() {
    let mut world = LimitedWorld::new();
    for number in 1..=3 {
        assert!(world.waits(job(number, None), at(0)));
    }
    assert!(world.next(at(0)).is_none());
    world.ask(at(0));
    let first = world.next(at(0)).expect("a permit is granted");
    world.ask(at(20));
    let second = world.next(at(20)).expect("another one is granted");
    assert_eq!((first.number, second.number), (1, 2));
    assert!(!world.jobs.is_closed(), "the third was not refused yet");
    world.ask(at(40));
    assert!(world.next(at(40)).is_none() && world.jobs.is_closed());
    assert!(!world.jobs.may_start());
    assert!(
        world.waits(job(4, None), at(20)),
        "it goes behind the third"
    );
    drop(first);
    world.jobs.changed();
    assert_eq!(world.next(at(30)).map(|job| job.number), Some(3));
}

#[test]
fn full_key_delays_no_other() {
    let mut world = LimitedWorld::new();
    assert!(world.waits(job(1, Some("a")), at(0)));
    assert!(world.waits(job(2, Some("a")), at(0)));
    assert!(world.waits(job(3, Some("b")), at(0)));
    world.ask(at(0));
    let first = world.next(at(0)).expect("a permit of a");
    let other = world.next(at(0)).expect("a permit of b");
    assert_eq!((first.number, other.number), (1, 3));
    assert!(world.next(at(0)).is_none());
    assert!(!world.jobs.is_closed(), "others may still start");
    assert_eq!(world.jobs.appetite(100), usize::MAX);
}

#[test]
fn queue_receives_no_more_than_starts_while_all_lack_a_permit() {
    let mut world = LimitedWorld::new();
    assert!(world.waits(job(1, None), at(0)));
    assert_eq!(world.jobs.appetite(0), 0, "one waits and none has started");
    world.jobs.changed();
    assert_eq!(world.jobs.appetite(0), 0, "few tokens may have come");
    world.ask(at(0));
    let _first = world.next(at(0)).expect("a permit is granted");
    assert_eq!(world.jobs.appetite(0), usize::MAX, "none waits");
}

#[test]
fn jobs_beyond_the_most_go_back_unless_it_is_their_last_receive() {
    let mut world = LimitedWorld::new();
    let most = world.jobs.fleet.most_waiting();
    for number in 0..u32::try_from(most).expect("a small number") {
        assert!(world.waits(job(number, Some("a")), at(0)));
    }
    let beyond = world.admit(job(0, Some("a")), at(0));
    assert!(
        matches!(beyond, Admission::GoesBack(_, AGAIN)),
        "{beyond:?}"
    );
    let last = LimitedJob {
        last_chance: true,
        ..job(0, Some("a"))
    };
    assert!(world.waits(last, at(0)));
    assert!(world.jobs.overdue(None, at(29_000)).is_empty());
    let overdue = world.jobs.overdue(None, at(300_000));
    assert_eq!((overdue.len(), world.jobs.len()), (most, 1));
    assert!(world.jobs.overdue(None, at(900_000)).is_empty());
}

#[test]
fn jobs_that_leave_wait_no_more() {
    let mut world = LimitedWorld::new();
    assert!(world.waits(job(1, Some("a")), at(0)));
    assert!(world.waits(job(2, Some("b")), at(0)));
    assert_eq!(world.jobs.iter().count(), 2);
    assert_eq!(world.extract(|job| job.number == 1).len(), 1);
    world.ask(at(0));
    assert_eq!(world.next(at(0)).map(|job| job.number), Some(2));
    assert!(!world.records.contains_key("each/a"), "nobody asked for it");
}

#[test]
fn tenant_of_which_enough_wait_is_parked_until_half_are_gone() {
    let mut world = LimitedWorld::new();
    world.share_out();
    let of = |number, tenant| LimitedJob {
        tenant,
        ..job(number, Some(tenant))
    };
    for number in 0..29 {
        assert!(world.waits(of(number, "full"), at(0)));
    }
    assert!(world.waits(of(99, "other"), at(0)));
    assert!(world.jobs.parked().is_empty());
    assert!(world.waits(of(29, "full"), at(0)));
    let parked = world.jobs.parked().iter().map(String::as_str);
    assert_eq!(parked.collect::<Vec<_>>(), ["full"]);
    let first_half = |job: &LimitedJob| job.number < 15;
    assert_eq!(world.extract(first_half).len(), 15);
    assert_eq!(world.jobs.parked().len(), 1, "half of them still wait");
    assert_eq!(world.extract(|job| job.number == 15).len(), 1);
    assert!(world.jobs.parked().is_empty());
    assert_eq!(world.extract(|_| true).len(), 15);
    assert!(world.jobs.of_tenants.is_empty());
}

#[test]
fn queue_receives_little_once_the_store_has_refused_what_all_need() {
    let mut world = LimitedWorld::new();
    let other = LimitedWorld::process("q");
    let need = job(0, None).needs;
    assert!(world.waits(job(1, None), at(0)));
    world.ask(at(0));
    let _runs = world.next(at(0)).expect("one of two permits");
    other.wait(&need, at(10));
    ask_store(&other, &mut world.records, at(10));
    let _elsewhere = other.start(&need, at(10)).expect("the other permit");
    assert!(world.waits(job(2, None), at(20)));
    ask_store(&world.fleet, &mut world.records, at(40));
    assert!(world.waits(job(3, None), at(50)), "it is behind the second");
    assert_eq!(world.jobs.appetite(0), 0);
}

#[test]
fn jobs_that_become_overdue_together_start_in_the_order_of_their_waits() {
    let mut world = LimitedWorld::new();
    world.share_out();
    for (number, tenant, hastens_ms) in [(1, "a", 300), (2, "a", 200), (3, "b", 100)] {
        let one = LimitedJob {
            tenant,
            hastens_ms: Some(hastens_ms),
            ..job(number, None)
        };
        assert!(world.waits(one, at(0)));
    }
    assert_eq!(world.jobs.hasten(world.turns.as_mut(), at(99)), 0);
    assert_eq!(world.jobs.hasten(world.turns.as_mut(), at(300)), 3);
    assert_eq!(world.jobs.hasten(world.turns.as_mut(), at(301)), 0);
    assert_eq!(world.jobs.iter().count(), 3);
    let mut started = Vec::new();
    for step in 0..3 {
        let now = at(400 + 40 * step);
        world.ask(now);
        started.extend(world.next(now).map(|job| job.number));
    }
    assert_eq!(started, [3, 2, 1]);
    assert!(world.jobs.of_tenants.is_empty() && world.jobs.turns.is_empty());
}
