//! How often it is said that messages were too old: every one would be a flood. Pure, told `now`.

use crate::clock::Moment;
use crate::telemetry::said::Said;

/// What was shed of one queue and not said yet.
#[derive(Debug, Default)]
pub struct Sheds {
    said: Said,
    unsaid: u64,
}

impl Sheds {
    /// One more was shed. Answers with how many there were since it was said last, if it is time
    /// to say so again.
    pub fn one(&mut self, now: Moment) -> Option<u64> {
        self.unsaid += 1;
        self.said
            .again(now)
            .then(|| std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_first_is_said_at_once_and_the_others_are_counted() {
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        let mut sheds = Sheds::default();
        let said = [0, 1, 59, 61, 62].map(|second| sheds.one(at(second)));
        assert_eq!(said, [Some(1), None, None, Some(3), None]);
    }
}
