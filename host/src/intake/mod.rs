//! The first stage: asks the queues for what the scheduler wants, and turns what comes into jobs.
//! Knows no other stage and no backend by name.

pub mod trouble;

use crate::clock::{self, Moment};
use crate::job::{Ending, Job, Outbox, hand_on};
use crate::lease::Ledger;
use crate::lease::book::Terms;
use crate::message::Message;
use crate::queue::{Ask, Queue, QueueError, Received};
use crate::scheduler::Poll;
use crate::scheduler::board::Board;
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use crate::telemetry::metrics::meter::Meter;
use crate::telemetry::readiness::Readiness;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use trouble::Trouble;

/// One queue of a route, to be received from.
pub struct Source {
    /// The queue.
    pub queue: Arc<dyn Queue>,
    /// Its place in the keeper's list.
    pub place: usize,
    /// How long what is received stays invisible.
    pub visibility: Duration,
    /// What is measured of it.
    pub meter: Arc<Meter>,
}

/// What the stages after this one say about a message that has just arrived.
pub trait Arrivals: Send + Sync {
    /// How a message of the queue `lane` ends that need not run; `None`: it runs.
    fn ending(&self, lane: usize, message: &Message) -> Option<Ending>;
    /// Whether a message that was not started is better finished than given back at a stop.
    fn prefers_finishing(&self, lane: usize, message: &Message) -> bool;
    /// Jobs have arrived or may start now, or a queue turned out to be empty.
    fn arrived(&self);
}

/// The intake of one route.
pub struct Intake {
    /// The route's scheduler.
    pub board: Arc<Board<Job>>,
    /// The route's queues, in the order of its lanes.
    pub sources: Vec<Source>,
    /// Where leases are entered.
    pub ledger: Arc<Ledger>,
    /// Where jobs go that need not run.
    pub outbox: Outbox,
    /// The stages after this one.
    pub arrivals: Arc<dyn Arrivals>,
    /// Set when nothing more is to be asked for.
    pub stop: CancellationToken,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// Red while a queue cannot be received from.
    pub readiness: Arc<Readiness>,
}

struct Answer {
    poll: Poll,
    called: Moment,
    received: Result<Received, QueueError>,
}

