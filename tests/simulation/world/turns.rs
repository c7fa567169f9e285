//! What must hold of groups that messages say themselves, on a route with `group-by`: one at a time
//! in one process, and none past an earlier one that this process has had and that is not over.

use super::{SimulatedDelivery, World, WorldAnswer};
use crate::circumstances::MetCircumstances;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::time::Duration;

/// A queue that says so often that it holds nothing more has not got what is waited for.
const EMPTY_ANSWERS: usize = 3;
/// What does not come back is waited for this long.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(900);

/// What an earlier message means for a later one of its group.
enum Ahead {
    /// Nothing: it is over, or was never here.
    Over,
    /// It is waited for no longer.
    GivenUp,
    /// It goes first.
    Open,
}

impl World {
    /// The group in whose order a process keeps this message, and whether the message says so.
    pub(crate) fn group_of(&self, message: usize) -> Option<(bool, u16)> {
        let stored = &self.messages[message];
        let own = stored.group.filter(|_| self.is_ordered(stored.queue));
        let tag = stored.tag.filter(|_| self.scenario.route.group_by);
        own.map(|group| (false, group))
            .or(tag.map(|tag| (true, tag)))
    }

    fn tag_of(&self, message: usize) -> Option<u16> {
        let (is_tag, group) = self.group_of(message)?;
        is_tag.then_some(group)
    }

    /// An attempt begins.
    pub(crate) fn check_turns(
        &mut self,
        life: usize,
        queue: usize,
        starting: &[usize],
        lost: &[bool],
        now: BootInstant,
    ) {
        for (at, (&one, &lost)) in starting.iter().zip(lost).enumerate() {
            let message = self.deliveries[one].message;
            let Some(tag) = self.tag_of(message) else {
                continue;
            };
            if lost || !self.is_kept(one, now) {
                continue;
            }
            let sent = self.messages[message].sent;
            let with = self.messages_of(&starting[..at]);
            let group = (0..self.messages.len()).filter(|&other| {
                let stored = &self.messages[other];
                let same = stored.queue == queue && self.tag_of(other) == Some(tag);
                same && stored.sent < sent && !with.contains(&other)
            });
            for other in group.collect::<Vec<_>>() {
                match self.ahead(life, other, one, now) {
                    Ahead::Over => {}
                    Ahead::GivenUp => {
                        self.met.insert(MetCircumstances::GroupGaveUp);
                    }
                    Ahead::Open => {
                        let why = format!("message {message} starts and {other} is not over");
                        self.fails("group-order", why);
                    }
                }
            }
            let live = self.attempts.values().filter(|live| live.life == life);
            let beside = live.filter(|live| live.queue == queue).any(|live| {
                let mut of = self.messages_of(&live.deliveries).into_iter();
                of.any(|other| self.tag_of(other) == Some(tag))
            });
            if beside {
                let why = format!("message {message} starts beside another of its group");
                self.fails("group-parallel", why);
            }
        }
    }

    /// What `message`, which was sent before it, means for the start of a delivery.
    fn ahead(&mut self, life: usize, message: usize, starting: usize, now: BootInstant) -> Ahead {
        let stored = &self.messages[message];
        if stored.gone.is_some() || stored.done || stored.dead_lettered.is_some() {
            return Ahead::Over;
        }
        let mut had = self.deliveries.iter().enumerate().filter(|(_, one)| {
            let here = one.life == life && one.message == message;
            here && one.reached.is_some_and(|at| at + self.moment() < now)
        });
        let Some((number, last)) = had.next_back() else {
            return Ahead::Over; // what was never received cannot be waited for
        };
        // What was begun before it came, and is held, continues.
        let begun = self.deliveries[starting].tried.first();
        let came_late = begun.is_some_and(|trial| last.reached >= Some(trial.began));
        if came_late || last.expires <= now || last.known {
            return Ahead::Over;
        }
        let tried = last.tried.last().and_then(|trial| trial.ended.as_ref());
        let over = tried.filter(|(_, said)| *said != WorldAnswer::Kept);
        if last.told.is_none() && over.is_none() && self.is_kept(number, now) {
            return Ahead::Open;
        }
        let unheld = last.refused || tried.is_some_and(|(_, said)| *said == WorldAnswer::Fenced);
        let mut due = last.until.min(last.leased);
        if last.misled {
            due = due.min(last.reached.unwrap_or(due));
        }
        if unheld {
            due = over.map_or(due, |(at, _)| due.min(*at));
        }
        let queue = stored.queue;
        let answers = self.lives[life].drained[queue].iter();
        let empty = answers.filter(|&&at| at >= due).count();
        // Once nothing is received any more nothing is waited for that the queue has.
        let stopping = self.lives[life].stopping || self.lives[life].was_reloaded;
        if stopping || empty >= EMPTY_ANSWERS || now >= due + LONGEST_WAIT {
            return Ahead::GivenUp;
        }
        Ahead::Open
    }

    /// Whether something of its group is before it of which the process has lost the lease: with
    /// that it may be released, since it is delivered behind it again.
    pub(crate) fn is_behind_a_lost_one(&self, delivery: usize) -> bool {
        let now = clock::now();
        let own = &self.messages[self.deliveries[delivery].message];
        let group = self.group_of(self.deliveries[delivery].message);
        let life = self.deliveries[delivery].life;
        let lost = |(number, one): (usize, &SimulatedDelivery)| {
            let stored = &self.messages[one.message];
            let same = stored.queue == own.queue && self.group_of(one.message) == group;
            let before = same && stored.sent <= own.sent && number != delivery;
            let here = one.life == life && one.reached.is_some() && one.told.is_none();
            let unsure = one.refused || one.misled || !self.is_kept(number, now);
            before && here && unsure
        };
        group.is_some() && self.deliveries.iter().enumerate().any(lost)
    }

    /// Something arrives: whether it has to wait for one that failed.
    pub(crate) fn note_waiting(&mut self, life: usize, delivery: usize, now: BootInstant) {
        let message = self.deliveries[delivery].message;
        let Some(tag) = self.tag_of(message) else {
            return;
        };
        let (queue, sent) = (self.messages[message].queue, self.messages[message].sent);
        let failed = (0..self.messages.len()).any(|other| {
            let stored = &self.messages[other];
            let same = stored.queue == queue && self.tag_of(other) == Some(tag);
            let hidden = stored.visible > now && stored.gone.is_none();
            let latest = stored.latest.map(|latest| &self.deliveries[latest]);
            let released = latest.is_some_and(|one| one.released && one.life == life);
            same && stored.sent < sent && hidden && released
        });
        if failed {
            self.met.insert(MetCircumstances::GroupWaited);
        }
    }
}
