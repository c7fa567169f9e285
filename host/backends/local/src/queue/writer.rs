//! The only thread that holds the connection. It runs all waiting requests in one transaction.
//! Receives that find no messages wait here, so that a sent message is delivered in the transaction
//! that stores it.

use super::claim::{ClaimedMessages, claim, load};
use super::deliver::{holding, next_due};
use super::lines::{WaitingReceive, WaitingReceives};
use super::notifier::FileNotifier;
use super::refusal::RefusedMessage;
use super::schema::StoreFiles;
use super::settle::{Origin, settle};
use super::sharing;
use super::time::{StoreClock, StoreTime, keep};
use super::turn::{LocalDelivery, QueueId, Turn};
use super::work::{Durability, Handle, Work, WriterRequest, without_reply};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::memory::HeldBytes;
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::ReceivedMessages;
use dispatcher_sqlite::{CommitError, Damage, Database, GroupWriter, Synchronous};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

/// The maximum number of requests in one transaction. It bounds how long the first waits for the
/// last.
const GROUP: usize = 512;
/// The interval of looking for messages that another process sent without ringing, while a receive
/// waits.
const LOOK: Duration = Duration::from_secs(1);

/// The state of the writer thread.
pub(super) struct QueueWriter {
    place: StoreFiles,
    writer: GroupWriter<WriterRequest>,
    clock: StoreClock,
    /// The handle for the notifier's watcher. It is weak, because a watcher must not keep the
    /// thread alive.
    handle: Weak<Handle>,
    notifier: FileNotifier,
    lines: WaitingReceives,
    /// The time of the next look, and SQLite's mark of other connections' commits at the last one.
    look_at: BootInstant,
    seen: i64,
}

/// A receive that has got its messages. It is answered after the commit.
type ServedReceive = (QueueId, WaitingReceive, ClaimedMessages);

impl QueueWriter {
    /// Creates a writer that has done nothing yet.
    pub(super) fn new(
        place: StoreFiles,
        (connection, clock): (Database, StoreClock),
        notifier: FileNotifier,
        jobs: mpsc::Receiver<WriterRequest>,
        handle: Weak<Handle>,
    ) -> Self {
        Self {
            place,
            writer: GroupWriter::new(connection, jobs, GROUP),
            clock,
            handle,
            notifier,
            lines: WaitingReceives::default(),
            look_at: clock::now() + LOOK,
            seen: 0,
        }
    }

    /// Runs until the last handle is gone.
    pub(super) fn run(mut self) {
        while let Some(jobs) = self.writer.gather(self.calm()) {
            self.round(jobs);
        }
    }

    /// Runs these requests and serves the queues that have become due.
    pub(super) fn round(&mut self, jobs: Vec<WriterRequest>) {
        let (works, mut tries) = self.sort(jobs);
        tries.extend(self.look_around());
        tries.extend(self.lines.ripe(clock::now(), self.clock.now()));
        if let Err(damage) = self.writer.database().known_damage() {
            return self.fail_everything(works, &damage);
        }
        let works = self.answer_looks(works);
        tries.retain(|queue| self.has_due(*queue));
        if !works.is_empty() || !tries.is_empty() {
            self.carry_out(works, tries);
        }
        self.lines.answer_expired(clock::now(), self.clock.now());
        self.notifier.listen(!self.lines.is_empty());
    }

    /// Answers all requests and all waiting receives with the error.
    fn fail_everything(&mut self, mut works: Vec<Box<dyn Work>>, damage: &Damage) {
        let error = self.place.damaged(damage);
        for work in &mut works {
            work.fail(error.clone());
        }
        for work in works {
            work.answer();
        }
        self.lines.fail(&self.lines.queues(), &error);
    }

    /// Returns how long there is nothing to do unless a request comes; `None` if no receive waits.
    pub(super) fn calm(&self) -> Option<Duration> {
        let now = clock::now();
        let look = (!self.lines.is_empty()).then(|| self.look_at.since(now));
        look.into_iter()
            .chain(self.lines.calm(now, self.clock.now()))
            .min()
    }

