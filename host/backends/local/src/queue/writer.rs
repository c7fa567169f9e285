//! The one thread that holds the connection. It takes all waiting requests, runs them in one
//! transaction, commits once, then answers all: they share the cost of one disk sync. Receives that
//! find nothing wait here, so that a sent message is delivered in the very transaction that stores
//! it.

use super::deliver::{Claimed, claim, load, next_due};
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
use dispatcher_core::message::Outcome;
use dispatcher_core::queue::{QueueError, Received};
use dispatcher_sqlite::{Damage, Database, IDLE};
use rusqlite::{Connection, ErrorCode};
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
    connection: Database,
    clock: StoreClock,
    jobs: mpsc::Receiver<WriterRequest>,
    /// For the notifier's watcher. Weak: a watcher must not keep the thread alive.
    handle: Weak<Handle>,
    bell: FileNotifier,
    lines: WaitingReceives,
    /// What `PRAGMA synchronous` is set to.
    care: Durability,
    /// When to look next, and SQLite's mark of other connections' commits at the last look.
    look_at: BootInstant,
    seen: i64,
    /// When to empty the write-ahead log, if something was written since.
    tidy_at: Option<BootInstant>,
}

/// Where a transaction failed.
enum FailedAt {
    /// The file is not the one that was opened: nothing can be written until a restart, and what
    /// was just committed is lost.
    Lost(Damage),
    /// Not begun: nothing can be written now.
    Begin(rusqlite::Error),
    /// Begun and rolled back: perhaps one of its works is to blame.
    Within(rusqlite::Error),
}

impl FailedAt {
    /// Whether the system had no room for what was written.
    fn is_full(&self) -> bool {
        let (Self::Begin(error) | Self::Within(error)) = self else {
            return false;
        };
        let code = error.sqlite_error_code();
        matches!(code, Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure))
    }
}

/// A receive that has got its messages, to be told after the commit.
type Served = (QueueId, WaitingReceive, Claimed);

impl QueueWriter {
    /// A writer that has done nothing yet.
    pub(super) fn new(
        place: StoreFiles,
        (connection, clock): (Database, StoreClock),
        bell: FileNotifier,
        jobs: mpsc::Receiver<WriterRequest>,
        handle: Weak<Handle>,
    ) -> Self {
        Self {
            place,
            connection,
            clock,
            jobs,
            handle,
            bell,
            lines: WaitingReceives::default(),
            care: Durability::Full,
            look_at: clock::now() + LOOK,
            seen: 0,
            // What an earlier process left in the log.
            tidy_at: Some(clock::now() + IDLE),
        }
    }

    /// Runs until the last handle is gone.
    pub(super) fn run(mut self) {
        while let Some(jobs) = self.gather() {
            self.round(jobs);
        }
        self.connection.tidy();
    }

    /// Does these, and whatever has become due.
    pub(super) fn round(&mut self, jobs: Vec<WriterRequest>) {
        let (works, mut tries) = self.sort(jobs);
        tries.extend(self.look_around());
        tries.extend(self.lines.ripe(clock::now(), self.clock.now()));
        if let Err(damage) = self.connection.known_damage() {
            return self.fail_everything(works, &damage);
        }
        let works = self.answer_looks(works);
        tries.retain(|queue| self.has_due(*queue));
        if !works.is_empty() || !tries.is_empty() {
            self.carry_out(works, tries);
        }
        self.lines.answer_expired(clock::now(), self.clock.now());
        self.bell.listen(!self.lines.is_empty());
        self.tidy();
    }

    /// Empties the write-ahead log once nothing has been written for a moment.
    fn tidy(&mut self) {
        let now = clock::now();
        if self.tidy_at.is_some_and(|at| at <= now) {
            let is_done = self.connection.tidy();
            self.tidy_at = (!is_done).then(|| now + IDLE);
        }
    }

    /// Answers all that is asked and all who wait with the error.
    fn fail_everything(&mut self, mut works: Vec<Box<dyn Work>>, damage: &Damage) {
        self.tidy_at = None;
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
        let tidy = self.tidy_at.map(|at| at.since(now));
        look.into_iter()
            .chain(tidy)
            .chain(self.lines.calm(now, self.clock.now()))
            .min()
    }

