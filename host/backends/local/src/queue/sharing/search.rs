//! Chooses the messages of a receive, one by one: first those that have waited too long, then those
//! of the most urgent priority, of the lane that has paid least.

use super::accounts::LaneAccounts;
use super::{BY_TIME, LaneKey, MOST_LANES, QueueLanes, before, correct, tables};
use crate::queue::deliver::{Candidate, Candidates, ELIGIBLE, candidate};
use crate::queue::time::StoreTime;
use crate::queue::turn::Turn;
use dispatcher_core::queue::Ask;
use dispatcher_core::queue::sharing::Priority;
use rusqlite::{OptionalExtension, Rows, params};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

/// The lanes of a priority that may have messages, the one that has paid least first.
pub(super) const BY_PASS: &str = "SELECT tenant, pass FROM lanes INDEXED BY lanes_by_pass
     WHERE queue = ?1 AND priority = ?2 AND is_due = 1 ORDER BY pass, tenant";
/// The next messages of a lane, in the order of becoming visible.
const OLDEST: &str = "SELECT visible_at, seq FROM entries INDEXED BY lane_messages
     WHERE queue = ?1 AND priority = ?2 AND tenant = ?3 AND visible_at <= ?4
       AND (visible_at, seq) > (?5, ?6) ORDER BY visible_at, seq LIMIT ?7";
/// The next messages of a lane, the last sent first. The query walks past newer messages that are
/// in flight or delayed.
const NEWEST: &str = "SELECT sent_at, seq FROM entries INDEXED BY lane_ages
     WHERE queue = ?1 AND priority = ?2 AND tenant = ?3 AND visible_at <= ?4
       AND (sent_at, seq) < (?5, ?6) ORDER BY sent_at DESC, seq DESC LIMIT ?7";

/// The lane from which a message was chosen.
#[derive(Debug)]
struct LanePick {
    lane: LaneKey,
    /// The sum of the lane in the file.
    stored: i64,
    /// Whether the message had waited too long.
    is_overdue: bool,
}

/// The lanes of the messages that a receive would take, by their rows.
#[derive(Debug, Default)]
pub(in crate::queue) struct LanePicks(HashMap<i64, LanePick>);

/// Chooses up to `ask.max` messages. Corrects the lanes in which it finds none.
pub(in crate::queue) fn search(
    turn: &Turn<'_>,
    lanes: &QueueLanes,
    ask: Ask,
) -> rusqlite::Result<Candidates> {
    if ask.newest_first {
        tables::index_ages(turn.connection)?;
    }
    let mut search = LaneSearch {
        turn,
        lanes,
        ask,
        accounts: lanes.accounts.clone(),
        candidates: Vec::new(),
        picks: HashMap::new(),
        stale: BTreeSet::new(),
        ineligible: Vec::new(),
    };
    search.pick_overdue()?;
    for priority in Priority::all() {
        search.pick_in_turn(priority)?;
    }
    let mut take_out = turn
        .connection
        .prepare_cached("UPDATE entries SET priority = NULL WHERE seq = ?1")?;
    for seq in &search.ineligible {
        take_out.execute(params![seq])?;
    }
    for lane in &search.stale {
        correct(turn, lanes.queue, lane, None)?;
    }
    Ok(Candidates {
        all: lanes.is_complete && search.has_room(),
        candidates: search.candidates,
        picks: Some(LanePicks(search.picks)),
    })
}

/// Lets the lanes pay for the messages that were taken. Returns how many of these had waited too
/// long.
pub(in crate::queue) fn charge(
    turn: &Turn<'_>,
    lanes: &QueueLanes,
    picks: &LanePicks,
    taken: &[i64],
) -> rusqlite::Result<usize> {
    let mut accounts = lanes.accounts.clone();
    let mut overdue = 0;
    for seq in taken {
        // A message behind another of its group has no lane yet.
        if let Some(pick) = picks.0.get(seq) {
            let price = lanes.sharing.price(&pick.lane.tenant);
            accounts.pay(&pick.lane, pick.stored, price, pick.is_overdue);
            overdue += usize::from(pick.is_overdue);
        }
    }
    for (lane, pass) in &accounts.passes {
        correct(turn, lanes.queue, lane, Some(*pass))?;
    }
    accounts.write_times(turn, lanes.queue)?;
    Ok(overdue)
}

