//! Looks: what is shown, counted and given back.

use super::*;

#[tokio::test]
async fn a_look_shows_what_is_selected_and_gives_everything_back() {
    for lists in [true, false] {
        let scene = scene(lists, many(30));
        let selection = Selection {
            conditions: vec![Condition::parse("/n=25").unwrap()],
            ..Selection::default()
        };
        let token = CancellationToken::new();
        let found = look(&*scene.from, &selection, &bounds(1, 100), &token)
            .await
            .unwrap();
        assert_eq!(found.messages.len(), 1);
        assert_eq!(found.messages[0].id, "0025");
        assert_eq!(scene.from.leased(), 0);
        assert_eq!(found.received > 0, !lists);
        assert_eq!(found.receive_calls > 0, !lists);
        assert_eq!(found.end, LookEnd::Enough);
    }
}

fn bounds(most: usize, scan: u64) -> LookBounds {
    LookBounds {
        after: None,
        most,
        bytes: u64::MAX,
        scan,
        counts_on: false,
    }
}

#[tokio::test]
async fn a_look_counts_by_reason_beyond_what_it_shows_and_never_beyond_its_scan() {
    for lists in [true, false] {
        let scene = scene(lists, many(30));
        let token = CancellationToken::new();
        let counted = LookBounds {
            counts_on: true,
            ..bounds(2, 20)
        };
        let found = look(&*scene.from, &Selection::default(), &counted, &token)
            .await
            .unwrap();
        assert_eq!((found.messages.len(), found.scanned), (2, 20));
        let counted: u64 = found.reasons.iter().map(|one| one.messages).sum();
        assert_eq!((counted, found.matched), (20, 20));
        assert_eq!(found.end, LookEnd::ScanLimit);
        assert_eq!(scene.from.leased(), 0);
    }
}

#[tokio::test]
async fn pages_of_selected_messages_have_each_of_them_once() {
    let scene = scene(true, many(250));
    let selection = Selection {
        ids: Some((0..250).step_by(3).map(|at| format!("{at:04}")).collect()),
        ..Selection::default()
    };
    let token = CancellationToken::new();
    let (mut seen, mut after) = (Vec::new(), None);
    let of_three = 3 * many(1)[0].held_bytes();
    for round in 0..30 {
        // Pages end by their number of messages or of bytes.
        let bytes = if round % 2 == 0 { u64::MAX } else { of_three };
        let page = LookBounds {
            after,
            bytes,
            ..bounds(7, 1_000)
        };
        let found = look(&*scene.from, &selection, &page, &token).await.unwrap();
        seen.extend(found.messages.into_iter().map(|one| one.id));
        after = found.next;
        if after.is_none() {
            break;
        }
    }
    let wanted: Vec<String> = (0..250).step_by(3).map(|at| format!("{at:04}")).collect();
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn a_queue_whose_next_receive_is_the_last_is_not_looked_at() {
    let mut scene = scene(false, many(3));
    let mut once = Arc::into_inner(Memory::new("dead", false)).unwrap();
    once.identity.most_receives = Some(1);
    scene.redrive.from = Arc::new(once);
    let refused = ran(&scene, &RedriveRequest::default()).await;
    assert!(matches!(refused, Err(RedriveError::Refused(_))));
    let token = CancellationToken::new();
    let refused = look(
        &*scene.redrive.from,
        &Selection::default(),
        &bounds(1, 9),
        &token,
    )
    .await;
    assert!(matches!(refused, Err(RedriveError::Refused(_))));
    assert_eq!(scene.from.receives.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_look_ends_with_the_batch_in_which_a_message_has_one_receive_left_or_none() {
    let mut twice = Arc::into_inner(Memory::new("dead", false)).unwrap();
    twice.identity.most_receives = Some(2);
    (0..30).for_each(|at| twice.put(letter(at, "trap", None)));
    let token = CancellationToken::new();
    for end in [LookEnd::LastReceive, LookEnd::ReceivesSpent] {
        let found = look(&twice, &Selection::default(), &bounds(100, 100), &token)
            .await
            .unwrap();
        assert_eq!(
            (found.received, found.receive_calls, found.end),
            (BATCH as u64, 1, end)
        );
        assert_eq!(twice.leased(), 0, "they are given back");
    }
}
