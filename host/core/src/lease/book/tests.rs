//! The book against every visibility, clocks that jump, and answers that come late, twice or
//! never.

use super::*;
use proptest::prelude::*;

fn at(seconds: f64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs_f64(seconds))
}

fn terms(queue: usize, name: &str, received: BootInstant, visibility: u64) -> LeaseTerms {
    LeaseTerms {
        queue,
        receipt: Receipt(name.into()),
        received,
        answered: received,
        visibility: Duration::from_secs(visibility),
    }
}

fn ten(_: usize) -> usize {
    10
}

#[test]
fn message_lost_before_registration_is_lost_from_the_start() {
    let mut book = Book::default();
    let enter = |book: &mut Book, queue, name: &str| book.open(terms(queue, name, at(0.0), 30));
    book.lose(0, &[Loss::taken(Receipt("a".into()))]);
    let (lost, told) = enter(&mut book, 0, "a");
    assert!(told.is_cancelled());
    assert_eq!(book.settle(lost, at(1.0)), None);
    // The same words of another queue are another delivery.
    let (_, told) = enter(&mut book, 1, "a");
    assert!(!told.is_cancelled());
    // What is remembered is bounded, the newest first.
    let many: Vec<Loss> = (0..20_000)
        .map(|n| Loss::taken(Receipt(n.to_string())))
        .collect();
    for loss in &many {
        book.lose(0, std::slice::from_ref(loss));
    }
    let (_, oldest) = enter(&mut book, 0, "0");
    let (_, newest) = enter(&mut book, 0, "19999");
    assert!(!oldest.is_cancelled() && newest.is_cancelled());
}

#[test]
fn extension_is_due_at_half_the_visibility_timeout() {
    let mut book = Book::default();
    let (id, lost) = book.open(terms(0, "r", at(100.0), 30));
    assert_eq!(book.next_attention(), Some(at(115.0)));
    assert!(book.due(at(114.9), ten).is_empty());
    let calls = book.due(at(115.0), ten);
    let item = (id, Receipt("r".into()), Duration::from_secs(30));
    let items = vec![item];
    let wanted = ExtensionCall {
        queue: 0,
        items,
        runs_out: at(130.0),
    };
    assert_eq!(calls, [wanted]);
    book.extended(id, at(115.0), Duration::from_secs(30), &Ok(()), at(115.2));
    assert_eq!(book.next_attention(), Some(at(130.0)));
    assert!(!lost.is_cancelled());
    // The server counted from the call, however late its answer is read.
    assert_eq!(book.settle(id, at(120.0)), Some(at(145.0)));
}

#[test]
fn backend_loss_cancels_exactly_its_own_lease() {
    let mut book = Book::default();
    let (id, lost) = book.open(terms(0, "taken", at(0.0), 30));
    let (kept, kept_lost) = book.open(terms(0, "kept", at(0.0), 30));
    let (_, elsewhere) = book.open(terms(1, "taken", at(0.0), 30));
    let losses = ["taken", "of a stranger"].map(|name| Loss::taken(Receipt(name.into())));
    book.lose(0, &losses);
    assert!(lost.is_cancelled() && !kept_lost.is_cancelled() && !elsewhere.is_cancelled());
    assert_eq!(book.settle(id, at(1.0)), None, "its verdict is fenced");
    assert_eq!(book.settle(kept, at(1.0)), Some(at(30.0)));
}

#[test]
fn finding_06_lease_knows_that_its_message_was_cancelled() {
    let mut book = Book::default();
    let receipt = |name: &str| Receipt(name.into());
    let (told, _) = book.open(terms(0, "told", at(0.0), 30));
    let (refused, _) = book.open(terms(0, "refused", at(0.0), 30));
    let (taken, _) = book.open(terms(0, "taken", at(0.0), 30));
    book.lose(
        0,
        &[
            Loss::cancelled(receipt("told")),
            Loss::taken(receipt("taken")),
            Loss::cancelled(receipt("early")),
        ],
    );
    let (early, _) = book.open(terms(0, "early", at(0.0), 30));
    // The notice of a cancel may be lost: then the extension is refused.
    assert_eq!(book.due(at(15.0), ten).len(), 1);
    let answer = Err(ItemError::Cancelled);
    book.extended(
        refused,
        at(15.0),
        Duration::from_secs(30),
        &answer,
        at(15.1),
    );
    for id in [told, refused, early] {
        assert!(book.is_cancelled(id), "{id:?}");
        assert_eq!(book.settle(id, at(16.0)), None);
    }
    assert!(!book.is_cancelled(taken));
}

