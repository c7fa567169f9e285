//! Times of the server, to the microsecond.

use bytes::BytesMut;
use dispatcher_core::clock::Timestamp;
use std::error::Error;
use std::time::Duration;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// The microseconds from 1970 to the year 2000, from which the server counts.
const EPOCH: i64 = 946_684_800_000_000;

/// A time on the server's clock, in microseconds since the year 2000, as the protocol has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerTime(pub i64);

impl ServerTime {
    /// Before all other times.
    pub(crate) const FIRST: Self = Self(i64::MIN);

    /// Returns the time of these microseconds since 1970.
    pub(crate) fn of_unix_micros(micros: i64) -> Self {
        Self(micros.saturating_sub(EPOCH))
    }

    /// Returns the time in milliseconds since 1970.
    pub(crate) fn timestamp(self) -> Timestamp {
        let millis = self.0.saturating_add(EPOCH) / 1_000;
        Timestamp(u64::try_from(millis).unwrap_or_default())
    }

    /// Returns how long it is after an earlier time.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    }

    /// Returns the time that is this much earlier.
    pub(crate) fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }
}

/// Returns the microseconds of a duration.
pub(crate) fn micros(time: Duration) -> i64 {
    // Longer than a thousand years is for ever, and the server still has dates for it.
    const LONGEST: i64 = 1_000 * 366 * 86_400 * 1_000_000;
    i64::try_from(time.as_micros()).map_or(LONGEST, |micros| micros.min(LONGEST))
}

impl<'a> FromSql<'a> for ServerTime {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for ServerTime {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}
