//! The one thread that holds the connection: what waits together is run in one transaction. Receives
//! find nothing wait here, so that a sent message is delivered in the very transaction that stores
//! it.

use super::deliver::{Claimed, claim, holding, load, next_due};
use super::lines::{WaitingReceive, WaitingReceives};
use super::notifier::FileNotifier;
use super::refusal::Refused;
use super::schema::StoreFiles;
use super::settle::{Origin, settle};
use super::time::{StoreClock, keep};
use super::turn::{LocalDelivery, QueueId, Turn};
use super::work::{Durability, Handle, Work, WriterRequest, without_reply};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::memory::HeldBytes;
use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::Received;
use dispatcher_sqlite::{CommitError, Damage, Database, GroupWriter, Synchronous};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

/// Maximum jobs of one transaction: bounds how long the first waits for the last.
const GROUP: usize = 512;
/// How often to look for what another process sent without ringing, while somebody waits.
const LOOK: Duration = Duration::from_secs(1);

/// The state of the thread.
pub(super) struct QueueWriter {
    place: StoreFiles,
    writer: GroupWriter<WriterRequest>,
    clock: StoreClock,
    /// For the notifier's watcher. Weak: a watcher must not keep the thread alive.
    handle: Weak<Handle>,
    notifier: FileNotifier,
    lines: WaitingReceives,
    /// When to look next, and SQLite's mark of other connections' commits at the last look.
    look_at: BootInstant,
    seen: i64,
}

/// A receive that has got its messages, to be told after the commit.
type Served = (QueueId, WaitingReceive, Claimed);

impl QueueWriter {
    /// A writer that has done nothing yet.
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

    /// Does these, and whatever has become due.
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

    /// Answers all that is asked and all who wait with the error.
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

    /// How long there is nothing to do, unless something comes. For ever if nobody waits.
    pub(super) fn calm(&self) -> Option<Duration> {
        let now = clock::now();
        let look = (!self.lines.is_empty()).then(|| self.look_at.since(now));
        look.into_iter()
            .chain(self.lines.calm(now, self.clock.now()))
            .min()
    }

    /// Parts works from receives, which go into their lines, and says which queues to try.
    fn sort(&mut self, jobs: Vec<WriterRequest>) -> (Vec<Box<dyn Work>>, BTreeSet<QueueId>) {
        let mut works = Vec::new();
        let mut tries = BTreeSet::new();
        for job in jobs {
            match job {
                WriterRequest::Work(work) => works.push(work),
                WriterRequest::Hurry(queue) => self.lines.end_waits(queue),
                WriterRequest::Bell => {
                    self.notifier.acknowledge();
                    self.look_at = BootInstant::default();
                }
                WriterRequest::Receive(queue, asked) => {
                    if !asked.ask.wait.is_zero() {
                        // Before we look into the file, else a ring in between would be lost.
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

    /// Once a `LOOK`, and after a notification: the queues that hold something, whether anybody waits for
    /// them or not, if another process has written since.
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
        // To ask each of thousands of queues would take longer than a message may.
        let holding = version.and_then(|version| {
            self.seen = version;
            holding(self.writer.database())
        });
        holding.unwrap_or_else(|_| self.lines.queues())
    }

    /// Runs and answers what only looks; releases the rest.
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

    /// Whether a queue that somebody waits for holds something now, without taking the write lock.
    fn has_due(&mut self, queue: QueueId) -> bool {
        if !self.lines.contains(queue) {
            return false;
        }
        let turn = self.clock.turn(self.writer.database());
        match next_due(&turn, queue) {
            Ok(due) => {
                let now = turn.now;
                self.lines.set_due(queue, due);
                due.is_some_and(|due| due <= now)
            }
            // The transaction will meet the error again and tell those who wait.
            Err(_) => true,
        }
    }

    /// Runs all in one transaction; if that fails, each alone, so that none fails for another.
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

    /// One transaction: the works, then the lines that were named or that the works stirred.
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
        let done = self.writer.transact(level, |transaction| {
            put_back(lines, &mut served);
            refused.clear();
            begun = clock::now();
            let mut turn = clock.turn(transaction);
            run_works(&mut turn, place, works)?;
            serve(&mut turn, lines, tries, &mut served, &mut refused)?;
            keep(&turn)?;
            Ok(!turn.stirred.is_empty())
        });
        let stirred = done.inspect_err(|_| put_back(&mut self.lines, &mut served))?;
        if stirred {
            self.notifier.notify();
        }
        refused.iter().for_each(|(queue, one)| note(queue, one));
        self.hand_over(served, begun);
        Ok(())
    }

    /// In one transaction: each message by itself would lock the log twice.
    fn load(
        &self,
        claimed: Claimed,
        name: &str,
    ) -> rusqlite::Result<(Vec<Message>, Vec<HeldBytes>)> {
        let reading = self.writer.database().unchecked_transaction()?;
        let loaded = load(&self.clock.turn(&reading), claimed, name)?;
        reading.commit()?;
        Ok(loaded)
    }

    /// Reads what was taken and answers receives: only now, when a crash while reading costs each
    /// message a receive. What nobody takes any more goes back into its queue at once.
    fn hand_over(&mut self, served: Vec<Served>, begun: BootInstant) {
        for (queue, asked, mut claimed) in served {
            let (drained, short_of) = (claimed.drained, claimed.short_of);
            let refused = std::mem::take(&mut claimed.refused);
            let received = match self.load(claimed, &asked.name) {
                Ok((messages, held)) => Ok(Received {
                    messages,
                    drained,
                    taken: Some(begun),
                    held,
                    short_of,
                    dead_lettered: refused.iter().filter_map(Refused::dead_lettered).collect(),
                }),
                // What was taken comes back when its visibility ends.
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
            // If this fails, they come back when their visibility ends.
            let _ = self.transact(&mut [release], &BTreeSet::new());
        }
    }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Puts back into their lines, in their order, those who were served by what is rolled back.
fn put_back(lines: &mut WaitingReceives, served: &mut Vec<Served>) {
    for (queue, asked, _) in served.drain(..).rev() {
        lines.put_back(queue, asked);
    }
}

/// Runs each within its own savepoint, so that one that fails leaves nothing half done.
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

/// Gives what there is to those who wait, and notes when there will be more.
fn serve(
    turn: &mut Turn<'_>,
    lines: &mut WaitingReceives,
    tries: &BTreeSet<QueueId>,
    served: &mut Vec<Served>,
    refused: &mut Vec<(Arc<str>, Refused)>,
) -> rusqlite::Result<()> {
    let mut queues: Vec<_> = tries.union(&turn.stirred).copied().collect();
    queues.retain(|queue| lines.contains(*queue));
    for queue in queues {
        while let Some(asked) = lines.pop(queue) {
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
            // Who has no bytes for the next message is told, and may ask again; so is who reports.
            if claimed.claims.is_empty() && claimed.short_of.is_none() && !reports {
                lines.put_back(queue, asked);
                break;
            }
            let drained = claimed.drained;
            served.push((queue, asked, claimed));
            if drained {
                break;
            }
        }
        lines.set_due(queue, next_due(turn, queue)?);
    }
    Ok(())
}

/// One line of the log for a message that was not delivered.
fn note(queue: &str, refused: &Refused) {
    let Refused {
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
