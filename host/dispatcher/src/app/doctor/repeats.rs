//! Finds routes whose work is repeated after a deploy, because their attempts take longer than a
//! stop waits. Pure.

use super::{Finding, Level};
use dispatcher_config::{Code, PluginConfig, Route, TIMEOUT};
use dispatcher_core::clock::whole_seconds;
use std::time::Duration;

/// The multiple of the median that some attempts take. A stop that waits no longer than that
/// interrupts some of them.
const TIMES_MEDIAN: u32 = 2;

/// The durations of a route's attempts in a running process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteDurations {
    /// The name of the route.
    pub route: String,
    /// The median duration of the last attempts.
    pub median: Option<Duration>,
    /// The 99th percentile of the durations.
    pub p99: Option<Duration>,
    /// The age of the oldest running attempt.
    pub oldest: Option<Duration>,
}

impl RouteDurations {
    /// Returns whether any duration is known.
    fn is_measured(&self) -> bool {
        self.median.is_some() || self.p99.is_some() || self.oldest.is_some()
    }

    /// Returns whether a stop that waits for `grace` interrupts attempts.
    fn exceed(&self, grace: Duration) -> bool {
        let median = self
            .median
            .map(|median| median.saturating_mul(TIMES_MEDIAN));
        [median, self.p99, self.oldest]
            .into_iter()
            .flatten()
            .any(|took| took > grace)
    }

    fn words(&self) -> String {
        let known = [
            ("half of its attempts take up to", self.median),
            ("one of a hundred takes more than", self.p99),
            ("one has run for", self.oldest),
        ];
        let words = known
            .into_iter()
            .filter_map(|(words, took)| took.map(|took| format!("{words} {}", time(took))));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Judges a route. `measured` is the report of a process that runs it, if one was asked; `grace` is
/// how long a stop waits for running attempts.
pub(super) fn of_route(
    route: &Route,
    measured: &[RouteDurations],
    grace: Duration,
) -> Option<Finding> {
    let plugin = &route.plugin;
    let longest = longest(plugin);
    if longest.is_some_and(|longest| longest <= grace) || is_asynchronous(&plugin.code) {
        return None;
    }
    let about = format!("deploys of route {}", route.name);
    let own = measured
        .iter()
        .find(|one| one.route == route.name && one.is_measured());
    let (level, message) = match (own, longest) {
        (Some(own), _) if own.exceed(grace) => (
            Level::Warn,
            format!(
                "{}, and a stop waits {}: {}",
                own.words(),
                time(grace),
                consequence(&plugin.code)
            ),
        ),
        (Some(own), _) => (
            Level::Ok,
            format!("{}, and a stop waits {}", own.words(), time(grace)),
        ),
        // The finding about the function reports it.
        (None, None) => return None,
        (None, Some(longest)) => (
            if is_chosen(plugin) {
                Level::Warn
            } else {
                Level::Ok
            },
            format!(
                "an attempt may take {} and a stop waits {}: {}",
                time(longest),
                time(grace),
                consequence(&plugin.code)
            ),
        ),
    };
    Some(Finding::new(level, &about, message))
}

/// Returns the maximum duration of an attempt, or `None` if a function determines it.
fn longest(plugin: &PluginConfig) -> Option<Duration> {
    let settings = &plugin.settings;
    let timeout = match plugin.code {
        Code::Forward(_) => settings.timeout?,
        _ => settings.timeout.unwrap_or(TIMEOUT),
    };
    Some(settings.time_limit(timeout).longest)
}

/// Returns whether the settings choose this duration.
fn is_chosen(plugin: &PluginConfig) -> bool {
    plugin.settings.timeout.is_some() || plugin.settings.max_timeout.is_some()
}

fn is_asynchronous(code: &Code) -> bool {
    matches!(code, Code::Forward(forward) if forward.asynchronous)
}

fn consequence(code: &Code) -> String {
    let what = if code.forwards() {
        "longer ones are abandoned and their messages handled again, though the other side may \
         have finished"
    } else {
        "longer ones are interrupted and their messages handled again"
    };
    format!(
        "{what}; raise --shutdown-grace, and with it how long the platform waits, or let the handler \
         recognize repeated messages"
    )
}

fn time(time: Duration) -> humantime::FormattedDuration {
    let rounded = if time < Duration::from_secs(1) {
        Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(whole_seconds(time))
    };
    humantime::format_duration(rounded)
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn level(list: &[(&str, &str)], measured: &[RouteDurations]) -> Option<Level> {
        let settings = settings(list);
        let grace = settings.program.shutdown_grace;
        of_route(&settings.routes[0], measured, grace).map(|finding| finding.level)
    }

    fn measured(list: &[(&str, &str)], median: Duration) -> Vec<RouteDurations> {
        vec![RouteDurations {
            route: settings(list).routes[0].name.clone(),
            median: Some(median),
            ..RouteDurations::default()
        }]
    }

    const FORWARD: (&str, &str) = ("forward", "http://127.0.0.1:1/jobs");

    #[test]
    fn attempts_that_are_allowed_more_than_the_grace_are_a_warning_where_that_was_chosen() {
        assert_eq!(level(&[FORWARD], &[]), Some(Level::Ok));
        assert_eq!(
            level(&[FORWARD, ("timeout", "10m")], &[]),
            Some(Level::Warn)
        );
        let raised = [FORWARD, ("timeout", "10m"), ("shutdown-grace", "10m")];
        assert_eq!(level(&raised, &[]), None);
        let asks = [FORWARD, ("timeout", "20s"), ("max-timeout", "1h")];
        assert_eq!(level(&asks, &[]), Some(Level::Warn));
        let function = [("function", "f")];
        assert_eq!(
            level(&function, &[]),
            None,
            "the function's timeout decides"
        );
    }

    #[test]
    fn measured_durations_decide_where_a_process_reports_them() {
        let long = [FORWARD, ("timeout", "10m")];
        for (median, wanted) in [
            (S, Level::Ok),
            (10 * S, Level::Ok),
            (11 * S, Level::Warn),
            (45 * S, Level::Warn),
        ] {
            let found = level(&long, &measured(&long, median));
            assert_eq!(found, Some(wanted), "{median:?}");
        }
        let default = [FORWARD];
        let found = level(&default, &measured(&default, 25 * S));
        assert_eq!(found, Some(Level::Warn), "the default timeout is longer");
        let mut rare = measured(&long, S);
        rare[0].p99 = Some(40 * S);
        assert_eq!(level(&long, &rare), Some(Level::Warn));
        let mut first = measured(&long, S);
        first[0].median = None;
        assert_eq!(
            level(&long, &first),
            Some(Level::Warn),
            "nothing is measured"
        );
        first[0].oldest = Some(90 * S);
        assert_eq!(level(&long, &first), Some(Level::Warn));
        let other = vec![RouteDurations {
            route: "other".into(),
            median: Some(S),
            ..RouteDurations::default()
        }];
        assert_eq!(level(&long, &other), Some(Level::Warn));
    }

    #[test]
    fn warning_says_how_long_attempts_take_and_what_to_change() {
        let list = [FORWARD, ("timeout", "10m")];
        let settings = settings(&list);
        let took = measured(&list, Duration::from_millis(44_600));
        let found = of_route(&settings.routes[0], &took, 20 * S).expect("a finding");
        for words in ["take up to 45s", "waits 20s", "--shutdown-grace"] {
            assert!(found.message.contains(words), "{found:?}");
        }
    }
}
