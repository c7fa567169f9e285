//! The declaration of an embedded queue in the file.

use super::macros::settings;
use super::{Setting, SettingPart, Shape, Table};
use crate::value;
use crate::value::BareUnit;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The limits of SQS, whose clients the queue may have.
const VISIBILITY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(43_200);
const DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(900);
const RETENTION: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(1_209_600);
const RECEIVES: RangeInclusive<u32> = 1..=1_000;

settings! {
    /// `[queue.NAME]`.
    SETTINGS of SettingPart::Queue, in &[Table::Queue];
    /// The declaration of one embedded queue; a value of `None` leaves the queue's own.
    struct DeclaredQueue;

    /// A FIFO queue: messages of a group in order, duplicates within five minutes dropped
    "fifo" => Setting::new("true|false").shape(Shape::Switch)
        .default("true for a name that ends in .fifo, which FIFO queues must have"),
        fifo: Option<bool> = |given| given.one(value::switch);

    /// How long a received message stays invisible unless the receiver sets a time, up to 12h
    "visibility" => Setting::new("S").default("30s"),
        visibility: Option<Duration> = |given| {
            given.one(|given| value::duration(given, BareUnit::Seconds, &VISIBILITY))
        };

    /// How long a message waits before it may be received, unless it has its own delay, up to 15m
    "delay" => Setting::new("S").default("0s"),
        delay: Option<Duration> = |given| {
            given.one(|given| value::duration(given, BareUnit::Seconds, &DELAY))
        };

    /// How long a message is kept, 1m to 14 days
    "retention" => Setting::new("TIME").default("4 days; forever if the queue was used before it \
     was declared"),
        retention: Option<Duration> = |given| {
            given.one(|given| value::duration(given, BareUnit::Refused, &RETENTION))
        };

    /// The queue that a message goes to after `redrive.max-receives` receives, by its bare name
    "redrive.dead-letter" => Setting::new("NAME").names_queues(),
        dead_letter: Option<String> = |given| given.one(|given| value::text(given, "the name of a queue"));

    /// How often a message may be received before it goes to `redrive.dead-letter`, 1 to 1000
    "redrive.max-receives" => Setting::new("N"),
        max_receives: Option<u32> = |given| given.one(|given| value::number(given, &RECEIVES));
}
