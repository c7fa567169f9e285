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

/// What receives of this process know of a queue.
#[derive(Debug, Default)]
pub(super) struct ClaimState {
    /// Changes when the queue may have a message.
    pub wakes: Arc<watch::Sender<u64>>,
    scan: Mutex<ScanPlace>,
}

/// Where the next look begins. Before that place, an index has only what was removed, until the next
/// vacuum.
#[derive(Debug, Default)]
struct ScanPlace {
    /// No message is due before, unless it was committed late.
    from: Option<ServerTime>,
    /// The time of the last look at the whole queue.
    whole: Option<BootInstant>,
    /// Whether the queue has messages with groups.
    has_groups: bool,
    /// Whether the next look begins with the groups.
    groups_first: bool,
    /// The last group of the last look by names.
    last_group: String,
    walk: GroupWalk,
    /// Until when senders notify.
    notified_until: Option<BootInstant>,
}

/// The way through a queue that has messages with and without groups. Each look goes a part of it,
/// in search of messages without.
#[derive(Debug, Clone)]
struct GroupWalk {
    /// Where the next part begins; `None` at the start of the queue.
    place: Option<ServerTime>,
    /// How many messages the next part has.
    length: i64,
    /// Whether the walk has found a message.
    has_found: bool,
    /// When a walk ended that had found none.
    ended: Option<BootInstant>,
}

impl Default for GroupWalk {
    fn default() -> Self {
        Self {
            place: None,
            length: LOOKED_AT,
            has_found: false,
            ended: None,
        }
    }
}

impl GroupWalk {
    /// Whether the last walk has found nothing a moment ago.
    fn rests(&self, now: BootInstant) -> bool {
        self.place.is_none() && self.ended.is_some_and(|at| now.since(at) < LONGEST_LOOK)
    }

    /// Goes on behind a part. Returns whether it was the last one.
    fn went(
        &mut self,
        looked_at: i64,
        looked_to: Option<ServerTime>,
        is_found: bool,
        now: BootInstant,
    ) -> bool {
        self.has_found |= is_found;
        if looked_at < self.length {
            let is_long = self.place.is_some();
            *self = Self {
                ended: (is_long && !self.has_found).then_some(now),
                ..Self::default()
            };
            return true;
        }
        // More messages than the part has may be due at one instant.
        self.length = if looked_to == self.place {
            self.length * 4
        } else {
            LOOKED_AT
        };
        self.place = looked_to;
        false
    }
}

/// The answer to one look.
#[derive(Debug, Default)]
struct Found {
    messages: Vec<Message>,
    /// Whether everything that could be received was returned.
    all: bool,
    /// The time until the next message is due.
    next_due: Option<Duration>,
}

impl ScanPlace {
    /// Returns the place where a look begins.
    fn start(&mut self, now: BootInstant) -> ServerTime {
        let is_due = self.whole.is_none_or(|whole| now.since(whole) >= LATE);
        if is_due {
            self.whole = Some(now);
        }
        self.from.filter(|_| !is_due).unwrap_or(ServerTime::FIRST)
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
        let mut look = SHORTEST_LOOK;
        loop {
            wakes.mark_unchanged();
            let taken = clock::now();
            let most = READ_BYTES.unsigned_abs();
            let free = self
                .budget
                .as_ref()
                .map_or(most, |one| one.free().min(most));
            let reserved = self.budget.as_ref().map(|budget| budget.take(free));
            let found = self.look(ask, free, taken).await?;
            drop(reserved);
            let now = clock::now();
            let is_over = now >= until || hurry.is_cancelled();
            if !found.messages.is_empty() || is_over {
                return Ok(self.received(found, ask.max, taken));
            }
            if !found.all {
                continue;
            }
            if self.asks_for_wakes(now).await? {
                // A message may have been sent before the senders knew.
                continue;
            }
            let sleep = found.next_due.unwrap_or(look).min(look);
            look = (look * 2).min(LONGEST_LOOK);
            let at = until.min(now + sleep.max(Duration::from_millis(1)));
            tokio::select! {
                _ = wakes.changed() => {}
                () = clock::sleep_until(Some(at)) => {}
                () = hurry.cancelled() => {}
            }
        }
    }

