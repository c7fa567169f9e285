//! Tracks how long a queue may keep a delivery invisible. A lease's deadline is the earliest time
//! at which the invisibility can end, and decides whether the lease is still valid. This is the
//! latest time, and decides how long a message may stay away if no outcome reaches the queue. Pure.

use crate::clock::BootInstant;
use std::time::Duration;

/// The time within which a call that was not answered takes effect, if ever.
pub(crate) const LATE_EFFECT: Duration = Duration::from_secs(60);

/// The invisibility of one delivery.
#[derive(Debug, Clone, Copy)]
pub struct InvisibleMessages {
    /// Its end according to the calls that were answered.
    heard: BootInstant,
    /// Its end if the outstanding call takes effect.
    asked: Option<BootInstant>,
    /// Its end if calls take effect that were not answered.
    unheard: Option<BootInstant>,
}

impl InvisibleMessages {
    /// Creates the state of a delivery that was made by `answered`.
    pub fn since(answered: BootInstant, visibility: Duration) -> Self {
        Self {
            heard: answered + visibility,
            asked: None,
            unheard: None,
        }
    }

    /// Records that the queue is asked for more time.
    pub(crate) fn request_extension(&mut self, called: BootInstant, time: Duration) {
        self.asked = Some(called + LATE_EFFECT + time);
    }

    /// Records that the queue granted this by `answered`. `None` means that there was no answer, or
    /// one that may not be relied on.
    pub(crate) fn extension_answered(&mut self, answered: Option<BootInstant>, time: Duration) {
        let asked = self.asked.take();
        match answered {
            Some(answered) => self.heard = self.heard.max(answered + time),
            None => self.unheard = self.unheard.max(asked),
        }
    }

    /// Returns until when unanswered calls may keep the delivery invisible, regardless of its later
    /// outcome.
    pub fn unanswered(&self) -> Option<BootInstant> {
        self.unheard.max(self.asked)
    }

    /// Returns until when the delivery may stay invisible if no outcome reaches the queue.
    pub fn latest(&self) -> BootInstant {
        self.unanswered()
            .map_or(self.heard, |at| at.max(self.heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn answered_extension_ends_at_the_latest_counted_from_the_answer() {
        let mut hidden = InvisibleMessages::since(at(5), TIME);
        hidden.request_extension(at(15), TIME);
        hidden.extension_answered(Some(at(16)), TIME);
        assert_eq!((hidden.latest(), hidden.unanswered()), (at(46), None));
    }

    #[test]
    fn unanswered_extension_may_still_take_effect() {
        let mut hidden = InvisibleMessages::since(at(5), TIME);
        hidden.request_extension(at(15), TIME);
        assert_eq!(hidden.latest(), at(15) + LATE_EFFECT + TIME);
        hidden.extension_answered(None, TIME);
        hidden.request_extension(at(20), TIME);
        hidden.extension_answered(Some(at(21)), TIME);
        assert_eq!(hidden.unanswered(), Some(at(15) + LATE_EFFECT + TIME));
        assert_eq!(hidden.latest(), at(15) + LATE_EFFECT + TIME);
    }
}
