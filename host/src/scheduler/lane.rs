//! One queue as its scheduler sees it: what is known about it, what is being asked. Pure.

use super::Poll;
use super::ready::{Ready, Waiting};
use super::room::Room;
use crate::clock::Moment;
use std::time::Duration;

/// What a parked poll asks for: two, since a long poll that brings fewer than it asked for has
/// shown that nothing else was there. What it brings is held beyond the room if need be.
const PARKED: usize = 2;
/// So many failed polls in a row do not change what is believed of a queue.
const FORGIVEN: u32 = 2;
/// The shortest rest after an empty poll that did not wait: asking again at once would spin.
const SHORTEST_REST: Duration = Duration::from_millis(100);

/// What does not change about a queue.
#[derive(Debug, Clone)]
pub struct LaneRules {
    /// The most messages of one receive.
    pub batch: usize,
    /// The wait of a parked poll.
    pub poll_for: Duration,
    /// The shortest wait after which an answer can prove that the queue is empty.
    pub proof_wait: Duration,
    /// How long to rest after an empty poll.
    pub sleep: Duration,
    /// Whether messages of a group run one at a time and in order.
    pub ordered_groups: bool,
}

/// What the last answer said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Nothing was answered yet.
    Unknown,
    /// It brought messages and may hold more.
    Holds,
    /// It brought nothing, but a short poll proves nothing.
    Doubted,
    /// It brought all there was.
    Drained,
    /// The last poll failed.
    Failing,
}

#[derive(Debug)]
pub(super) struct Lane<J> {
    pub rules: LaneRules,
    pub ready: Ready<J>,
    pub knowledge: Knowledge,
    /// Under way.
    pub polls: usize,
    /// No poll before this.
    pub rest_until: Moment,
    /// Taken and not ended yet.
    pub started: usize,
    /// Polls that failed in a row, and whether the queue held messages before the first.
    failures: u32,
    held: bool,
}

impl<J: Waiting> Lane<J> {
    pub fn new(rules: LaneRules) -> Self {
        Self {
            ready: Ready::new(rules.ordered_groups),
            rules,
            knowledge: Knowledge::Unknown,
            polls: 0,
            rest_until: Moment::default(),
            started: 0,
            failures: 0,
            held: false,
        }
    }

    /// Whether the queue must be taken to hold messages: only a long poll's answer says it is
    /// empty, and a call or two that failed say nothing. One that keeps failing holds nobody up.
    pub fn may_hold(&self) -> bool {
        matches!(
            self.knowledge,
            Knowledge::Unknown | Knowledge::Holds | Knowledge::Doubted
        ) || (self.knowledge == Knowledge::Failing && self.held && self.failures <= FORGIVEN)
    }

    /// Whether it competes for nothing at present.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.knowledge != Knowledge::Holds
    }

    /// The wait that proves emptiness, or as much of it as the user allows.
    pub fn proof_wait(&self) -> Duration {
        self.rules.proof_wait.min(self.rules.poll_for)
    }

    /// The one poll of a queue that is not known to hold messages. It takes no room: what it
    /// brings is held even without. That is for queues that have nothing in hand; one that fills
    /// the room itself is asked again when some is free.
    pub fn park(&mut self, index: usize, now: Moment, room: &Room) -> Option<Poll> {
        let in_hand = self.started > 0 || !self.ready.is_empty();
        let free = self.is_unasked() && self.rest_until <= now && (!in_hand || room.free() > 0);
        free.then(|| self.parked_poll(index, room))
    }

    /// Whether nothing is asked of it and nothing of it could start.
    pub fn is_unasked(&self) -> bool {
        self.polls == 0 && !self.ready.startable()
    }

    /// A poll failed.
    pub fn fail(&mut self, rest: Duration, now: Moment) {
        if self.knowledge != Knowledge::Failing {
            self.held = self.may_hold();
        }
        self.failures = self.failures.saturating_add(1);
        self.knowledge = Knowledge::Failing;
        self.rest_until = now + rest;
    }

    pub fn parked_poll(&mut self, index: usize, room: &Room) -> Poll {
        self.polls += 1;
        let wait = match self.knowledge {
            Knowledge::Drained => self.rules.poll_for,
            _ => self.proof_wait(),
        };
        let max = PARKED.min(self.rules.batch);
        Poll {
            lane: index,
            max,
            wait,
            room: room.reserve(0),
            parked: true,
        }
    }

    /// Draws the conclusion from an answer.
    pub fn learn(
        &mut self,
        brought: usize,
        drained: bool,
        parked: bool,
        waited: Duration,
        now: Moment,
    ) {
        self.failures = 0;
        // A user who allows no long polls gets no proof; then an empty answer must do.
        let proven = drained || (brought == 0 && (parked || waited >= self.rules.proof_wait));
        self.knowledge = match (brought, proven) {
            (_, true) => Knowledge::Drained,
            (0, false) => Knowledge::Doubted,
            (_, false) => Knowledge::Holds,
        };
        if brought == 0 && self.knowledge == Knowledge::Drained {
            let spins = self.rules.poll_for.is_zero();
            let least = if spins { SHORTEST_REST } else { Duration::ZERO };
            self.rest_until = now + self.rules.sleep.max(least);
        }
    }

    /// When its rest ends, if it rests and has nothing else to wait for.
    pub fn rests_until(&self, now: Moment) -> Option<Moment> {
        (self.polls == 0 && self.rest_until > now).then_some(self.rest_until)
    }
}
