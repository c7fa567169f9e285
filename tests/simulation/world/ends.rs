//! What must hold when an attempt ends and when a queue is told what became of a message.

use super::{Life, LiveAttempt, QueuedMessage, SimulatedDelivery, Trial, World, WorldAnswer};
use crate::circumstances::MetCircumstances;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::Outcome;
use dispatcher_core::queue::VISIBILITY_CEILING;
use std::time::Duration;

/// Where nothing goes wrong, what is done is deleted within this, and where it is remembered first,
/// within as much again.
const DELETES_WITHIN: Duration = Duration::from_secs(1);
/// So much longer than its grace a stop waits for outstanding polls.
const LAST_POLLS: Duration = Duration::from_secs(25);

impl SimulatedDelivery {
    /// How many attempts there were at it that count: neither turned away nor behind another.
    pub(crate) fn counted(&self) -> u32 {
        let counts = |trial: &&Trial| match &trial.ended {
            // What was stopped for want of permits is not to blame for it.
            Some((_, said)) => !matches!(
                said,
                WorldAnswer::Kept | WorldAnswer::Behind | WorldAnswer::Revoked
            ),
            None => true,
        };
        let count = self.tried.iter().filter(counts).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

impl SimulatedDelivery {
    /// Whether its last attempt was stopped for want of permits.
    fn was_revoked(&self) -> bool {
        let said = self.tried.last().and_then(|trial| trial.ended.as_ref());
        said.is_some_and(|(_, said)| *said == WorldAnswer::Revoked)
    }
}

impl World {
    /// An attempt ended: the handler said this of each message, and `lost` whose answer does not
    /// count.
    pub(crate) fn attempt_ends(
        &mut self,
        attempt: usize,
        mut said: Vec<WorldAnswer>,
        lost: &[bool],
    ) {
        let now = clock::now();
        self.check_suspects(now);
        let Some(live) = self.attempts.remove(&attempt) else {
            return;
        };
        self.check_fleet_at_end(&live, now);
        let LiveAttempt {
            life,
            queue,
            deliveries,
            ..
        } = live;
        for (one, &lost) in said.iter_mut().zip(lost) {
            if lost && *one != WorldAnswer::Done {
                *one = WorldAnswer::Fenced;
            }
        }
        self.in_group_order(&deliveries, &mut said);
        self.note_with(
            "ends",
            life,
            queue,
            self.messages_of(&deliveries),
            format!("{said:?}"),
        );
        for (one, said) in deliveries.into_iter().zip(said) {
            let message = self.deliveries[one].message;
            if said == WorldAnswer::Done {
                self.messages[message].done = true;
                self.lives[life].done.insert(message, now);
            }
            if let Some(trial) = self.deliveries[one].tried.last_mut() {
                trial.ended = Some((now, said));
            }
        }
    }

    /// The first of a group that is not done speaks for all behind it.
    fn in_group_order(&self, deliveries: &[usize], said: &mut [WorldAnswer]) {
        let group = |one: usize| self.group_of(self.deliveries[one].message);
        for at in 0..said.len() {
            let speaks = match said[at] {
                WorldAnswer::Done => continue,
                WorldAnswer::Kept => WorldAnswer::Kept,
                _ => WorldAnswer::Behind,
            };
            let of = group(deliveries[at]);
            if of.is_none() {
                continue;
            }
            for behind in at + 1..said.len() {
                if group(deliveries[behind]) == of && said[behind] != WorldAnswer::Fenced {
                    said[behind] = speaks.clone();
                }
            }
        }
    }

    /// Of a queue that keeps groups in order nothing goes back before what is held behind it in its
    /// group: the queue could deliver it to others, while what is behind it is here. The receipt of an
    /// older delivery changes nothing; and one that came back after its lease was lost is here behind those
    /// that stayed.
    fn check_release_order(&mut self, life: usize, delivery: usize, now: BootInstant) {
        let message = self.deliveries[delivery].message;
        let QueuedMessage { queue, group, .. } = self.messages[message];
        let is_current = self.messages[message].latest == Some(delivery);
        if group.is_none() || !is_current || !self.is_ordered(queue) || !self.is_honest(delivery) {
            return;
        }
        let came = self.deliveries[delivery].reached;
        let is_before =
            |one: &QueuedMessage| one.queue == queue && one.group == group && one.gone.is_none();
        // The queue delivers what follows the first of a group no sooner than that one. What came while an
        // earlier delivery of it was at work goes back unseen by its group.
        let is_tried = !self.deliveries[delivery].tried.is_empty();
        let is_first = is_tried && !self.messages[..message].iter().any(is_before);
        // The queue has not taken its release yet.
        let is_under_way = |one: &SimulatedDelivery| {
            let told = one.told.as_deref().unwrap_or_default();
            told.starts_with("Release") && !one.released && one.unheard.is_none()
        };
        let behind = self.messages.iter().enumerate().skip(message + 1);
        let held = behind.filter_map(|(at, one)| {
            let other = one.latest?;
            let of = &self.deliveries[other];
            let is_held = one.queue == queue
                && one.group == group
                && one.gone.is_none()
                && of.life == life
                && of.reached.is_some()
                && of.reached >= came
                && (of.told.is_none() || is_first && is_under_way(of))
                && !self.lives[life].done.contains_key(&at)
                && self.is_honest(other)
                && self.counts_on_until(other) > now
                && self.is_kept(other, now);
            is_held.then_some(at)
        });
        let held: Vec<usize> = held.collect();
        if !held.is_empty() {
            let why = format!("message {message} goes back, and {held:?} behind it are held");
            self.fails("released-before-followers", why);
        }
    }

    /// A settlement is about to be asked for.
    pub(crate) fn check_settle_call(
        &mut self,
        life: usize,
        queue: usize,
        items: &[(usize, Outcome)],
    ) {
        for (at, (one, outcome)) in items.iter().enumerate() {
            let message = self.deliveries[*one].message;
            if items[..at].iter().any(|item| item.0 == *one) {
                self.fails(
                    "one-entry-each",
                    format!("delivery {one} twice in one call"),
                );
            }
            self.note_with("tells", life, queue, vec![message], format!("{outcome:?}"));
            self.check_settlement(life, *one, outcome);
        }
    }

    fn check_settlement(&mut self, life: usize, delivery: usize, outcome: &Outcome) {
        let now = clock::now();
        let one = self.deliveries[delivery].clone();
        let words = format!("message {}, delivery {delivery}: {outcome:?}", one.message);
        let text = format!("{outcome:?}");
        if one.told.as_ref().is_some_and(|before| *before != text) {
            let before = one.told.clone().unwrap_or_default();
            self.fails("settled-two-ways", format!("{words}, after {before}"));
        }
        if one.reached.is_none() || one.life != life {
            self.fails("settled-unseen", words.clone());
        }
        let late = *outcome != Outcome::Delete && now >= one.leased && self.is_honest(delivery);
        let current = self.messages[one.message].latest == Some(delivery);
        if late && current && self.messages[one.message].gone.is_none() {
            self.fails("settled-without-lease", words.clone());
        }
        if matches!(outcome, Outcome::Release(_)) && one.extending > 0 {
            self.fails("released-while-extending", words.clone());
        }
        if matches!(outcome, Outcome::Release(_)) {
            self.check_release_order(life, delivery, now);
        }
        let first = one.told.is_none();
        self.deliveries[delivery].unheard = None;
        self.deliveries[delivery].told = Some(text);
        if !first {
            return;
        }
        let said = one.tried.last().map(|trial| trial.ended.clone());
        if let Some(None) = said {
            self.fails("settled-while-running", words);
            return;
        }
        let said = said.flatten();
        if let Some((ended, WorldAnswer::Done)) = &said {
            self.check_prompt(delivery, *ended);
        }
        let words_of_trial = said.as_ref().map(|(_, said)| said);
        let shed = self.judge_shed(life, delivery, words_of_trial, outcome);
        if shed == Some(Ok(())) {
            self.sheds(life, delivery, outcome);
        }
        self.check_recorded(life, delivery, words_of_trial, outcome);
        let judged = shed.unwrap_or_else(|| self.judge(life, delivery, said.as_ref(), outcome));
        if let (None, Outcome::Release(after)) = (words_of_trial, outcome)
            && self.may_be_deferred(delivery, *after)
        {
            self.met.insert(MetCircumstances::Deferred);
        }
        if let Err(rule) = judged {
            self.fails(rule, format!("{words}, of {said:?}"));
        }
        let back = matches!(outcome, Outcome::Release(_));
        self.deliveries[delivery].excused = back && self.is_excused(life, delivery, now);
    }

    /// What is done does not wait for other attempts.
    fn check_prompt(&mut self, delivery: usize, ended: BootInstant) {
        let waited = clock::now().since(ended);
        let calm = !self.troubled && self.trouble_changed <= ended;
        let stood = self.suspended.is_some_and(|stood| stood >= ended);
        let remembers = self.scenario.route.remembers_s.is_some();
        let within = DELETES_WITHIN * if remembers { 2 } else { 1 };
        if calm && !stood && waited > within {
            self.fails(
                "deleted-late",
                format!("delivery {delivery}, {waited:?} after"),
            );
        }
    }

    /// Whether a process that gives a message back cannot help it, whatever becomes of it then: its
    /// grace is over, or something before it in its group was lost.
    fn is_excused(&self, life: usize, delivery: usize, now: BootInstant) -> bool {
        self.is_halted(life, now)
            || self.is_behind_a_lost_one(delivery)
            || self.is_behind_an_unsettled_message(delivery)
            || !self.is_honest(delivery)
    }

    /// Whether the grace of a stop is over.
    pub(crate) fn is_halted(&self, life: usize, now: BootInstant) -> bool {
        let Life {
            stopping,
            patient_until,
            ..
        } = self.lives[life];
        stopping && now + LAST_POLLS >= patient_until
    }

    /// Whether the queue did not take the dead letter of one before it in its group while that was
    /// leased.
    fn is_behind_an_unsettled_message(&self, delivery: usize) -> bool {
        let own = &self.deliveries[delivery];
        let group = self.group_of(own.message);
        let queue = self.messages[own.message].queue;
        let dead_letters = |told: &String| told.starts_with("DeadLetter");
        let untold = |one: &SimulatedDelivery| {
            let same = self.messages[one.message].queue == queue;
            let same = same && self.group_of(one.message) == group && one.life == own.life;
            same && !one.confirmed && one.told.as_ref().is_some_and(dead_letters)
        };
        group.is_some() && self.deliveries.iter().any(untold)
    }

    /// The queue's own redrive policy dead-letters a message: somebody has attempted it, or could
    /// not help it.
    pub(crate) fn check_redriven(&mut self, message: usize) {
        let mut of = self.deliveries.iter().filter(|one| one.message == message);
        // An attempt that was stopped for want of permits was one.
        let tried = of.clone().any(|one| one.counted() > 0 || one.was_revoked());
        let last = of.next_back();
        let released = |told: &String| told.starts_with("Release");
        let given_back =
            last.is_some_and(|one| one.told.as_ref().is_some_and(released) && !one.excused);
        if given_back && !tried {
            self.fails("dead-lettered-unrun", format!("message {message}"));
        }
    }

    /// How many attempts a message has had as far as this process can know, this delivery's first
    /// included: what others did with theirs counts as one each.
    pub(crate) fn attempts_of(&self, life: usize, delivery: usize) -> u32 {
        self.attempts_within(life, delivery).1
    }

    /// The least and the most: whether the process noticed that it lost what it had not attempted
    /// is not known.
    pub(crate) fn attempts_within(&self, life: usize, delivery: usize) -> (u32, u32) {
        let own = &self.deliveries[delivery];
        let (mut attempts, mut lost) = (i64::from(own.count), 0);
        for one in &self.deliveries[..delivery] {
            if one.message == own.message && one.life == life {
                let back = one.told.as_ref();
                let back = back.is_some_and(|told| told.starts_with("Release"));
                let more = i64::from(one.counted()) - 1;
                attempts += if back { more } else { more.max(0) };
                lost += i64::from(!back && more < 0);
            }
        }
        let number = |attempts: i64| u32::try_from(attempts.max(1)).unwrap_or(u32::MAX);
        (number(attempts - lost), number(attempts))
    }

    /// How many attempts its queue and the route allow it, if that is limited.
    pub(crate) fn limit_of(&self, message: usize) -> Option<u32> {
        let plan = &self.scenario.queues[self.messages[message].queue];
        plan.limit(self.scenario.route.attempts)
    }

    /// Whether this outcome follows from what was said.
    fn judge(
        &self,
        life: usize,
        delivery: usize,
        said: Option<&(BootInstant, WorldAnswer)>,
        outcome: &Outcome,
    ) -> Result<(), &'static str> {
        let one = &self.deliveries[delivery];
        let stored = &self.messages[one.message];
        let plan = &self.scenario.queues[stored.queue];
        let process = &self.lives[life];
        // What a pause gives back is given back as at a stop.
        let stopping = process.stopping || process.was_paused[stored.queue];
        let spent = self.limit_of(one.message).is_some_and(|most| {
            let attempts = self.attempts_of(life, delivery) + one.counted().saturating_sub(1);
            attempts >= most
        });
        let grouped = self.group_of(one.message).is_some();
        let longest = Duration::from_millis(self.scenario.route.most_ms);
        let right = |right: bool, rule| if right { Ok(()) } else { Err(rule) };
        match (outcome, said.map(|(_, said)| said)) {
            (Outcome::Delete, _) => right(stored.done, "deleted-undone"),
            (_, Some(WorldAnswer::Done)) => Err("done-not-deleted"),
            (_, Some(WorldAnswer::Fenced)) => Err("settled-a-fenced-answer"),
            (Outcome::Release(after), Some(WorldAnswer::Kept)) => {
                // One ahead of it that was lost must be delivered before it.
                let may = stopping
                    || self.is_behind_an_open_one(life, one.message)
                    || self.is_behind_an_older_one(delivery)
                    || self.is_behind_a_lost_one(delivery);
                // What was resumed may have waited for limits for too long.
                let may = (may && after.is_zero()) || self.may_be_deferred(delivery, *after);
                right(may, "released-a-throttled-one")
            }
            (Outcome::DeadLetter(_), Some(WorldAnswer::Kept)) => {
                Err("dead-lettered-while-throttled")
            }
            (Outcome::DeadLetter(_), Some(WorldAnswer::Reject)) => right(
                plan.dead_letters || (plan.takes_dead() && spent),
                "dead-lettered-without-a-queue",
            ),
            (Outcome::Release(after), Some(WorldAnswer::Reject)) => right(
                !plan.dead_letters && *after <= longest,
                "rejected-not-dead-lettered",
            ),
            (Outcome::Release(after), Some(WorldAnswer::Retry(Some(asked)))) => {
                // What pauses within its lease is released for the rest of the pause.
                let asked = (*asked).min(VISIBILITY_CEILING);
                let rest = grouped && *after < asked;
                right(*after == asked || rest, "not-when-asked")
            }
            (Outcome::Release(after), Some(WorldAnswer::Behind)) => {
                right(after.is_zero(), "behind-not-at-once")
            }
            (Outcome::Release(after), Some(WorldAnswer::Retry(None) | WorldAnswer::Cut)) => {
                right(*after <= longest, "released-for-too-long")
            }
            (Outcome::DeadLetter(_), Some(WorldAnswer::Retry(_) | WorldAnswer::Cut)) => {
                right(spent, "dead-lettered-early")
            }
            (Outcome::Release(after), Some(WorldAnswer::Revoked)) => {
                right(after.is_zero(), "released-for-too-long")
            }
            (Outcome::DeadLetter(_), Some(WorldAnswer::Behind | WorldAnswer::Revoked)) => {
                Err("dead-lettered-untried")
            }
            (Outcome::Release(after), None) if !after.is_zero() => {
                right(self.may_be_deferred(delivery, *after), "released-unrun")
            }
            (Outcome::Release(after), None) => {
                let ordered = self.is_ordered(stored.queue);
                let may = stopping || ordered || self.is_behind_a_lost_one(delivery);
                right(may && after.is_zero(), "released-unrun")
            }
            (Outcome::DeadLetter(_), None) => {
                right(self.is_exhausted(life, delivery), "dead-lettered-untried")
            }
        }
    }

    /// Whether the process has an older delivery in hand that goes before it and may be lost: of the
    /// same message, after a standstill; or of one of its group that was begun before it came.
    fn is_behind_an_older_one(&self, delivery: usize) -> bool {
        let own = &self.deliveries[delivery];
        let group = |one: &SimulatedDelivery| {
            let of = self.group_of(one.message);
            of.map(|of| (self.messages[one.message].queue, of))
        };
        let began = |one: &SimulatedDelivery| one.tried.first().map(|trial| trial.began);
        let older = |one: &SimulatedDelivery| {
            let in_hand = one.life == own.life && one.reached.is_some() && one.told.is_none();
            let same = group(one).is_some() && group(one) == group(own);
            let first = began(one).is_some() && began(one) < began(own);
            in_hand && same && (first || one.message == own.message)
        };
        self.deliveries[..delivery].iter().any(older)
    }

    /// Whether an earlier message of its group is not done, as far as this process can know: what
    /// another was done with and could not delete is redelivered.
    pub(crate) fn is_behind_an_open_one(&self, life: usize, message: usize) -> bool {
        let own = &self.messages[message];
        let same = |other: &QueuedMessage| {
            let of = (other.group, other.tag);
            other.queue == own.queue && of == (own.group, own.tag)
        };
        let done = &self.lives[life].done;
        let open = |(at, other): (usize, &QueuedMessage)| {
            !done.contains_key(&at) && other.gone.is_none() && other.dead_lettered.is_none()
        };
        let ahead = self.messages[..message].iter().enumerate();
        self.group_of(message).is_some() && ahead.filter(|(_, other)| same(other)).any(open)
    }
}
