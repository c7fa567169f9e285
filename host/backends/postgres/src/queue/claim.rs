//! Receives messages: when to look, where to begin, and when the queue is known to be empty.

use super::receipt::Delivery;
use super::{LONGEST_WAIT, PostgresQueue};
use crate::server::Value;
use crate::server::time::{ServerTime, micros};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::{Ask, ErrorKind, QueueError, ReceivedMessages, VISIBILITY_CEILING};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

/// The bytes of bodies that one call reads, at least one body.
pub(super) const READ_BYTES: i64 = 8 << 20;
/// The time between two looks at a queue that had messages a moment ago.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
/// The time between two looks at a queue that has been empty for long. Notifications come sooner.
const LONGEST_LOOK: Duration = Duration::from_secs(5);
/// The time for which senders notify after a receive began to wait.
const NOTIFY_FOR: Duration = Duration::from_secs(15);
/// The time after which a message counts as committed late: a look from the place of the last one
/// may miss it.
const LATE: Duration = Duration::from_secs(1);
/// The messages that one statement looks at, in a queue with groups.
const LOOKED_AT: i64 = 500;
/// The groups that one statement looks at, by name.
const GROUPS_LOOKED_AT: i64 = 1_000;

/// The knowledge of a queue that receives of this process share.
#[derive(Debug, Default)]
pub(super) struct ClaimState {
    /// Changes when the queue may have a message.
    pub wakes: Arc<watch::Sender<u64>>,
    scan: Mutex<ScanPlace>,
    /// The way through a queue with groups. One receive at a time goes it.
    walk: tokio::sync::Mutex<GroupWalk>,
}

/// Where the next look at a queue without groups begins. Before that place, an index has only what
/// was removed, until the next vacuum.
#[derive(Debug, Default)]
struct ScanPlace {
    /// No message is due before, unless it was committed late.
    from: Option<ServerTime>,
    /// When a look at the whole queue is due again.
    whole_due: Option<BootInstant>,
    /// Whether the queue has messages with groups.
    has_groups: bool,
    /// The most messages that a claim looks for: fewer where they are large.
    most: Option<usize>,
    /// The time until which senders notify.
    notified_until: Option<BootInstant>,
}

/// The way through a queue that has messages with groups. Each look goes a part of it.
#[derive(Debug, Default)]
struct GroupWalk {
    /// Whether the next look begins with the groups.
    groups_first: bool,
    /// The last group of the last look by names; `None` before the first group.
    last_group: Option<String>,
    /// Whether the round through the groups has found a message.
    round_found: bool,
    /// Where the search for messages without a group goes on; `None` at the start of the queue.
    place: Option<ServerTime>,
    /// How many messages the next part of the search has, beyond the usual.
    wider: i64,
    /// Whether the search has found a message.
    has_found: bool,
    /// When the search began.
    began: Option<BootInstant>,
    /// The time until which it rests, because it found none.
    rests_until: Option<BootInstant>,
}

/// The answer to one look.
#[derive(Debug, Default)]
struct LookAnswer {
    messages: Vec<Message>,
    /// Whether the queue was searched everywhere, and everything that could be received is here.
    all: bool,
    /// Whether the look was cut off, so that the next one may find more.
    more: bool,
    /// The time until the next message is due.
    next_due: Option<Duration>,
}

/// The summary of a claim.
struct ClaimSummary {
    now: ServerTime,
    next_due: Option<Duration>,
    /// How many messages it has found, and whether it has taken all of them.
    found: usize,
    is_full: bool,
    are_all_taken: bool,
    /// The time of the last one found.
    newest: Option<ServerTime>,
    /// How many messages it has looked at, and the time of the last one.
    looked_at: Option<i64>,
    looked_to: Option<ServerTime>,
    has_groups: bool,
}

