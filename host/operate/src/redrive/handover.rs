//! Sends copies of leased messages, reads the answer for each, and only then deletes the originals.

use super::copy::{LetterSource, copy_of, source_of};
use super::returns::Returns;
use super::tally::{End, JobReport};
use super::{Progress, Redrive};
use crate::verbs::redrive::RedriveRequest;
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::message::{Message, Outcome, OutgoingMessage, SendSpan};
use dispatcher_core::queue::origin::has_had_id;
use dispatcher_core::queue::{ItemError, Queue, last_first, send_counted};
use dispatcher_core::telemetry::events::TARGET;
use dispatcher_core::throttle::bucket::Bucket;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long messages that are being moved are leased.
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// How long they are leased if a program reviews each message first.
pub(super) const LEASE_FOR_REVIEW: Duration = Duration::from_secs(600);
/// The maximum duration of a call that carries messages, including retries.
const CALL: Duration = Duration::from_secs(20);
/// The maximum number of attempts to delete messages.
const DELETES: u32 = 5;
/// The number of consecutive calls that sent nothing after which the run ends.
const FAILING: u32 = 3;
/// The number of consecutive messages that were sent but could not be deleted after which the run
/// ends: each has a copy, and the next run copies it again.
const KEEPING: u64 = 3;
/// The maximum number of destination queues of one run, and of stopped groups.
const MOST_KEPT: usize = 10_000;

/// The destination of letters from one source, or the reason why there is none.
type DestinationQueue = Result<Arc<dyn Queue>, String>;

/// The part of a run that moves messages.
pub(super) struct Handover<'a> {
    pub redrive: &'a Redrive,
    pub request: &'a RedriveRequest,
    pub cancel: &'a CancellationToken,
    pub progress: &'a dyn Progress,
    pub report: JobReport,
    pub returns: Returns,
    pub pace: Option<Bucket>,
    /// The messages that were tried and stay, or that were sent but could not be deleted.
    pub tried: HashSet<String>,
    /// The requested ids that were not seen yet.
    pub missing: BTreeSet<String>,
    /// Set when nothing more may be sent.
    pub over: Option<End>,
    opened: HashMap<Option<LetterSource>, DestinationQueue>,
    stopped_groups: HashSet<String>,
    failing: u32,
    /// The number of consecutive messages that could not be deleted.
    keeping: u64,
}

