//! The functions that plugins import without a grant: what they ask about their attempt, their log
//! lines and their metrics.

use super::message::bindings::dispatcher::plugin::{context, log, metrics, types};
use crate::guest::Guest;
use crate::output::{LogEntry, LogLevel};
use dispatcher_core::clock;
use dispatcher_core::telemetry::metrics::of_plugins::NotMeasured;
use std::time::Duration;
use wasmtime::component::{HasSelf, Linker};

/// Adds the imports that any plugin may use to a linker.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    context::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    log::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    metrics::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)
}

impl types::Host for Guest {}

impl context::Host for Guest {
    fn cancelled(&mut self, message_id: String) -> bool {
        self.is_message_cancelled(&message_id)
    }

    fn extend(&mut self, message_id: String, milliseconds: u64) -> Option<u64> {
        let attempt = self.attempt_at(&message_id)?;
        attempt
            .deadline
            .extend(clock::now() + Duration::from_millis(milliseconds));
        Some(attempt.deadline.date().0)
    }
}

impl log::Host for Guest {
    fn write(&mut self, entry: log::Entry) {
        let level = match entry.level {
            log::Level::Trace => LogLevel::Trace,
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.log(&LogEntry {
            level,
            text: entry.text,
            fields: entry.fields,
            message_id: entry.message_id,
        });
    }
}

impl metrics::Host for Guest {
    fn add(
        &mut self,
        name: String,
        labels: Vec<metrics::Label>,
        value: f64,
    ) -> Result<(), metrics::MetricError> {
        let meter = &self.settings().meter;
        meter.add(&name, labels, value).map_err(not_measured)
    }

    fn set(
        &mut self,
        name: String,
        labels: Vec<metrics::Label>,
        value: f64,
    ) -> Result<(), metrics::MetricError> {
        let meter = &self.settings().meter;
        meter.set(&name, labels, value).map_err(not_measured)
    }
}

fn not_measured(why: NotMeasured) -> metrics::MetricError {
    match why {
        NotMeasured::Invalid(why) => metrics::MetricError::Invalid(why),
        NotMeasured::TooMany => metrics::MetricError::TooMany,
    }
}
