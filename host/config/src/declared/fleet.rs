//! The settings of limits that hold for all processes together, and where they are kept.

use super::macros::settings;
use super::{Group, Setting, SettingPart, Shape, Table};
use crate::name::FleetPlace;
use crate::problem::Problem;
use crate::value;
use dispatcher_core::fleet::WhenAway;

/// The keys of an override.
const OVERRIDE: &[&str] = &["rate", "burst", "concurrency"];

settings! {
    /// `[fleet]`, and its flags.
    FLEET of SettingPart::Program, in &[Table::Fleet];
    /// Where all processes keep their limits. It matters only if a route has limits.
    struct FleetSettings;

    /// The store that all processes share: local:NAME (the processes of this machine with the same
    /// data folder), redis:NAME (with the same server and prefix), postgres:NAME or
    /// dynamodb:TABLE. Fleets of different names share nothing
    "fleet-store" => Setting::new("BACKEND:NAME").default("local:").flag(Group::Limits),
        store: Option<FleetPlace> = |given| {
            let place = given.one(|given| {
                let parsed = given.text.trim().parse();
                parsed.map_err(|found: String| Problem::new(&given.at, found, ""))
            });
            place.or_else(FleetPlace::of_this_machine)
        };

    /// Behaviour while the store does not answer: nothing starts that a limit applies to, or
    /// each process continues with an equal share of every limit, which they may exceed together
    "fleet-when-away" => Setting::new("closed|share").default("closed").flag(Group::Limits),
        when_away: WhenAway = |given| {
            let words = [("closed", WhenAway::Closed), ("share", WhenAway::Share)];
            given.one(|given| value::choice(given, &words)).unwrap_or_default()
        };
}

settings! {
    /// `[limit.NAME]`.
    LIMIT of SettingPart::Limit, in &[Table::Limit];

    /// Maximum messages that all processes start per second, minute or hour, as in 100/s
    "rate" => Setting::new("N/s");

    /// How many messages may start at once after a pause; needs a rate
    "burst" => Setting::new("N").default("the starts of one second, rounded up");

    /// Maximum messages that run at the same time in all processes
    "concurrency" => Setting::new("N");

    /// Count the messages of each key apart: group (the message group), the name of an attribute,
    /// or a JSON pointer into the body, as in /customer. Messages without a key count under (none)
    "key" => Setting::new("WHERE").default("all messages count together");

    /// How much a message takes of the limit: a whole number, or where the message has one, an
    /// attribute or a JSON pointer
    "weight" => Setting::new("N|WHERE").default("1");

    /// Only count what the limit would stop, and stop nothing
    "shadow" => Setting::new("true|false").shape(Shape::Switch).default("false");

    /// Other numbers for single keys, as in override.acme = { concurrency = 50 }; what an override
    /// leaves out is the limit's own
    "override" => Setting::new("{ rate, burst, concurrency }").shape(Shape::Tables(OVERRIDE));
}