impl Intake {
    /// Polls until the stop, then until the last poll under way was answered.
    pub async fn run(self) {
        let mut polls: Group<Answer> = Group::new();
        let mut troubles: Vec<Trouble> = self.sources.iter().map(|_| Trouble::default()).collect();
        let room = self.board.lock().room().clone();
        let mut stopping = false;
        while !stopping || !polls.is_empty() {
            let now = clock::now();
            let (plan, next) = {
                let mut scheduler = self.board.lock();
                (scheduler.plan(now), scheduler.next_attention(now))
            };
            for poll in plan {
                polls.spawn(self.receive(poll));
            }
            tokio::select! {
                biased; // for simulations; every round plans, whatever woke it
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.release_waiting();
                }
                answer = polls.next() => self.take(answer, &mut troubles),
                () = clock::sleep_until(next) => self.arrivals.arrived(),
                () = room.freed() => {}
                () = self.board.replan.notified() => {}
            }
        }
    }

    fn receive(&self, poll: Poll) -> impl Future<Output = Answer> + Send + 'static {
        let source = &self.sources[poll.lane];
        let queue = source.queue.clone();
        let ask = Ask {
            max: poll.max,
            visibility: source.visibility,
            wait: poll.wait,
        };
        let stop = self.stop.clone();
        self.counters.receive_calls.one();
        source.meter.calls.one();
        async move {
            let called = clock::now();
            let received = queue.receive(ask, &stop).await;
            Answer {
                poll,
                called,
                received,
            }
        }
    }

    fn take(&self, answer: Answer, troubles: &mut [Trouble]) {
        let Answer {
            mut poll,
            called,
            received,
        } = answer;
        let lane = poll.lane;
        let visibility = self.sources[lane].visibility;
        let name = &self.sources[lane].queue.identity().name;
        let now = clock::now();
        match received {
            Err(error) => {
                let rest = troubles[lane].failed(name, &error, now);
                if troubles[lane].lasts() {
                    self.readiness
                        .set(format!("queue {name}"), error.to_string());
                }
                self.counters.failed_calls.one();
                self.board.lock().failed(poll, rest, now);
            }
            Ok(Received {
                messages,
                drained,
                taken,
            }) => {
                if troubles[lane].passed(name) {
                    self.readiness.clear(&format!("queue {name}"));
                }
                self.counters.received.many(messages.len());
                self.measure(lane, &messages);
                let jobs = self.jobs(
                    &mut poll,
                    handed_out(called, taken, visibility, now),
                    messages,
                );
                let jobs = self.sort_out(lane, jobs);
                self.board.lock().answered(poll, jobs, drained, now);
            }
        }
        self.arrivals.arrived();
    }

    fn measure(&self, lane: usize, messages: &[Message]) {
        let meter = &self.sources[lane].meter;
        meter.received.many(messages.len());
        let today = clock::today();
        for sent in messages.iter().filter_map(|message| message.sent_at) {
            meter.aged(today.since(sent));
        }
    }

    fn jobs(&self, poll: &mut Poll, received: Moment, messages: Vec<Message>) -> Vec<Job> {
        let source = &self.sources[poll.lane];
        let terms = messages.iter().map(|message| Terms {
            queue: source.place,
            receipt: message.receipt.clone(),
            received,
            visibility: source.visibility,
        });
        let leases = self.ledger.open(terms);
        let seated = messages.into_iter().zip(leases);
        seated
            .map(|(message, lease)| Job {
                last_chance: self.arrivals.prefers_finishing(poll.lane, &message),
                message,
                lease,
                permit: poll.seat(),
                holds: 0,
            })
            .collect()
    }

    /// Sends on what need not run, and what comes after the stop and is better given back.
    fn sort_out(&self, lane: usize, jobs: Vec<Job>) -> Vec<Job> {
        let stopping = self.stop.is_cancelled();
        let ending = |job: &Job| {
            let given_back = stopping && !job.last_chance;
            let needless = self.arrivals.ending(lane, &job.message);
            needless.or_else(|| given_back.then_some(Ending::Returned))
        };
        let mut endings: Vec<Option<Ending>> = jobs.iter().map(ending).collect();
        if self.board.lock().orders_groups(lane) {
            let groups = jobs.iter().map(|job| job.message.group.as_deref());
            in_group_order(&groups.collect::<Vec<_>>(), &mut endings);
        }
        let mut run = Vec::with_capacity(jobs.len());
        for (job, ending) in jobs.into_iter().zip(endings) {
            match ending {
                None => run.push(job),
                Some(ending) => hand_on(&self.outbox, lane, job, ending),
            }
        }
        run
    }

    fn release_waiting(&self) {
        let released = self.board.lock().stop(|_, job| !job.last_chance);
        for (lane, job) in released {
            hand_on(&self.outbox, lane, job, Ending::Returned);
        }
    }
}

/// Nothing of a group runs before what is ahead of it is settled: it comes again with it.
fn in_group_order(groups: &[Option<&str>], endings: &mut [Option<Ending>]) {
    let mut stopped: Vec<&str> = Vec::new();
    for (group, ending) in groups.iter().zip(endings) {
        let Some(group) = group else { continue };
        match ending {
            // It is done, whoever is ahead of it.
            Some(Ending::AlreadyDone) => {}
            _ if stopped.contains(group) => *ending = Some(Ending::Returned),
            Some(_) => stopped.push(group),
            None => {}
        }
    }
}

/// When what a poll brought was handed out. A backend that does not tell may have waited long
/// before; then the answer is taken to have been under way for a quarter of the visibility at
/// most. The first extension, at half of it, makes sure.
fn handed_out(
    called: Moment,
    taken: Option<Moment>,
    visibility: Duration,
    answered: Moment,
) -> Moment {
    let slowest = answered.since(called).min(visibility / 4);
    taken.unwrap_or(called + (answered.since(called) - slowest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Verdict;

    #[test]
    fn lesson_19_what_is_behind_a_poisoned_message_of_its_group_waits_until_that_is_buried() {
        let poisoned = Some(Ending::Verdict(Verdict::Reject("too often".into())));
        let groups = [Some("a"), Some("b"), Some("a"), None, Some("a")];
        let done = Some(Ending::AlreadyDone);
        let mut endings = [poisoned.clone(), None, None, None, done.clone()];
        in_group_order(&groups, &mut endings);
        assert_eq!(
            endings,
            [poisoned, None, Some(Ending::Returned), None, done]
        );
    }

    #[test]
    fn a_message_that_comes_late_in_a_long_poll_has_most_of_its_lease_before_it() {
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        let counted_from =
            |answered| handed_out(at(100), None, Duration::from_secs(8), at(answered));
        assert_eq!(counted_from(100), at(100));
        assert_eq!(counted_from(101), at(100));
        assert_eq!(counted_from(119), at(117));
        let told = handed_out(at(100), Some(at(118)), Duration::from_secs(8), at(119));
        assert_eq!(told, at(118));
    }
}
