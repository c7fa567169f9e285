//! What must hold when a message is delivered, extended or left behind, and at the very end.

use super::{Gone, Life, NONE, SimulatedDelivery, Trial, World, WorldAnswer};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::queue::VISIBILITY_CEILING;
use std::time::Duration;

/// An outcome that was not taken is told again within this, if its lease lasts so long.
const TRIES_AGAIN_WITHIN: Duration = Duration::from_secs(6);

/// Before that a store may be waited for this long.
const STORE_TAKES: Duration = Duration::from_secs(2);

/// Nothing is extended beyond the ceiling, and a call that extends up to it may be so late.
const CEILING_MARGIN: Duration = Duration::from_secs(5);

/// Tokens of a rate are waited for together for so long.
const STARTS_WITHIN: Duration = Duration::from_millis(15);

/// Timers may be so late.
const SLACK: Duration = Duration::from_millis(2);

/// The clock is read at most so often in a step of a process, and in what it does at once.
const READS: u32 = 1_000;

impl World {
    /// How long what happens at once may take.
    pub(crate) fn moment(&self) -> Duration {
        Duration::from_micros(self.scenario.step_us) * READS
    }

    /// A message is delivered: nobody who could know better may still be at work on it.
    pub(crate) fn check_handed(&mut self, message: usize, now: BootInstant) {
        let Some(before) = self.messages[message].latest else {
            return;
        };
        let one = &self.deliveries[before];
        let Life { dead, stopping, .. } = self.lives[one.life];
        let store = self
            .scenario
            .route
            .remembers_s
            .map_or(Duration::ZERO, |_| STORE_TAKES);
        let again = TRIES_AGAIN_WITHIN + store;
        let counts_on = one.leased.min(self.counts_on_until(before));
        let given_up = |at: BootInstant| counts_on.since(at) > again && one.leased <= now;
        if one.unheard.is_some_and(given_up) && !dead && !stopping && self.is_honest(before) {
            self.fails(
                "settlement-given-up",
                format!("message {message}, delivery {before}"),
            );
        }
        let one = &self.deliveries[before];
        let alive = !self.lives[one.life].dead;
        let running = self.attempts.values().any(|live| live.is_on(before));
        if alive && running && one.until <= now && self.is_honest(before) {
            let released = one.told.is_some();
            if !released {
                self.suspects.push((before, now));
            }
        }
    }

    /// Both sides may notice at the same moment that a lease is over; after that, nobody is at work
    /// on it.
    pub(crate) fn check_suspects(&mut self, now: BootInstant) {
        if self.suspects.first().is_none_or(|(_, at)| *at >= now) {
            return;
        }
        for (delivery, _) in std::mem::take(&mut self.suspects) {
            if self.attempts.values().any(|live| live.is_on(delivery)) {
                let why = format!("delivery {delivery}");
                self.fails("attempt-outlived-its-lease", why);
            }
        }
    }

    /// An extension is asked for.
    pub(crate) fn check_extension(&mut self, delivery: usize) {
        let one = &self.deliveries[delivery];
        if one.refused {
            self.fails("extends-after-a-refusal", format!("delivery {delivery}"));
        }
        let one = &self.deliveries[delivery];
        let queue = self.messages[one.message].queue;
        let visibility = self.scenario.visibility_s(queue);
        let now = clock::now();
        let held = now.since(one.handed).as_millis();
        let late =
            now.since(one.renewed) > Duration::from_secs(visibility) / 2 + SLACK + self.moment();
        if one.extensions == 1 && late && self.is_honest(delivery) {
            let why = format!("delivery {delivery}, {:?} after", now.since(one.renewed));
            self.fails("extends-late", why);
        }
        let one = &self.deliveries[delivery];
        // Half a lease at a time, and retries of those that failed.
        let most = 4 + 4 * held / u128::from(visibility * 1_000 / 4);
        if u128::from(one.extensions) > most && !self.troubled {
            let why = format!("delivery {delivery} for the {}th time", one.extensions);
            self.fails("extends-too-often", why);
        }
    }

    /// Nothing can continue before a timer: no message that was due a while ago waits for a worker
    /// that is free.
    pub(crate) fn check_workers(&mut self, now: BootInstant) {
        let before = BootInstant::from_boot(now.since(BootInstant::from_boot(STARTS_WITHIN)));
        let late = self.lives.iter().position(|life| {
            let scheduler = life.scheduler.as_ref().filter(|_| !life.dead);
            scheduler.is_some_and(|one| {
                let one = one.lock();
                one.is_late(before) && one.is_late(now)
            })
        });
        if let Some(life) = late {
            self.fails("starts-late", format!("process {life}"));
        }
    }

