//! What the test suites build on: real servers, the real program as a child, a client that is not
//! the program's own, and a proxy that breaks things. Knows no single test.

pub mod account;
pub mod aws_accounts;
pub mod bodies;
pub mod browser;
pub mod certificates;
pub mod chaos;
pub mod child;
pub mod cloudwatch;
pub mod collector;
pub mod debian;
pub mod dynamodb;
pub mod faulty_lambda;
pub mod guests;
pub mod holder;
pub mod http;
pub mod identity;
pub mod lambda;
pub mod ledger;
pub mod limited;
pub mod order;
pub mod packaging;
pub mod postgres;
pub mod prometheus;
pub mod proxy;
pub mod queues;
pub mod redis;
pub mod registry;
pub mod relay;
pub mod schema;
pub mod served;
pub mod servers;
pub mod service;
pub mod skip;
pub mod slow_module;
pub mod sqs;
pub mod storm;
pub mod terminal;
pub mod tied;
pub mod toolchains;
pub mod waiting;
pub mod worqr;

use std::time::Duration;

/// How long any wait for a signal lasts before the test is given up. Never a measure of anything:
/// far above what a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long it lasts at most where it starts over with every sign of progress.
pub const MOST_PATIENCE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