    /// Separates work from receives, which go into their lines. Returns the work and the queues to
    /// try.
    fn sort(&mut self, jobs: Vec<WriterRequest>) -> (Vec<Box<dyn Work>>, BTreeSet<QueueId>) {
        let mut works = Vec::new();
        let mut tries = BTreeSet::new();
        for job in jobs {
            match job {
                WriterRequest::Work(work) => works.push(work),
                WriterRequest::Hurry(queue) => self.lines.end_waits(queue),
                WriterRequest::Retry(queue) => drop(tries.insert(queue)),
                WriterRequest::Bell => {
                    self.notifier.acknowledge();
                    self.look_at = BootInstant::default();
                }
                WriterRequest::Receive(queue, asked) => {
                    if !asked.ask.wait.is_zero() {
                        // Starts before the file is read; otherwise a ring in between would be
                        // lost.
                        let handle = self.handle.clone();
                        self.notifier.watch(move || {
                            if let Some(handle) = handle.upgrade() {
                                handle.notified();
                            }
                        });
                        self.notifier.listen(true);
                    }
                    self.lines.push(queue, asked);
                    tries.insert(queue);
                }
            }
        }
        (works, tries)
    }

    /// Returns the queues that have messages, whether or not a receive waits for them, if another
    /// process has written since the last look. It looks once per `LOOK` and after a notification.
    fn look_around(&mut self) -> BTreeSet<QueueId> {
        let now = clock::now();
        if self.lines.is_empty() || now < self.look_at {
            return BTreeSet::new();
        }
        self.look_at = now + LOOK;
        self.lines.forget_gone();
        let version = self
            .writer
            .database()
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut version| version.query_row([], |row| row.get(0)));
        if version.as_ref().is_ok_and(|version| *version == self.seen) {
            return BTreeSet::new();
        }
        // Querying each of thousands of queues would take longer than a message may wait.
        let holding = version.and_then(|version| {
            self.seen = version;
            holding(self.writer.database())
        });
        holding.unwrap_or_else(|_| self.lines.queues())
    }

    /// Runs and answers work that only reads. Returns the rest.
    fn answer_looks(&self, works: Vec<Box<dyn Work>>) -> Vec<Box<dyn Work>> {
        let (looks, rest): (Vec<_>, Vec<_>) = works
            .into_iter()
            .partition(|work| work.care() == Durability::Look);
        for mut look in looks {
            let mut turn = self.clock.turn(self.writer.database());
            if let Err(error) = look.run(&mut turn) {
                look.fail(self.place.classify(&error));
            }
            look.answer();
        }
        rest
    }

    /// Whether a queue with a waiting receive has a message now. Does not take the write lock.
    fn has_due(&mut self, queue: QueueId) -> bool {
        if !self.lines.contains(queue) {
            return false;
        }
        let turn = self.clock.turn(self.writer.database());
        match due_of(&turn, &self.lines, queue) {
            Ok(due) => {
                let now = turn.now;
                self.lines.set_due(queue, due);
                due.is_some_and(|due| due <= now)
            }
            // The transaction meets the error again and answers the waiting receives with it.
            Err(_) => true,
        }
    }

    /// Runs everything in one transaction. If it fails, runs each piece of work alone, so that none
    /// fails because of another.
    fn carry_out(&mut self, mut works: Vec<Box<dyn Work>>, tries: BTreeSet<QueueId>) {
        match self.transact(&mut works, &tries) {
            Ok(()) => {}
            Err(CommitError::Within(_)) if works.len() > 1 || !tries.is_empty() => {
                for work in &mut works {
                    let alone = std::slice::from_mut(work);
                    if let Err(error) = self.transact(alone, &BTreeSet::new()) {
                        self.fail_all(alone, &error);
                    }
                }
                if let Err(error) = self.transact(&mut [], &tries) {
                    self.fail_lines(&tries, &error);
                }
            }
            Err(error) => {
                self.fail_all(&mut works, &error);
                self.fail_lines(&tries, &error);
            }
        }
        for work in works {
            work.answer();
        }
    }

    fn fail_all(&self, works: &mut [Box<dyn Work>], error: &CommitError) {
        let error = self.place.not_committed(error);
        for work in works {
            work.fail(error.clone());
        }
    }

    fn fail_lines(&mut self, queues: &BTreeSet<QueueId>, error: &CommitError) {
        self.lines.fail(queues, &self.place.not_committed(error));
    }

    /// Runs one transaction: the work, then the lines that are named or that the work has stirred.
    fn transact(
        &mut self,
        works: &mut [Box<dyn Work>],
        tries: &BTreeSet<QueueId>,
    ) -> Result<(), CommitError> {
        let level = if works.iter().any(|work| work.care() == Durability::Full) {
            Synchronous::Full
        } else {
            Synchronous::Normal
        };
        let (clock, place, lines) = (&self.clock, &self.place, &mut self.lines);
        let (mut begun, mut served, mut refused) = (BootInstant::default(), Vec::new(), Vec::new());
        let (mut deleted, mut written) = (BTreeSet::new(), Vec::new());
        let done = self.writer.transact(level, |transaction| {
            put_back(lines, &mut served);
            refused.clear();
            begun = clock::now();
            let mut turn = clock.turn(transaction);
            run_works(&mut turn, place, works)?;
            serve(&mut turn, lines, tries, &mut served, &mut refused)?;
            keep(&turn)?;
            (deleted, written) = (turn.deleted, turn.written);
            Ok(!turn.stirred.is_empty())
        });
        let stirred = done.inspect_err(|_| put_back(&mut self.lines, &mut served))?;
        if stirred {
            self.notifier.notify();
        }
        deleted
            .into_iter()
            .for_each(|queue| self.lines.end_waits(queue));
        for (slot, rules) in written {
            slot.note_written(rules);
        }
        refused.iter().for_each(|(queue, one)| note(queue, one));
        self.hand_over(served, begun);
        Ok(())
    }

    /// Reads taken messages in one transaction; a read per message would lock the log twice each
    /// time.
    fn load(
        &self,
        claimed: ClaimedMessages,
        asked: &WaitingReceive,
    ) -> rusqlite::Result<(Vec<Message>, Vec<HeldBytes>)> {
        let reading = self.writer.database().unchecked_transaction()?;
        let turn = self.clock.turn(&reading);
        let loaded = load(&turn, claimed, &asked.name, &asked.terms)?;
        reading.commit()?;
        Ok(loaded)
    }

    /// Reads the taken messages and answers the receives. It reads after the commit, when a crash
    /// costs each message a receive. Messages whose caller is gone return to their queue at once.
    fn hand_over(&mut self, served: Vec<ServedReceive>, begun: BootInstant) {
        for (queue, asked, mut claimed) in served {
            let (drained, short_of, overdue) = (claimed.drained, claimed.short_of, claimed.overdue);
            let refused = std::mem::take(&mut claimed.refused);
            let received = match self.load(claimed, &asked) {
                Ok((messages, held)) => Ok(ReceivedMessages {
                    messages,
                    drained,
                    taken: Some(begun),
                    held,
                    short_of,
                    dead_lettered: refused
                        .iter()
                        .filter_map(RefusedMessage::dead_lettered)
                        .collect(),
                    overdue,
                }),
                // The taken messages come back when their visibility timeout ends.
                Err(error) => Err(self.place.classify(&error)),
            };
            let is_reported = received.is_ok();
            let unanswered = asked.reply.send(received).err();
            if unanswered.is_some() || !is_reported {
                refused.iter().for_each(|one| note(&asked.name, one));
            }
            let Some(Ok(orphans)) = unanswered else {
                continue;
            };
            let origin = Origin {
                id: queue,
                name: asked.name.to_string(),
                dead_letter: None,
            };
            let release = without_reply(Durability::Light, move |turn| {
                orphans.messages.iter().try_for_each(|message| {
                    let Ok(delivery) = LocalDelivery::parse(&message.receipt) else {
                        return Ok(());
                    };
                    let outcome = Outcome::Release(Duration::ZERO);
                    settle(turn, &origin, delivery, &outcome).map(drop)
                })
            });
            // If this fails, the messages come back when their visibility timeout ends.
            let _ = self.transact(&mut [release], &BTreeSet::new());
        }
    }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Puts the receives that were served by a rolled-back transaction back into their lines, in their
