//! What the world does that not every world does, each by a name, and the test that all of it is
//! really met.

/// Something that a queue, the network or the machine did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MetCircumstances {
    LostRequest,
    LostAnswer,
    LateAnswer,
    Hang,
    CallTwice,
    Throttle,
    FailedEntry,
    RefusedExtension,
    /// A long poll that saw nothing.
    BlindPoll,
    /// A poll that looked at some servers only.
    ShortPoll,
    Disorder,
    /// What is in flight or deleted is delivered.
    Duplicate,
    StaleReceipt,
    /// A stale receipt that was accepted without effect.
    SilentStale,
    /// A FIFO receive was answered again under its id.
    ToldAgain,
    /// A receive brought nothing since too much was in flight.
    FullInFlight,
    /// A short poll was refused for that reason.
    OverLimit,
    /// A delivery was kept for as long as 12 hours allow.
    Ceiling,
    /// Dead-lettered by the backend itself.
    Redriven,
    DateOn,
    DateBack,
    /// The machine stood still.
    Standstill,
    Crash,
    Stop,
    SlowSettle,
    /// What was sent later started first, since the newest go first.
    NewestFirst,
    /// More was held ahead than the route could start.
    HeldAhead,
    /// Too old when it arrived, or while it waited.
    Shed,
    /// Too old while it was held.
    ShedWhileHeld,
    /// Something of a group by attribute waited for one that had failed.
    GroupWaited,
    /// A group by attribute continued without one that did not come back.
    GroupGaveUp,
    /// The store knew that a message was done.
    StoreKnew,
    StoreFailed,
    StoreHung,
    /// An operator paused a queue.
    Paused,
    /// A new version of a route took the place of another.
    Reloaded,
    /// An operator set other limits.
    Limited,
    /// A message waited for a limit of all processes.
    WaitedForLimit,
    /// An attempt was stopped because its permits ended.
    Revoked,
    /// A process did not reach the store of limits.
    LimitsAway,
    /// Permits of a process that had crashed were used again.
    PermitsCameBack,
    /// A message went back because too many waited for limits.
    Deferred,
    /// A tenant was parked.
    TenantParked,
    /// A message started before one of another tenant that came earlier.
    TenantInTurn,
    /// A more urgent message that came later started first.
    UrgentFirst,
    /// One that had waited for too long did.
    HastenedFirst,
    /// A more urgent message, or one that had waited for too long, started before one that came
    /// earlier and needs the same of the limits.
    FirstOfTheSameNeed,
    /// Messages of one tenant started together while others of other tenants waited.
    TenantAlone,
}

#[cfg(test)]
mod tests {
    use super::MetCircumstances;
    use crate::{draw, shrink};
    use std::collections::BTreeSet;

    /// So many seeds must be enough to meet everything once.
    const WITHIN: u64 = 4_000;

    const ALL: [MetCircumstances; 48] = [
        MetCircumstances::LostRequest,
        MetCircumstances::LostAnswer,
        MetCircumstances::LateAnswer,
        MetCircumstances::Hang,
        MetCircumstances::CallTwice,
        MetCircumstances::Throttle,
        MetCircumstances::FailedEntry,
        MetCircumstances::RefusedExtension,
        MetCircumstances::BlindPoll,
        MetCircumstances::ShortPoll,
        MetCircumstances::Disorder,
        MetCircumstances::Duplicate,
        MetCircumstances::StaleReceipt,
        MetCircumstances::SilentStale,
        MetCircumstances::ToldAgain,
        MetCircumstances::FullInFlight,
        MetCircumstances::OverLimit,
        MetCircumstances::Ceiling,
        MetCircumstances::Redriven,
        MetCircumstances::DateOn,
        MetCircumstances::DateBack,
        MetCircumstances::Standstill,
        MetCircumstances::Crash,
        MetCircumstances::Stop,
        MetCircumstances::SlowSettle,
        MetCircumstances::NewestFirst,
        MetCircumstances::HeldAhead,
        MetCircumstances::Shed,
        MetCircumstances::ShedWhileHeld,
        MetCircumstances::GroupWaited,
        MetCircumstances::GroupGaveUp,
        MetCircumstances::StoreKnew,
        MetCircumstances::StoreFailed,
        MetCircumstances::StoreHung,
        MetCircumstances::Paused,
        MetCircumstances::Reloaded,
        MetCircumstances::Limited,
        MetCircumstances::WaitedForLimit,
        MetCircumstances::Revoked,
        MetCircumstances::LimitsAway,
        MetCircumstances::PermitsCameBack,
        MetCircumstances::Deferred,
        MetCircumstances::TenantParked,
        MetCircumstances::TenantInTurn,
        MetCircumstances::UrgentFirst,
        MetCircumstances::HastenedFirst,
        MetCircumstances::FirstOfTheSameNeed,
        MetCircumstances::TenantAlone,
    ];

    #[test]
    fn every_circumstance_occurs_in_some_seed() {
        let mut missing: BTreeSet<MetCircumstances> = ALL.into_iter().collect();
        for seed in 0..WITHIN {
            if missing.is_empty() {
                return;
            }
            let ended = shrink::outcome(&draw::scenario(seed)).expect("no panic");
            missing.retain(|one| !ended.met.contains(one));
        }
        panic!("{missing:?} never happened in {WITHIN} seeds");
    }
}
