//! Computes when periodic jobs fire: by a pattern of five or six fields and the clock of a time
//! zone. Pure: the time is an argument. The only place that names the library of cron patterns.
//!
//! When the clocks change, a pattern with exactly one hour, minute and second fires once that day:
//! at the end of a gap that it falls into, and at the first of two possible times. Any other
//! pattern follows the wall clock: it does not fire in a gap and fires twice in a repeated hour.

use super::when::{NEVER, zoned};
use crate::clock::Timestamp;
use croner::Cron;
use croner::parser::{CronParser, Seconds};
use jiff::tz::TimeZone;

/// A pattern and its time zone, both as written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Periodic {
    /// The pattern: `0 9 * * MON-FRI`, with a sixth field for seconds in front, or `@daily`.
    pub pattern: String,
    /// The name of the time zone in the IANA database: `Europe/Berlin`, `UTC`.
    pub zone: String,
}

impl Periodic {
    /// Checks the pattern and the time zone.
    ///
    /// # Errors
    /// The text says what is wrong and what was expected.
    pub fn new(pattern: &str, zone: &str) -> Result<Self, String> {
        let periodic = Self {
            pattern: pattern.trim().to_owned(),
            zone: zone.trim().to_owned(),
        };
        periodic.parts()?;
        match periodic.next(Timestamp(0))? {
            Some(_) => Ok(periodic),
            None => Err(format!("`{pattern}` never fires")),
        }
    }

    /// Returns the first time after `last`; `None` if there is none.
    pub fn next(&self, last: Timestamp) -> Result<Option<Timestamp>, String> {
        let (cron, zone) = self.parts()?;
        let Some(last) = zoned(last, zone) else {
            return Ok(None);
        };
        // A well-formed pattern may have no date, such as the 30th of February.
        let Ok(next) = cron.find_next_occurrence(&last, false) else {
            return Ok(None);
        };
        let ms = u64::try_from(next.timestamp().as_millisecond()).ok();
        Ok(ms.map(Timestamp).filter(|date| *date <= NEVER))
    }

    fn parts(&self) -> Result<(Cron, TimeZone), String> {
        let Self { pattern, zone } = self;
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let cron = parser.parse(pattern).map_err(|why| {
            format!(
                "`{pattern}` is not a cron pattern ({}); written like `0 9 * * MON-FRI`: minute, hour, day, month, weekday",
                why.to_string().trim_end_matches('.')
            )
        })?;
        let zone = TimeZone::get(zone)
            .map_err(|_| format!("`{zone}` is not a time zone; written like Europe/Berlin"))?;
        Ok((cron, zone))
    }
}

#[cfg(test)]
mod tests;
