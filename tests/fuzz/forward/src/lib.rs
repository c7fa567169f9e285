//! A fuzz target: batches of any messages on their way to a function that answers anything. The
//! sources are those of `plugins/lambda-forward`, compiled by themselves: it must not know the
//! host.

#[path = "../../../../plugins/lambda-forward/src/answer/mod.rs"]
mod answer;
#[path = "../../../../plugins/lambda-forward/src/deliver/mod.rs"]
mod deliver;
#[path = "../../../../plugins/lambda-forward/src/digest.rs"]
mod digest;
#[path = "../../../../plugins/lambda-forward/src/event/mod.rs"]
mod event;
#[path = "../../../../plugins/lambda-forward/src/journal.rs"]
mod journal;
#[path = "../../../../plugins/lambda-forward/src/members.rs"]
mod members;
#[path = "../../../../plugins/lambda-forward/src/settings.rs"]
mod settings;
#[path = "../../../../plugins/lambda-forward/src/split/mod.rs"]
mod split;
#[path = "../../../../plugins/lambda-forward/src/verdict/mod.rs"]
mod verdict;

// The same file as in the host, which this crate must not know.
mod check;
#[path = "../../../../host/core/src/fuzz.rs"]
#[expect(dead_code, reason = "the host's targets need more of it")]
mod choices;

pub use check::batches;
