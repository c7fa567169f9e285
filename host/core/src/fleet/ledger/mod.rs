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
/// The bounds of the time after which a process that waits for a rate may ask again.
const NEXT_TOKEN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// The record of one limit, or of one key of a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The processes that hold permits or wait for a start.
    pub holders: BTreeMap<String, Holder>,
    /// The tokens of the rate at `at`.
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
    /// Its wait for a start, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
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
    /// Whether it only counts, and stops nothing.
    pub shadow: bool,
}

/// Starts that a process wants, which need the same of the same limits. It gets each of them wholly
/// or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartClaim {
    /// Indexes of accounts, each with the permits and tokens of one start.
    pub needs: Vec<(usize, u32)>,
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
    /// When a start that was refused here may be asked for again.
    pub retry_after: Option<Duration>,
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
    let (records, accounts) = open.into_iter().map(|one| one.close(request)).unzip();
    (records, Grant { claims, accounts })
}

/// Grants as many starts of a claim as all its limits allow.
fn settle(open: &mut [OpenAccount<'_>], claim: &StartClaim) -> u32 {
    let needs = claim.needs.iter();
    let allowed: Vec<u32> = needs
        .map(|(at, weight)| open[*at].allows(*weight))
        .collect();
    let most = allowed.iter().copied().min().unwrap_or(u32::MAX);
    let granted = most.min(claim.count);
    // All limits of a claim have the same order of processes. Otherwise two processes that need the
    // same two limits could each be first at one of them, and neither would start.
    let since = claim.needs.iter().map(|(at, _)| open[*at].since).min();
    for (&(at, weight), allowed) in claim.needs.iter().zip(allowed) {
        open[at].take(granted, weight);
        // Only where it lacks something: a start that waits for its key keeps nothing of another
        // limit from those that could start.
        if allowed < claim.count {
            open[at].refuse(weight, since);
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
    /// The permits and tokens that processes need which have waited longer.
    reserved: u32,
    /// The permits of a process in the long run, if others wait that have less.
    share: Option<u32>,
    /// The needs of the first refused start.
    refused: Option<u32>,
    /// Since when this process waits, if it does.
    since: u64,
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
            record,
            now,
            own,
            others,
            reserved,
            share,
            refused: None,
            since: waits_since.min(now),
        }
    }

    /// Returns how many starts of this weight may be granted.
    fn allows(&self, weight: u32) -> u32 {
        if self.account.shadow {
            return u32::MAX;
        }
        let weight = weight.max(1);
        let permits = self.account.numbers.concurrency.map_or(u32::MAX, |most| {
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
        });
        let tokens = self.account.numbers.rate.map_or(u32::MAX, |_| {
            let free = self.record.tokens - f64::from(self.reserved);
            whole(free) / weight
        });
        permits.min(tokens)
    }

    fn take(&mut self, starts: u32, weight: u32) {
        let amount = starts.saturating_mul(weight.max(1));
        if self.account.numbers.concurrency.is_some() {
            self.own.held = self.own.held.saturating_add(amount);
        }
        if self.account.numbers.rate.is_some() {
            self.record.tokens -= f64::from(amount);
            if self.account.shadow {
                // What it lets pass is not missing once it stops something.
                self.record.tokens = self.record.tokens.max(0.0);
            }
        }
    }

    fn refuse(&mut self, weight: u32, since: Option<u64>) {
        self.refused.get_or_insert(weight.max(1));
        self.since = self.since.min(since.unwrap_or(u64::MAX));
    }

    fn close(mut self, request: &Request) -> (LimitRecord, AccountState) {
        let retry_after = self.refused.map(|needs| self.retry_after(needs));
        self.own.wait = self.refused.zip(retry_after).map(|(needs, after)| Wait {
            needs,
            since: self.since,
            until: later(self.now, after + GRACE),
        });
        self.own.until = later(self.now, request.lease);
        let others = u32::try_from(self.record.holders.len()).unwrap_or(u32::MAX);
        let state = AccountState {
            held: self.own.held,
            used: self.others.saturating_add(self.own.held),
            processes: others.saturating_add(1),
            share: self.share,
            retry_after,
        };
        if self.own.held > 0 || self.own.wait.is_some() {
            self.record.holders.insert(request.holder.clone(), self.own);
        }
        self.record.at = self.now;
        (self.record, state)
    }

    fn retry_after(&self, needs: u32) -> Duration {
        let Some(rate) = self.account.numbers.rate else {
            return NEXT_PERMIT;
        };
        let missing = f64::from(needs + self.reserved) - self.record.tokens;
        let (least, most) = NEXT_TOKEN;
        if missing <= 0.0 {
            return NEXT_PERMIT;
        }
        Duration::try_from_secs_f64(missing / rate.per_second)
            .unwrap_or(most)
            .clamp(least, most)
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
        }
        self.holders
            .retain(|_, holder| holder.held > 0 || holder.wait.is_some());
    }

    fn refill(&mut self, rate: Option<Rate>, now: u64) {
        let Some(rate) = rate else { return };
        let earned = Duration::from_millis(now - self.at).as_secs_f64() * rate.per_second;
        self.tokens = (self.tokens + earned).min(f64::from(rate.burst));
    }

    /// Returns how long the record must be kept: until its permits have ended and its tokens are
    /// full again.
    #[must_use]
    pub fn keep_for(&self, numbers: &LimitNumbers) -> Duration {
        let permits = self.holders.values().map(|holder| holder.until);
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
fn whole(number: f64) -> u32 {
    // Sums of fractions that should make a whole number fall short of it by less.
    (number + 1e-6) as u32
}

#[cfg(test)]
mod tests;