    fn received(&self, found: Found, max: usize, taken: BootInstant) -> ReceivedMessages {
        let held = self.budget.as_ref().map(|budget| {
            let bytes = found.messages.iter().map(Message::held_bytes);
            bytes.map(|bytes| budget.take(bytes)).collect()
        });
        ReceivedMessages {
            held: held.unwrap_or_default(),
            drained: found.all && found.messages.len() < max,
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

    /// Looks for messages once. Takes those with and those without a group in turns.
    async fn look(&self, ask: Ask, bytes: u64, now: BootInstant) -> Result<Found, QueueError> {
        let (from, groups_first) = {
            let mut scan = self.claims.scan.lock();
            scan.groups_first = !scan.groups_first && scan.has_groups;
            (scan.start(now), scan.groups_first)
        };
        let mut grouped = Found::default();
        if groups_first {
            grouped = self.look_at_groups(ask, bytes, from).await?;
            if !grouped.messages.is_empty() {
                return Ok(grouped);
            }
        }
        let alone = self.look_at_ungrouped(ask, bytes, from, now).await?;
        let has_groups = self.claims.scan.lock().has_groups;
        let held: u64 = alone.messages.iter().map(Message::held_bytes).sum();
        let left = ask.max - alone.messages.len();
        if groups_first || !has_groups || left == 0 || held >= bytes {
            let all = alone.all && left > 0 && (grouped.all || !has_groups);
            return Ok(Found { all, ..alone });
        }
        let rest = Ask { max: left, ..ask };
        let grouped = self.look_at_groups(rest, bytes - held, from).await?;
        let both = alone.messages.into_iter().chain(grouped.messages);
        Ok(Found {
            messages: both.collect(),
            all: alone.all && grouped.all,
            next_due: alone.next_due,
        })
    }

    /// Looks for messages without a group.
    async fn look_at_ungrouped(
        &self,
        ask: Ask,
        bytes: u64,
        from: ServerTime,
        now: BootInstant,
    ) -> Result<Found, QueueError> {
        let (largest, visibility) = (self.largest(), micros(ask.visibility));
        let (most, bytes) = (integer(ask.max), i64::try_from(bytes).unwrap_or(i64::MAX));
        let walk = self.claims.scan.lock().walk.clone();
        let has_groups = self.claims.scan.lock().has_groups;
        let start = if has_groups {
            walk.place.unwrap_or(from)
        } else {
            from
        };
        let mut values: Vec<Value<'_>> = vec![
            (&largest, Type::INT8),
            (&visibility, Type::INT8),
            (&most, Type::INT8),
            (&bytes, Type::INT8),
            (&start, Type::TIMESTAMPTZ),
        ];
        let sql = if ask.newest_first {
            &self.statements.claim_newest
        } else if has_groups {
            if walk.rests(now) {
                return Ok(Found {
                    all: true,
                    ..Found::default()
                });
            }
            values.push((&walk.length, Type::INT8));
            &self.statements.claim_among_groups
        } else {
            &self.statements.claim
        };
        let rows = self.server.run(sql, &values).await?;
        self.claimed(rows, ask.max, now)
            .map_err(|error| self.unexpected(&error))
    }

    /// Reads the answer of a claim, and remembers where the next one begins.
    fn claimed(
        &self,
        mut rows: Vec<Row>,
        max: usize,
        at: BootInstant,
    ) -> Result<Found, tokio_postgres::Error> {
        let Some(summary) = rows.pop() else {
            return Ok(Found::default());
        };
        let now: ServerTime = summary.try_get("now")?;
        let next_due: Option<ServerTime> = summary.try_get("next_due")?;
        let newest: Option<ServerTime> = summary.try_get("newest")?;
        let found: i64 = summary.try_get("found")?;
        let looked_at: Option<i64> = summary.try_get("looked_at")?;
        let looked_to: Option<ServerTime> = summary.try_get("looked_to")?;
        let has_groups: Option<bool> = summary.try_get("has_groups")?;
        let messages = rows.iter().map(|row| self.message(row));
        let messages: Vec<Message> = messages.collect::<Result<_, _>>()?;
        let is_full = messages.len() == max;
        let are_all_taken = found == integer(messages.len());
        let mut scan = self.claims.scan.lock();
        scan.has_groups = has_groups.is_some();
        let mut is_end = true;
        if let Some(looked_at) = looked_at {
            let is_found = !messages.is_empty();
            is_end = scan.walk.went(looked_at, looked_to, is_found, at);
        } else if are_all_taken {
            // Messages that come later are due after the last of these, or after now if these are
            // all.
            let last = newest.filter(|_| is_full).unwrap_or(now);
            scan.from = Some(last.before(LATE));
        }
        Ok(Found {
            all: is_end && !is_full && are_all_taken,
            messages,
            next_due: next_due.map(|due| due.since(now)),
        })
    }

    /// Looks for first messages of groups.
    async fn look_at_groups(
        &self,
        ask: Ask,
        bytes: u64,
        from: ServerTime,
    ) -> Result<Found, QueueError> {
        let most = integer(ask.max);
        let by_time: [Value<'_>; 3] = [
            (&from, Type::TIMESTAMPTZ),
            (&LOOKED_AT, Type::INT8),
            (&most, Type::INT8),
        ];
        let find = (&*self.statements.heads_by_time, &by_time[..]);
        let (found, messages) = self.claim_found(find, ask, bytes).await?;
        let Some(found) = found else {
            return Ok(Found::default());
        };
        let (next, seen): (i64, i64) = (found.get("found"), found.get("seen"));
        if !messages.is_empty() || seen < LOOKED_AT {
            return Ok(Found {
                all: seen < LOOKED_AT && next == integer(messages.len()),
                messages,
                next_due: None,
            });
        }
        // All that are due first wait for others of their groups.
        let after = self.claims.scan.lock().last_group.clone();
        let by_group: [Value<'_>; 3] = [
            (&after, Type::TEXT),
            (&GROUPS_LOOKED_AT, Type::INT8),
            (&most, Type::INT8),
        ];
        let find = (&*self.statements.heads_by_group, &by_group[..]);
        let (found, messages) = self.claim_found(find, ask, bytes).await?;
        let (mut all, mut last) = (false, None);
        if let Some(found) = found {
            let (next, seen): (i64, i64) = (found.get("found"), found.get("seen"));
            last = found.get::<_, Option<String>>("last_group");
            // All groups were looked at, from the first one.
            let is_whole = seen < GROUPS_LOOKED_AT && after.is_empty();
            all = is_whole && next == integer(messages.len());
            last = last.filter(|_| seen == GROUPS_LOOKED_AT);
        }
        self.claims.scan.lock().last_group = last.unwrap_or_default();
        Ok(Found {
            all,
            messages,
            next_due: None,
        })
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
        let messages = rows.iter().map(|row| self.message(row));
        let messages = messages.collect::<Result<_, _>>();
        Ok((found, messages.map_err(|error| self.unexpected(&error))?))
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

/// Returns a count as a value of a statement.
fn integer(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
