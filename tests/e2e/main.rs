//! The program as people start it: one file per promise.

mod bad_input;
mod commands;
mod crash;
mod guests;
mod lambda;
mod lambda_faults;
mod lambda_rate;
mod lambda_scene;
mod leases;
mod metrics;
mod moving;
mod prefetch;
mod priority;
mod priority_many;
mod quickstart;
mod readme;
mod scene;
mod sqs;
mod stop;
mod terminal;
mod unread;
mod verdicts;