/// The choice so far.
struct LaneSearch<'a, 'c> {
    turn: &'a Turn<'c>,
    lanes: &'a QueueLanes,
    ask: Ask,
    accounts: LaneAccounts,
    candidates: Vec<Candidate>,
    picks: HashMap<i64, LanePick>,
    /// The lanes whose first message cannot be received when the file says.
    stale: BTreeSet<LaneKey>,
    /// The messages that are in a lane and do not count.
    ineligible: Vec<i64>,
}

impl LaneSearch<'_, '_> {
    /// Whether more messages are wanted.
    fn has_room(&self) -> bool {
        self.candidates.len() < self.ask.max
            && self.stale.len() + self.ineligible.len() < MOST_LANES
    }

    /// Chooses the messages that have waited too long. Among priorities, the first to have waited
    /// too long goes first.
    fn pick_overdue(&mut self) -> rusqlite::Result<()> {
        let mut found = Vec::new();
        for priority in Priority::all() {
            if let Some(wait) = self.lanes.sharing.longest_wait(priority) {
                let rows = self.waiting_since(priority, before(self.turn, wait))?;
                found.extend(
                    rows.into_iter()
                        .map(|(at, seq, lane)| (at + wait, seq, lane)),
                );
            }
        }
        found.sort();
        for (_, seq, lane) in found {
            if self.has_room() {
                let stored = self.stored_pass(&lane)?;
                self.pick(seq, &lane, stored, true)?;
            }
        }
        Ok(())
    }

    /// Returns the messages of a priority that could be received at `until`, the first first.
    fn waiting_since(
        &mut self,
        priority: Priority,
        until: StoreTime,
    ) -> rusqlite::Result<Vec<(StoreTime, i64, LaneKey)>> {
        let connection = self.turn.connection;
        let mut find = connection.prepare_cached(BY_TIME)?;
        let key = params![self.lanes.queue, true, priority.number(), until];
        let mut rows = find.query(key)?;
        let mut next = self.next_lane(&mut rows, priority)?;
        let mut cursors: Vec<LaneCursor> = Vec::new();
        let mut first: BinaryHeap<Reverse<(i64, i64, usize)>> = BinaryHeap::new();
        let mut found = Vec::new();
        while found.len() < self.ask.max && self.has_room() {
            let known = first.peek().map(|Reverse((at, _, _))| *at);
            if let Some((lane, stored)) =
                next.take_if(|(_, at)| known.is_none_or(|known| *at <= known))
            {
                next = self.next_lane(&mut rows, priority)?;
                let mut cursor = LaneCursor::new(lane, stored, false);
                match cursor.next(self, until)? {
                    Some((at, seq)) => first.push(Reverse((at, seq, cursors.len()))),
                    None => drop(self.stale.insert(cursor.lane.clone())),
                }
                cursors.push(cursor);
            } else if let Some(Reverse((at, seq, index))) = first.pop() {
                let cursor = &mut cursors[index];
                found.push((StoreTime(at), seq, cursor.lane.clone()));
                if let Some((at, seq)) = cursor.next(self, until)? {
                    first.push(Reverse((at, seq, index)));
                }
            } else {
                break;
            }
        }
        Ok(found)
    }