impl ClaimSummary {
    fn read(row: &Row, taken: usize, most: usize) -> Result<Self, tokio_postgres::Error> {
        let now: ServerTime = row.try_get("now")?;
        let next_due: Option<ServerTime> = row.try_get("next_due")?;
        let count: i64 = row.try_get("found")?;
        let found = usize::try_from(count).unwrap_or_default();
        Ok(Self {
            now,
            next_due: next_due.map(|due| due.since(now)),
            found,
            is_full: found >= most,
            are_all_taken: found == taken,
            newest: row.try_get("newest")?,
            looked_at: row.try_get("looked_at")?,
            looked_to: row.try_get("looked_to")?,
            has_groups: row.try_get::<_, Option<bool>>("has_groups")?.is_some(),
        })
    }
}

impl ScanPlace {
    /// Returns the place where a look begins; `None` for the start of the queue.
    fn start(&self, now: BootInstant) -> Option<ServerTime> {
        let is_due = self.whole_due.is_none_or(|due| now >= due);
        if is_due { None } else { self.from }
    }

    /// Notes a look that began and ended at these times. A look at the whole queue may take long
    /// while an old snapshot keeps what was removed; it is then repeated less often.
    fn looked(
        &mut self,
        claim: &ClaimSummary,
        is_whole: bool,
        (began, ended): (BootInstant, BootInstant),
    ) {
        self.has_groups = claim.has_groups;
        if is_whole {
            let cost = ended.since(began);
            self.whole_due = Some(ended + LATE.max(cost * 20));
        }
        if claim.are_all_taken && !claim.has_groups {
            // Messages that come later are due after the last of these, or after now if these are
            // all.
            let last = match claim.newest {
                Some(newest) if claim.is_full => newest,
                _ => claim.now,
            };
            self.from = Some(last.before(LATE));
        }
    }

    /// Notes how many messages fitted into one answer.
    fn fitted(&mut self, claim: &ClaimSummary, taken: usize, batch: usize) {
        self.most = if claim.are_all_taken {
            self.most.map(|most| most * 2).filter(|most| *most < batch)
        } else {
            Some((taken * 2).max(1))
        };
    }
}

impl GroupWalk {
    /// How many messages the next part of the search has.
    fn length(&self) -> i64 {
        LOOKED_AT + self.wider
    }

    /// Goes on with the search for messages without a group. Returns whether it has ended.
    fn went(&mut self, claim: &ClaimSummary, now: BootInstant) -> bool {
        self.has_found |= claim.found > 0;
        let looked_at = claim.looked_at.unwrap_or_default();
        if claim.is_full || !claim.are_all_taken {
            // The part has more.
            return false;
        }
        if looked_at < self.length() {
            let began = self.began.unwrap_or(now);
            let rest = LATE.max(now.since(began) * 5);
            let is_long = self.place.is_some();
            self.rests_until = (is_long && !self.has_found).then_some(now + rest);
            (self.place, self.wider, self.has_found, self.began) = (None, 0, false, None);
            return true;
        }
        // More messages than a part has may be due at one instant.
        self.wider = if claim.looked_to == self.place {
            self.length() * 4
        } else {
            0
        };
        self.place = claim.looked_to;
        false
    }
}

