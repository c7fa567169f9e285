//! Where a run ends that could go on.

use super::*;
use crate::request::{PerSecond, Scan, Share};

#[tokio::test]
async fn a_run_ends_when_too_many_letters_come_back_and_moves_none_of_them_again() {
    for lists in [true, false] {
        let scene = scene(lists, many(500));
        *scene.to.returns_to.lock().unwrap() = Some(scene.from.clone());
        let report = ran(&scene, &APPLY()).await.unwrap();
        assert_eq!(report.end, Some(End::TooManyReturned), "lists: {lists}");
        assert!(report.returned >= 10 && report.moved < 500, "{report:?}");
        assert_eq!(scene.from.bodies().len(), 500);
        assert_eq!(scene.from.leased(), 0);
        // With a share of 1 every letter goes round, and goes once.
        let scene = self::scene(lists, many(100));
        *scene.to.returns_to.lock().unwrap() = Some(scene.from.clone());
        let patient = RedriveRequest {
            stop_at: Some(Share(1.0)),
            ..APPLY()
        };
        let report = ran(&scene, &patient).await.unwrap();
        assert_eq!(report.end, Some(End::Complete), "lists: {lists}");
        assert_eq!(report.moved, 100);
    }
}

#[tokio::test]
async fn a_destination_that_takes_nothing_ends_the_run() {
    let scene = scene(true, many(100));
    let away = many(100)
        .into_iter()
        .map(|one| (one.body, ItemError::Transient("away".into())));
    *scene.to.refused.lock().unwrap() = away.collect();
    let report = ran(&scene, &APPLY()).await.unwrap();
    assert_eq!(report.end, Some(End::DestinationFails));
    assert!(report.left < 40, "{report:?}");
    assert_eq!((scene.from.bodies().len(), scene.from.leased()), (100, 0));
}

#[tokio::test]
async fn a_run_whose_deletes_are_refused_ends_and_copies_no_letter_twice() {
    for lists in [true, false] {
        for rate in [None, Some(PerSecond(1_000.0))] {
            let scene = scene(lists, many(100));
            scene.from.keeps.store(true, Ordering::SeqCst);
            let request = RedriveRequest { rate, ..APPLY() };
            let report = ran(&scene, &request).await.unwrap();
            assert_eq!(report.end, Some(End::SourceKeeps), "{report:?}");
            assert!(!report.is_clean());
            assert_eq!(scene.from.bodies().len(), 100, "nothing is lost");
            let copies = scene.to.bodies();
            assert_eq!(copies.len() as u64, report.not_deleted);
            assert!(copies.len() <= BATCH, "{} copies", copies.len());
        }
    }
}

#[tokio::test]
async fn letters_that_are_not_deleted_count_towards_the_first_ones() {
    for lists in [true, false] {
        let scene = scene(lists, many(100));
        scene.from.keeps.store(true, Ordering::SeqCst);
        let request = RedriveRequest {
            first: Some(AtLeastOne(2)),
            ..APPLY()
        };
        let report = ran(&scene, &request).await.unwrap();
        assert_eq!(report.end, Some(End::First), "{report:?}");
        assert_eq!((report.not_deleted, scene.to.bodies().len()), (2, 2));
    }
}

#[tokio::test]
async fn a_run_ends_although_new_letters_keep_coming() {
    let scene = scene(false, many(25));
    scene.from.arrives.store(true, Ordering::SeqCst);
    let report = ran(&scene, &APPLY()).await.unwrap();
    assert_eq!((report.moved, report.end), (25, Some(End::OnlyNew)));
    assert!(report.is_clean() && report.arrived > 0, "{report:?}");
    assert_eq!(scene.from.leased(), 0, "they are given back");
}

#[tokio::test]
async fn a_run_over_messages_without_a_date_takes_as_many_as_there_were() {
    let mut scene = scene(false, many(25));
    scene.from.lacks_dates.store(true, Ordering::SeqCst);
    // Each fails again at once, and is received again behind the others.
    *scene.to.returns_to.lock().unwrap() = Some(scene.from.clone());
    let cancel = CancellationToken::new();
    let enough = cancel.clone();
    let progress = move |report: &JobReport| {
        if report.moved > 25 {
            enough.cancel();
        }
    };
    // Their attributes, which npm worqr lacks too, would tell that they were moved.
    scene.redrive.marks = Marks::Kept;
    let report = run(&scene.redrive, &APPLY(), &cancel, &progress)
        .await
        .unwrap();
    assert_eq!(report.moved, 25, "{report:?}");
    assert!(report.end.is_some_and(End::is_whole), "{report:?}");
    assert_eq!((scene.from.bodies().len(), scene.from.leased()), (25, 0));
}

