//! Whole runs on queues in memory, whose calls fail or hang as a test says.

use super::{
    Destinations, End, JobReport, LetterSource, LookBounds, LookEnd, Marks, Redrive, RedriveError,
    RedriveRefusal, Review, look, run,
};
use crate::request::AtLeastOne;
use crate::select::{Condition, Conditions, ReasonPattern, Select, Selection};
use crate::verbs::redrive::RedriveRequest;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::origin::{FIRST_ID, FIRST_SOURCE};
use dispatcher_core::queue::{
    Ask, BrowseCursor, BrowsePage, DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, Depth, Identity,
    ItemError, Queue, QueueError, QueueFacts, REDRIVEN, ReceivedMessages,
};
use dispatcher_core::telemetry::trace::Tracer;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

mod ends;
mod looks;

const BATCH: usize = 10;

/// One message as it lies in a queue.
#[derive(Debug, Clone)]
struct StoredMessage {
    message: Message,
    is_leased: bool,
}

/// A queue in memory. Leases end when `expire` is called, and not before.
struct Memory {
    identity: Identity,
    lists: bool,
    in_order: bool,
    stored: Mutex<Vec<StoredMessage>>,
    sent: AtomicUsize,
    /// Answers for sends by body; what has none is sent.
    refused: Mutex<BTreeMap<String, ItemError>>,
    /// Whether what is sent here fails again, and so returns to this queue.
    returns_to: Mutex<Option<Arc<Memory>>>,
    receives: AtomicUsize,
    /// Whether deletes are refused.
    keeps: AtomicBool,
    /// Whether a new message comes before each receive.
    arrives: AtomicBool,
    /// Whether messages have no date: those of npm worqr.
    lacks_dates: AtomicBool,
    /// How many that were listed somebody else takes before they are leased.
    stolen: AtomicUsize,
    /// Whether the leases of all that is held end before each receive.
    forgets: AtomicBool,
    /// Calls that are answered before one hangs for ever.
    calls: Arc<AtomicUsize>,
    hangs: AtomicBool,
}

impl Memory {
    fn new(name: &str, lists: bool) -> Arc<Self> {
        Arc::new(Self {
            identity: Identity {
                name: name.into(),
                source: name.into(),
                visibility: Duration::from_secs(30),
                batch: BATCH,
                longest_wait: Duration::ZERO,
                proof_wait: Duration::ZERO,
                ordered_groups: true,
                deduplicates: false,
                dead_letters: false,
                most_receives: None,
                redrive_target: false,
            },
            lists,
            in_order: lists,
            stored: Mutex::default(),
            sent: AtomicUsize::new(0),
            refused: Mutex::default(),
            returns_to: Mutex::default(),
            receives: AtomicUsize::new(0),
            keeps: AtomicBool::new(false),
            arrives: AtomicBool::new(false),
            lacks_dates: AtomicBool::new(false),
            stolen: AtomicUsize::new(0),
            forgets: AtomicBool::new(false),
            calls: Arc::new(AtomicUsize::new(usize::MAX)),
            hangs: AtomicBool::new(false),
        })
    }

    fn put(&self, message: Message) {
        let stored = StoredMessage {
            message,
            is_leased: false,
        };
        self.stored.lock().unwrap().push(stored);
    }

    /// A message that failed again: received soon where a queue has no order.
    fn put_back(&self, message: Message) {
        self.put(message);
        if !self.lists && !self.lacks_dates.load(Ordering::SeqCst) {
            self.stored.lock().unwrap().rotate_right(1);
        }
    }

    fn bodies(&self) -> Vec<String> {
        let stored = self.stored.lock().unwrap();
        stored.iter().map(|one| one.message.body.clone()).collect()
    }

    fn leased(&self) -> usize {
        let stored = self.stored.lock().unwrap();
        stored.iter().filter(|one| one.is_leased).count()
    }

    /// Everybody who held a lease is gone.
    fn expire(&self) {
        for one in self.stored.lock().unwrap().iter_mut() {
            one.is_leased = false;
        }
    }

