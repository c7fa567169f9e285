//! One attempt, and how a benchmark runs it without a pool. Knows no plugin.

use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::handler::{Attempt, Deadline, Handler};
use dispatcher_core::message::{Message, Receipt, Verdict, samples};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Runs an attempt on this thread.
pub(crate) fn run(handler: &dyn Handler, attempt: &Arc<Attempt>) {
    let verdicts = finish(pin!(handler.handle(Arc::clone(attempt))));
    assert_eq!(verdicts, [Verdict::Done]);
}

/// Polls until it is ready, as a worker with nothing else to do would.
pub(crate) fn finish<T>(mut work: Pin<&mut impl Future<Output = T>>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// An attempt at one message.
pub(crate) fn attempt(body: String) -> Arc<Attempt> {
    let message = Message {
        queue: "local:default".into(),
        body,
        source: "local:default".into(),
        receipt: Receipt("0199b0c4-7c1e-7a31-9d1f-3f1f5a1c2b3d/1".into()),
        sent_at: Some(Timestamp(1)),
        first_received_at: Some(Timestamp(2)),
        ..samples::message("0199b0c4-7c1e-7a31-9d1f-3f1f5a1c2b3d")
    };
    Arc::new(Attempt {
        messages: vec![message],
        cancelled: vec![CancellationToken::new()],
        tries: Vec::new(),
        deadline: Deadline::fixed(
            clock::now() + Duration::from_secs(3600),
            clock::wall_clock_now(),
        ),
    })
}