/// order.
fn put_back(lines: &mut WaitingReceives, served: &mut Vec<ServedReceive>) {
    for (queue, asked, _) in served.drain(..).rev() {
        lines.put_back(queue, asked);
    }
}

/// Runs each piece of work within its own savepoint, so that a failed one leaves nothing half done.
fn run_works(
    turn: &mut Turn<'_>,
    place: &StoreFiles,
    works: &mut [Box<dyn Work>],
) -> rusqlite::Result<()> {
    let connection = turn.connection;
    for work in works {
        execute(connection, "SAVEPOINT work")?;
        if let Err(error) = work.run(turn) {
            // Some errors, a full disk among them, end the whole transaction.
            if connection.is_autocommit() {
                return Err(error);
            }
            work.fail(place.classify(&error));
            execute(connection, "ROLLBACK TO work")?;
        }
        execute(connection, "RELEASE work")?;
    }
    Ok(())
}

/// Gives the available messages to the waiting receives, and notes when more are due.
fn serve(
    turn: &mut Turn<'_>,
    lines: &mut WaitingReceives,
    tries: &BTreeSet<QueueId>,
    served: &mut Vec<ServedReceive>,
    refused: &mut Vec<(Arc<str>, RefusedMessage)>,
) -> rusqlite::Result<()> {
    let mut queues: Vec<_> = tries.union(&turn.stirred).copied().collect();
    queues.retain(|queue| lines.contains(*queue) && !turn.deleted.contains(queue));
    for queue in queues {
        // The rules under which the queue has nothing more to deliver.
        let mut passed_over = Vec::new();
        while let Some(asked) = lines.pop(queue, &passed_over) {
            let sharing = asked.terms.sharing();
            let mut claimed = match claim(turn, queue, &asked.name, asked.ask, &asked.terms) {
                Ok(claimed) => claimed,
                Err(error) => {
                    lines.put_back(queue, asked);
                    return Err(error);
                }
            };
            let reported;
            (reported, claimed.refused) = std::mem::take(&mut claimed.refused)
                .into_iter()
                .partition(|one| asked.terms.reports && one.dead_letter_queue.is_some());
            let notes = claimed.refused.drain(..);
            refused.extend(notes.map(|one| (Arc::clone(&asked.name), one)));
            claimed.refused = reported;
            let reports = claimed.refused.iter().any(|one| !one.reported);
            // A receive is answered without messages if it has no bytes for the next one, so that
            // it may ask again; if it reports dead letters; and if its queue was deleted.
            let is_answered = claimed.is_deleted || claimed.short_of.is_some() || reports;
            if claimed.claims.is_empty() && !is_answered {
                lines.put_back(queue, asked);
                passed_over.push(sharing);
                continue;
            }
            let drained = claimed.drained;
            served.push((queue, asked, claimed));
            if drained {
                passed_over.push(sharing);
            }
        }
        lines.set_due(queue, due_of(turn, lines, queue)?);
    }
    Ok(())
}

/// Returns when a waiting receive can next be served, as far as is known.
fn due_of(
    turn: &Turn<'_>,
    lines: &WaitingReceives,
    queue: QueueId,
) -> rusqlite::Result<Option<StoreTime>> {
    let mut first = None;
    for slot in lines.rules(queue) {
        let due = match sharing::of_receive(turn, queue, slot)? {
            Some((slot, sharing)) => sharing::next_due(turn, queue, &slot, &sharing)?,
            None => next_due(turn, queue)?,
        };
        first = first.into_iter().chain(due).min();
    }
    Ok(first)
}

/// Logs a message that was not delivered.
fn note(queue: &str, refused: &RefusedMessage) {
    let RefusedMessage {
        id,
        receives,
        reason,
        dead_letter_queue,
        ..
    } = refused;
    match dead_letter_queue {
        Some(target) => tracing::warn!(
            queue,
            message_id = id,
            receive_count = receives,
            to = format!("local:{target}"),
            reason,
            "message dead-lettered at receive"
        ),
        None => tracing::warn!(
            queue,
            message_id = id,
            receive_count = receives,
            reason,
            "message skipped for a minute: there is no dead-letter queue"
        ),
    }
}