    /// A process has stopped by itself: what it received and could tell of is not hidden.
    pub(crate) fn check_stopped(&mut self, life: usize) {
        let now = clock::now();
        self.check_permits_left(life);
        self.check_no_tenants(life);
        for number in 0..self.deliveries.len() {
            let one = &self.deliveries[number];
            let clean = !self.troubled && self.trouble_changed <= one.handed;
            if one.life == life && self.is_surely_held(number, now) {
                let why = format!("delivery {number} of message {}", one.message);
                self.fails("unsettled-by-a-stop", why);
                continue;
            }
            let one = &self.deliveries[number];
            let ours = one.life == life && one.reached.is_some() && clean;
            if !ours || !self.is_kept(number, now) || !self.is_honest(number) {
                continue;
            }
            // What is to come back later was told so.
            let later = one
                .told
                .as_ref()
                .is_some_and(|told| told.starts_with("Release"));
            if !(later && one.confirmed) {
                let why = format!("message {}, delivery {number}", one.message);
                self.fails("stranded-by-a-stop", why);
            }
        }
        let still = self.attempts.values().any(|live| live.life == life);
        if still {
            self.fails("ran-after-the-stop", format!("process {life}"));
        }
    }

    /// Whether every message has left its queue.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.messages.iter().all(|one| one.gone.is_some())
    }

    /// How long it may take until everything is at rest, from the start of the quiet phase.
    pub(crate) fn patience(&self) -> Duration {
        let now = clock::now();
        let hidden = self.messages.iter().map(|one| one.visible.since(now)).max();
        let longest = (0..self.scenario.queues.len()).map(|at| self.scenario.visibility_s(at));
        let slack = Duration::from_secs(1_200 + 3 * longest.max().unwrap_or_default().min(700));
        let held = Duration::from_secs(longest_of(self));
        // Who does not end by itself is ended by the longest lease that there can be.
        let timeout = Duration::from_millis(self.scenario.route.timeout_ms);
        let stays = timeout.min(VISIBILITY_CEILING);
        // Without long polls nothing shows that a queue is empty, so that of what another process
        // was done with each may be awaited to the end.
        let alone = self.scenario.route.group_by && self.scenario.route.poll_for_s == 0;
        let awaited = if alone {
            super::turns::LONGEST_WAIT * u32::try_from(self.messages.len()).unwrap_or(u32::MAX)
        } else {
            Duration::ZERO
        };
        hidden.unwrap_or_default() + slack + held + stays + awaited
    }

    /// The end: nothing is lost.
    pub(crate) fn check_end(&mut self) {
        for at in 0..self.messages.len() {
            let one = &self.messages[at];
            let why = format!("message {at} of queue {}: {one:?}", one.queue);
            match one.gone {
                None => self.fails("not-at-rest", why),
                Some(Gone::Deleted(_)) if !one.done && !one.shed && one.dead_lettered.is_none() => {
                    self.fails("lost", why);
                }
                Some(Gone::Redriven) if self.scenario.queues[one.queue].redrive.is_none() => {
                    self.fails("lost", why);
                }
                Some(_) => {}
            }
        }
        if self.scenario.is_calm() {
            self.check_budget();
        }
    }

    /// Where nothing goes wrong, calls are few.
    fn check_budget(&mut self) {
        let end = clock::now().since(BootInstant::default()).as_secs();
        let plan = &self.scenario.route;
        let queues = self.scenario.queues.len() as u64;
        let messages = self.messages.len() as u64;
        let deliveries = self.deliveries.len() as u64;
        let polls_ms = (plan.poll_for_s * 1_000 + plan.sleep_ms).max(100);
        // Answers that bring nothing may be doubted once, so that each wait counts twice.
        let idle = 2 * queues * (end * 1_000 / polls_ms + 4);
        // A queue that has shown to hold messages is asked by up to sixteen polls at once.
        let most = idle + 18 * deliveries + 4 * messages + 16 * queues;
        if self.calls.receive > most {
            let why = format!("{} calls to receive, at most {most}", self.calls.receive);
            self.fails("receives-too-often", why);
        }
        if self.calls.settle > deliveries {
            let why = format!("{} calls to settle {deliveries}", self.calls.settle);
            self.fails("settles-too-often", why);
        }
        let local = |queue: &crate::scenario::QueuePlan| !queue.flavour.is_far();
        let honest = self.scenario.mix.slow == 0 && self.scenario.queues.iter().any(local);
        // What lasts as long as a lease can at most is lost however calm it is.
        let most = VISIBILITY_CEILING - CEILING_MARGIN;
        let lost = |one: &SimulatedDelivery| {
            let lost = |trial: &Trial| match trial.ended {
                Some((at, WorldAnswer::Fenced)) => at.since(one.handed) < most,
                _ => false,
            };
            one.tried.iter().filter(|trial| lost(trial)).count()
        };
        let fenced: usize = self.deliveries.iter().map(lost).sum();
        if honest && fenced > 0 {
            self.fails("lost-a-lease-in-calm", format!("{fenced} leases"));
        }
    }

    /// Faults begin or end.
    pub(crate) fn trouble(&mut self, on: bool) {
        self.note(
            if on { "trouble" } else { "trouble is over" },
            NONE,
            NONE,
            vec![],
        );
        self.troubled = on;
        self.trouble_changed = clock::now();
    }
}

/// The longest lease, in seconds.
fn longest_of(world: &World) -> u64 {
    let all = (0..world.scenario.queues.len()).map(|at| world.scenario.visibility_s(at));
    all.max().unwrap_or_default()
}