    /// One call, unless the process has been killed.
    async fn call(&self) {
        let left = self.calls.load(Ordering::SeqCst);
        if left == 0 {
            self.hangs.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        self.calls.store(left.saturating_sub(1), Ordering::SeqCst);
    }

    fn lease(&self, wanted: impl Fn(&Message) -> bool, max: usize) -> Vec<Message> {
        let mut taken = Vec::new();
        for one in self.stored.lock().unwrap().iter_mut() {
            if taken.len() < max && !one.is_leased && wanted(&one.message) {
                one.is_leased = true;
                one.message.receive_count += 1;
                taken.push(one.message.clone());
            }
        }
        taken
    }
}

#[async_trait::async_trait]
impl Queue for Memory {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn facts(&self) -> QueueFacts {
        QueueFacts {
            can_browse: self.lists,
            sends_groups_in_order: self.in_order,
            ..QueueFacts::default()
        }
    }

    async fn receive(
        &self,
        ask: Ask,
        _: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        self.call().await;
        let number = self.receives.fetch_add(1, Ordering::SeqCst);
        if self.forgets.load(Ordering::SeqCst) {
            self.expire();
        }
        if self.arrives.load(Ordering::SeqCst) {
            self.put(Message {
                sent_at: Some(clock::wall_clock_now() + Duration::from_secs(3_600)),
                ..letter(number + 1_000, "trap", None)
            });
        }
        let mut messages = self.lease(|_| true, ask.max);
        if self.lacks_dates.load(Ordering::SeqCst) {
            messages.iter_mut().for_each(|one| one.sent_at = None);
        }
        Ok(ReceivedMessages {
            messages,
            ..ReceivedMessages::default()
        })
    }

    async fn extend(&self, _: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        panic!("nobody extends here")
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        self.call().await;
        let mut stored = self.stored.lock().unwrap();
        let mut settle = |(message, outcome): &(Message, Outcome)| {
            let at = stored
                .iter()
                .position(|one| one.message.id == message.id && one.is_leased);
            let Some(at) = at else {
                return Err(ItemError::Gone("not leased".into()));
            };
            match outcome {
                Outcome::Delete if self.keeps.load(Ordering::SeqCst) => {
                    return Err(ItemError::Refused("no permission".into()));
                }
                Outcome::Delete => drop(stored.remove(at)),
                _ => stored[at].is_leased = false,
            }
            Ok(())
        };
        items.iter().map(&mut settle).collect()
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        self.call().await;
        assert!(items.len() <= BATCH);
        let one = |item: &OutgoingMessage| {
            if let Some(error) = self.refused.lock().unwrap().get(&item.body) {
                return Err(error.clone());
            }
            let number = self.sent.fetch_add(1, Ordering::SeqCst);
            let message = Message {
                id: format!("sent-{number}"),
                body: item.body.clone(),
                attributes: item.attributes.clone(),
                group: item.group.clone(),
                sent_at: Some(clock::wall_clock_now() + Duration::from_secs(3_600)),
                ..Message::default()
            };
            match &*self.returns_to.lock().unwrap() {
                Some(back) => back.put_back(message.clone()),
                None => self.put(message.clone()),
            }
            Ok(message.id)
        };
        items.iter().map(one).collect()
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let in_flight = self.leased();
        let all = self.stored.lock().unwrap().len();
        Ok(Depth {
            waiting: (all - in_flight) as u64,
            in_flight: in_flight as u64,
            ..Depth::default()
        })
    }

    async fn peek(&self, _: usize) -> Result<Vec<Message>, QueueError> {
        panic!("nobody peeks here")
    }

    async fn browse(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        self.call().await;
        let after = after.map_or(String::new(), |cursor| cursor.0.clone());
        let stored = self.stored.lock().unwrap();
        let waiting = stored.iter().filter(|one| !one.is_leased);
        let most = max.min(7);
        let later = waiting.filter(|one| one.message.id > after).take(most);
        let messages: Vec<Message> = later
            .map(|one| Message {
                receipt: Receipt(one.message.id.clone()),
                ..one.message.clone()
            })
            .collect();
        let next = messages.last().filter(|_| messages.len() == most);
        let next = next.map(|last| BrowseCursor(last.id.clone()));
        Ok(BrowsePage { messages, next })
    }

