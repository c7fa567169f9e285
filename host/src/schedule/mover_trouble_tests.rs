//! Rounds over a store in memory that fails, or whose queues do: what is not left waiting for it.

use super::Trouble;
use super::mover_tests::{left, mover, round, soon};
use super::samples::{Fake, Taken, job};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_given_back_before_the_next_look() {
    let store = Arc::new(Fake::holding([job("a", soon(0)), job("b", soon(0))]));
    *store.lost_claims.lock().unwrap() = 1;
    let queue = Arc::new(Taken::default());
    let mut mover = mover(&store, &queue);
    let told = mover.round(&CancellationToken::new()).await;
    assert_eq!((told.sent, left(&store)), (1, vec!["a".to_owned()]));
    assert_eq!(
        told.trouble.map(|error| error.kind),
        Some(Trouble::Unreachable)
    );
    assert_eq!(round(&mut mover).await.sent, 1);
    assert_eq!(queue.bodies(), ["body of a", "body of b"]);
    assert_eq!(left(&store), [""; 0]);
}
