//! Decides which starts a process may have under limits that hold for all processes together. Pure:
//! the records of the limits, the request and the store's time are arguments. A shell reads the
//! records, and writes them only if no other process has written them since.

use super::limit::{LimitNumbers, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The form of the records. A process that reads another form grants itself nothing.
pub const FORMAT: u32 = 1;
/// The time after the end of a lease at which its permits are free: a process stops its attempts at
/// the end, by a clock that may be a little slower than the store's.
pub const GRACE: Duration = Duration::from_secs(1);
/// The time after which a process that waits for a permit may ask again.
const NEXT_PERMIT: Duration = Duration::from_millis(250);
/// This time for a process that has its share: the others give back what they do not use.
const BEYOND_SHARE: Duration = Duration::from_secs(1);
/// The bounds of the time after which a process that waits for a rate may ask again.
const NEXT_TOKEN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// The seconds for which tokens are granted before they are earned, so that a request serves many
/// starts. Each becomes usable once it is earned.
const AHEAD: f64 = 1.5;
/// The part of these tokens that the processes get when each has its part. The rest is for those
/// that ask a little early.
const SHARED_AHEAD: f64 = 0.9;

/// The record of one limit, or of one key of a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The processes that hold permits or wait for a start.
    pub holders: BTreeMap<String, Holder>,
    /// The tokens of the rate at `at`. Less than 0: as many were granted that are not earned yet.
    pub tokens: f64,
    /// The store's time in milliseconds when the record was written.
    pub at: u64,
}

/// The permits that one process has of a limit, and its wait.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The number of permits.
    pub held: u32,
    /// The store's time in milliseconds at which the permits end.
    pub until: u64,
    /// Its wait for permits, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// Its wait for tokens, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_wait: Option<Wait>,
    /// The store's time in milliseconds at which its tokens have been earned.
    #[serde(default)]
    pub tokens_until: u64,
}

impl Holder {
    fn is_listed(&self, now: u64) -> bool {
        let waits = self.wait.is_some() || self.token_wait.is_some();
        self.held > 0 || waits || self.tokens_until > now
    }
}

/// The wait of a process for a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The permits or tokens that the start needs.
    pub needs: u32,
    /// The store's time in milliseconds at which it was refused first.
    pub since: u64,
    /// The store's time in milliseconds until which it asks again, or waits no more.
    pub until: u64,
}

/// The part of a request about one limit, or one key of it.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitAccount {
    /// The name of the record.
    pub record: String,
    /// The numbers that hold for it.
    pub numbers: LimitNumbers,
    /// The permits that the process keeps. It gives all others back.
    pub keep: u32,
    /// The tokens that it wants, for starts to come.
    pub tokens: TokenClaim,
    /// Whether it only counts, and stops nothing.
    pub shadow: bool,
}

/// The tokens of a rate that a process wants, besides those of starts that lack more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenClaim {
    /// The tokens of one start. They are granted, and become usable, together.
    pub unit: u32,
    /// How many units it wants.
    pub count: u32,
}

/// A wish for starts which need the same of the same limits. A process gets that of one start
/// wholly or not at all: otherwise tokens would end while it waits for permits, and permits would
/// stand idle while it waits for tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartClaim {
    /// Indexes of accounts with a concurrency, each with the permits of one start.
    pub permits: Vec<(usize, u32)>,
    /// Indexes of accounts with a rate of which one start takes a unit.
    pub tokens: Vec<usize>,
    /// How many starts it wants.
    pub count: u32,
}

/// All that a process asks in one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The process.
    pub holder: String,
    /// The time for which it gets permits.
    pub lease: Duration,
    /// The limits, each once.
    pub accounts: Vec<LimitAccount>,
    /// The starts that it wants, the oldest first.
    pub claims: Vec<StartClaim>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The starts granted of each claim.
    pub claims: Vec<u32>,
    /// The state of each account.
    pub accounts: Vec<AccountState>,
}