    /// Chooses messages of a priority, each of the lane that has paid least.
    fn pick_in_turn(&mut self, priority: Priority) -> rusqlite::Result<()> {
        let connection = self.turn.connection;
        let mut find = connection.prepare_cached(BY_PASS)?;
        let mut rows = find.query(params![self.lanes.queue, priority.number()])?;
        let mut next = self.next_lane(&mut rows, priority)?;
        let mut cursors: Vec<LaneCursor> = Vec::new();
        let mut first: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
        while self.has_room() {
            let known = first.peek().map(|Reverse((sum, _))| *sum);
            if let Some((lane, stored)) = next.take_if(|(lane, stored)| {
                known.is_none_or(|known| self.accounts.sum(lane, *stored) < known)
            }) {
                next = self.next_lane(&mut rows, priority)?;
                let sum = self.accounts.sum(&lane, stored);
                first.push(Reverse((sum, cursors.len())));
                cursors.push(LaneCursor::new(lane, stored, self.ask.newest_first));
            } else if let Some(Reverse((_, index))) = first.pop() {
                let cursor = &mut cursors[index];
                if self.pick_from(cursor)? {
                    let sum = self.accounts.sum(&cursor.lane, cursor.stored);
                    first.push(Reverse((sum, index)));
                }
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Chooses the next message of a lane. Returns false if there is none.
    fn pick_from(&mut self, cursor: &mut LaneCursor) -> rusqlite::Result<bool> {
        let is_new = cursor.is_new();
        while let Some((_, seq)) = cursor.next(self, self.turn.now)? {
            let is_free = !self.picks.contains_key(&seq);
            if is_free && self.pick(seq, &cursor.lane, cursor.stored, false)? {
                return Ok(true);
            }
        }
        if is_new {
            self.stale.insert(cursor.lane.clone());
        }
        Ok(false)
    }

    /// Chooses a message if it counts, and lets its lane pay.
    fn pick(
        &mut self,
        seq: i64,
        lane: &LaneKey,
        stored: i64,
        is_overdue: bool,
    ) -> rusqlite::Result<bool> {
        let mut read = self.turn.connection.prepare_cached(ELIGIBLE)?;
        let found = read.query_row(params![seq, self.lanes.by_group], candidate);
        let Some(found) = found.optional()? else {
            self.ineligible.push(seq);
            return Ok(false);
        };
        self.candidates.push(found);
        let price = self.lanes.sharing.price(&lane.tenant);
        self.accounts.pay(lane, stored, price, is_overdue);
        let pick = LanePick {
            lane: lane.clone(),
            stored,
            is_overdue,
        };
        self.picks.insert(seq, pick);
        Ok(true)
    }

    /// Returns the next lane of a query, with its number, whose tenant is not left out.
    fn next_lane(
        &self,
        rows: &mut Rows<'_>,
        priority: Priority,
    ) -> rusqlite::Result<Option<(LaneKey, i64)>> {
        while let Some(row) = rows.next()? {
            let tenant = row.get_ref(0)?.as_str()?;
            if !self.lanes.sharing.parked.contains(tenant) {
                let tenant = tenant.to_owned();
                return Ok(Some((LaneKey { priority, tenant }, row.get(1)?)));
            }
        }
        Ok(None)
    }

    fn stored_pass(&self, lane: &LaneKey) -> rusqlite::Result<i64> {
        let pass = self
            .turn
            .connection
            .prepare_cached(
                "SELECT pass FROM lanes WHERE queue = ?1 AND priority = ?2 AND tenant = ?3",
            )?
            .query_row(
                params![self.lanes.queue, lane.priority.number(), lane.tenant],
                |row| row.get(0),
            )
            .optional()?;
        Ok(pass.unwrap_or_default())
    }
}

/// A walk over the messages of a lane that can be received.
struct LaneCursor {
    lane: LaneKey,
    /// The sum of the lane in the file.
    stored: i64,
    newest_first: bool,
    /// The messages that were read and not returned yet.
    rows: VecDeque<(i64, i64)>,
    /// The last message that was read.
    last: (i64, i64),
    /// The number of messages to read next; 0 at the end.
    most: i64,
}

impl LaneCursor {
    fn new(lane: LaneKey, stored: i64, newest_first: bool) -> Self {
        let end = if newest_first { i64::MAX } else { i64::MIN };
        Self {
            lane,
            stored,
            newest_first,
            rows: VecDeque::new(),
            last: (end, end),
            most: 1,
        }
    }

    /// Whether nothing was read yet.
    fn is_new(&self) -> bool {
        self.most == 1 && self.rows.is_empty()
    }

    /// Returns the next message that could be received at `until`: its time and its row.
    fn next(
        &mut self,
        search: &LaneSearch<'_, '_>,
        until: StoreTime,
    ) -> rusqlite::Result<Option<(i64, i64)>> {
        if self.rows.is_empty() && self.most > 0 {
            let sql = if self.newest_first { NEWEST } else { OLDEST };
            let LaneKey { priority, tenant } = &self.lane;
            let (at, seq) = self.last;
            let queue = search.lanes.queue;
            self.rows = search
                .turn
                .connection
                .prepare_cached(sql)?
                .query_map(
                    params![queue, priority.number(), tenant, until, at, seq, self.most],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )?
                .collect::<rusqlite::Result<_>>()?;
            let is_end = (self.rows.len() as i64) < self.most;
            self.most = if is_end { 0 } else { self.most * 2 };
            self.last = self.rows.back().copied().unwrap_or(self.last);
        }
        Ok(self.rows.pop_front())
    }
}
