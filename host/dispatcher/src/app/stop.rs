//! Plans the time of a stop, and checks whether the platform allows it. Pure.

use dispatcher_config::Route;
use dispatcher_core::clock::whole_seconds;
use dispatcher_core::queue::Queue;
use std::sync::Arc;
use std::time::Duration;

/// The default time between SIGTERM and SIGKILL of Kubernetes (`terminationGracePeriodSeconds`) and
/// ECS (`stopTimeout`).
const USUAL: Duration = Duration::from_secs(30);
/// The time beyond its wait that a receive may take to be answered.
const ANSWER: Duration = Duration::from_secs(4);
/// The time after the last attempt and the last receive: the last outcomes are settled, and
/// concurrently or later the last metrics and spans are sent, for at most 3 s.
const AFTERWARDS: Duration = Duration::from_secs(4);
/// The last part of that time, for the last log lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The time limit of each part of a stop, counted from the signal. Attempts and receives continue
/// concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPlan {
    grace: Duration,
    longest_receive: Duration,
}

impl StopPlan {
    /// Plans the stop of a run's routes with their queues. `grace` is for running attempts.
    pub fn new<'a>(
        grace: Duration,
        routes: impl IntoIterator<Item = (&'a Route, &'a [Arc<dyn Queue>])>,
    ) -> Self {
        let waits = routes.into_iter().flat_map(|(route, queues)| {
            let awaited = queues.iter().filter(|queue| !queue.facts().ends_waits);
            awaited.map(|queue| route.settings.poll_for.min(queue.identity().longest_wait))
        });
        Self {
            grace,
            longest_receive: waits.max().unwrap_or_default(),
        }
    }

    /// Returns when running attempts are stopped.
    pub fn attempts(self) -> Duration {
        self.grace
    }

    /// Returns when an unanswered receive is given up. It is not given up earlier, because its
    /// messages would be invisible to all consumers until their visibility timeout ends.
    pub fn receives(self) -> Duration {
        self.grace.max(self.longest_receive.saturating_add(ANSWER))
    }

    /// Returns when unsent metrics and spans are given up.
    pub fn telemetry(self) -> Duration {
        self.total().saturating_sub(LAST_LINES)
    }

    /// Returns the maximum duration of the stop.
    pub fn total(self) -> Duration {
        self.receives().saturating_add(AFTERWARDS)
    }
}

/// The platform that stops the program, if it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// A Kubernetes pod.
    Kubernetes,
    /// A container of an ECS task.
    Ecs,
}

impl Platform {
    /// Detects the platform by the environment variables that it sets in its containers.
    pub fn of(is_set: impl Fn(&str) -> bool) -> Option<Self> {
        match () {
            () if is_set("KUBERNETES_SERVICE_HOST") => Some(Self::Kubernetes),
            () if is_set("ECS_CONTAINER_METADATA_URI_V4") => Some(Self::Ecs),
            () => None,
        }
    }
}

/// Returns advice if the platform's default kills the process before the stop is over. The platform
/// does not tell a container how long it waits.
pub fn advice(plan: StopPlan, platform: Option<Platform>) -> Option<String> {
    let total = plan.total();
    let (who, setting) = match platform? {
        Platform::Kubernetes => ("Kubernetes", "terminationGracePeriodSeconds"),
        Platform::Ecs => ("ECS", "stopTimeout"),
    };
    (total > USUAL).then(|| {
        format!(
            "a stop may take {}, and {who} kills {} after SIGTERM unless its {setting} is longer: set it to at least {}, or lower --shutdown-grace",
            humantime::format_duration(total),
            humantime::format_duration(USUAL),
            whole_seconds(total),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(grace_s: u64, longest_receive_s: u64) -> StopPlan {
        StopPlan {
            grace: Duration::from_secs(grace_s),
            longest_receive: Duration::from_secs(longest_receive_s),
        }
    }

    fn seconds(plan: StopPlan) -> [u64; 3] {
        [plan.attempts(), plan.receives(), plan.total()].map(|time| time.as_secs())
    }

    #[test]
    fn finding_14_default_stop_ends_before_kubernetes_and_ecs_kill() {
        let (settings, problems) =
            dispatcher_config::settings(&dispatcher_config::flags::Flags::default());
        // No plugin is named, and nothing else is wrong.
        assert_eq!(problems.len(), 1);
        let poll_for = settings
            .routes
            .iter()
            .map(|route| route.settings.poll_for)
            .max();
        let by_default = StopPlan {
            grace: settings.program.shutdown_grace,
            longest_receive: poll_for.expect("a route"),
        };
        assert_eq!(seconds(by_default), [20, 24, 28]);
        assert!(by_default.total() < USUAL);
        assert_eq!(by_default.telemetry(), Duration::from_secs(27));
        for platform in [None, Some(Platform::Kubernetes), Some(Platform::Ecs)] {
            assert_eq!(advice(by_default, platform), None);
        }
    }

    #[test]
    fn attempts_and_receives_end_concurrently() {
        assert_eq!(seconds(plan(60, 20)), [60, 60, 64]);
        assert_eq!(seconds(plan(0, 20)), [0, 24, 28]);
        assert_eq!(seconds(plan(5, 2)), [5, 6, 10]);
        assert_eq!(seconds(plan(5, 0)), [5, 5, 9]);
        let endless = StopPlan {
            grace: Duration::MAX,
            longest_receive: Duration::MAX,
        };
        assert_eq!(endless.total(), Duration::MAX);
    }

    fn platform(set: &str) -> Option<Platform> {
        Platform::of(|name| name == set)
    }

    #[test]
    fn finding_14_platform_that_kills_earlier_is_named_with_its_setting() {
        assert_eq!(platform("HOME"), None);
        let long = plan(60, 20);
        assert_eq!(advice(long, platform("HOME")), None);
        let kubernetes = advice(long, platform("KUBERNETES_SERVICE_HOST"));
        assert_eq!(
            kubernetes.as_deref(),
            Some(
                "a stop may take 1m 4s, and Kubernetes kills 30s after SIGTERM unless its \
                 terminationGracePeriodSeconds is longer: set it to at least 64, or lower \
                 --shutdown-grace"
            )
        );
        let ecs = advice(long, platform("ECS_CONTAINER_METADATA_URI_V4"));
        assert!(ecs.is_some_and(|advice| advice.contains("ECS") && advice.contains("stopTimeout")));
    }
}
