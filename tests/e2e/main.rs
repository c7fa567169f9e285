//! The program as people start it: one file per promise.

mod backends;
mod failures;
mod fleet;
mod handlers;
mod http;
mod lambda;
mod languages;
mod messages;
mod operator;
mod ordering;
mod scene;
mod schedule;
mod served;
mod setup;
mod telemetry;
mod versions;
