//! Tests of the store's time: dates that are set, processes that open the file again, and machines
//! that start again, on a simulated clock.

use crate::queue::claim::receive;
use crate::queue::deliver::send;
use crate::queue::lines::WaitingReceive;
use crate::queue::look::{depth, queue_id};
use crate::queue::notifier::FileNotifier;
use crate::queue::schema;
use crate::queue::time::{StoreClock, StoreTime, StoredTime, SystemTimes, keep, zero};
use crate::queue::turn::QueueId;
use crate::queue::work::{Durability, Handle, WriterRequest, without_reply};
use crate::queue::writer::QueueWriter;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::clock::simulated::{Simulation, pass, reboot, set_date};
use dispatcher_core::message::{Message, OutgoingMessage};
use dispatcher_core::queue::{Ask, QueueError, ReceivedMessages};
use dispatcher_sqlite::Database;
use proptest::prelude::*;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

const SECOND: Duration = Duration::from_secs(1);
const HOUR_MS: i64 = 3_600_000;
const DATE: Timestamp = Timestamp(1_800_000_000_000);

/// A process that has the file open.
struct Process {
    connection: Database,
    clock: StoreClock,
    queue: QueueId,
}

impl Process {
    fn start(folder: &tempfile::TempDir) -> Self {
        let (_, connection, _) = schema::open(folder.path()).unwrap();
        let clock = StoreClock::of(&connection).unwrap();
        let queue = queue_id(&connection, "q").unwrap();
        Self {
            connection,
            clock,
            queue,
        }
    }

    fn send(&self, body: &str, delay: Duration) {
        let item = outgoing(body, delay);
        let mut turn = self.clock.turn(&self.connection);
        send(&mut turn, self.queue, &[item]).unwrap();
        keep(&turn).unwrap();
    }

    /// Takes all there is, for 30 s.
    fn take(&self, newest_first: bool) -> Vec<Message> {
        let mut turn = self.clock.turn(&self.connection);
        let ask = Ask {
            newest_first,
            ..ask(10)
        };
        let received = receive(&mut turn, self.queue, "local:q", ask).unwrap();
        keep(&turn).unwrap();
        received.messages
    }

    fn bodies(&self) -> Vec<String> {
        let messages = self.take(false).into_iter();
        messages.map(|message| message.body).collect()
    }
}

fn outgoing(body: &str, delay: Duration) -> OutgoingMessage {
    OutgoingMessage {
        body: body.into(),
        delay,
        ..OutgoingMessage::default()
    }
}

fn ask(max: usize) -> Ask {
    Ask {
        max,
        visibility: 30 * SECOND,
        wait: 20 * SECOND,
        newest_first: false,
        ..Ask::PLAIN
    }
}

/// With a process that stays and with one that opens the file again at every step.
fn each(test: impl Fn(&dyn Fn(Option<Process>) -> Process)) {
    for stays in [true, false] {
        let _simulation = Simulation::begin(DATE);
        pass(100 * SECOND);
        let folder = tempfile::tempdir().unwrap();
        test(&|before| match before {
            Some(process) if stays => process,
            _ => Process::start(&folder),
        });
    }
}

#[test]
fn clock_set_forward_ends_no_lease_and_no_delay() {
    each(|step| {
        let process = step(None);
        process.send("leased", Duration::ZERO);
        assert_eq!(process.bodies(), ["leased"]);
        process.send("delayed", 60 * SECOND);
        set_date(HOUR_MS);
        let process = step(Some(process));
        assert_eq!(process.bodies(), [""; 0]);
        pass(30 * SECOND);
        let process = step(Some(process));
        assert_eq!(process.bodies(), ["leased"]);
        pass(29 * SECOND);
        assert_eq!(process.bodies(), [""; 0]);
        pass(SECOND);
        assert_eq!(process.bodies(), ["leased", "delayed"]);
    });
}

#[test]
fn clock_set_back_hides_no_message() {
    each(|step| {
        let process = step(None);
        process.send("waiting", Duration::ZERO);
        process.send("delayed", 60 * SECOND);
        set_date(-HOUR_MS);
        let process = step(Some(process));
        assert_eq!(process.bodies(), ["waiting"]);
        pass(60 * SECOND);
        let process = step(Some(process));
        assert_eq!(process.bodies(), ["waiting", "delayed"]);
    });
}

