//! The permits and tokens that a process has in hand of one limit, or of one key of it. Pure: `now` is an
//! argument.

use super::tokens::TokenStock;
use super::{IDLE, LEAD, LEASE, RENEW, STOP};
use crate::clock::BootInstant;
use crate::fleet::ledger::{AccountState, TokenClaim};
use crate::fleet::limit::Rate;
#[derive(Debug, Default)]
pub(super) struct OwnAccount {
    /// The permits that the store has recorded for this process.
    pub(super) held: u32,
    /// The permits of running attempts.
    pub(super) in_use: u32,
    /// The permits that were granted and not used yet.
    pub(super) fresh: u32,
    /// When permits were last granted or came free.
    pub(super) idle_since: BootInstant,
    /// When the permits end.
    pub(super) until: BootInstant,
    /// When they were renewed.
    pub(super) renewed: BootInstant,
    /// The earliest time of the next renewal, after one that failed.
    pub(super) renew_after: BootInstant,
    /// The time until which the store may keep permits that were given back in a request that
    /// failed.
    pub(super) untold_until: Option<BootInstant>,
    /// Whether nothing starts here any more, so that permits not in use go back at once.
    pub(super) is_leaving: bool,
    /// The tokens of the rate.
    pub(super) tokens: TokenStock,
    /// When tokens may be asked for again.
    pub(super) tokens_after: BootInstant,
    /// The earliest start that the share of a rate allows while the store is away.
    pub(super) share_after: BootInstant,
    /// The weight of the messages that wait.
    pub(super) waiting: u32,
    /// The permits that it may go on using, because other processes wait.
    pub(super) share: Option<u32>,
    /// When permits may be asked for again.
    pub(super) ask_after: BootInstant,
    pub(super) recent: RecentStarts,
    /// Whether the store refused a start here when it was last asked for one.
    pub(super) is_refused: bool,
    /// The processes that had permits or waited when the store last answered.
    pub(super) processes: u32,
    /// The permits of all processes when the store last answered.
    pub(super) used: u32,
    /// The starts that a limit in shadow mode let pass and the store does not know yet.
    pub(super) owed: u32,
}

/// How much was started in the last second.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RecentStarts {
    second: BootInstant,
    now: u32,
    before: u32,
}

impl RecentStarts {
    pub(crate) fn note(&mut self, weight: u32, now: BootInstant) {
        self.turn(now);
        self.now = self.now.saturating_add(weight);
    }

    fn turn(&mut self, now: BootInstant) {
        let passed = now.since(self.second);
        if passed >= IDLE {
            self.before = if passed < 2 * IDLE { self.now } else { 0 };
            (self.now, self.second) = (0, now);
        }
    }

    pub(crate) fn per_second(&self) -> u32 {
        self.now.max(self.before)
    }

    /// Returns the starts of the last second even if nothing has started since.
    pub(crate) fn per_second_at(&self, now: BootInstant) -> u32 {
        let mut recent = *self;
        recent.turn(now);
        recent.per_second()
    }
}

impl OwnAccount {
    pub(super) fn has_permits(&self, most: u32, weight: u32, now: BootInstant) -> bool {
        let is_kept = self.until > now + STOP;
        let in_share = self.share.is_none_or(|share| self.in_use + weight <= share);
        let is_free = self.held >= self.in_use + weight;
        // A live number may be lower than what all processes use.
        let is_within = self.used <= most && self.in_use + weight <= most;
        is_kept && is_free && is_within && (in_share || self.fresh >= weight)
    }

    /// Takes what the store says of an account.
    pub(super) fn learn(&mut self, state: &AccountState, sent: BootInstant, now: BootInstant) {
        self.held = state.held;
        self.processes = state.processes;
        self.used = state.used;
        self.share = state.share;
        // The store counts from a later moment than this process.
        self.until = sent + LEASE;
        self.renewed = now;
        self.untold_until = None;
        self.ask_after = now + state.retry_after.unwrap_or_default();
    }

    pub(super) fn answer_tokens(
        &mut self,
        claim: TokenClaim,
        state: &AccountState,
        rate: Option<Rate>,
        (sent, now): (BootInstant, BootInstant),
    ) {
        if let Some(rate) = rate
            && state.units > 0
        {
            self.tokens.add(claim, state, rate.per_second, (sent, now));
            let last = self.tokens.last_earned().unwrap_or(now);
            self.tokens_after = now + last.since(now + LEAD);
        }
        if let Some(after) = state.tokens_after {
            self.tokens_after = now + after;
        }
    }

    /// When something is to be told to the store: a renewal, permits to give back, also in a request
    /// that failed, or what a limit in shadow mode let pass.
    pub(super) fn due(&self) -> Option<BootInstant> {
        if self.owed > 0 {
            return Some((self.renewed + IDLE).max(self.renew_after));
        }
        if self.untold_until.is_some() {
            return Some(self.renew_after);
        }
        if self.held == 0 {
            return None;
        }
        let used = self.in_use + self.fresh;
        let exceeds_share = self.share.is_some_and(|share| self.held > share.max(used));
        if (self.is_leaving && self.held > self.in_use) || exceeds_share {
            return Some(self.renew_after);
        }
        let renewal = self.renewed + RENEW;
        let idle = self.held > self.in_use;
        let due = if idle {
            renewal.min(self.idle_since + IDLE)
        } else {
            renewal
        };
        Some(due.max(self.renew_after))
    }

    pub(super) fn is_due(&self, now: BootInstant) -> bool {
        self.due().is_some_and(|at| at <= now)
    }

    /// Gives back what is not in use: at once what exceeds the share, and what was not granted for
    /// starts to come if others are asked for (`claims`); the rest after a second.
    pub(super) fn give_back(&mut self, claims: bool, now: BootInstant) {
        self.recent.turn(now);
        if self.is_leaving || self.idle_since + IDLE <= now {
            self.fresh = 0;
            self.held = self.held.min(self.in_use);
            return;
        }
        if claims {
            // The claims take it again, together with what else they need.
            self.held = self.held.min(self.in_use.saturating_add(self.fresh));
        }
        if let Some(share) = self.share {
            let most = self.in_use.max(share).max(self.in_use + self.fresh);
            self.held = self.held.min(most);
        }
    }
}

impl AccountState {
    /// Whether starts are refused, or must wait for tokens that are not earned yet.
    pub(super) fn is_refused(&self, unit: u32) -> bool {
        let tokens = f64::from(self.units) * f64::from(unit);
        let is_ahead = self.units > 0 && tokens > self.tokens_before;
        self.retry_after.is_some() || self.tokens_after.is_some() || is_ahead
    }
}
