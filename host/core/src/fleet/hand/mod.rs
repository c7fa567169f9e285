//! The permits and tokens that a process has in hand, of limits that hold for all processes
//! together. Decides which messages may start, and what to ask of the store next. Pure: `now` is an
//! argument.

use super::WhenAway;
use super::figures::{FiguresBuilder, LimitFigures};
use super::ledger::{Grant, LimitAccount, Request, StartClaim, TokenClaim, whole};
use super::limit::{Limit, LimitNeed, LimitNumbers, LimitWeight, Rate};
use crate::clock::BootInstant;
use account::OwnAccount;
pub(crate) use account::RecentStarts;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

mod account;
mod tokens;

/// The most accounts of one request.
pub const MOST_ACCOUNTS: usize = 50;
/// The time for which a process gets permits.
pub const LEASE: Duration = Duration::from_secs(15);
/// The time after which permits are renewed.
const RENEW: Duration = Duration::from_secs(5);
/// The time before the end of its permits at which a process stops its attempts.
const STOP: Duration = Duration::from_secs(2);
/// The time after which unused permits go back.
const IDLE: Duration = Duration::from_secs(1);
/// The least time between two requests for starts, so that many starts share a request.
const PACE: Duration = Duration::from_millis(20);
/// The part of the starts of the last second for which permits are asked at once.
const BLOCK: u32 = 4;
/// The time before the last token in hand is earned at which others are asked for.
const LEAD: Duration = Duration::from_millis(100);
/// The part of a second's tokens that a process asks for which has not used as many yet.
const FIRST_TOKENS: f64 = 0.1;

/// The needs of a message, one per limit. Messages that need the same share them.
pub type Needs = Arc<[LimitNeed]>;

/// One limit, or one key of it.
type AccountKey = (usize, Option<Arc<str>>);

/// Messages that take the same, and wait.
#[derive(Debug)]
struct WaitingStarts {
    count: u32,
    /// The number of the first, which orders requests.
    number: u64,
    /// Since when one of them waits.
    since: BootInstant,
}

/// A request under way.
#[derive(Debug)]
struct OpenRequest {
    sent: BootInstant,
    accounts: Vec<AskedAccount>,
    claims: Vec<Needs>,
}

/// An account of a request.
#[derive(Debug)]
struct AskedAccount {
    key: AccountKey,
    /// Whether starts are claimed.
    is_claimed: bool,
    tokens: TokenClaim,
}

impl OpenRequest {
    fn find(&self, key: &AccountKey) -> Option<usize> {
        self.accounts.iter().position(|other| other.key == *key)
    }

    /// Returns the place of an account in the request, and adds it if it has none.
    fn place(&mut self, key: AccountKey) -> usize {
        self.find(&key).unwrap_or_else(|| {
            self.accounts.push(AskedAccount {
                key,
                is_claimed: false,
                tokens: TokenClaim::default(),
            });
            self.accounts.len() - 1
        })
    }
}

/// The permits and tokens that a process has in hand.
#[derive(Debug)]
pub struct Hand {
    holder: String,
    limits: Vec<Limit>,
    accounts: HashMap<AccountKey, OwnAccount>,
    waiting: HashMap<Needs, WaitingStarts>,
    /// The waiting needs, in their order.
    order: BTreeMap<u64, Needs>,
    numbered: u64,
    asked: Option<OpenRequest>,
    /// The earliest time of the next request for starts.
    claim_after: BootInstant,
    /// The permits and tokens that were taken of each limit since the start.
    taken: Vec<u64>,
    when_away: WhenAway,
    /// Whether the store did not answer the last request.
    is_away: bool,
    /// The most processes that shared a limit when the store last answered.
    processes: u32,
}

impl Hand {
    /// Creates the hand of a process that has nothing.
    #[must_use]
    pub fn new(holder: String, limits: Vec<Limit>, when_away: WhenAway) -> Self {
        Self {
            holder,
            taken: vec![0; limits.len()],
            limits,
            claim_after: BootInstant::default(),
            when_away,
            is_away: false,
            processes: 0,
            accounts: HashMap::new(),
            waiting: HashMap::new(),
            order: BTreeMap::new(),
            numbered: 0,
            asked: None,
        }
    }