impl<'a> Handover<'a> {
    pub(super) fn new(
        redrive: &'a Redrive,
        request: &'a RedriveRequest,
        cancel: &'a CancellationToken,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            redrive,
            request,
            cancel,
            progress,
            report: JobReport::default(),
            returns: Returns::new(clock::wall_clock_now(), request.stop_at(), redrive.marks),
            pace: request.rate().map(|rate| Bucket::new(rate, 1)),
            tried: HashSet::new(),
            missing: redrive.selection.ids.clone().unwrap_or_default(),
            over: None,
            opened: HashMap::new(),
            stopped_groups: HashSet::new(),
            failing: 0,
            keeping: 0,
        }
    }

    /// Returns how long messages are leased.
    pub(super) fn lease(&self) -> Duration {
        match self.redrive.review {
            Some(_) => LEASE_FOR_REVIEW,
            None => LEASE,
        }
    }

    /// Returns whether a message arrived after the start and so stays. Messages that are named by
    /// their ids were seen before, even if the sender's clock is wrong.
    pub(super) fn is_new(&self, letter: &Message) -> bool {
        self.redrive.selection.ids.is_none() && self.returns.is_new(letter)
    }

    /// Returns whether a message is selected.
    pub(super) fn selects(&mut self, letter: &Message, now: Timestamp) -> bool {
        self.missing.retain(|id| !has_had_id(letter, id));
        self.redrive.selection.matches(letter, now)
    }

    /// Records the requested messages that were not seen, after everything was inspected.
    pub(super) fn note_missing(&mut self) {
        self.report.missing = self.missing.len() as u64;
        for id in &self.missing {
            self.report.note_problem(
                id,
                "it was not found: it may be in flight, delayed, or gone",
            );
        }
    }

    /// Returns how many more messages may be tried.
    pub(super) fn room(&self) -> u64 {
        let tried = self.report.moved + self.report.not_deleted + self.report.left;
        self.request
            .most()
            .map_or(u64::MAX, |first| first.saturating_sub(tried))
    }

    /// Returns whether another letter may be counted.
    pub(super) fn room_to_count(&self) -> bool {
        let first = self.request.most();
        first.is_none_or(|first| self.report.selected < first)
    }

    /// Returns the destination of a letter.
    pub(super) async fn destination(&mut self, letter: &Message) -> DestinationQueue {
        if let Some(all) = self.redrive.to.all() {
            return Ok(all);
        }
        let key = source_of(letter);
        if let Some(known) = self.opened.get(&key) {
            return known.clone();
        }
        if self.opened.len() >= MOST_KEPT {
            return Err("the dead letters name too many queues as their sources".to_owned());
        }
        let found = self.redrive.to.source(key.as_ref()).await;
        let own = &self.redrive.from.identity().source;
        let found = found.and_then(|queue| {
            if queue.identity().source == *own {
                Err("it names this queue itself as its source".to_owned())
            } else {
                Ok(queue)
            }
        });
        self.opened.insert(key, found.clone());
        found
    }

    /// Counts a letter without moving it, unless the run is cancelled meanwhile.
    pub(super) async fn count(&mut self, letter: &Message) {
        let to = match self.destination(letter).await {
            Ok(to) => to,
            Err(why) => {
                self.report.note_selected(letter, None);
                self.report.note_failure(letter, &why);
                return;
            }
        };
        let Some(answer) = self.would_go(letter, &*to).await else {
            return;
        };
        self.report.note_selected(letter, Some(&to.identity().name));
        if let Err(why) = answer {
            self.report.note_failure(letter, &why);
        }
    }

    /// Returns whether a letter would be sent; the error is the reason why not. Returns `None` if
    /// the run was cancelled first.
    async fn would_go(&mut self, letter: &Message, to: &dyn Queue) -> Option<Result<(), String>> {
        if let Some(why) = unsendable(letter) {
            return Some(Err(why));
        }
        let body = match self.reviewed(letter).await? {
            Ok(body) => body,
            Err(why) => return Some(Err(why)),
        };
        let copy = copy_of(letter, body, self.redrive.marks, to.facts().limits);
        self.report.uncounted += u64::from(copy.lacks_count);
        let answer = to.would_take(&copy.outgoing).await;
        Some(answer.map_err(|error| error.to_string()))
    }

    /// Returns the body to send; the error is the reason why the letter stays. Returns `None` if
    /// the run was cancelled first.
    async fn reviewed(&self, letter: &Message) -> Option<Result<String, String>> {
        let Some(review) = &self.redrive.review else {
            return Some(Ok(letter.body.clone()));
        };
        if self.cancel.is_cancelled() {
            return None;
        }
        let body = review.review(letter, self.cancel).await;
        (!self.cancel.is_cancelled()).then_some(body)
    }

    /// Moves messages with this lease (its start and duration). Returns the messages that stay,
    /// still leased.
    pub(super) async fn carry(
        &mut self,
        leased: Vec<Message>,
        lease: (BootInstant, Duration),
    ) -> Vec<Message> {
        let mut kept = Vec::new();
        let mut parts: Vec<(Arc<dyn Queue>, VecDeque<Message>)> = Vec::new();
        for letter in leased {
            let to = match (unsendable(&letter), self.destination(&letter).await) {
                (Some(why), _) | (None, Err(why)) => {
                    self.report.note_selected(&letter, None);
                    self.keep(letter, &why, &mut kept);
                    continue;
                }
                (None, Ok(to)) => to,
            };
            let name = &to.identity().name;
            let known = parts
                .iter_mut()
                .find(|(known, _)| known.identity().name == *name);
            match known {
                Some((_, letters)) => letters.push_back(letter),
                None => parts.push((to, VecDeque::from([letter]))),
            }
        }
        for (to, mut letters) in parts {
            while !letters.is_empty() {
                let round = self.round(&*to, &mut letters, &mut kept).await;
                if !round.is_empty() {
                    self.send(&*to, round, lease, &mut kept).await;
                }
                if self.is_over() {
                    kept.extend(letters.drain(..));
                }
            }
        }
        kept
    }

    /// Counts a receive call.
    pub(super) fn note_receive(&mut self) {
        self.report.receive_calls += 1;
        self.redrive.took(1);
    }

    /// Returns whether nothing more may be sent.
    pub(super) fn is_over(&mut self) -> bool {
        if self.over.is_none() && self.cancel.is_cancelled() {
            self.over = Some(End::Cancelled);
        }
        if self.over.is_none() && self.returns.are_too_many() {
            self.over = Some(End::TooManyReturned);
        }
        self.over.is_some()
    }

    /// Returns the next messages that one call may carry, as far as the rate allows.
    async fn round(
        &mut self,
        to: &dyn Queue,
        letters: &mut VecDeque<Message>,
        kept: &mut Vec<Message>,
    ) -> Vec<Message> {
        let allowed = self.allowed().await;
        if self.is_over() {
            return Vec::new();
        }
        let most = to.identity().batch.min(allowed).max(1);
        let one_by_one = !to.facts().sends_groups_in_order;
        let (mut round, mut later) = (Vec::new(), VecDeque::new());
        let mut groups = HashSet::new();
        while let Some(letter) = letters.pop_front() {
            let group = letter.group.clone();
            let is_stopped = group
                .as_ref()
                .is_some_and(|group| self.stopped_groups.contains(group));
            if is_stopped {
                self.report
                    .note_selected(&letter, Some(&to.identity().name));
                self.keep(letter, "an earlier message of its group stays", kept);
                continue;
            }
            let waits = one_by_one && group.is_some_and(|group| !groups.insert(group));
            if waits || round.len() >= most {
                later.push_back(letter);
            } else {
                round.push(letter);
            }
        }
        *letters = later;
        round
    }

    /// Returns how many messages may be sent now, and waits until there is at least one.
    pub(super) async fn allowed(&mut self) -> usize {
        let Some(pace) = &mut self.pace else {
            return usize::MAX;
        };
        loop {
            let now = clock::now();
            let free = pace.available(now);
            if free > 0 {
                return free;
            }
            let next = clock::sleep_until(Some(pace.next(now)));
            if self.cancel.run_until_cancelled(next).await.is_none() {
                return 0;
            }
        }
    }

    async fn send(
        &mut self,
        to: &dyn Queue,
        round: Vec<Message>,
        (since, lease): (BootInstant, Duration),
        kept: &mut Vec<Message>,
    ) {
        let name = to.identity().name.clone();
        let mut ready: Vec<(Message, OutgoingMessage)> = Vec::new();
        for letter in round {
            let Some(reviewed) = self.reviewed(&letter).await else {
                kept.push(letter);
                continue;
            };
            self.report.note_selected(&letter, Some(&name));
            match reviewed {
                Ok(body) => {
                    let copy = copy_of(&letter, body, self.redrive.marks, to.facts().limits);
                    self.report.uncounted += u64::from(copy.lacks_count);
                    ready.push((letter, copy.outgoing));
                }
                Err(why) => self.keep(letter, &why, kept),
            }
        }
        if clock::now().since(since) + CALL > lease {
            for (letter, _) in ready {
                self.keep(
                    letter,
                    "its lease would end before it is moved; run again",
                    kept,
                );
            }
            return;
        }
        if ready.is_empty() {
            return;
        }
        let (letters, mut copies): (Vec<_>, Vec<_>) = ready.into_iter().unzip();
        if let Some(pace) = &mut self.pace {
            pace.take(copies.len(), clock::now());
        }
        let span = SendSpan::begin(&self.redrive.tracer, &mut copies);
        let answers = send_counted(to, &copies, &self.redrive.sent).await;
        if let Some(span) = span {
            let failures: Vec<_> = answers
                .iter()
                .filter_map(|answer| answer.as_ref().err())
                .map(|error: &ItemError| (error.label(), error.to_string()))
                .collect();
            span.end(&name, "redrive", &failures);
        }
        let mut sent = Vec::new();
        for (letter, answer) in letters.into_iter().zip(answers) {
            match answer {
                Ok(_) => sent.push(letter),
                Err(error) => {
                    self.report.uncertain += u64::from(matches!(error, ItemError::Transient(_)));
                    self.keep(letter, &error.to_string(), kept);
                }
            }
        }
        self.failing = if sent.is_empty() { self.failing + 1 } else { 0 };
        if self.failing >= FAILING {
            self.over.get_or_insert(End::DestinationFails);
        }
        self.returns.note_moved(sent.len() as u64);
        self.delete(&name, sent).await;
        self.progress.note(&self.report).await;
    }

    /// Deletes the messages that were sent.
    async fn delete(&mut self, to: &str, mut sent: Vec<Message>) {
        let batch = self.redrive.from.identity().batch.max(1);
        let moved = self.report.moved;
        let not_deleted = self.report.not_deleted;
        for tries in 1..=DELETES {
            let mut again = Vec::new();
            for part in sent.chunks(batch) {
                let items: Vec<_> = part
                    .iter()
                    .map(|one| (one.clone(), Outcome::Delete))
                    .collect();
                let answers = self.redrive.settle(&items).await;
                for ((letter, _), answer) in items.into_iter().zip(answers) {
                    match answer {
                        Ok(()) => self.report.note_moved(&letter, to),
                        Err(ItemError::Transient(_)) if tries < DELETES => again.push(letter),
                        Err(error) => self.note_not_deleted(&letter, to, &error),
                    }
                }
            }
            if again.is_empty() {
                break;
            }
            sent = again;
            clock::sleep_until(Some(clock::now() + Duration::from_millis(200) * tries)).await;
        }
        if self.report.moved > moved {
            self.keeping = 0;
            return;
        }
        self.keeping += self.report.not_deleted - not_deleted;
        if self.keeping >= KEEPING {
            self.over.get_or_insert(End::SourceKeeps);
        }
    }

    fn note_not_deleted(&mut self, letter: &Message, to: &str, error: &ItemError) {
        self.report.not_deleted += 1;
        // If the message were seen again, it would be copied again.
        self.tried.insert(letter.id.clone());
        if self.tried.len() >= MOST_KEPT {
            self.over.get_or_insert(End::SourceKeeps);
        }
        let error = format!("sent to {to} and not deleted: {error}");
        self.report.note_problem(&letter.id, &error);
        let (queue, message_id) = (&self.redrive.from.identity().name, &letter.id);
        tracing::warn!(target: TARGET, queue, message_id, to, error, "message moved but not deleted");
    }

    /// Records that a message stays.
    fn keep(&mut self, letter: Message, why: &str, kept: &mut Vec<Message>) {
        if self.report.note_failure(&letter, why) {
            let (queue, message_id) = (&self.redrive.from.identity().name, &letter.id);
            tracing::warn!(target: TARGET, queue, message_id, error = why, "message not moved");
        }
        if self.redrive.is_fifo {
            self.over.get_or_insert(End::OrderKept);
        }
        if self.stopped_groups.len() < MOST_KEPT {
            self.stopped_groups.extend(letter.group.clone());
        }
        if self.tried.len() < MOST_KEPT {
            self.tried.insert(letter.id.clone());
        }
        kept.push(letter);
    }

    /// Releases leased messages that stay.
    pub(super) async fn release(&mut self, leased: Vec<Message>) {
        let (failed, calls) = release(&*self.redrive.from, &leased).await;
        self.report.not_released += failed;
        self.redrive.took(calls);
    }
}

/// Releases leased messages. Returns how many of them stay invisible, and the number of calls. A
/// message whose lease has ended is already visible.
pub(super) async fn release(queue: &dyn Queue, leased: &[Message]) -> (u64, usize) {
    let (mut failed, mut calls) = (0, 0);
    let leased: Vec<&Message> = last_first(leased.iter().collect(), |one: &&Message| {
        one.group.is_some()
    })
    .collect();
    for part in leased.chunks(queue.identity().batch.max(1)) {
        let items: Vec<_> = part
            .iter()
            .map(|one: &&Message| ((*one).clone(), Outcome::Release(Duration::ZERO)))
            .collect();
        let (answers, made) = queue.settle_with_calls(&items).await;
        failed += answers
            .iter()
            .filter(|answer: &&Result<(), ItemError>| match answer {
                Ok(()) | Err(ItemError::Gone(_)) => false,
                Err(_) => true,
            })
            .count() as u64;
        calls += made;
    }
    (failed, calls)
}

/// Returns why a message cannot be sent again to any destination.
fn unsendable(letter: &Message) -> Option<String> {
    let why = letter.unreadable.as_ref()?;
    Some(format!("it cannot be copied: {why}"))
}
