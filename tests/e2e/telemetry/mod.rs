//! Events, metrics and traces.

mod events;
mod metrics;
mod monitoring;
mod traces;