/// The state of one limit, as a process learns it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AccountState {
    /// The permits that it has now.
    pub held: u32,
    /// The permits of all processes.
    pub used: u32,
    /// The processes that have permits or wait.
    pub processes: u32,
    /// The permits that it may go on using, because other processes wait; `None` if none waits.
    pub share: Option<u32>,
    /// When permits that were refused may be asked for again.
    pub retry_after: Option<Duration>,
    /// The tokens granted, in units.
    pub units: u32,
    /// The tokens that there were before. Those beyond it become usable as they are earned.
    pub tokens_before: f64,
    /// When tokens that were refused may be asked for again.
    pub tokens_after: Option<Duration>,
}

/// Decides about a request. Returns the new records, in the order of the accounts, and the answer.
/// `records` has `None` for those that do not exist.
#[must_use]
pub fn decide(
    request: &Request,
    records: &[Option<LimitRecord>],
    now: u64,
) -> (Vec<LimitRecord>, Grant) {
    let accounts = request.accounts.iter().zip(records);
    let mut open: Vec<OpenAccount<'_>> = accounts
        .map(|(account, record)| OpenAccount::new(request, account, record.as_ref(), now))
        .collect();
    let claims: Vec<u32> = request
        .claims
        .iter()
        .map(|claim| settle(&mut open, claim))
        .collect();
    for one in &mut open {
        one.settle_tokens();
    }
    let (records, accounts) = open.into_iter().map(|one| one.close(request)).unzip();
    (records, Grant { claims, accounts })
}

/// Grants as many starts of a claim as all its limits allow.
fn settle(open: &mut [OpenAccount<'_>], claim: &StartClaim) -> u32 {
    let permits = claim.permits.iter();
    let allowed: Vec<u32> = permits
        .map(|(at, weight)| open[*at].allowed_starts(*weight))
        .collect();
    let units: Vec<u32> = claim
        .tokens
        .iter()
        .map(|at| open[*at].free_units())
        .collect();
    let most = allowed.iter().chain(&units).copied().min();
    let granted = most.unwrap_or(u32::MAX).min(claim.count);
    // All limits of a claim have the same order of processes. Otherwise two processes that need the
    // same two limits could each be first at one of them, and neither would start.
    let accounts = claim.permits.iter().map(|(at, _)| at).chain(&claim.tokens);
    let first = accounts.map(|at| open[*at].since).min();
    let since = first.unwrap_or(u64::MAX);
    for (&(at, weight), allowed) in claim.permits.iter().zip(allowed) {
        open[at].own.held += granted.saturating_mul(weight.max(1));
        // Only where it lacks something: a start that waits for its key keeps nothing of another
        // limit from those that could start.
        if allowed < claim.count {
            open[at].refuse(weight, since);
        }
    }
    for (&at, units) in claim.tokens.iter().zip(units) {
        let one = &mut open[at];
        one.units = one.units.saturating_add(granted);
        if units == 0 {
            one.lacking = one.lacking.max(claim.count);
            one.since = one.since.min(since);
        }
    }
    granted
}

/// A record while a request is decided.
struct OpenAccount<'a> {
    account: &'a LimitAccount,
    record: LimitRecord,
    now: u64,
    /// This process.
    own: Holder,
    /// The permits of other processes.
    others: u32,
    /// The permits that processes need which have waited longer.
    reserved: u32,
    /// The permits of a process if all have as many.
    fair: Option<u32>,
    /// This number if others wait that have less.
    share: Option<u32>,
    /// The needs of the first refused start.
    refused: Option<u32>,
    /// Since when this process waits, if it does.
    since: u64,
    /// The units of tokens granted.
    units: u32,
    /// The units of refused starts.
    lacking: u32,
    tokens_before: f64,
    tokens_after: Option<Duration>,
}