#[test]
fn lesson_05_each_lease_has_its_own_deadline_counted_from_the_call() {
    let mut book = Book::default();
    let (early, early_lost) = book.open(terms(0, "early", at(0.0), 30));
    let (late, late_lost) = book.open(terms(0, "late", at(20.0), 30));
    book.due(at(15.0), ten);
    book.extended(
        early,
        at(15.0),
        Duration::from_secs(30),
        &Err(ItemError::Transient("busy".into())),
        at(16.0),
    );
    // Nobody answers for the early one again: it alone is lost, at its own deadline.
    book.due(at(30.0), ten);
    assert!(early_lost.is_cancelled() && !late_lost.is_cancelled());
    assert_eq!(book.settle(early, at(30.0)), None);
    assert!(book.settle(late, at(30.0)).is_some());
}

#[test]
fn ten_extensions_share_a_call_earliest_deadline_first() {
    let mut book = Book::default();
    for n in 0..25_u32 {
        book.open(terms(0, &format!("r{n}"), at(f64::from(24 - n) / 10.0), 30));
    }
    book.open(terms(1, "other", at(0.0), 30));
    let calls = book.due(at(17.4), ten);
    let sizes: Vec<_> = calls
        .iter()
        .map(|call| (call.queue, call.items.len()))
        .collect();
    assert_eq!(sizes, [(0, 10), (0, 10), (0, 5), (1, 1)]);
    assert_eq!(calls[0].items[0].1, Receipt("r24".into()));
}

#[test]
fn leases_nearly_due_are_extended_in_the_same_call() {
    let mut book = Book::default();
    book.open(terms(0, "due", at(0.0), 30));
    book.open(terms(0, "nearly", at(5.0), 30));
    book.open(terms(0, "far", at(14.0), 30));
    let calls = book.due(at(15.0), ten);
    let names: Vec<_> = calls[0]
        .items
        .iter()
        .map(|item| item.1.0.as_str())
        .collect();
    assert_eq!(names, ["due", "nearly"]);
}

#[test]
fn settled_lease_is_not_extended_and_gone_lease_is_fenced() {
    let mut book = Book::default();
    let (settled, _) = book.open(terms(0, "a", at(0.0), 30));
    assert_eq!(book.settle(settled, at(1.0)), Some(at(30.0)));
    assert!(book.due(at(15.0), ten).is_empty());
    let (gone, lost) = book.open(terms(0, "b", at(0.0), 30));
    book.due(at(15.0), ten);
    assert!(book.extending(gone));
    book.extended(
        gone,
        at(15.0),
        Duration::from_secs(30),
        &Err(ItemError::Gone("stale".into())),
        at(15.1),
    );
    assert!(lost.is_cancelled());
    assert_eq!(book.settle(gone, at(15.2)), None);
}

#[test]
fn lesson_06_nothing_is_extended_past_the_maximum() {
    let mut book = Book::default();
    let (id, lost) = book.open(terms(0, "r", at(0.0), 3_600));
    let mut asked_until = at(0.0);
    while let Some(next) = book.next_attention() {
        for (id, _, length) in book.due(next, ten).into_iter().flat_map(|call| call.items) {
            asked_until = next + length;
            book.extended(id, next, length, &Ok(()), next);
        }
    }
    assert!(asked_until <= at(43_195.0), "{asked_until:?}");
    assert!(asked_until >= at(43_190.0), "{asked_until:?}");
    assert!(lost.is_cancelled(), "at the ceiling the attempt is told");
    book.close(id);
    assert!(book.is_empty());
}