impl PostgresQueue {
    pub(super) async fn receive_messages(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        if ask.visibility > VISIBILITY_CEILING {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!(
                    "`{}`: a visibility of {:?} is too long, wanted 0 s to 12 h",
                    self.identity.name, ask.visibility
                ),
            });
        }
        let ask = Ask {
            max: ask.max.clamp(1, self.identity.batch),
            ..ask
        };
        let until = clock::now() + ask.wait.min(LONGEST_WAIT);
        let mut wakes = self.claims.wakes.subscribe();
        let mut pause = SHORTEST_LOOK;
        loop {
            wakes.mark_unchanged();
            let taken = clock::now();
            let is_last = taken >= until || hurry.is_cancelled();
            let most = READ_BYTES.unsigned_abs();
            let free = self
                .budget
                .as_ref()
                .map_or(most, |one| one.free().min(most));
            let reserved = self.budget.as_ref().map(|budget| budget.take(free));
            let found = self.look(ask, free, is_last).await?;
            drop(reserved);
            let now = clock::now();
            let goes_on = found.more && !hurry.is_cancelled();
            if !found.messages.is_empty() || (is_last && !goes_on) {
                return Ok(self.received(found, taken));
            }
            if goes_on {
                continue;
            }
            if self.asks_for_wakes(now).await? {
                // A message may have been sent before the senders knew.
                continue;
            }
            let sleep = found.next_due.unwrap_or(pause).min(pause);
            pause = (pause * 2).min(LONGEST_LOOK);
            let soon = now + sleep.max(Duration::from_millis(1));
            let whole = self.whole_due().filter(|due| *due > now).unwrap_or(soon);
            let at = until.min(soon).min(whole);
            tokio::select! {
                changed = wakes.changed() => {
                    if changed.is_ok() {
                        pause = SHORTEST_LOOK;
                    }
                }
                () = clock::sleep_until(Some(at)) => {}
                () = hurry.cancelled() => {}
            }
        }
    }

    /// Returns when a look at the whole queue is due, if the last look was not one.
    fn whole_due(&self) -> Option<BootInstant> {
        let scan = self.claims.scan.lock();
        if scan.has_groups {
            return None;
        }
        scan.whole_due
    }

    fn received(&self, found: LookAnswer, taken: BootInstant) -> ReceivedMessages {
        let held = self.budget.as_ref().map(|budget| {
            let bytes = found.messages.iter().map(Message::held_bytes);
            bytes.map(|bytes| budget.take(bytes)).collect()
        });
        ReceivedMessages {
            held: held.unwrap_or_default(),
            drained: found.all,
            messages: found.messages,
            taken: Some(taken),
            ..ReceivedMessages::default()
        }
    }

    /// Asks senders to notify, unless they do. Returns whether it did.
    async fn asks_for_wakes(&self, now: BootInstant) -> Result<bool, QueueError> {
        self.server.listener.start();
        let soon = now + NOTIFY_FOR / 2;
        let known = self.claims.scan.lock().notified_until;
        if known.is_some_and(|until| until > soon) {
            return Ok(false);
        }
        let sql = "INSERT INTO dispatcher.waiting (queue_table, until) \
                   VALUES ($1, now() + $2 * interval '1 microsecond') \
                   ON CONFLICT (queue_table) DO UPDATE SET until = excluded.until";
        let time = micros(NOTIFY_FOR);
        let values: [Value<'_>; 2] = [(&self.table, Type::TEXT), (&time, Type::INT8)];
        self.server.run(sql, &values).await?;
        self.claims.scan.lock().notified_until = Some(now + NOTIFY_FOR);
        Ok(true)
    }

    /// Looks for messages once. The last look of a receive that finds none is at the whole queue.
    async fn look(&self, ask: Ask, bytes: u64, is_last: bool) -> Result<LookAnswer, QueueError> {
        if !self.claims.scan.lock().has_groups {
            let (found, is_whole) = self.look_at_all(ask, bytes, false).await?;
            let has_groups = self.claims.scan.lock().has_groups;
            if !found.messages.is_empty() {
                let all = found.all && !has_groups;
                return Ok(LookAnswer { all, ..found });
            }
            if !has_groups {
                if is_whole || !is_last {
                    return Ok(found);
                }
                return Ok(self.look_at_all(ask, bytes, true).await?.0);
            }
        }
        let mut walk = self.claims.walk.lock().await;
        walk.groups_first = !walk.groups_first;
        let mut grouped = LookAnswer::default();
        if walk.groups_first {
            grouped = self.look_at_groups(&mut walk, ask, bytes).await?;
            if !grouped.messages.is_empty() {
                return Ok(grouped);
            }
        }
        let alone = self.look_between_groups(&mut walk, ask, bytes).await?;
        let held: u64 = alone.messages.iter().map(Message::held_bytes).sum();
        let left = ask.max - alone.messages.len();
        if !walk.groups_first && left > 0 && held < bytes {
            let rest = Ask { max: left, ..ask };
            grouped = match self.look_at_groups(&mut walk, rest, bytes - held).await {
                // The messages that were taken are returned; the next look fails again.
                Err(_) if !alone.messages.is_empty() => LookAnswer::default(),
                answered => answered?,
            };
        }
        let both = alone.messages.into_iter().chain(grouped.messages);
        Ok(LookAnswer {
            messages: both.collect(),
            all: alone.all && grouped.all,
            more: alone.more || grouped.more,
            next_due: alone.next_due,
        })
    }

    /// Looks at a queue without groups. Also returns whether it looked at the whole queue.
    async fn look_at_all(
        &self,
        ask: Ask,
        bytes: u64,
        must_be_whole: bool,
    ) -> Result<(LookAnswer, bool), QueueError> {
        let began = clock::now();
        let start = if must_be_whole || ask.newest_first {
            None
        } else {
            self.claims.scan.lock().start(began)
        };
        let from = start.unwrap_or(ServerTime::FIRST);
        let sql = if ask.newest_first {
            &self.statements.claim_newest
        } else {
            &self.statements.claim
        };
        let values: [Value<'_>; 1] = [(&from, Type::TIMESTAMPTZ)];
        let (messages, claim) = self.claim(sql, ask, bytes, &values).await?;
        let is_whole = start.is_none();
        if !ask.newest_first {
            let times = (began, clock::now());
            self.claims.scan.lock().looked(&claim, is_whole, times);
        } else {
            self.claims.scan.lock().has_groups = claim.has_groups;
        }
        let is_end = !claim.is_full && claim.are_all_taken;
        let found = LookAnswer {
            all: is_whole && is_end,
            more: !is_end && claim.are_all_taken,
            messages,
            next_due: claim.next_due,
        };
        Ok((found, is_whole))
    }

    /// Goes on with the search for messages without a group, in a queue with groups.
    async fn look_between_groups(
        &self,
        walk: &mut GroupWalk,
        ask: Ask,
        bytes: u64,
    ) -> Result<LookAnswer, QueueError> {
        let now = clock::now();
        if ask.newest_first {
            return Ok(self.look_at_all(ask, bytes, true).await?.0);
        }
        if let Some(until) = walk.rests_until
            && now < until
        {
            return Ok(LookAnswer {
                all: true,
                next_due: Some(until.since(now)),
                ..LookAnswer::default()
            });
        }
        walk.began = walk.began.or(Some(now));
        let from = walk.place.unwrap_or(ServerTime::FIRST);
        let length = walk.length();
        let values: [Value<'_>; 2] = [(&from, Type::TIMESTAMPTZ), (&length, Type::INT8)];
        let sql = &self.statements.claim_among_groups;
        let (messages, claim) = self.claim(sql, ask, bytes, &values).await?;
        self.claims.scan.lock().has_groups = claim.has_groups;
        let is_end = walk.went(&claim, clock::now());
        Ok(LookAnswer {
            all: is_end,
            more: !is_end && claim.are_all_taken,
            messages,
            next_due: claim.next_due,
        })
    }

    /// Looks for first messages of groups: among those that are due first, then, if all of these wait
    /// for others of their groups, in the order of the groups' names.
    async fn look_at_groups(
        &self,
        walk: &mut GroupWalk,
        ask: Ask,
        bytes: u64,
    ) -> Result<LookAnswer, QueueError> {
        let most = integer(ask.max);
        let by_time: [Value<'_>; 2] = [(&LOOKED_AT, Type::INT8), (&most, Type::INT8)];
        let find = (&*self.statements.heads_by_time, &by_time[..]);
        let (found, messages) = self.claim_found(find, ask, bytes).await?;
        let (next, seen) = counts(found.as_ref());
        if !messages.is_empty() || seen < LOOKED_AT {
            let are_all_taken = next == integer(messages.len());
            return Ok(LookAnswer {
                all: seen < LOOKED_AT && next < most && are_all_taken,
                messages,
                ..LookAnswer::default()
            });
        }
        let after = walk.last_group.clone();
        let sql = if after.is_some() {
            &self.statements.heads_by_group
        } else {
            walk.round_found = false;
            &self.statements.heads_from_start
        };
        let after = after.unwrap_or_default();
        let by_group: [Value<'_>; 3] = [
            (&after, Type::TEXT),
            (&GROUPS_LOOKED_AT, Type::INT8),
            (&most, Type::INT8),
        ];
        let (found, messages) = self.claim_found((sql, &by_group[..]), ask, bytes).await?;
        let (next, seen) = counts(found.as_ref());
        walk.round_found |= next > 0;
        let last: Option<String> = found.and_then(|found| found.get("last_group"));
        let is_end = seen < GROUPS_LOOKED_AT;
        if next < most {
            walk.last_group = if is_end { None } else { last };
        }
        Ok(LookAnswer {
            all: is_end && !walk.round_found,
            more: !is_end && next == integer(messages.len()),
            messages,
            next_due: None,
        })
    }

    /// Takes messages by a statement that begins with the values of every claim.
    async fn claim(
        &self,
        sql: &str,
        ask: Ask,
        bytes: u64,
        more: &[Value<'_>],
    ) -> Result<(Vec<Message>, ClaimSummary), QueueError> {
        let most = self.claims.scan.lock().most.unwrap_or(ask.max).min(ask.max);
        let (largest, visibility) = (self.largest(), micros(ask.visibility));
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let count = integer(most);
        let common: [Value<'_>; 4] = [
            (&largest, Type::INT8),
            (&visibility, Type::INT8),
            (&count, Type::INT8),
            (&bytes, Type::INT8),
        ];
        let values = [&common[..], more].concat();
        let mut rows = match self.rows_if_there(sql, &values).await? {
            Some(rows) => rows,
            None => {
                super::create(&self.server, &self.name).await?;
                self.server.run(sql, &values).await?
            }
        };
        self.is_there.store(true, Relaxed);
        let summary = rows.pop();
        let messages = self.messages(&rows)?;
        let Some(summary) = summary else {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!("`{}`: a claim without a summary", self.identity.name),
            });
        };
        let claim = ClaimSummary::read(&summary, messages.len(), most)
            .map_err(|error| self.unexpected(&error))?;
        let mut scan = self.claims.scan.lock();
        scan.fitted(&claim, messages.len(), self.identity.batch);
        drop(scan);
        Ok((messages, claim))
    }

    /// Claims the messages that a statement finds and whose groups it locks.
    async fn claim_found(
        &self,
        find: (&str, &[Value<'_>]),
        ask: Ask,
        bytes: u64,
    ) -> Result<(Option<Row>, Vec<Message>), QueueError> {
        let (largest, visibility) = (self.largest(), micros(ask.visibility));
        let (most, bytes) = (integer(ask.max), i64::try_from(bytes).unwrap_or(i64::MAX));
        let values: [Value<'_>; 4] = [
            (&largest, Type::INT8),
            (&visibility, Type::INT8),
            (&most, Type::INT8),
            (&bytes, Type::INT8),
        ];
        let claim = (&*self.statements.claim_chosen, &values[..]);
        let (found, mut rows) = self.server.run_locked(find, claim).await?;
        // The last row is the summary.
        rows.pop();
        Ok((found, self.messages(&rows)?))
    }

    /// Receives those of the listed messages that still wait.
    pub(super) async fn receive_listed(
        &self,
        listed: &[Receipt],
        visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        let listed = listed.iter().filter_map(|one| Delivery::read(one).ok());
        let ids: Vec<i64> = listed.map(|one| one.id).collect();
        let values: [Value<'_>; 1] = [(&ids, Type::INT8_ARRAY)];
        let ask = Ask {
            max: ids.len().max(1),
            visibility: visibility.min(VISIBILITY_CEILING),
            ..Ask::PLAIN
        };
        let find = (&*self.statements.lock_chosen, &values[..]);
        let (_, messages) = self.claim_found(find, ask, u64::MAX).await?;
        Ok(messages)
    }
}

/// Returns how many messages a statement has found, and how many it has looked at.
fn counts(found: Option<&Row>) -> (i64, i64) {
    found.map_or((0, 0), |found| (found.get("found"), found.get("seen")))
}

/// Returns a count as a value of a statement.
fn integer(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