    fn numbers(&self, key: &AccountKey) -> LimitNumbers {
        self.limits[key.0].numbers_of(key.1.as_deref())
    }

    /// Starts a message if all that it needs is in hand. The caller calls `ended` after it.
    pub fn start(&mut self, needs: &Needs, now: BootInstant) -> bool {
        let has_all = needs.iter().all(|need| self.has(need, now));
        if has_all {
            for need in needs.iter() {
                self.use_up(need, now);
            }
        }
        has_all
    }

    fn has(&self, need: &LimitNeed, now: BootInstant) -> bool {
        let limit = &self.limits[need.limit];
        if limit.shadow {
            return true;
        }
        let own = self.accounts.get(&key_of(need));
        if self.shares_out() {
            let numbers = limit.numbers_of(need.key.as_deref());
            return self.has_share(own, &numbers, need.weight, now);
        }
        own.is_some_and(|own| self.has_permits(own, need, now) && self.has_tokens(own, need, now))
    }

    fn has_permits(&self, own: &OwnAccount, need: &LimitNeed, now: BootInstant) -> bool {
        let most = self.numbers(&key_of(need)).concurrency;
        most.is_none_or(|most| own.has_permits(most, need.weight, now))
    }

    fn has_tokens(&self, own: &OwnAccount, need: &LimitNeed, now: BootInstant) -> bool {
        let rate = self.numbers(&key_of(need)).rate;
        rate.is_none() || own.tokens.usable(now) >= need.weight
    }

    /// Whether a part of a limit, as large as that of each other process, allows a start.
    fn has_share(
        &self,
        own: Option<&OwnAccount>,
        numbers: &LimitNumbers,
        weight: u32,
        now: BootInstant,
    ) -> bool {
        let Some(processes) = self.processes_of(own) else {
            return false;
        };
        let in_use = own.map_or(0, |own| own.in_use);
        let most = numbers.concurrency;
        let permits = most.is_none_or(|most| in_use + weight <= most / processes);
        permits && own.is_none_or(|own| own.share_after <= now)
    }

    /// Returns how many processes share an account, as far as this one knows.
    fn processes_of(&self, own: Option<&OwnAccount>) -> Option<NonZeroU32> {
        let known = own.and_then(|own| NonZeroU32::new(own.processes));
        known.or(NonZeroU32::new(self.processes))
    }

    /// Whether starts do not need the store, because it is away.
    #[must_use]
    pub fn shares_out(&self) -> bool {
        self.is_away && self.when_away == WhenAway::Share
    }

    /// Whether a message lacks a permit or a token of a limit without keys, which the store refuses
    /// or has not been asked for.
    #[must_use]
    pub fn lacks_common(&self, needs: &Needs, now: BootInstant) -> bool {
        let mut common = needs.iter().filter(|need| need.key.is_none());
        common.any(|need| !self.has(need, now) && self.may_be_refused(need))
    }

    fn may_be_refused(&self, need: &LimitNeed) -> bool {
        let key = key_of(need);
        let most = self.numbers(&key).concurrency.unwrap_or(u32::MAX);
        let Some(own) = self.accounts.get(&key) else {
            return true;
        };
        let is_full = own.used.saturating_add(need.weight) > most;
        self.is_away || own.is_refused || own.processes == 0 || is_full
    }