    /// Everything that waits to be done; nothing when it is time to look. None at the end.
    fn gather(&self) -> Option<Vec<WriterRequest>> {
        let mut jobs = Vec::new();
        match self.calm() {
            None => jobs.push(self.jobs.recv().ok()?),
            Some(calm) => match self.jobs.recv_timeout(calm) {
                Ok(job) => jobs.push(job),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            },
        }
        jobs.extend(self.jobs.try_iter().take(GROUP - 1));
        Some(jobs)
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
                    self.bell.acknowledge();
                    tries.extend(self.lines.queues());
                }
                WriterRequest::Receive(queue, asked) => {
                    if !asked.ask.wait.is_zero() {
                        // Before we look into the file, else a ring in between would be lost.
                        let handle = self.handle.clone();
                        self.bell.watch(move || {
                            if let Some(handle) = handle.upgrade() {
                                handle.notified();
                            }
                        });
                        self.bell.listen(true);
                    }
                    self.lines.push(queue, asked);
                    tries.insert(queue);
                }
            }
        }
        (works, tries)
    }

    /// Once a `LOOK`: all lines if another process has written since.
    fn look_around(&mut self) -> BTreeSet<QueueId> {
        let now = clock::now();
        if self.lines.is_empty() || now < self.look_at {
            return BTreeSet::new();
        }
        self.look_at = now + LOOK;
        let version = self
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut version| version.query_row([], |row| row.get(0)));
        match version {
            Ok(version) if version == self.seen => BTreeSet::new(),
            Ok(version) => {
                self.seen = version;
                self.lines.queues()
            }
            Err(_) => self.lines.queues(),
        }
    }

    /// Runs and answers what only looks; releases the rest.
    fn answer_looks(&self, works: Vec<Box<dyn Work>>) -> Vec<Box<dyn Work>> {
        let (looks, rest): (Vec<_>, Vec<_>) = works
            .into_iter()
            .partition(|work| work.care() == Durability::Look);
        for mut look in looks {
            let mut turn = self.clock.turn(&self.connection);
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
        let turn = self.clock.turn(&self.connection);
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
        let mut done = self.transact(&mut works, &tries);
        // What fills the disk may be the write-ahead log itself.
        if done.as_ref().is_err_and(FailedAt::is_full) && self.connection.make_room() {
            done = self.transact(&mut works, &tries);
        }
        match done {
            Ok(()) => {}
            Err(FailedAt::Within(_)) if works.len() > 1 || !tries.is_empty() => {
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

    fn fail_all(&self, works: &mut [Box<dyn Work>], error: &FailedAt) {
        let error = self.error(error);
        for work in works {
            work.fail(error.clone());
        }
    }

    fn fail_lines(&mut self, queues: &BTreeSet<QueueId>, error: &FailedAt) {
        self.lines.fail(queues, &self.error(error));
    }

    fn error(&self, error: &FailedAt) -> QueueError {
        match error {
            FailedAt::Lost(damage) => self.place.damaged(damage),
            FailedAt::Begin(error) | FailedAt::Within(error) => {
                self.connection.note_failure(error);
                self.place.classify(error)
            }
        }
    }

    /// One transaction: the works, then the lines that were named or that the works stirred.
    fn transact(
        &mut self,
        works: &mut [Box<dyn Work>],
        tries: &BTreeSet<QueueId>,
    ) -> Result<(), FailedAt> {
        self.connection.check().map_err(FailedAt::Lost)?;
        let care = works.iter().map(|work| work.care()).max();
        let care = care.unwrap_or(Durability::Light);
        self.begin(care).map_err(FailedAt::Begin)?;
        let begun = clock::now();
        let mut turn = self.clock.turn(&self.connection);
        let mut served = Vec::new();
        let mut refused = Vec::new();
        let done = run_works(&mut turn, &self.place, works)
            .and_then(|()| {
                let lines = &mut self.lines;
                serve(&mut turn, lines, tries, &mut served, &mut refused)
            })
            .and_then(|()| keep(&turn))
            .and_then(|()| self.commit(care))
            .map_err(FailedAt::Within)
            // Nobody is told of a commit to a file that is not there any more.
            .and_then(|number| {
                self.connection
                    .check()
                    .map(|()| number)
                    .map_err(FailedAt::Lost)
            });
        let stirred = !turn.stirred.is_empty();
        let number = match done {
            Ok(number) => number,
            Err(error) => {
                if !self.connection.is_autocommit() {
                    // What cannot be rolled back either shows in the next BEGIN.
                    let _ = execute(&self.connection, "ROLLBACK");
                }
                for (queue, asked, _) in served.into_iter().rev() {
                    self.lines.put_back(queue, asked);
                }
                return Err(error);
            }
        };
        self.connection.note_written(number);
        self.tidy_at = Some(clock::now() + IDLE);
        if stirred {
            self.bell.notify();
        }
        refused.iter().for_each(|(queue, one)| note(queue, one));
        self.hand_over(served, begun);
        Ok(())
    }

    /// Commits. What must survive is counted: the number that is acknowledged with it.
    fn commit(&self, care: Durability) -> rusqlite::Result<Option<i64>> {
        let number = match care {
            Durability::Full => self.connection.counter()?,
            Durability::Look | Durability::Light => None,
        };
        execute(&self.connection, "COMMIT")?;
        Ok(number)
    }

    fn begin(&mut self, care: Durability) -> rusqlite::Result<()> {
        if self.care != care {
            // In WAL mode, NORMAL leaves out the sync at the commit; the next FULL one makes up
            // for it, since the log is one sequence.
            let level = if care == Durability::Full {
                "FULL"
            } else {
                "NORMAL"
            };
            self.connection
                .execute_batch(&format!("PRAGMA synchronous = {level}"))?;
            self.care = care;
        }
        execute(&self.connection, "BEGIN IMMEDIATE")
    }

    /// Reads what was taken and answers receives: only now, when a crash while reading costs each
    /// message a receive. What nobody takes any more goes back into its queue at once.
    fn hand_over(&mut self, served: Vec<Served>, begun: BootInstant) {
        for (queue, asked, mut claimed) in served {
            let (drained, short_of) = (claimed.drained, claimed.short_of);
            let refused = std::mem::take(&mut claimed.refused);
            let turn = self.clock.turn(&self.connection);
            let received = match load(&turn, claimed, &asked.name) {
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
            receives,
            reason,
            dead_letter_queue = format!("local:{target}"),
            "message dead-lettered"
        ),
        None => tracing::warn!(
            queue,
            message_id = id,
            receives,
            reason,
            "message skipped for a minute: there is no dead-letter queue"
        ),
    }
}
