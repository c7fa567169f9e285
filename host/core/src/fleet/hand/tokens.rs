//! The tokens of one rate that a process has in hand. Pure: `now` is an argument.

use crate::clock::BootInstant;
use crate::fleet::ledger::{AccountState, TokenClaim, whole};
use std::collections::VecDeque;
use std::time::Duration;

/// The time after which a token that became usable ends. The bound on starts counts on it.
const TOKEN_LIFE: Duration = Duration::from_secs(1);

/// More than the error of a time that is calculated from a rate.
const ROUNDING: Duration = Duration::from_micros(10);

/// The tokens of one rate that a process has in hand.
#[derive(Debug, Default)]
pub(super) struct TokenStock(VecDeque<TokenBatch>);

/// The tokens of one answer.
#[derive(Debug)]
struct TokenBatch {
    /// When they were asked for. The store's answer is not older.
    sent: BootInstant,
    answered: BootInstant,
    /// The tokens that the store had before it granted these: the others become usable as they are
    /// earned.
    before: f64,
    per_second: f64,
    /// The tokens that become usable together.
    unit: u32,
    count: u32,
    used: u32,
}

impl TokenBatch {
    /// Returns how many were earned by a time after the answer.
    fn earned(&self, after: Duration) -> u32 {
        let earned = whole(self.before + self.per_second * after.as_secs_f64());
        (earned - earned % self.unit).min(self.count)
    }

    /// Returns the tokens that are usable or were used, and those that were used or have ended.
    fn state(&self, now: BootInstant) -> (u32, u32) {
        let ready = self.earned(now.since(self.answered));
        let first_end = self.sent + TOKEN_LIFE;
        let ended = if now < first_end {
            0
        } else {
            self.earned(now.since(first_end))
        };
        (ready, self.used.max(ended))
    }

    fn usable(&self, now: BootInstant) -> u32 {
        let (ready, gone) = self.state(now);
        ready.saturating_sub(gone)
    }

    /// Returns how long after the answer this number of tokens have been earned.
    fn earned_after(&self, number: u32) -> Duration {
        let missing = (f64::from(number) - self.before).max(0.0) / self.per_second;
        Duration::try_from_secs_f64(missing).unwrap_or(TOKEN_LIFE)
    }

    fn earned_at(&self, number: u32) -> BootInstant {
        self.answered + self.earned_after(number)
    }
}

impl TokenStock {
    /// Adds the tokens of an answer.
    pub(super) fn add(
        &mut self,
        claim: TokenClaim,
        state: &AccountState,
        per_second: f64,
        (sent, answered): (BootInstant, BootInstant),
    ) {
        self.0.push_back(TokenBatch {
            sent,
            answered,
            before: state.tokens_before,
            per_second,
            unit: claim.unit.max(1),
            count: state.units.saturating_mul(claim.unit),
            used: 0,
        });
    }

    /// Returns the tokens that may be used now.
    pub(super) fn usable(&self, now: BootInstant) -> u32 {
        self.0.iter().map(|batch| batch.usable(now)).sum()
    }

    /// Uses tokens that are usable, the oldest first.
    pub(super) fn take(&mut self, mut amount: u32, now: BootInstant) {
        for batch in &mut self.0 {
            let (ready, gone) = batch.state(now);
            let taken = ready.saturating_sub(gone).min(amount);
            if taken > 0 {
                batch.used = gone + taken;
                amount -= taken;
            }
        }
        self.forget_ended(now);
    }

    /// Forgets the tokens that have ended.
    pub(super) fn forget_ended(&mut self, now: BootInstant) {
        self.0.retain(|batch| batch.state(now).1 < batch.count);
    }

    /// Returns the tokens that are usable or become so.
    pub(super) fn left(&self, now: BootInstant) -> u32 {
        let left = self.0.iter().map(|batch| batch.count - batch.state(now).1);
        left.sum()
    }

    /// Returns when the last token becomes usable.
    pub(super) fn last_earned(&self) -> Option<BootInstant> {
        let last = self.0.iter().map(|batch| batch.earned_at(batch.count));
        last.max()
    }

    /// Returns when more tokens become usable.
    pub(super) fn next_earned(&self, now: BootInstant) -> Option<BootInstant> {
        let next = self.0.iter().filter_map(|batch| {
            let (ready, _) = batch.state(now);
            let comes = ready < batch.count;
            comes.then(|| batch.earned_at(ready + batch.unit))
        });
        next.min()
    }

    /// Returns when the next usable tokens end.
    pub(super) fn next_end(&self, now: BootInstant) -> Option<BootInstant> {
        let ends = self.0.iter().filter_map(|batch| {
            let (ready, gone) = batch.state(now);
            let end = batch.sent + TOKEN_LIFE + batch.earned_after(gone + batch.unit);
            (ready > gone).then_some(end + ROUNDING)
        });
        ends.min()
    }

    /// Drops all tokens.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