    async fn browse_end(&self) -> Result<BrowseCursor, QueueError> {
        let stored = self.stored.lock().unwrap();
        Ok(BrowseCursor(
            stored
                .last()
                .map_or(String::new(), |one| one.message.id.clone()),
        ))
    }

    async fn receive_these(
        &self,
        listed: &[Receipt],
        _: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        self.call().await;
        let wanted = |message: &Message| listed.iter().any(|receipt| receipt.0 == message.id);
        let stolen = self.stolen.swap(0, Ordering::SeqCst);
        self.lease(wanted, stolen);
        Ok(self.lease(wanted, BATCH))
    }
}

struct QueueSet(BTreeMap<String, Arc<Memory>>);

#[async_trait::async_trait]
impl Destinations for QueueSet {
    fn all(&self) -> Option<Arc<dyn Queue>> {
        None
    }

    async fn source(&self, source: Option<&LetterSource>) -> Result<Arc<dyn Queue>, String> {
        let source = source.ok_or("it names no source")?.name();
        let known = self
            .0
            .get(source)
            .ok_or_else(|| format!("no queue `{source}`"))?;
        Ok(known.clone())
    }
}

/// A dead-letter queue of `count` letters from `a`, and the queue `a`.
struct Scene {
    from: Arc<Memory>,
    to: Arc<Memory>,
    redrive: Redrive,
}

fn letter(number: usize, reason: &str, group: Option<&str>) -> Message {
    Message {
        id: format!("{number:04}"),
        body: format!(r#"{{"n":{number}}}"#),
        attributes: vec![
            Attribute::text(DEAD_LETTER_REASON, reason),
            Attribute::text(DEAD_LETTER_SOURCE, "a"),
        ],
        group: group.map(str::to_owned),
        sent_at: Some(Timestamp(1_000)),
        ..Message::default()
    }
}

fn scene(lists: bool, letters: impl IntoIterator<Item = Message>) -> Scene {
    let from = Memory::new("dead", lists);
    let to = Memory::new("a", lists);
    letters.into_iter().for_each(|letter| from.put(letter));
    let known = BTreeMap::from([
        ("a".to_owned(), to.clone()),
        ("dead".to_owned(), from.clone()),
    ]);
    let redrive = Redrive {
        from: from.clone(),
        is_fifo: false,
        to: Arc::new(QueueSet(known)),
        selection: Selection::default(),
        marks: Marks::Redriven,
        review: None,
        tracer: Tracer::default(),
        sent: Arc::default(),
    };
    Scene { from, to, redrive }
}

fn many(count: usize) -> Vec<Message> {
    (0..count)
        .map(|number| letter(number, "trap", None))
        .collect()
}

const APPLY: fn() -> RedriveRequest = || RedriveRequest {
    apply: Some(true),
    ..RedriveRequest::default()
};

async fn ran(scene: &Scene, request: &RedriveRequest) -> Result<JobReport, RedriveError> {
    let redrive = Redrive {
        selection: request.select.selection(Vec::new()),
        ..scene.redrive.clone()
    };
    run(
        &redrive,
        request,
        &CancellationToken::new(),
        &|_: &JobReport| {},
    )
    .await
}

#[tokio::test]
async fn calls_that_take_letters_are_counted_for_their_queue() {
    let scene = scene(false, many(25));
    let report = ran(&scene, &APPLY()).await.unwrap();
    let all = scene.redrive.sent.all();
    let dead = all.iter().find(|one| one.queue == "dead");
    let dead = dead.expect("they were counted");
    // All were received, and deleted by three calls.
    assert_eq!(
        dead.calls_to_backend,
        report.receive_calls + 3,
        "{report:?}"
    );
    assert!(dead.messages.is_empty(), "nothing was sent there");
}

#[tokio::test]
async fn without_apply_letters_are_counted_and_nothing_changes() {
    for lists in [true, false] {
        let mut letters = many(20);
        letters.push(letter(20, "timeout", None));
        letters.push(Message {
            attributes: Vec::new(),
            ..letter(21, "", None)
        });
        let scene = scene(lists, letters);
        let report = ran(&scene, &RedriveRequest::default()).await.unwrap();
        assert_eq!((report.scanned, report.selected, report.moved), (22, 22, 0));
        let counts: Vec<_> = report
            .messages
            .iter()
            .map(|kind| (kind.reason.as_deref(), kind.to.as_deref(), kind.messages))
            .collect();
        let wanted = [
            (Some("trap"), Some("a"), 20),
            (Some("timeout"), Some("a"), 1),
            (None, None, 1),
        ];
        assert_eq!(counts, wanted);
        assert_eq!(report.failures[0].error, "it names no source");
        assert_eq!((scene.from.bodies().len(), scene.from.leased()), (22, 0));
        assert_eq!(report.received, if lists { 0 } else { 22 });
        assert_eq!(report.end, Some(End::Complete));
        assert_eq!(scene.to.bodies().len(), 0);
    }
}

#[tokio::test]
async fn letters_are_moved_and_carry_a_count() {
    for lists in [true, false] {
        let scene = scene(lists, many(25));
        let report = ran(&scene, &APPLY()).await.unwrap();
        assert_eq!((report.moved, report.left), (25, 0));
        assert!(report.is_clean());
        assert_eq!(scene.from.bodies().len(), 0);
        let stored = scene.to.stored.lock().unwrap();
        assert_eq!(stored.len(), 25);
        let names: Vec<_> = stored[0]
            .message
            .attributes
            .iter()
            .map(|one| &*one.name)
            .collect();
        assert_eq!(names, [FIRST_ID, REDRIVEN, FIRST_SOURCE]);
    }
}

#[tokio::test]
async fn only_selected_letters_are_moved_and_the_others_given_back() {
    for lists in [true, false] {
        let reasons = ["timeout of a", "trap"];
        let letters = (0..40).map(|number| letter(number, reasons[number % 2], None));
        let scene = scene(lists, letters);
        let select = Select {
            reason: Some(ReasonPattern::parse("^timeout").unwrap()),
            ..Select::default()
        };
        let request = RedriveRequest {
            select,
            first: Some(AtLeastOne(15)),
            ..APPLY()
        };
        let report = ran(&scene, &request).await.unwrap();
        assert_eq!((report.moved, report.end), (15, Some(End::First)));
        assert_eq!((scene.from.bodies().len(), scene.from.leased()), (25, 0));
    }
}

#[tokio::test]
async fn what_is_not_confirmed_is_not_deleted() {
    for lists in [true, false] {
        let scene = scene(lists, many(12));
        let answers = [
            (r#"{"n":3}"#, ItemError::Transient("no answer".into())),
            (r#"{"n":4}"#, ItemError::Refused("too long".into())),
        ];
        let answers = answers.map(|(body, error)| (body.to_owned(), error));
        *scene.to.refused.lock().unwrap() = BTreeMap::from(answers);
        let report = ran(&scene, &APPLY()).await.unwrap();
        assert_eq!((report.moved, report.left, report.uncertain), (10, 2, 1));
        assert_eq!(scene.from.bodies(), [r#"{"n":3}"#, r#"{"n":4}"#]);
        assert_eq!(scene.from.leased(), 0);
        assert!(!report.is_clean());
        let errors: Vec<_> = report.failures.iter().map(|one| &*one.error).collect();
        assert_eq!(errors, ["no answer", "too long"]);
    }
}

#[tokio::test]
async fn a_group_stops_at_a_letter_that_stays() {
    for lists in [true, false] {
        let groups = ["g", "h"];
        let letters = (0..12).map(|number| letter(number, "trap", Some(groups[number % 2])));
        let scene = scene(lists, letters);
        let refused = (r#"{"n":4}"#.to_owned(), ItemError::Refused("no".into()));
        *scene.to.refused.lock().unwrap() = BTreeMap::from([refused]);
        ran(&scene, &APPLY()).await.unwrap();
        let left: Vec<String> = [4, 6, 8, 10].map(|n| format!(r#"{{"n":{n}}}"#)).into();
        let mut sent = scene.to.bodies();
        if lists {
            // Those of one call are stored together: the destination vouches for their order.
            sent.retain(|body| !left.contains(body));
            continue;
        }
        assert_eq!(scene.from.bodies(), left, "lists: {lists}");
        let of_h: Vec<_> = sent.iter().filter(|body| !left.contains(body)).collect();
        assert_eq!(of_h.len(), 8);
    }
}

#[tokio::test]
async fn a_fifo_queue_stops_at_the_first_letter_that_stays() {
    let letters = (0..12).map(|number| letter(number, "trap", Some("g")));
    let mut scene = scene(false, letters);
    scene.redrive.is_fifo = true;
    let refused = (r#"{"n":4}"#.to_owned(), ItemError::Refused("no".into()));
    *scene.to.refused.lock().unwrap() = BTreeMap::from([refused]);
    let report = ran(&scene, &APPLY()).await.unwrap();
    assert_eq!((report.moved, report.end), (4, Some(End::OrderKept)));
    assert_eq!(
        scene.to.bodies(),
        [0, 1, 2, 3].map(|n| format!(r#"{{"n":{n}}}"#))
    );
    assert_eq!(scene.from.leased(), 0);
    let condition = Condition::parse("/n=4").unwrap();
    let request = RedriveRequest {
        select: Select {
            r#where: Some(Conditions(vec![condition])),
            ..Select::default()
        },
        ..APPLY()
    };
    let refused = ran(&scene, &request).await;
    let in_order = RedriveRefusal::InOrder("dead".to_owned());
    assert_eq!(refused, Err(RedriveError::Refused(in_order)));
}

#[tokio::test]
async fn messages_that_were_asked_for_and_are_not_there_are_counted() {
    for lists in [true, false] {
        let scene = scene(lists, many(3));
        let ids = ["0001", "none"].map(str::to_owned);
        let request = RedriveRequest {
            select: Select::of_ids(ids.into()),
            ..APPLY()
        };
        let report = ran(&scene, &request).await.unwrap();
        assert_eq!((report.moved, report.missing), (1, 1), "{report:?}");
        assert_eq!(report.failures[0].samples, ["none"]);
        assert!(!report.is_clean());
    }
}

#[tokio::test]
async fn a_message_that_is_named_by_its_id_is_moved_whatever_its_date_is() {
    for lists in [true, false] {
        let ahead = Message {
            sent_at: Some(clock::wall_clock_now() + Duration::from_secs(3_600)),
            ..letter(1, "trap", None)
        };
        let scene = scene(lists, [ahead]);
        let request = RedriveRequest {
            select: Select::of_ids(vec!["0001".to_owned()]),
            ..APPLY()
        };
        let report = ran(&scene, &request).await.unwrap();
        assert_eq!((report.moved, report.arrived), (1, 0), "{report:?}");
    }
}

#[tokio::test]
async fn a_cancelled_run_gives_back_what_it_holds() {
    for lists in [true, false] {
        let scene = scene(lists, many(100));
        let cancel = CancellationToken::new();
        let stop = |report: &JobReport| {
            if report.moved >= 20 {
                cancel.cancel();
            }
        };
        let report = run(&scene.redrive, &APPLY(), &cancel, &stop).await.unwrap();
        assert_eq!(report.end, Some(End::Cancelled));
        assert!((20..30).contains(&report.moved), "{report:?}");
        assert_eq!(scene.from.bodies().len() as u64, 100 - report.moved);
        assert_eq!(scene.from.leased(), 0);
    }
}

#[tokio::test]
async fn a_kill_at_any_call_loses_nothing_and_repeats_one_batch_at_most() {
    for lists in [true, false] {
        for calls in 0..40 {
            let scene = scene(lists, many(33));
            let left = Arc::new(AtomicUsize::new(calls));
            let (from, to) = (with_calls(&scene.from, &left), with_calls(&scene.to, &left));
            let known = BTreeMap::from([("a".to_owned(), to.clone())]);
            let redrive = Redrive {
                from: from.clone(),
                to: Arc::new(QueueSet(known)),
                ..scene.redrive.clone()
            };
            let token = CancellationToken::new();
            let request = APPLY();
            let mut running = std::pin::pin!(run(&redrive, &request, &token, &|_: &JobReport| {}));
            // Polled until a call hangs: then the process is dead.
            let ended = std::future::poll_fn(|context| {
                let ended = running.as_mut().poll(context);
                let is_dead = from.hangs.load(Ordering::SeqCst) || to.hangs.load(Ordering::SeqCst);
                match ended {
                    _ if is_dead => std::task::Poll::Ready(false),
                    std::task::Poll::Ready(_) => std::task::Poll::Ready(true),
                    std::task::Poll::Pending => std::task::Poll::Pending,
                }
            })
            .await;
            left.store(usize::MAX, Ordering::SeqCst);
            from.expire();
            let all: Vec<String> = many(33).into_iter().map(|one| one.body).collect();
            if !ended {
                let there = [from.bodies(), to.bodies()].concat();
                assert!(
                    all.iter().all(|body| there.contains(body)),
                    "call {calls}: lost"
                );
                let again = run(&redrive, &request, &token, &|_: &JobReport| {})
                    .await
                    .unwrap();
                assert!(again.is_clean(), "call {calls}: {again:?}");
            }
            let there = to.bodies();
            assert!(
                all.iter().all(|body| there.contains(body)),
                "call {calls}: lost"
            );
            assert!(
                there.len() <= all.len() + BATCH,
                "call {calls}: {} copies",
                there.len()
            );
            assert_eq!(from.bodies().len(), 0);
        }
    }
}

/// The same queue with a number of calls that it shares with others.
fn with_calls(queue: &Arc<Memory>, calls: &Arc<AtomicUsize>) -> Arc<Memory> {
    let fresh = Memory::new(&queue.identity.name, queue.lists);
    let mut stored = queue.stored.lock().unwrap();
    *fresh.stored.lock().unwrap() = std::mem::take(&mut stored);
    Arc::new(Memory {
        calls: calls.clone(),
        ..Arc::into_inner(fresh).expect("nobody else has it")
    })
}

struct Louder;

#[async_trait::async_trait]
impl Review for Louder {
    async fn review(&self, message: &Message, _: &CancellationToken) -> Result<String, String> {
        match message.id.as_str() {
            "0001" => Err("it did not pass".into()),
            _ => Ok(message.body.to_uppercase()),
        }
    }
}

#[tokio::test]
async fn a_review_changes_bodies_or_leaves_letters() {
    let mut scene = scene(true, many(3));
    scene.redrive.review = Some(Arc::new(Louder));
    let report = ran(&scene, &APPLY()).await.unwrap();
    assert_eq!((report.moved, report.left), (2, 1));
    assert_eq!(scene.to.bodies(), [r#"{"N":0}"#, r#"{"N":2}"#]);
    assert_eq!(scene.from.bodies(), [r#"{"n":1}"#]);
}

#[tokio::test]
async fn a_move_keeps_the_attributes_of_dead_letters() {
    let mut scene = scene(true, many(1));
    scene.redrive.marks = Marks::Kept;
    ran(&scene, &APPLY()).await.unwrap();
    let stored = scene.to.stored.lock().unwrap();
    let mut wanted = many(1)[0].attributes.clone();
    wanted.push(Attribute::text(FIRST_ID, &many(1)[0].id));
    assert_eq!(stored[0].message.attributes, wanted);
}
