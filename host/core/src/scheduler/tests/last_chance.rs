//! What came back for the last time starts first, and what cannot start is not received.

use crate::scheduler::*;

struct ReceivedJob {
    count: u32,
    most: u32,
    _seat: Permit,
}

impl WaitingJob for ReceivedJob {
    fn group(&self) -> Option<&str> {
        None
    }

    fn is_redelivered(&self) -> bool {
        self.count > 1
    }

    fn may_be_given_back(&self) -> bool {
        self.count < self.most
    }
}

const NOW: BootInstant = BootInstant::from_boot(Duration::from_secs(1_000));

/// Two queues in strict order, whose redrive policies permit so many receives.
fn scheduler(most_receives: u32) -> Scheduler<ReceivedJob> {
    let lane = LaneRules {
        ordered_groups: true,
        most_receives: Some(most_receives),
        ..sample::lane()
    };
    Scheduler::new(sample::rules(vec![lane; 2], 20))
}

/// The answer to the poll of a queue: messages that were received so often.
fn answer(scheduler: &mut Scheduler<ReceivedJob>, mut poll: Poll, most: u32, counts: &[u32]) {
    let jobs = counts.iter().map(|&count| ReceivedJob {
        count,
        most,
        _seat: poll.seat(),
    });
    let jobs = jobs.collect();
    scheduler.answered(poll, jobs, false, NOW);
}

#[test]
fn message_at_its_last_receive_does_not_wait_for_queues_above() {
    for (most, count, starts) in [(3, 3, true), (3, 2, false), (1, 1, false)] {
        let mut scheduler = scheduler(most);
        let below = scheduler.plan(NOW).pop().expect("both queues are asked");
        assert_eq!(below.lane, 1);
        answer(&mut scheduler, below, most, &[count]);
        let workers = scheduler.reserve_workers(NOW);
        assert_eq!(workers == 1, starts, "receive {count} of {most}");
        if starts {
            let start = scheduler.next_jobs(NOW).expect("a job");
            assert_eq!((start.lane, start.jobs.len()), (1, 1));
        }
    }
}

/// For how many messages the first queue is asked after an answer.
fn asks_after(most: u32, counts: &[u32]) -> usize {
    let mut scheduler = scheduler(most);
    let mut polls = scheduler.plan(NOW);
    assert!(polls.iter().all(|poll| poll.max == 1), "nothing is known");
    let first = polls.swap_remove(0);
    answer(&mut scheduler, first, most, counts);
    let polls = scheduler.plan(NOW);
    polls.iter().map(|poll| poll.max).max().expect("a poll")
}

#[test]
fn ordered_queue_with_few_receives_is_asked_for_what_can_start() {
    assert_eq!(asks_after(2, &[1; 10]), 1);
    assert!(asks_after(3, &[1; 10]) > 1);
    assert_eq!(asks_after(3, &[1, 1, 1, 1, 2]), 1);
}