#[test]
fn dropped_lease_is_forgotten_and_late_results_are_ignored() {
    let mut book = Book::default();
    let (id, _) = book.open(terms(0, "r", at(0.0), 30));
    book.due(at(15.0), ten);
    book.close(id);
    book.extended(id, at(15.0), Duration::from_secs(30), &Ok(()), at(15.1));
    assert!(book.is_empty() && book.next_attention().is_none());
}

#[derive(Debug, Clone)]
enum BookStep {
    Open {
        queue: usize,
        visibility: u64,
        ago: u64,
    },
    Pass {
        seconds: u64,
    },
    Answer {
        which: usize,
        how: u8,
        twice: bool,
    },
    Settle {
        which: usize,
    },
    Close {
        which: usize,
    },
}

fn any_step() -> impl Strategy<Value = BookStep> {
    let visibility = prop_oneof![0_u64..6, 6_u64..120, 43_000_u64..=43_200];
    prop_oneof![
        (0..3_usize, visibility, 0_u64..10).prop_map(|(queue, visibility, ago)| BookStep::Open {
            queue,
            visibility,
            ago
        }),
        prop_oneof![0_u64..5, 5_u64..60, 1_000_u64..50_000]
            .prop_map(|seconds| BookStep::Pass { seconds }),
        (0..40_usize, 0..4_u8, any::<bool>()).prop_map(|(which, how, twice)| BookStep::Answer {
            which,
            how,
            twice
        }),
        (0..40_usize).prop_map(|which| BookStep::Settle { which }),
        (0..40_usize).prop_map(|which| BookStep::Close { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// lesson_07: any visibility from 0 s to 12 h; time that jumps; answers late and doubled.
    #[test]
    fn lesson_07_no_order_of_events_breaks_the_lease_book(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut book = Book::default();
        let mut now = at(100_000.0);
        let mut open: Vec<(LeaseId, CancellationToken, BootInstant)> = Vec::new();
        let mut under_way: Vec<(LeaseId, BootInstant, Duration)> = Vec::new();
        for step in steps {
            match step {
                BookStep::Open { queue, visibility, ago } => {
                    let received = at(100_000.0) + now.since(at(100_000.0)).saturating_sub(Duration::from_secs(ago));
                    let (id, lost) = book.open(terms(queue, "r", received, visibility));
                    open.push((id, lost, received));
                }
                BookStep::Pass { seconds } => now = now + Duration::from_secs(seconds),
                BookStep::Answer { which, how, twice } if !under_way.is_empty() => {
                    let (id, called, asked) = under_way[which % under_way.len()];
                    let answer = match how {
                        0 | 1 => Ok(()),
                        2 => Err(ItemError::Transient("busy".into())),
                        _ => Err(ItemError::Gone("stale".into())),
                    };
                    book.extended(id, called, asked, &answer, now);
                    if !twice {
                        under_way.swap_remove(which % under_way.len());
                    }
                }
                BookStep::Settle { which } if !open.is_empty() => {
                    let (id, lost, _) = &open[which % open.len()];
                    let until = book.settle(*id, now);
                    prop_assert!(until.is_none_or(|until| until > now));
                    prop_assert_eq!(until.is_none(), lost.is_cancelled());
                }
                BookStep::Close { which } if !open.is_empty() => {
                    let (id, ..) = open.swap_remove(which % open.len());
                    book.close(id);
                }
                _ => {}
            }
            for call in book.due(now, ten) {
                prop_assert!(!call.items.is_empty() && call.items.len() <= 10);
                for (id, _, length) in call.items {
                    let (_, lost, received) = open.iter().find(|(open, ..)| *open == id).expect("only open leases are extended");
                    prop_assert!(!lost.is_cancelled());
                    prop_assert!(length >= Duration::from_secs(1));
                    prop_assert!((now + length).since(*received) <= VISIBILITY_CEILING);
                    under_way.push((id, now, length));
                }
            }
            prop_assert!(book.next_attention().is_none_or(|next| next > now), "the keeper would spin");
            prop_assert_eq!(book.len(), open.len());
        }
        for (id, ..) in open {
            book.close(id);
        }
        prop_assert!(book.is_empty() && book.next_attention().is_none());
    }
}