#[tokio::test]
async fn what_others_take_first_is_made_up_for_from_what_is_left() {
    let scene = scene(true, many(30));
    scene.from.stolen.store(4, Ordering::SeqCst);
    let request = RedriveRequest {
        first: Some(AtLeastOne(6)),
        ..APPLY()
    };
    let report = ran(&scene, &request).await.unwrap();
    assert_eq!((report.moved, report.end), (6, Some(End::First)));
    assert_eq!(report.taken, 4);
    // Nothing is left behind the page.
    let scene = self::scene(true, many(6));
    scene.from.stolen.store(4, Ordering::SeqCst);
    let report = ran(&scene, &request).await.unwrap();
    assert_eq!((report.moved, report.end), (2, Some(End::Complete)));
    assert_eq!(report.taken, 4);
}

#[tokio::test]
async fn a_run_that_receives_only_what_stays_does_not_say_that_all_was_looked_at() {
    let scene = scene(false, many(20));
    // Ten stay, and are received again before the other ten.
    let stay = (0..10).map(|number| {
        let body = format!(r#"{{"n":{number}}}"#);
        (body, ItemError::Refused("no".into()))
    });
    *scene.to.refused.lock().unwrap() = stay.collect();
    scene.from.forgets.store(true, Ordering::SeqCst);
    let report = ran(&scene, &APPLY()).await.unwrap();
    assert_eq!(report.end, Some(End::TooManyStay), "{report:?}");
    assert!(!report.is_clean(), "ten were not looked at");
}

#[tokio::test]
async fn every_receive_of_what_is_given_back_is_counted() {
    let scene = scene(false, many(10));
    scene.from.forgets.store(true, Ordering::SeqCst);
    let report = ran(&scene, &RedriveRequest::default()).await.unwrap();
    let receives = |stored: &StoredMessage| u64::from(stored.message.receive_count);
    let receives: u64 = scene.from.stored.lock().unwrap().iter().map(receives).sum();
    assert!(receives > 10, "they came once");
    assert_eq!(report.received, receives);
}

#[tokio::test]
async fn a_lease_that_has_ended_is_released() {
    let scene = scene(false, many(10));
    let request = RedriveRequest {
        scan: Some(Scan(10)),
        ..RedriveRequest::default()
    };
    let from = scene.from.clone();
    let progress = move |_: &JobReport| from.expire();
    let never = CancellationToken::new();
    let report = run(&scene.redrive, &request, &never, &progress)
        .await
        .unwrap();
    assert_eq!((report.received, report.not_released), (10, 0));
}

#[tokio::test]
async fn a_run_ends_when_it_holds_too_many_letters_that_stay() {
    let scene = scene(
        false,
        (0..10_100).map(|number: usize| Message {
            attributes: Vec::new(),
            ..letter(number, "", None)
        }),
    );
    let report = ran(&scene, &APPLY()).await.unwrap();
    assert_eq!(report.end, Some(End::TooManyStay));
    assert_eq!((report.left, scene.from.leased()), (10_000, 0));
    assert!(!report.is_clean());
}

#[tokio::test]
async fn a_run_ends_before_a_letter_that_stays_has_its_last_receive() {
    for (most, end) in [(2, End::LastReceive), (1, End::ReceivesSpent)] {
        let mut scene = scene(false, many(30));
        let known = QueueSet(BTreeMap::from([("a".to_owned(), scene.to.clone())]));
        let refused = (r#"{"n":4}"#.to_owned(), ItemError::Refused("no".into()));
        *scene.to.refused.lock().unwrap() = BTreeMap::from([refused]);
        let with_policy = with_calls(&scene.from, &Arc::new(AtomicUsize::new(usize::MAX)));
        let mut with_policy = Arc::into_inner(with_policy).unwrap();
        with_policy.identity.most_receives = Some(most);
        scene.redrive.from = Arc::new(with_policy);
        scene.redrive.to = Arc::new(known);
        let report = ran(&scene, &APPLY()).await.unwrap();
        assert_eq!((report.moved, report.end), (9, Some(end)), "{report:?}");
    }
}

/// A review that somebody cancels while it looks at the fifth letter.
struct InterruptedReview(AtomicUsize);

#[async_trait::async_trait]
impl Review for InterruptedReview {
    async fn review(
        &self,
        message: &Message,
        cancel: &CancellationToken,
    ) -> Result<String, String> {
        if self.0.fetch_add(1, Ordering::SeqCst) < 4 {
            return Ok(message.body.clone());
        }
        cancel.cancel();
        Err("it was stopped".to_owned())
    }
}

#[tokio::test]
async fn a_cancelled_run_ends_between_the_letters_of_a_page_and_notes_no_failure() {
    for (lists, apply) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut scene = scene(lists, many(100));
        scene.redrive.review = Some(Arc::new(InterruptedReview(AtomicUsize::new(0))));
        let request = RedriveRequest {
            apply: Some(apply),
            ..RedriveRequest::default()
        };
        let report = ran(&scene, &request).await.unwrap();
        assert_eq!(report.end, Some(End::Cancelled), "{report:?}");
        assert_eq!((report.selected, report.left), (4, 0), "{report:?}");
        assert_eq!(report.moved, if apply { 4 } else { 0 });
        assert_eq!(scene.from.leased(), 0);
    }
}