    fn use_up(&mut self, need: &LimitNeed, now: BootInstant) {
        let key = key_of(need);
        let numbers = self.numbers(&key);
        let is_shadow = self.limits[need.limit].shadow;
        self.taken[need.limit] += u64::from(need.weight);
        let shares_out = self.shares_out();
        let processes = self.processes_of(self.accounts.get(&key));
        let own = self.accounts.entry(key).or_default();
        own.recent.note(need.weight, now);
        if is_shadow {
            own.owed = own.owed.saturating_add(need.weight);
        }
        own.in_use += need.weight;
        if numbers.concurrency.is_some() {
            own.fresh = own.fresh.saturating_sub(need.weight);
        }
        let Some(rate) = numbers.rate else { return };
        if is_shadow {
            return;
        }
        own.tokens.take(need.weight, now);
        if shares_out {
            let processes = processes.map_or(1.0, |processes| f64::from(processes.get()));
            let each = processes * f64::from(need.weight) / rate.per_second;
            own.share_after = now + Duration::try_from_secs_f64(each).unwrap_or(LEASE);
        }
    }

    /// Records that a started message has ended. Returns whether others wait for what it used.
    pub fn ended(&mut self, needs: &Needs, now: BootInstant) -> bool {
        let mut are_others = false;
        for need in needs.iter() {
            // Live numbers may have changed since it started, so permits are always counted.
            if let Some(own) = self.accounts.get_mut(&key_of(need)) {
                own.in_use = own.in_use.saturating_sub(need.weight);
                own.idle_since = own.idle_since.max(now);
                are_others |= own.waiting > 0;
            }
        }
        are_others
    }

    /// Records that a message waits, which `start` refused.
    pub fn wait(&mut self, needs: &Needs, now: BootInstant) {
        for need in needs.iter() {
            self.accounts.entry(key_of(need)).or_default().waiting += need.weight;
        }
        if let Some(waiting) = self.waiting.get_mut(needs) {
            waiting.count += 1;
            return;
        }
        self.numbered += 1;
        let number = self.numbered;
        self.order.insert(number, needs.clone());
        let waiting = WaitingStarts {
            count: 1,
            number,
            since: now,
        };
        self.waiting.insert(needs.clone(), waiting);
    }

    /// Records that a message waits no more: it starts, or has left.
    pub fn wait_no_more(&mut self, needs: &Needs) {
        let Some(waiting) = self.waiting.get_mut(needs) else {
            return;
        };
        for need in needs.iter() {
            if let Some(own) = self.accounts.get_mut(&key_of(need)) {
                own.waiting = own.waiting.saturating_sub(need.weight);
            }
        }
        waiting.count -= 1;
        if waiting.count == 0 {
            self.order.remove(&waiting.number);
            self.waiting.remove(needs);
        }
    }

    /// Returns when `ask` has something to ask, if nothing happens until then; `None` while a
    /// request is under way or nothing is in hand.
    #[must_use]
    pub fn next_request(&self, now: BootInstant) -> Option<BootInstant> {
        if self.asked.is_some() {
            return None;
        }
        let due = self.accounts.values().filter_map(OwnAccount::due);
        let waiting = self
            .waiting
            .keys()
            .filter_map(|needs| match self.lack(needs, now) {
                Some(lack) => Some(lack.ask_at()?.max(self.claim_after)),
                // It may wait for something else until its tokens have ended.
                None => self.tokens_end(needs, now),
            });
        due.chain(waiting).min()
    }

    fn tokens_end(&self, needs: &Needs, now: BootInstant) -> Option<BootInstant> {
        let accounts = needs.iter().map(|need| self.accounts.get(&key_of(need)));
        let ends = accounts.filter_map(|own| own?.tokens.next_end(now));
        ends.min()
    }

    /// Returns when tokens become usable after `told` that messages wait for.
    #[must_use]
    pub fn next_tokens(&self, told: BootInstant) -> Option<BootInstant> {
        let wanted = self.accounts.values().filter(|own| own.waiting > 0);
        wanted.filter_map(|own| own.tokens.next_earned(told)).min()
    }