#[test]
fn send_order_and_ages_are_correct_whatever_the_wall_clock() {
    each(|step| {
        let process = step(None);
        process.send("old", Duration::ZERO);
        pass(2 * SECOND);
        set_date(-HOUR_MS);
        let process = step(Some(process));
        process.send("new", Duration::ZERO);
        pass(3 * SECOND);
        set_date(3 * HOUR_MS);
        let process = step(Some(process));
        let turn = process.clock.turn(&process.connection);
        let oldest = depth(&turn, process.queue).unwrap().oldest;
        assert_eq!(oldest, Some(5 * SECOND));
        let taken = process.take(true);
        let age = |message: &Message| clock::wall_clock_now().since(message.sent_at.unwrap());
        let told: Vec<_> = taken.iter().map(|m| (&*m.body, age(m))).collect();
        assert_eq!(told, [("new", 3 * SECOND), ("old", 5 * SECOND)]);
        let first = taken[0].first_received_at.unwrap();
        assert_eq!(clock::wall_clock_now().since(first), Duration::ZERO);
    });
}

#[test]
fn processes_of_one_boot_agree_on_the_time() {
    let _simulation = Simulation::begin(DATE);
    let folder = tempfile::tempdir().unwrap();
    let first = Process::start(&folder);
    let mut expected = first.clock.now();
    for jump in [HOUR_MS, -2 * HOUR_MS, 0] {
        pass(7 * SECOND);
        expected = expected + 7 * SECOND;
        set_date(jump);
        first.send("x", Duration::ZERO);
        assert_eq!(first.clock.now(), expected);
        assert_eq!(Process::start(&folder).clock.now(), first.clock.now());
    }
}

#[test]
fn time_off_counts_after_a_reboot() {
    let _simulation = Simulation::begin(DATE);
    let folder = tempfile::tempdir().unwrap();
    pass(1_000 * SECOND);
    let process = Process::start(&folder);
    process.send("soon", 60 * SECOND);
    // Before the last write: it harms nothing even after the reboot.
    set_date(HOUR_MS);
    process.send("later", 120 * SECOND);
    assert_eq!(process.bodies(), [""; 0]);
    pass(10 * SECOND);
    drop(process);
    reboot();
    pass(55 * SECOND);
    let process = Process::start(&folder);
    assert_eq!(process.bodies(), ["soon"]);
    pass(55 * SECOND);
    assert_eq!(Process::start(&folder).bodies(), ["soon", "later"]);
}

#[test]
fn clock_set_back_across_a_reboot_delays_by_at_most_the_time_off() {
    for jump in [-HOUR_MS, -1_000 * HOUR_MS] {
        let _simulation = Simulation::begin(DATE);
        let folder = tempfile::tempdir().unwrap();
        pass(1_000 * SECOND);
        let process = Process::start(&folder);
        process.send("leased", Duration::ZERO);
        assert_eq!(process.bodies(), ["leased"]);
        process.send("delayed", 60 * SECOND);
        pass(20 * SECOND);
        process.send("waiting", Duration::ZERO);
        drop(process);
        reboot();
        set_date(jump);
        pass(5 * SECOND);
        let process = Process::start(&folder);
        assert_eq!(process.bodies(), ["waiting"]);
        pass(10 * SECOND);
        assert_eq!(process.bodies(), ["leased"]);
        pass(30 * SECOND);
        assert_eq!(process.bodies(), ["leased", "waiting", "delayed"]);
    }
}

type Answer = oneshot::Receiver<Result<ReceivedMessages, QueueError>>;

/// The thread's own work, by hand.
fn writer(folder: &tempfile::TempDir) -> (QueueWriter, mpsc::Sender<WriterRequest>) {
    let (place, connection, notifier) = schema::open(folder.path()).unwrap();
    let clock = StoreClock::of(&connection).unwrap();
    let (sender, jobs) = mpsc::channel();
    let handle = std::sync::Weak::<Handle>::new();
    let notifier = FileNotifier::new(place.notifier_file(), notifier);
    let writer = QueueWriter::new(place, (connection, clock), notifier, jobs, handle);
    (writer, sender)
}

fn receiver(queue: QueueId) -> (WriterRequest, Answer) {
    let (reply, answer) = oneshot::channel();
    let asked = WaitingReceive {
        name: "local:q".into(),
        ask: ask(1),
        terms: crate::queue::deliver::DeliveryTerms::default(),
        until: clock::now() + 20 * SECOND,
        reply,
    };
    (WriterRequest::Receive(queue, asked), answer)
}

