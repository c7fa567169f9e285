//! Decides which messages are not delivered, and moves them without reading their bodies. Pure
//! steps on a connection that take `now` as an argument.

use super::carry;
use super::deliver::{Candidate, DeliveryTerms, GroupFollowers};
use super::settings::Redrive;
use super::settle::postpone;
use super::turn::{LocalDelivery, QueueId, Turn};
use dispatcher_core::queue::DeadLettered;
use dispatcher_core::telemetry::events::{Reason, ReasonKind};
use rusqlite::params;
use std::time::Duration;

/// The time for which a message is postponed if it is too large and has no dead-letter queue.
const LATER: Duration = Duration::from_mins(1);

/// The rules that decide on one queue's messages for one caller.
pub(super) struct Rules<'a> {
    /// The queue's redrive policy.
    pub redrive: Option<Redrive>,
    /// The queue's bare name.
    pub name: &'a str,
    /// The caller's terms.
    pub terms: &'a DeliveryTerms,
}

/// The reason why a message is not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has been received as often as the queue's redrive policy allows: this many times.
    Redrive(u32),
    /// It has been received as often as attempts are allowed, the last time without an answer.
    Unanswered(u32),
    /// It is larger than the budget of the process, which has this many bytes.
    TooLarge(u64),
}

/// A message that was not delivered, and what happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedMessage {
    /// The message id.
    pub id: String,
    /// The number of receives.
    pub receives: u32,
    /// The reason, as text for people.
    pub reason: String,
    /// The reason.
    pub refusal: Refusal,
    /// Whether the consumer that released it after the last receive that the redrive policy permits
    /// has reported that the policy dead-letters it.
    pub reported: bool,
    /// The dead-letter queue that got it; `None` if it was left in its queue for a while.
    pub dead_letter_queue: Option<String>,
}

impl RefusedMessage {
    /// Returns the report for the caller of the receive; `None` if it was reported before, or stays
    /// in its queue.
    pub(super) fn dead_lettered(&self) -> Option<DeadLettered> {
        if self.reported {
            return None;
        }
        let to = self.dead_letter_queue.as_ref()?;
        let (kind, max_receive_count) = match self.refusal {
            Refusal::Redrive(most) => (ReasonKind::NoAnswer, Some(most)),
            Refusal::Unanswered(_) => (ReasonKind::NoAnswer, None),
            Refusal::TooLarge(_) => (ReasonKind::TooLarge, None),
        };
        Some(DeadLettered {
            id: self.id.clone(),
            receive_count: self.receives,
            to: format!("local:{to}"),
            reason: Reason::new(kind, &self.reason),
            max_receive_count,
        })
    }
}

impl Rules<'_> {
    /// Returns which messages may come behind others of their groups.
    pub(super) fn following(&self) -> GroupFollowers {
        GroupFollowers::under(self.redrive.as_ref().map(|redrive| redrive.most_receives))
    }

    /// Returns why a message is not delivered; `None` if it is delivered.
    pub(super) fn refusal(&self, candidate: &Candidate) -> Option<Refusal> {
        let DeliveryTerms {
            dead_letter,
            attempts,
            budget,
            reports: _,
            client_of: _,
            sharing: _,
        } = self.terms;
        if let Some(redrive) = &self.redrive
            && candidate.receives >= redrive.most_receives
        {
            return Some(Refusal::Redrive(redrive.most_receives));
        }
        if let Some(budget) = budget
            && candidate.bytes > budget.capacity()
        {
            return Some(Refusal::TooLarge(budget.capacity()));
        }
        // A released message has had an answer, so the caller judges it.
        let unanswered = candidate.in_flight && dead_letter.is_some();
        attempts
            .filter(|attempts| unanswered && candidate.receives >= *attempts)
            .map(Refusal::Unanswered)
    }

    /// Moves a message to its dead-letter queue, or postpones it.
    pub(super) fn refuse(
        &self,
        turn: &mut Turn<'_>,
        queue: QueueId,
        candidate: &Candidate,
        refusal: Refusal,
    ) -> rusqlite::Result<RefusedMessage> {
        let id = id_of(turn, candidate.seq)?;
        let reason = reason(candidate, &refusal);
        let dead_letter_queue = match (&refusal, &self.redrive, &self.terms.dead_letter) {
            (Refusal::Redrive(_), Some(redrive), _) => {
                carry::give_up(turn, queue, self.name, candidate.seq, redrive)?;
                Some(redrive.dead_letter_queue.clone())
            }
            (_, _, Some(target)) => {
                let from = (queue, self.name);
                let receipt = LocalDelivery {
                    seq: candidate.seq,
                    count: i64::from(candidate.receives),
                };
                carry::dead_letter(turn, from, target, receipt, &reason)?;
                Some(target.clone())
            }
            _ => {
                let delivery = LocalDelivery {
                    seq: candidate.seq,
                    count: i64::from(candidate.receives),
                };
                postpone(turn, queue, delivery, false, turn.now + LATER)?;
                None
            }
        };
        let last = matches!(refusal, Refusal::Redrive(most) if candidate.receives == most);
        Ok(RefusedMessage {
            id,
            receives: candidate.receives,
            reason,
            reported: last && !candidate.in_flight,
            refusal,
            dead_letter_queue,
        })
    }
}

fn reason(candidate: &Candidate, refusal: &Refusal) -> String {
    let Candidate {
        receives, bytes, ..
    } = candidate;
    match refusal {
        Refusal::Redrive(_) => {
            format!("received {receives} times, as often as the redrive policy allows")
        }
        Refusal::Unanswered(attempts) => format!(
            "received {receives} times, the last time without an answer; {attempts} attempts are allowed"
        ),
        Refusal::TooLarge(capacity) => {
            format!("too large to be handled: {bytes} bytes, and message-memory is {capacity}")
        }
    }
}

fn id_of(turn: &Turn<'_>, seq: i64) -> rusqlite::Result<String> {
    turn.connection
        .prepare_cached(
            "SELECT p.id FROM entries e CROSS JOIN payloads p ON p.seq = coalesce(e.payload, e.seq)
             WHERE e.seq = ?1",
        )?
        .query_row(params![seq], |row| row.get(0))
}