impl<'a> OpenAccount<'a> {
    fn new(
        request: &Request,
        account: &'a LimitAccount,
        record: Option<&LimitRecord>,
        now: u64,
    ) -> Self {
        let rate = account.numbers.rate;
        let mut record = record.cloned().unwrap_or_else(|| LimitRecord {
            format: FORMAT,
            holders: BTreeMap::new(),
            tokens: rate.map_or(0.0, |rate| f64::from(rate.burst)),
            at: now,
        });
        // A store's clock may go back a little.
        let now = now.max(record.at);
        record.refill(rate, now);
        record.drop_ended(now);
        let mut own = record.holders.remove(&request.holder).unwrap_or_default();
        own.held = account.keep;
        let waits_since = own.wait.map_or(u64::MAX, |wait| wait.since);
        let waits = own.wait.into_iter().chain(own.token_wait);
        let since = waits.map(|wait| wait.since).min();
        let others = record.holders.values().map(|other| other.held).sum();
        let claimants = u32::try_from(record.holders.len() + 1).unwrap_or(u32::MAX);
        let fair = account.numbers.concurrency.map(|most| most / claimants);
        let starved = record.holders.values().filter_map(|other| {
            let wait = other.wait?;
            let lacks = fair.is_none_or(|fair| other.held < fair.max(wait.needs));
            lacks.then_some(wait)
        });
        let reserved = starved
            .clone()
            .filter(|wait| wait.since < waits_since)
            .map(|wait| wait.needs)
            .sum();
        let share = if starved.count() > 0 { fair } else { None };
        Self {
            account,
            tokens_before: record.tokens,
            record,
            now,
            own,
            others,
            reserved,
            fair,
            share,
            refused: None,
            since: since.unwrap_or(now),
            units: 0,
            lacking: 0,
            tokens_after: None,
        }
    }

    /// Returns how many starts of this weight may get their permits.
    fn allowed_starts(&self, weight: u32) -> u32 {
        let Some(most) = self.account.numbers.concurrency else {
            return u32::MAX;
        };
        if self.account.shadow {
            return u32::MAX;
        }
        let weight = weight.max(1);
        let free = most
            .saturating_sub(self.others)
            .saturating_sub(self.own.held)
            .saturating_sub(self.reserved);
        // A process that has nothing may have one start, even beyond its share.
        let rest = self.share.map_or(u32::MAX, |share| {
            let least = if self.own.held == 0 { weight } else { 0 };
            share.saturating_sub(self.own.held).max(least)
        });
        free.min(rest) / weight
    }

    fn refuse(&mut self, weight: u32, since: u64) {
        self.refused.get_or_insert(weight.max(1));
        self.since = self.since.min(since);
    }

    /// Returns how many more units of tokens it may have.
    fn free_units(&self) -> u32 {
        let Some(rate) = self.account.numbers.rate else {
            return u32::MAX;
        };
        if self.account.shadow {
            return u32::MAX;
        }
        let (free, _) = self.free_tokens(rate);
        self.units_left(free)
    }

    /// Returns how many of these tokens are left, in units.
    fn units_left(&self, free: f64) -> u32 {
        let units = whole(free) / self.account.tokens.unit.max(1);
        units.saturating_sub(self.units)
    }

    /// Returns the tokens that it may have: what there is, and its part of those that are earned
    /// next; and this part.
    fn free_tokens(&self, rate: Rate) -> (f64, f64) {
        let waited = self.own.token_wait.map_or(u64::MAX, |wait| wait.since);
        let mut processes = 1_u32;
        let mut reserved = 0_u32;
        for other in self.record.holders.values() {
            processes = processes.saturating_add(1);
            let first = other.token_wait.filter(|wait| wait.since < waited);
            reserved = reserved.saturating_add(first.map_or(0, |wait| wait.needs));
        }
        let ahead = AHEAD * rate.per_second;
        let there = self.record.tokens + ahead - f64::from(reserved);
        let unit = f64::from(self.account.tokens.unit.max(1));
        let part = (SHARED_AHEAD * ahead / f64::from(processes)).max(unit.min(ahead));
        (there.min(self.record.tokens.max(0.0) + part), part)
    }

