//! Checks the limits that hold for all processes together, and the routes that keep to them. Opens
//! nothing.

use super::Check;
use crate::declared::{message_key, message_place};
use crate::file::File;
use crate::problem::Problem;
use crate::section::{Section, WrittenValue};
use crate::value;
use crate::{Route, StoreConfig};
use dispatcher_core::fleet::limit::{Limit, LimitNumbers, LimitWeight, Rate};
use dispatcher_core::message::place::{LONGEST_KEY, MessageKey};
use std::collections::{BTreeMap, HashMap};

/// The most permits, starts at once, or weight of a message.
const MOST: u32 = 1_000_000;
/// The most bytes of a limit's name, which is part of keys in the store.
const LONGEST_NAME: usize = 64;

/// The written numbers of a limit or of one of its keys.
#[derive(Default, Clone, Copy)]
struct WrittenNumbers<'a> {
    rate: Option<&'a WrittenValue>,
    burst: Option<&'a WrittenValue>,
    concurrency: Option<&'a WrittenValue>,
}

impl Check {
    /// Reads the limits, in the order of their names.
    pub(super) fn fleet_limits(&mut self, file: &File) -> Vec<Limit> {
        let limits = file.limits.iter();
        limits
            .map(|(name, section)| self.fleet_limit(name, section))
            .collect()
    }

    fn fleet_limit(&mut self, name: &str, section: &Section) -> Limit {
        if !is_name(name) {
            let found = format!("`{name}` cannot name a limit");
            let wanted = format!("1 to {LONGEST_NAME} of a to z, 0 to 9 and `-`");
            self.problems.push(Problem::new(&section.at, found, wanted));
        }
        let written = WrittenNumbers {
            rate: section.one("rate"),
            burst: section.one("burst"),
            concurrency: section.one("concurrency"),
        };
        if written.rate.is_none() && written.concurrency.is_none() {
            let found = format!("limit `{name}` limits nothing");
            let wanted = "a rate, a concurrency, or both";
            self.problems.push(Problem::new(&section.at, found, wanted));
        }
        let numbers = self.numbers(written, LimitNumbers::default());
        let key = self.read(section.one("key"), message_key);
        let weight = self.read(section.one("weight"), weight);
        let limit = Limit {
            name: name.to_owned(),
            numbers,
            key,
            overrides: self.overrides(section, &numbers),
            weight: weight.unwrap_or(LimitWeight::Fixed(1)),
            shadow: self
                .read(section.one("shadow"), value::switch)
                .unwrap_or_default(),
            hides_keys: false,
        };
        self.weight_fits(&limit, section);
        limit
    }

    /// Reads the numbers of a limit, or of a key whose limit has the numbers `own`.
    fn numbers(&mut self, written: WrittenNumbers<'_>, own: LimitNumbers) -> LimitNumbers {
        let concurrency = self.read(written.concurrency, number);
        let per_second = self.read(written.rate, value::rate);
        let burst = self.read(written.burst, number);
        if let (Some(given), None, None) = (written.burst, written.rate, own.rate) {
            let found = "`burst` without a rate";
            self.problems
                .push(Problem::new(&given.at, found, "a rate as well"));
        }
        let rate = match per_second {
            Some(per_second) => Some(Rate {
                per_second,
                burst: burst.unwrap_or_else(|| starts_of_a_second(per_second)),
            }),
            None => own.rate.map(|rate| Rate {
                burst: burst.unwrap_or(rate.burst),
                ..rate
            }),
        };
        LimitNumbers {
            concurrency: concurrency.or(own.concurrency),
            rate,
        }
    }