#[test]
fn receiver_wakes_on_time_whatever_the_wall_clock() {
    for jump in [HOUR_MS, -HOUR_MS] {
        let _simulation = Simulation::begin(DATE);
        let folder = tempfile::tempdir().unwrap();
        let queue = Process::start(&folder).queue;
        let (mut writer, _jobs) = writer(&folder);
        let delayed = [outgoing("soon", Duration::from_millis(1_300))];
        let sending = without_reply(Durability::Full, move |turn| {
            send(turn, queue, &delayed).map(drop)
        });
        let (waiting, mut answer) = receiver(queue);
        writer.round(vec![WriterRequest::Work(sending), waiting]);
        // A second at a time, in case somebody did not ring.
        assert_eq!(writer.calm(), Some(SECOND));
        pass(SECOND);
        set_date(jump);
        writer.round(Vec::new());
        assert!(answer.try_recv().is_err(), "early");
        assert_eq!(writer.calm(), Some(Duration::from_millis(300)));
        pass(Duration::from_millis(300));
        writer.round(Vec::new());
        let received = answer.try_recv().expect("on time").expect("no error");
        assert_eq!(received.messages[0].body, "soon");
        assert_eq!(writer.calm(), None);
    }
}

fn heres() -> impl Strategy<Value = SystemTimes> {
    let boot = prop::option::of(prop_oneof![Just("a".to_owned()), Just("b".to_owned())]);
    let up = 0..100_000_000_u64;
    let today = prop_oneof![4 => 0..4_000_000_000_000_u64, 1 => any::<u64>()];
    (boot, up, today).prop_map(|(boot, up, today)| SystemTimes {
        boot,
        up: Duration::from_millis(up),
        today: Timestamp(today),
    })
}

fn kepts() -> impl Strategy<Value = StoredTime> {
    let boot = prop::option::of(prop_oneof![Just("a".to_owned()), Just("b".to_owned())]);
    let ms = || 0..4_000_000_000_000_i64;
    let boot = prop::option::of((boot, (-100_000_000..4_000_000_000_000_i64)));
    (boot, ms(), ms()).prop_map(|(boot, seen, on)| StoredTime {
        boot: boot.map(|(boot, zero)| (boot, StoreTime(zero))),
        seen: StoreTime(seen),
        seen_on: Timestamp(on.unsigned_abs()),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the machine says: not before what was noted, and not later than the calendar.
    #[test]
    fn store_time_never_goes_back(kept in kepts(), here in heres()) {
        let (begun, news) = zero(&kept, &here);
        let now = begun + here.up;
        prop_assert!(now >= kept.seen);
        if kept.boot.as_ref().is_none_or(|(_, before)| *before != begun) {
            prop_assert!(news);
            let passed = here.today.since(kept.seen_on).max(SECOND);
            prop_assert_eq!(now, kept.seen + passed);
        }
    }

    /// On one boot the date decides nothing.
    #[test]
    fn store_time_does_not_depend_on_the_wall_clock_within_one_boot(kept in kepts(), here in heres(), later in 0..100_000_000_u64, today: u64) {
        let (begun, _) = zero(&kept, &here);
        let kept = StoredTime {
            boot: Some((here.boot.clone(), begun)),
            seen: begun + here.up,
            seen_on: here.today,
        };
        let later = SystemTimes {
            up: here.up + Duration::from_millis(later),
            today: Timestamp(today),
            ..here
        };
        prop_assert_eq!(zero(&kept, &later), (begun, false));
        let nameless = SystemTimes { boot: None, ..later };
        prop_assert_eq!(zero(&kept, &nameless), (begun, false));
    }

    /// A history of one file: its time is as long as the machine ran, continues over reboots, and
    /// never is before a moment that was written.
    #[test]
    fn no_sequence_of_reboots_and_clock_changes_turns_time_back(steps in prop::collection::vec((0..4_u8, 0..5_000_i64), 1..30)) {
        let _simulation = Simulation::begin(DATE);
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::start(&folder);
        let mut written = process.clock.now();
        for (step, much) in steps {
            let before = process.clock.now();
            match step {
                0 => {
                    let time = Duration::from_millis(much.unsigned_abs());
                    pass(time);
                    prop_assert_eq!(process.clock.now(), before + time);
                }
                1 => set_date((much - 2_500) * 3_600),
                2 => {
                    process.send("x", Duration::ZERO);
                    written = process.clock.now();
                }
                _ => {
                    if much % 2 == 0 {
                        reboot();
                    }
                    process = Process::start(&folder);
                    prop_assert!(much % 2 == 0 || process.clock.now() == before);
                }
            }
            prop_assert!(process.clock.now() >= written);
        }
    }
}
