//! A fuzz target: batches of any messages on their way to a function that answers anything. The
//! sources are those of `plugins/lambda-forward`, compiled by themselves: it must not know the
//! host.

#[rustfmt::skip]
#[path = "../../../../plugins/lambda-forward/src/answer.rs"]
mod answer;
#[rustfmt::skip]
#[path = "../../../../plugins/lambda-forward/src/deliver.rs"]
mod deliver;
#[rustfmt::skip]
#[path = "../../../../plugins/lambda-forward/src/digest.rs"]
mod digest;
#[rustfmt::skip]
#[path = "../../../../plugins/lambda-forward/src/event.rs"]
mod event;
#[rustfmt::skip]
#[path = "../../../../plugins/lambda-forward/src/journal.rs"]
mod journal;
#[rustfmt::skip]
#[path = "../../../../plugins/lambda-forward/src/settings.rs"]
mod settings;
#[rustfmt::skip]
#[path = "../../../../plugins/lambda-forward/src/split.rs"]
mod split;
#[rustfmt::skip]
#[path = "../../../../plugins/lambda-forward/src/verdict.rs"]
mod verdict;

// The same file as in the host, which this crate must not know.
mod check;
#[path = "../../../../host/src/fuzz.rs"]
#[expect(dead_code, reason = "the host's targets need more of it")]
mod choices;

pub use check::batches;
