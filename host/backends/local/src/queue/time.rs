//! The store's own time. All processes on the file share it. It is unaffected by changes of the
//! wall clock while the machine runs, and never goes back, not even over restarts and reboots.
//! Independent of queues and messages.

use super::turn::Turn;
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::cell::Cell;
use std::time::Duration;

/// A moment of the store's time, in milliseconds. A store's first moment is the date on which the
/// file was created; later, the distance from the date has no meaning. It is signed, as in SQLite;
/// the maximum means "never".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreTime(pub i64);

impl StoreTime {
    /// Returns how long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: StoreTime) -> Duration {
        let ms = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for StoreTime {
    type Output = StoreTime;
    fn add(self, later: Duration) -> StoreTime {
        StoreTime(self.0.saturating_add(millis(later)))
    }
}

impl ToSql for StoreTime {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for StoreTime {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a date to SQLite's signed integer.
fn signed(date: Timestamp) -> i64 {
    i64::try_from(date.0).unwrap_or(i64::MAX)
}

/// The time for which the file may be written to before the store's time is noted again. After a
/// reboot the store's time continues at least this long after the note, later than all that was
/// written.
const KEEP: Duration = Duration::from_secs(1);
/// The smallest deviation of the date that counts as a change: two clocks are never read at once.
const SET: Duration = Duration::from_secs(1);

/// The store's time as the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredTime {
    /// The boot that wrote this, if the system names it, and the store's time when it began. `None`
    /// if the file is older than the store's time, or new.
    pub boot: Option<(Option<String>, StoreTime)>,
    /// The last time noted.
    pub seen: StoreTime,
    /// The date at that time.
    pub seen_on: Timestamp,
}

/// The times of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SystemTimes {
    /// The name of the boot, if the system has one.
    pub boot: Option<String>,
    /// The time since the boot.
    pub up: Duration,
    /// The current date.
    pub today: Timestamp,
}

impl SystemTimes {
    fn read() -> Self {
        Self {
            boot: clock::boot(),
            up: clock::now().since(BootInstant::default()),
            today: clock::wall_clock_now(),
        }
    }
}

/// Returns the store's time when this boot began, and whether the file needs an update.
///
/// On the boot that the file names, this time stays the same, regardless of the date. After another
/// boot, the store's time continues from the last one noted, plus the time that has passed since
/// then by the calendar; the date has no other effect. If the date went back meanwhile, it
/// continues as if no time had passed, so that no message waits longer than it had left, except for
/// the time the machine was off.
///
/// If the system does not name its boots (all but Linux), a machine whose uptime is longer than
/// when the file was last written counts as not restarted. Delayed messages then wait longer by the
/// time that is lost, and none comes early.
pub(super) fn zero(kept: &StoredTime, here: &SystemTimes) -> (StoreTime, bool) {
    if let Some((boot, zero)) = &kept.boot {
        let other = boot.is_some() && here.boot.is_some() && *boot != here.boot;
        // Within a boot, time goes back only if the machine was reset to an earlier state and the
        // file was not.
        if !other && *zero + here.up >= kept.seen {
            return (*zero, *boot != here.boot && here.boot.is_some());
        }
    }
    let passed = here.today.since(kept.seen_on).max(KEEP);
    let now = kept.seen + passed;
    (StoreTime(now.0.saturating_sub(millis(here.up))), true)
}

/// Returns how far the date is ahead of the store's time, given how far it was. The value changes
/// only if the date was set, so that a message has the same date at each delivery.
fn ahead(before: i64, measured: i64) -> i64 {
    if Duration::from_millis(measured.abs_diff(before)) < SET {
        before
    } else {
        measured
    }
}

/// The clock of the store's time in one process.
pub(super) struct StoreClock {
    /// The store's time when this boot began.
    zero: StoreTime,
    /// The milliseconds by which the date is ahead.
    ahead: Cell<i64>,
}

impl StoreClock {
    /// Returns the clock of this file. The first process after a boot sets it. Begins its own
    /// transaction.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        let kept = kept(&transaction)?;
        // Read while no other process writes, so not before what the last writer noted.
        let here = SystemTimes::read();
        let (zero, news) = zero(&kept, &here);
        let clock = Self {
            zero,
            ahead: Cell::new(0),
        };
        if news {
            transaction.execute(
                "INSERT OR REPLACE INTO clock (id, boot, zero, seen, seen_on)
                 VALUES (1, ?1, ?2, ?3, ?4)",
                params![here.boot, zero, zero + here.up, signed(here.today)],
            )?;
        }
        transaction.commit()?;
        Ok(clock)
    }

    /// Returns the present time.
    pub(super) fn now(&self) -> StoreTime {
        self.zero + clock::now().since(BootInstant::default())
    }

    /// Begins a transaction or a read now.
    pub(super) fn turn<'a>(&self, connection: &'a Connection) -> Turn<'a> {
        let now = self.now();
        let measured = signed(clock::wall_clock_now()).saturating_sub(now.0);
        self.ahead.set(ahead(self.ahead.get(), measured));
        Turn {
            ahead: self.ahead.get(),
            ..Turn::new(connection, now)
        }
    }
}

/// Notes the time in the file with a transaction that writes anyway: now and then, and when the
/// date was set, so that this change has no effect after a reboot.
pub(super) fn keep(turn: &Turn<'_>) -> rusqlite::Result<()> {
    turn.connection
        .prepare_cached(
            "UPDATE clock SET seen = ?1, seen_on = ?2
             WHERE seen <= ?1 - ?3 OR abs(seen_on - seen - ?2 + ?1) >= ?4",
        )?
        .execute(params![
            turn.now,
            signed(turn.date(turn.now)),
            millis(KEEP),
            millis(SET)
        ])
        .map(drop)
}

fn kept(connection: &Connection) -> rusqlite::Result<StoredTime> {
    let known = connection
        .query_row("SELECT boot, zero, seen, seen_on FROM clock", [], |row| {
            Ok(StoredTime {
                boot: Some((row.get(0)?, row.get(1)?)),
                seen: row.get(2)?,
                seen_on: Timestamp(row.get::<_, i64>(3)?.try_into().unwrap_or(0)),
            })
        })
        .optional()?;
    if let Some(kept) = known {
        return Ok(kept);
    }
    // Files of the first version hold dates: the file was written on the latest of them, or later.
    let latest: i64 = connection.query_row(
        "SELECT coalesce(max(max(sent_at, coalesce(received_at, 0))), 0) FROM entries",
        [],
        |row| row.get(0),
    )?;
    Ok(StoredTime {
        boot: None,
        seen: StoreTime(latest),
        seen_on: Timestamp(latest.try_into().unwrap_or(0)),
    })
}
