//! Readings of endings, one by one and by properties.

use super::*;
use crate::job::samples::job;
use proptest::prelude::*;

fn busy(after: Option<u64>) -> JobEnding {
    JobEnding::Verdict(Verdict::Busy {
        after: after.map(Duration::from_millis),
        why: "full".into(),
    })
}

fn done() -> JobEnding {
    JobEnding::Verdict(Verdict::Done)
}

fn failed() -> JobEnding {
    JobEnding::Verdict(Verdict::Retry {
        after: None,
        why: FailureReason::Requested,
    })
}

fn ended(list: &[(&str, JobEnding)]) -> Vec<(Job, JobEnding)> {
    let of_group = |group: &str| {
        let mut job = job(group);
        job.message.group = (!group.is_empty()).then(|| group.to_owned());
        job
    };
    list.iter()
        .map(|(group, ending)| (of_group(group), ending.clone()))
        .collect()
}

fn endings(list: Vec<(Job, JobEnding)>) -> Vec<JobEnding> {
    list.into_iter().map(|(_, ending)| ending).collect()
}

#[test]
fn lesson_19_failure_returns_the_rest_of_its_group_whatever_the_verdicts() {
    let mut list = ended(&[
        ("a", done()),
        ("a", failed()),
        ("b", done()),
        ("a", done()),
        ("", done()),
        ("a", JobEnding::Lost),
    ]);
    in_group_order(&mut list);
    let wanted = [
        done(),
        failed(),
        done(),
        JobEnding::Returned,
        done(),
        JobEnding::Lost,
    ];
    assert_eq!(endings(list), wanted);
}

#[test]
fn stopped_batch_keeps_that_each_of_its_messages_may_have_been_handled() {
    let abandoned = || JobEnding::Abandoned(Duration::from_secs(9));
    let mut list = ended(&[("a", abandoned()), ("a", abandoned()), ("b", abandoned())]);
    in_group_order(&mut list);
    assert_eq!(endings(list), [abandoned(), abandoned(), abandoned()]);
    let interrupted = || JobEnding::Interrupted;
    let mut list = ended(&[("a", JobEnding::Lost), ("a", interrupted())]);
    in_group_order(&mut list);
    assert_eq!(endings(list), [JobEnding::Lost, interrupted()]);
}

#[test]
fn messages_behind_a_held_one_in_their_group_are_held_too() {
    let mut list = ended(&[("a", busy(None)), ("a", done()), ("b", failed())]);
    in_group_order(&mut list);
    assert_eq!(endings(list), [busy(None), busy(None), failed()]);
}

#[test]
fn worst_verdict_of_a_batch_is_its_signal() {
    let closed = JobEnding::Verdict(Verdict::Closed("gone".into()));
    let timed_out = JobEnding::Verdict(Verdict::Retry {
        after: None,
        why: FailureReason::TimedOut(Duration::ZERO),
    });
    assert_eq!(
        worst_signal([done(), busy(None), closed].iter()),
        Signal::Closed
    );
    assert_eq!(worst_signal([done(), busy(None)].iter()), Signal::Busy);
    assert_eq!(
        worst_signal([failed(), JobEnding::Lost].iter()),
        Signal::Open
    );
    assert_eq!(
        worst_signal([timed_out, JobEnding::Returned].iter()),
        Signal::Nothing
    );
}

proptest! {
    #[test]
    fn busy_pause_honours_advice_and_grows_to_a_limit(advice in prop::option::of(0_u64..100_000_000), holds: u32, random: u64) {
        let now = BootInstant::from_boot(Duration::from_secs(1_000));
        let (mut job, ending) = ended(&[("", busy(advice))]).remove(0);
        job.hold.pauses = holds;
        let fate = MessageFate::Kept;
        let held = EndedJob { job, ending, fate };
        let pause = pause([held].iter(), now, random).expect("it is busy");
        let advised = Duration::from_millis(advice.unwrap_or_default()).min(LONGEST_ADVICE);
        prop_assert_eq!(pause.not_before, now + advised);
        prop_assert!(pause.until >= pause.not_before && pause.until <= now + PAUSE.1.max(advised));
        prop_assert!(pause.until >= now + PAUSE.0 / 2);
    }
}