    /// Takes the tokens of the starts that were granted, and grants those that the process wants
    /// besides.
    fn settle_tokens(&mut self) {
        let TokenClaim { unit, count } = self.account.tokens;
        let wanted = self.units.saturating_add(count.max(self.lacking));
        let (Some(rate), 1..) = (self.account.numbers.rate, wanted) else {
            self.own.token_wait = None;
            return;
        };
        let unit = f64::from(unit.max(1));
        if self.account.shadow {
            self.units = count;
            // Starts that it lets pass take nothing from those to come, once it stops some.
            self.record.tokens = (self.record.tokens - unit * f64::from(count)).max(0.0);
            return;
        }
        let (free, part) = self.free_tokens(rate);
        self.units = self.units.saturating_add(self.units_left(free).min(count));
        self.record.tokens -= f64::from(self.units) * unit;
        self.own.token_wait = None;
        if self.units > 0 {
            let earned = (1.0 - self.record.tokens).max(1.0) / rate.per_second;
            let earned = Duration::from_secs_f64(earned.min(2.0 * AHEAD));
            self.own.tokens_until = later(self.now, earned);
            return;
        }
        // Not at the first token: the next request is to serve many starts as well.
        let missing = (unit * f64::from(wanted)).min(part) - free;
        let (least, most) = NEXT_TOKEN;
        let earned = Duration::try_from_secs_f64(missing / rate.per_second);
        let after = earned.unwrap_or(most).clamp(least, most);
        self.tokens_after = Some(after);
        self.own.token_wait = Some(Wait {
            needs: self.account.tokens.unit.max(1),
            since: self.since,
            until: later(self.now, after + GRACE),
        });
    }

    fn close(mut self, request: &Request) -> (LimitRecord, AccountState) {
        let has_share = self.fair.is_some_and(|fair| self.own.held >= fair.max(1));
        let again = if has_share { BEYOND_SHARE } else { NEXT_PERMIT };
        self.own.wait = self.refused.map(|needs| Wait {
            needs,
            since: self.since,
            until: later(self.now, again + GRACE),
        });
        self.own.until = later(self.now, request.lease);
        let others = u32::try_from(self.record.holders.len()).unwrap_or(u32::MAX);
        let state = AccountState {
            held: self.own.held,
            used: self.others.saturating_add(self.own.held),
            processes: others.saturating_add(1),
            share: self.share,
            retry_after: self.refused.map(|_| again),
            units: self.units,
            tokens_before: self.tokens_before,
            tokens_after: self.tokens_after,
        };
        if self.own.is_listed(self.now) {
            self.record.holders.insert(request.holder.clone(), self.own);
        }
        self.record.at = self.now;
        (self.record, state)
    }
}

fn later(now: u64, by: Duration) -> u64 {
    now.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
}

impl LimitRecord {
    /// Removes what has ended: permits after the grace, and waits of processes that ask no more.
    fn drop_ended(&mut self, now: u64) {
        for holder in self.holders.values_mut() {
            if later(holder.until, GRACE) <= now {
                holder.held = 0;
            }
            holder.wait = holder.wait.filter(|wait| wait.until > now);
            holder.token_wait = holder.token_wait.filter(|wait| wait.until > now);
        }
        self.holders.retain(|_, holder| holder.is_listed(now));
    }

    fn refill(&mut self, rate: Option<Rate>, now: u64) {
        let Some(rate) = rate else { return };
        let earned = Duration::from_millis(now - self.at).as_secs_f64() * rate.per_second;
        // More were granted ahead if the rate was higher.
        let least = -AHEAD * rate.per_second;
        self.tokens = (self.tokens + earned).min(f64::from(rate.burst)).max(least);
    }

    /// Returns how long the record must be kept: until its permits have ended and its tokens are
    /// full again.
    #[must_use]
    pub fn keep_for(&self, numbers: &LimitNumbers) -> Duration {
        let permits = self
            .holders
            .values()
            .map(|holder| holder.until.max(holder.tokens_until));
        let ends = permits.max().unwrap_or(0).saturating_sub(self.at);
        let full = numbers.rate.map_or(Duration::ZERO, |rate| {
            let missing = (f64::from(rate.burst) - self.tokens).max(0.0);
            Duration::try_from_secs_f64(missing / rate.per_second).unwrap_or(Duration::MAX)
        });
        (Duration::from_millis(ends) + 2 * GRACE).max(full)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate, and less than none is none"
)]
pub(super) fn whole(number: f64) -> u32 {
    // Sums of fractions that should make a whole number fall short of it by less.
    (number + 1e-6) as u32
}

#[cfg(test)]
mod tests;