    /// Returns what messages lack which wait; `None` if they may start, or wait for tokens that are
    /// in hand.
    fn lack<'a>(&self, needs: &'a Needs, now: BootInstant) -> Option<Lack<'a>> {
        let (mut tokens, mut missing) = (Vec::new(), Vec::new());
        let mut lacks_permits = false;
        // When all that is missing may be asked for.
        let mut all_at = BootInstant::default();
        for need in self.limiting(needs) {
            let Some(own) = self.accounts.get(&key_of(need)) else {
                continue;
            };
            if !self.has_tokens(own, need, now) {
                tokens.push((need, own.tokens_after));
                if own.tokens.left(now) < need.weight {
                    missing.push(need);
                    all_at = all_at.max(own.tokens_after);
                } else {
                    all_at = all_at.max(own.tokens.next_earned(now).unwrap_or(now));
                }
            }
            lacks_permits |= !self.has_permits(own, need, now);
            all_at = all_at.max(own.ask_after);
        }
        if lacks_permits || missing.len() > 1 {
            return Some(Lack::Together {
                lacks_permits,
                tokens: missing,
                ask_at: all_at,
            });
        }
        (!tokens.is_empty()).then_some(Lack::Tokens(tokens))
    }

    /// Returns the next request, if something is to be asked now. Permits that it does not keep are
    /// no longer in hand. `answered` or `failed` must follow.
    pub fn ask(&mut self, now: BootInstant) -> Option<Request> {
        if self.asked.is_some() {
            return None;
        }
        let mut asked = OpenRequest {
            sent: now,
            accounts: Vec::new(),
            claims: Vec::new(),
        };
        let due = self.due_accounts(now);
        // However many keys wait, permits of running attempts are renewed.
        let most = MOST_ACCOUNTS - due.len().min(MOST_ACCOUNTS / 2);
        let mut claims = Vec::new();
        if self.claim_after <= now {
            let are_left;
            (claims, are_left) = self.claims(&mut asked, most, now);
            // Those that are left are next. Otherwise the order stays, so that what is refused comes
            // before what is granted later.
            if are_left {
                self.last_in_order(&asked.claims);
            }
        }
        for key in due {
            let is_known = asked.find(&key).is_some();
            if !is_known && asked.accounts.len() == MOST_ACCOUNTS {
                break;
            }
            asked.place(key);
        }
        if asked.accounts.is_empty() {
            return None;
        }
        self.add_early_renewals(&mut asked, now);
        let accounts = asked.accounts.iter_mut().map(|asked| {
            let limit = &self.limits[asked.key.0];
            let own = self.accounts.entry(asked.key.clone()).or_default();
            own.give_back(asked.is_claimed, now);
            let numbers = limit.numbers_of(asked.key.1.as_deref());
            if numbers.concurrency.is_some() {
                // What started before the limit had this number counts as well.
                own.held = own.held.max(own.in_use);
            }
            if limit.shadow && own.is_due(now) {
                let owed = std::mem::take(&mut own.owed);
                own.held = own.in_use.max(owed);
                asked.tokens = TokenClaim {
                    unit: 1,
                    count: owed,
                };
            }
            LimitAccount {
                record: limit.record(asked.key.1.as_deref()),
                numbers,
                keep: own.held,
                tokens: asked.tokens,
                shadow: limit.shadow,
            }
        });
        let request = Request {
            holder: self.holder.clone(),
            lease: LEASE,
            accounts: accounts.collect(),
            claims,
        };
        self.asked = Some(asked);
        Some(request)
    }

    /// Claims what waiting messages lack, of at most `most` accounts. Returns whether others are left.
    fn claims(
        &self,
        asked: &mut OpenRequest,
        most: usize,
        now: BootInstant,
    ) -> (Vec<StartClaim>, bool) {
        let mut claims = Vec::new();
        for needs in self.order.values() {
            let Some(lack) = self.lack(needs, now) else {
                continue;
            };
            if lack.ask_at().is_none_or(|at| at > now) {
                continue;
            }
            let new = self
                .limiting(needs)
                .filter(|need| asked.find(&key_of(need)).is_none());
            if asked.accounts.len() + new.count() > most {
                return (claims, true);
            }
            match lack {
                Lack::Tokens(tokens) => {
                    for (need, after) in tokens {
                        if after <= now {
                            let at = asked.place(key_of(need));
                            let claim = &mut asked.accounts[at].tokens;
                            *claim = self.token_claim(need, *claim, now);
                        }
                    }
                }
                Lack::Together {
                    lacks_permits,
                    tokens,
                    ..
                } => claims.push(self.start_claim(needs, (lacks_permits, &tokens), asked, now)),
            }
        }
        (claims, false)
    }

    /// Adds accounts whose permits are to be renewed soon: they share the request, and have more
    /// tries before they end.
    fn add_early_renewals(&self, asked: &mut OpenRequest, now: BootInstant) {
        let early = self.accounts.iter().filter(|(key, own)| {
            let is_early = own.held > 0 && own.renewed + RENEW / 2 <= now;
            is_early && asked.find(key).is_none()
        });
        let mut early: Vec<(BootInstant, AccountKey)> =
            early.map(|(key, own)| (own.renewed, key.clone())).collect();
        early.sort_unstable();
        let room = MOST_ACCOUNTS - asked.accounts.len();
        for (_, key) in early.into_iter().take(room) {
            asked.place(key);
        }
    }

    /// Returns the accounts of which something is to be told to the store now: first what has been
    /// due longest, and in the same order in each simulation.
    fn due_accounts(&self, now: BootInstant) -> Vec<AccountKey> {
        let due = self.accounts.iter().filter_map(|(key, own)| {
            let at = own.due().filter(|at| *at <= now)?;
            Some((at, key.clone()))
        });
        let mut due: Vec<(BootInstant, AccountKey)> = due.collect();
        due.sort_unstable();
        due.into_iter().map(|(_, key)| key).collect()
    }

    /// Makes all permits that are not in use due to go back. Call it once nothing starts any more,
    /// and no request is made but by the caller.
    pub fn leave(&mut self) {
        // The answer to a request under way does not arrive any more.
        self.failed(false, BootInstant::default());
        for own in self.accounts.values_mut() {
            own.is_leaving = true;
            own.renew_after = BootInstant::default();
        }
    }

    /// Returns the needs of limits that may stop a message.
    fn limiting<'a>(&self, needs: &'a Needs) -> impl Iterator<Item = &'a LimitNeed> {
        let limits = &self.limits;
        needs.iter().filter(move |need| !limits[need.limit].shadow)
    }

    /// Puts what is asked for behind what was not asked for yet.
    fn last_in_order(&mut self, claims: &[Needs]) {
        for needs in claims {
            let Some(waiting) = self.waiting.get_mut(needs) else {
                continue;
            };
            self.numbered += 1;
            self.order.remove(&waiting.number);
            waiting.number = self.numbered;
            self.order.insert(self.numbered, needs.clone());
        }
    }

    /// Returns a claim of tokens for all messages that wait for them, of which one has this need.
    fn token_claim(&self, need: &LimitNeed, other: TokenClaim, now: BootInstant) -> TokenClaim {
        let key = key_of(need);
        let Some((own, rate)) = self.accounts.get(&key).zip(self.numbers(&key).rate) else {
            return other;
        };
        let unit = need.weight.max(other.unit);
        let recent = own.recent.per_second();
        let first = whole(FIRST_TOKENS * rate.per_second / f64::from(own.processes.max(1)));
        let most = recent.saturating_mul(2).max(first);
        let wanted = own.waiting.max(recent).min(most);
        let lacking = wanted.saturating_sub(own.tokens.left(now));
        TokenClaim {
            unit,
            count: lacking.div_ceil(unit).max(1),
        }
    }

    /// Returns a claim of all that waiting messages lack, and adds its accounts.
    fn start_claim(
        &self,
        needs: &Needs,
        (lacks_permits, tokens): (bool, &[&LimitNeed]),
        asked: &mut OpenRequest,
        now: BootInstant,
    ) -> StartClaim {
        let (mut most, mut block) = (u32::MAX, u32::MAX);
        let mut permits = Vec::with_capacity(needs.len());
        for need in self.limiting(needs) {
            let key = key_of(need);
            let numbers = self.numbers(&key);
            let own = self.accounts.get(&key);
            let recent = own.map_or(0, |own| own.recent.per_second());
            let usable = own.map_or(0, |own| own.tokens.usable(now));
            if numbers.rate.is_some() && usable >= need.weight {
                most = most.min(usable / need.weight);
            }
            most = most.min((recent.saturating_mul(2) / need.weight).max(1));
            block = block.min(recent / need.weight / BLOCK);
            if lacks_permits && numbers.concurrency.is_some() {
                let at = asked.place(key);
                asked.accounts[at].is_claimed = true;
                permits.push((at, need.weight));
            }
        }
        let mut units = Vec::with_capacity(tokens.len());
        for need in tokens {
            let at = asked.place(key_of(need));
            let account = &mut asked.accounts[at];
            account.is_claimed = true;
            account.tokens.unit = account.tokens.unit.max(need.weight);
            units.push(at);
        }
        asked.claims.push(needs.clone());
        StartClaim {
            permits,
            tokens: units,
            count: self.waiting[needs].count.max(block).min(most),
        }
    }

    /// Takes the answer to the request. Returns whether anything was granted.
    pub fn answered(&mut self, grant: &Grant, now: BootInstant) -> bool {
        let Some(asked) = self.asked.take() else {
            return false;
        };
        self.is_away = false;
        self.claim_after = now + PACE;
        self.processes = 0;
        let mut is_any = false;
        for (account, state) in asked.accounts.iter().zip(&grant.accounts) {
            self.processes = self.processes.max(state.processes);
            let rate = self.numbers(&account.key).rate;
            let own = self.accounts.entry(account.key.clone()).or_default();
            own.learn(state, asked.sent, now);
            own.answer_tokens(account.tokens, state, rate, (asked.sent, now));
            is_any |= state.units > 0;
            if account.is_claimed || account.tokens.count > 0 {
                own.is_refused = state.is_refused(account.tokens.unit);
            }
        }
        let mut granted = Vec::new();
        for (needs, &count) in asked.claims.iter().zip(&grant.claims) {
            if count == 0 {
                continue;
            }
            let limiting: Vec<LimitNeed> = self.limiting(needs).cloned().collect();
            // Permits that wait for the tokens granted with them are not idle.
            let accounts = limiting.iter().map(|need| self.accounts.get(&key_of(need)));
            let earned = accounts.filter_map(|own| own?.tokens.last_earned());
            let usable_at = earned.max().unwrap_or(now).max(now);
            for need in limiting {
                let key = key_of(&need);
                if self.numbers(&key).concurrency.is_some() {
                    let own = self.accounts.entry(key).or_default();
                    own.fresh = own.fresh.saturating_add(count.saturating_mul(need.weight));
                    own.idle_since = own.idle_since.max(usable_at);
                }
            }
            granted.push(needs.clone());
        }
        // What was refused is asked for before it.
        self.last_in_order(&granted);
        self.forget_idle(now);
        is_any || !granted.is_empty()
    }

    /// Records that the request was not answered, whether it was carried out or not. It is asked
    /// again at `again`. `is_away`: the store did not answer, so that a process may go on with its share.
    pub fn failed(&mut self, is_away: bool, again: BootInstant) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        self.is_away = is_away;
        for account in asked.accounts {
            let own = self.accounts.entry(account.key).or_default();
            own.ask_after = again;
            own.tokens_after = again;
            own.renew_after = again;
            // The store may not know what was given back, or what it granted has not arrived.
            own.untold_until = match own.untold_until {
                None => Some(again + LEASE),
                Some(until) => Some(until).filter(|until| *until > again),
            };
        }
    }

    /// Whether a running message must be stopped, because its permits end before they are renewed.
    #[must_use]
    pub fn must_stop(&self, needs: &Needs, now: BootInstant) -> bool {
        let mut limiting = self.limiting(needs);
        let ends = limiting.any(|need| {
            let key = key_of(need);
            let counts = self.numbers(&key).concurrency.is_some();
            let own = self.accounts.get(&key).filter(|own| counts && own.held > 0);
            own.is_some_and(|own| own.in_use > 0 && own.until <= now + STOP)
        });
        ends && !self.shares_out()
    }

    /// Replaces the numbers of all limits and their keys.
    pub fn set_limits(&mut self, limits: Vec<Limit>) {
        let before = std::mem::replace(&mut self.limits, limits);
        for ((limit, key), own) in &mut self.accounts {
            // The next request tells how much all processes use.
            own.renewed = BootInstant::default();
            let [old, new] = [&before[*limit], &self.limits[*limit]]
                .map(|limit| limit.numbers_of(key.as_deref()).rate);
            if old != new {
                // They were granted ahead by the old rate.
                own.tokens.clear();
                own.tokens_after = BootInstant::default();
            }
        }
    }

    /// Returns the state of each limit, with at most `most` keys each: those for which most
    /// messages wait or run.
    #[must_use]
    pub fn figures(&self, most: usize, now: BootInstant) -> Vec<LimitFigures> {
        let mut all: Vec<_> = self.limits.iter().map(FiguresBuilder::new).collect();
        for (key, own) in &self.accounts {
            all[key.0].add_account(key.1.as_deref(), own.in_use, own.used, own.processes);
        }
        for (needs, waiting) in &self.waiting {
            for need in needs.iter() {
                let time = now.since(waiting.since);
                all[need.limit].add_waiting(need.key.as_deref(), waiting.count, time);
            }
        }
        let all = all.into_iter().zip(&self.taken);
        all.map(|(figures, taken)| figures.build(*taken, most))
            .collect()
    }

    /// Returns how many messages with these limits may run and start together, with any keys: the
    /// least of the limits without keys.
    #[must_use]
    pub fn common(&self, limits: &[usize]) -> LimitNumbers {
        let mut common = LimitNumbers::default();
        for limit in limits.iter().map(|&limit| &self.limits[limit]) {
            if limit.key.is_some() || limit.shadow {
                continue;
            }
            let weight = match limit.weight {
                LimitWeight::Fixed(weight) => weight.max(1),
                LimitWeight::Place(_) => 1,
            };
            let LimitNumbers { concurrency, rate } = limit.numbers;
            let permits = concurrency.map(|most| (most / weight).max(1));
            common.concurrency = common.concurrency.into_iter().chain(permits).min();
            let slower = rate.map(|rate| Rate {
                per_second: rate.per_second / f64::from(weight),
                ..rate
            });
            let rates = common.rate.into_iter().chain(slower);
            common.rate = rates.min_by(|one, other| one.per_second.total_cmp(&other.per_second));
        }
        common
    }

    /// Whether messages wait.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn forget_idle(&mut self, now: BootInstant) {
        self.accounts.retain(|_, own| {
            own.tokens.forget_ended(now);
            let has_any = own.held + own.in_use + own.owed + own.waiting > 0;
            has_any || own.tokens.left(now) > 0 || own.untold_until.is_some()
        });
    }
}

/// The permits and tokens that messages lack which wait.
enum Lack<'a> {
    /// Tokens, with the times when they may be asked for. Each claim serves many starts.
    Tokens(Vec<(&'a LimitNeed, BootInstant)>),
    /// Several things, of which one is of no use without the others.
    Together {
        lacks_permits: bool,
        tokens: Vec<&'a LimitNeed>,
        /// When all may be asked for.
        ask_at: BootInstant,
    },
}

impl Lack<'_> {
    /// Returns when something may be asked for.
    fn ask_at(&self) -> Option<BootInstant> {
        match self {
            Self::Tokens(tokens) => tokens.iter().map(|(_, at)| *at).min(),
            Self::Together { ask_at, .. } => Some(*ask_at),
        }
    }
}

fn key_of(need: &LimitNeed) -> AccountKey {
    (need.limit, need.key.clone())
}

#[cfg(test)]
mod tests;