    /// Reads the numbers of single keys.
    fn overrides(
        &mut self,
        section: &Section,
        own: &LimitNumbers,
    ) -> HashMap<String, LimitNumbers> {
        let mut written = BTreeMap::<&str, WrittenNumbers<'_>>::new();
        let mut first = None;
        for (path, given) in section.entries("override") {
            // A key may contain dots, the name of a number does not.
            let (key, number) = path.rsplit_once('.').unwrap_or((path, ""));
            let numbers = written.entry(key).or_default();
            match number {
                "rate" => numbers.rate = Some(given),
                "burst" => numbers.burst = Some(given),
                _ => numbers.concurrency = Some(given),
            }
            if numbers.is_first() && (key.is_empty() || key.len() > LONGEST_KEY) {
                let found = format!("`{key}` has {} bytes and cannot be a key", key.len());
                let wanted = format!("a key of 1 to {LONGEST_KEY} bytes");
                self.problems.push(Problem::new(&given.at, found, wanted));
            }
            first = first.or(Some(given));
        }
        if let (Some(given), None) = (first, section.one("key")) {
            let found = "an override in a limit without keys";
            let wanted = "a key as well, such as \"group\" or \"/customer\"";
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
        let read = written.into_iter();
        read.map(|(key, numbers)| (key.to_owned(), self.numbers(numbers, *own)))
            .collect()
    }

    /// Refuses a weight that the limit or an override never allows.
    fn weight_fits(&mut self, limit: &Limit, section: &Section) {
        let (Some(given), LimitWeight::Fixed(weight)) = (section.one("weight"), &limit.weight)
        else {
            return;
        };
        let keys: BTreeMap<_, _> = limit.overrides.iter().collect();
        let of_keys = keys
            .into_iter()
            .map(|(key, numbers)| (format!(" for `{key}`"), numbers));
        let all = std::iter::once((String::new(), &limit.numbers)).chain(of_keys);
        for (of_key, _) in all.filter(|(_, numbers)| !numbers.fits(*weight)) {
            let found = format!("a weight of {weight}, above the concurrency or the burst{of_key}");
            let wanted = "a weight that the limit allows; no message could start";
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
    }

    /// Assigns the limits to the routes that name them.
    pub(super) fn limits_of_routes(
        &mut self,
        routes: &mut [Route],
        sections: &[Section],
        limits: &[Limit],
        stores: &StoreConfig,
    ) {
        for (route, section) in routes.iter_mut().zip(sections) {
            for given in section.list("limits").unwrap_or_default() {
                let found = limits.iter().position(|limit| limit.name == given.text);
                let limit = self.read(Some(given), |given| {
                    let index = found.ok_or_else(|| unknown(given, limits))?;
                    allowed(given, route, (index, &limits[index]), stores)
                });
                route.limits.extend(limit);
            }
        }
    }
}

impl WrittenNumbers<'_> {
    /// Whether there is only one number.
    fn is_first(&self) -> bool {
        let all = [self.rate, self.burst, self.concurrency];
        all.into_iter().flatten().count() == 1
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    is_plain && (1..=LONGEST_NAME).contains(&name.len())
}

fn number(given: &WrittenValue) -> Result<u32, Problem> {
    value::number(given, &(1..=MOST))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is greater than 0 and at most a million"
)]
fn starts_of_a_second(per_second: f64) -> u32 {
    per_second.ceil() as u32
}

fn weight(given: &WrittenValue) -> Result<LimitWeight, Problem> {
    if given.text.trim().parse::<f64>().is_ok() {
        return value::number(given, &(1..=MOST)).map(LimitWeight::Fixed);
    }
    message_place(given).map(LimitWeight::Place)
}

fn unknown(given: &WrittenValue, limits: &[Limit]) -> Problem {
    let found = format!("no limit `{}`", given.text);
    let problem = Problem::new(&given.at, found, "the name of a [limit.NAME] of the file");
    problem.nearest(&given.text, limits.iter().map(|limit| limit.name.as_str()))
}

/// Returns the index of a limit that a route may have as well.
fn allowed(
    given: &WrittenValue,
    route: &Route,
    (index, limit): (usize, &Limit),
    stores: &StoreConfig,
) -> Result<usize, Problem> {
    let name = &limit.name;
    if route.limits.contains(&index) {
        let found = format!("`{name}` appears twice");
        return Err(Problem::new(&given.at, found, "each limit once"));
    }
    let mut queues = route.queues.iter();
    let has_groups = route.settings.group_by.is_some()
        || queues.any(|queue| stores.facts_of(&queue.name).has_groups);
    if limit.key == Some(MessageKey::Group) && !has_groups && !route.queues.is_empty() {
        let found = format!("`{name}` counts by group, and the route's messages have none");
        let wanted = "a group-by as well, or a key that the messages have";
        return Err(Problem::new(&given.at, found, wanted));
    }
    Ok(index)
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::check::Check;
    use crate::declared::FleetSettings;
    use crate::file;
    use crate::flags::Flags;
    use dispatcher_core::fleet::WhenAway;
    use dispatcher_core::message::place::MessagePlace;
    use std::path::Path;

    fn read(text: &str) -> (Settings, Vec<String>) {
        let text = format!("[plugin.p]\nfile = 'p.wasm'\n{text}");
        let (file, problems) = file::read(Path::new("d.toml"), &text);
        let mut check = Check {
            problems,
            ..Check::default()
        };
        let settings = check.settings(&Flags::default(), &file);
        let lines = check.problems.iter().map(ToString::to_string);
        (settings, lines.collect())
    }

    fn rate(per_second: f64, burst: u32) -> Option<Rate> {
        Some(Rate { per_second, burst })
    }

    #[test]
    fn limits_are_read_and_assigned_to_routes() {
        let (settings, problems) = read(
            "[fleet]\nstore = 'redis:eu'\nwhen-away = 'share'\n\
             [limit.payments-api]\nrate = '2.5/s'\nconcurrency = 40\n\
             [limit.per-customer]\nkey = '/customer'\nrate = '10/m'\nburst = 20\nweight = 3\nshadow = true\n\
             override.acme = { concurrency = 50, burst = 5 }\noverride.'a.b' = { rate = '90/s' }\n\
             [limit.by-group]\nkey = 'group'\nconcurrency = 1\nweight = '/size'\n\
             [limit.spare]\nrate = '1/h'\n\
             [[route]]\nqueues = ['a']\nlimits = ['per-customer', 'payments-api']\n\
             [[route]]\nqueues = ['b']\nlimits = ['by-group']\n[[route]]\nqueues = ['c']\n",
        );
        assert_eq!(problems, [""; 0]);
        let FleetSettings { store, when_away } = &settings.fleet;
        let store = store.as_ref().map(ToString::to_string);
        assert_eq!(
            (store.as_deref(), *when_away),
            (Some("redis:eu"), WhenAway::Share)
        );
        let plain = Limit {
            name: "by-group".into(),
            numbers: LimitNumbers {
                concurrency: Some(1),
                rate: None,
            },
            key: Some(MessageKey::Group),
            overrides: HashMap::new(),
            weight: LimitWeight::Place(MessagePlace::Pointer("/size".into())),
            shadow: false,
            hides_keys: false,
        };
        fn numbers(concurrency: Option<u32>, rate: Option<Rate>) -> LimitNumbers {
            LimitNumbers { concurrency, rate }
        }
        let one = LimitWeight::Fixed(1);
        let spare = Limit {
            name: "spare".into(),
            numbers: numbers(None, rate(1.0 / 3_600.0, 1)),
            key: None,
            weight: one.clone(),
            ..plain.clone()
        };
        let api = Limit {
            name: "payments-api".into(),
            numbers: numbers(Some(40), rate(2.5, 3)),
            ..spare.clone()
        };
        let customer = Limit {
            name: "per-customer".into(),
            numbers: numbers(None, rate(1.0 / 6.0, 20)),
            key: Some(MessageKey::Place(MessagePlace::Pointer("/customer".into()))),
            overrides: HashMap::from([
                ("acme".into(), numbers(Some(50), rate(1.0 / 6.0, 5))),
                ("a.b".into(), numbers(None, rate(90.0, 90))),
            ]),
            weight: LimitWeight::Fixed(3),
            shadow: true,
            hides_keys: false,
        };
        assert_eq!(settings.limits, [plain, api, customer, spare]);
        let of_routes: Vec<_> = settings.routes.iter().map(|route| &*route.limits).collect();
        assert_eq!(of_routes, [&[2, 1][..], &[0], &[]]);
        let unused = settings.unused_limits().map(|limit| limit.name.as_str());
        assert_eq!(unused.collect::<Vec<_>>(), ["spare"]);
    }

    #[test]
    fn fleet_is_by_default_that_of_this_machine() {
        let (settings, problems) = read("");
        assert_eq!(problems, [""; 0]);
        let store = settings.fleet.store.map(|store| store.to_string());
        assert_eq!(store.as_deref(), Some("local:default"));
        assert_eq!(settings.fleet.when_away, WhenAway::Closed);
        assert_eq!(
            (settings.limits, &*settings.routes[0].limits),
            (vec![], &[][..])
        );
    }

    /// Files with one problem each, with its line and its words.
    const REFUSED: &[(&str, usize, &str)] = &[
        (
            "[limit.a]\nshadow = true",
            3,
            "limit `a` limits nothing; wanted a rate, a concurrency, or both",
        ),
        (
            "[limit.Api]\nrate = '1/s'",
            3,
            "`Api` cannot name a limit; wanted 1 to 64 of",
        ),
        ("[limit.'']\nrate = '1/s'", 3, "`` cannot name a limit"),
        (
            "[limit.a]\nburst = 2\nconcurrency = 1",
            4,
            "`burst` without a rate; wanted a rate as well",
        ),
        (
            "[limit.a]\nrate = '1/s'\nburst = 0",
            5,
            "`0` is out of range; wanted 1 to 1000000",
        ),
        ("[limit.a]\nrate = 'fast'", 4, "`fast` is not a rate"),
        (
            "[limit.a]\nconcurrency = 1.5",
            4,
            "`1.5` is not a whole number",
        ),
        (
            "[limit.a]\nconcurrency = 3\nweight = 4",
            5,
            "a weight of 4, above the concurrency or the burst; wanted",
        ),
        (
            "[limit.a]\nrate = '3/s'\nweight = 4",
            5,
            "a weight of 4, above the concurrency or the burst; wanted",
        ),
        (
            "[limit.a]\nconcurrency = 3\nweight = 0",
            5,
            "`0` is out of range",
        ),
        (
            "[limit.a]\nconcurrency = 3\nweight = 1.5",
            5,
            "`1.5` is not a whole number",
        ),
        (
            "[limit.a]\nconcurrency = 3\nweight = ''",
            5,
            "it is empty; wanted the name of an attribute",
        ),
        (
            "[limit.a]\nconcurrency = 3\nkey = ''",
            5,
            "it is empty; wanted the name of an attribute",
        ),
        (
            "[limit.a]\nconcurrency = 3\nkey = 'k'\nweight = 2\noverride.b = { concurrency = 1 }",
            6,
            "above the concurrency or the burst for `b`",
        ),
        (
            "[limit.a]\nconcurrency = 3\noverride.b = { concurrency = 1 }",
            5,
            "an override in a limit without keys; wanted a key as well",
        ),
        (
            "[limit.a]\nconcurrency = 3\nkey = 'k'\noverride.b = { burst = 1 }",
            6,
            "`burst` without a rate",
        ),
        (
            "[limit.a]\nconcurrency = 3\nkey = 'k'\noverride.b = {}",
            6,
            "`override.b` is empty; wanted rate, burst, concurrency",
        ),
        (
            "[limit.a]\nconcurrency = 3\nkey = 'k'\noverride.b = 3",
            6,
            "`override.b` is a number; wanted a table",
        ),
        (
            "[limit.a]\nconcurrency = 3\nkey = 'k'\noverride.b = { weight = 3 }",
            6,
            "unknown key `weight` in `override.b`",
        ),
        (
            "[limit.a]\nconcurrency = 3\nkey = 'k'\noverride.'' = { rate = '1/s', burst = 3 }",
            6,
            "`` has 0 bytes and cannot be a key; wanted a key of 1 to 128 bytes",
        ),
        (
            "[limit.a]\nrat = '1/s'\nconcurrency = 1",
            4,
            "unknown key `rat` in [limit.a]",
        ),
        (
            "[limit.a]\nrate = '1/s'\n[[route]]\nlimits = ['a', 'aa']",
            6,
            "no limit `aa`; wanted the name of a [limit.NAME]",
        ),
        (
            "[limit.a]\nrate = '1/s'\n[[route]]\nlimits = ['a', 'a']",
            6,
            "`a` appears twice",
        ),
        (
            "[limit.a]\nrate = '1/s'\nkey = 'group'\n[[route]]\nqueues = ['dynamodb:Tasks']\nlimits = ['a']",
            8,
            "`a` counts by group, and the route's messages have none",
        ),
        (
            "[fleet]\nstore = 'sqs:a'",
            4,
            "the backend `sqs` stores no limits",
        ),
        (
            "[fleet]\nwhen-away = 'open'",
            4,
            "`open` is not known; wanted closed or share",
        ),
        (
            "[fleet]\nstores = 'redis:'",
            4,
            "unknown key `stores` in [fleet]; wanted store, when-away; did you mean `store`?",
        ),
    ];

    #[test]
    fn refused_limits_are_named_with_their_lines() {
        let long = format!(
            "[limit.a]\nrate = '1/s'\nkey = 'k'\noverride.{}.burst = 2",
            "k".repeat(129)
        );
        let more = [(&*long, 6, "has 129 bytes and cannot be a key")];
        for (text, at, found) in REFUSED.iter().copied().chain(more) {
            let (_, problems) = read(text);
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            assert!(
                problems[0].starts_with(&format!("d.toml:{at}: ")),
                "{text}: {problems:?}"
            );
            assert!(problems[0].contains(found), "{text}: {problems:?}");
        }
    }

    #[test]
    fn group_of_the_route_is_a_key() {
        let (_, problems) = read(
            "[limit.a]\nrate = '1/s'\nkey = 'group'\n\
             [[route]]\nqueues = ['dynamodb:Tasks']\ngroup-by = '/customer'\nlimits = ['a']\n\
             [[route]]\nqueues = ['redis:tasks']\nlimits = ['a']",
        );
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn all_problems_of_a_limit_are_reported_at_once() {
        let (_, problems) = read(
            "[limit.A]\nburst = 2\nweight = 0\noverride.'' = { rate = 'x' }\n[[route]]\nlimits = ['b']",
        );
        assert_eq!(problems.len(), 8, "{problems:#?}");
    }
}
