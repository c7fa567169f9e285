//! The operations on the fleet, and what this process publishes about itself.

use super::super::fleet_link::{FleetProcesses, Reach};
use super::super::live::APPLIED_WITHIN;
use super::super::live::route::LiveRoute;
use super::{RunOperations, call_failed};
use dispatcher_config::Settings;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::error_kind::CallError;
use dispatcher_core::fleet::control::{FleetRequest, LimitChange};
use dispatcher_core::fleet::summary::{QueueSummary, RequestAnswer, RouteSummary, Summary};
use dispatcher_core::process;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_operate::fleet::{
    FleetView, FoundAttempt, FoundMessages, LogLevelResult, shown_name,
};
use dispatcher_operate::operations::ControlResult;
use dispatcher_operate::problem::{CallProblem, FieldProblem};
use dispatcher_telemetry::log;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long the answers of all processes are waited for, and how often they are looked for.
const FOUND_WITHIN: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(300);
/// How long an answer is published.
const ANSWERED_FOR: Duration = Duration::from_secs(10);
/// The least time over which rates are measured.
const MEASURED: Duration = Duration::from_secs(2);
/// The number of bytes of a configuration's digest that are shown.
const DIGEST_BYTES: usize = 6;

/// The counts of all queues at two earlier moments, for rates.
#[derive(Default)]
struct Paces {
    older: Option<(BootInstant, CountsByQueue)>,
    newer: Option<(BootInstant, CountsByQueue)>,
}

type CountsByQueue = HashMap<String, QueueCounts>;

/// The messages of a queue since the start.
#[derive(Clone, Copy, Default)]
struct QueueCounts {
    started: u64,
    done: u64,
    failed: u64,
}

impl QueueCounts {
    fn of(meter: &Meter) -> Self {
        let [done, failed, throttled] =
            [&meter.done, &meter.failed, &meter.throttled].map(|counter| counter.get());
        Self {
            started: done + failed + throttled + meter.in_flight(),
            done,
            failed,
        }
    }

    fn rates(&self, before: &Self, time: Duration) -> [f64; 3] {
        [
            per_second(self.started, before.started, time),
            per_second(self.done, before.done, time),
            per_second(self.failed, before.failed, time),
        ]
    }
}

/// Returns how many were added per second, to two decimals. A message that was cancelled no longer
/// counts as started.
fn per_second(now: u64, before: u64, time: Duration) -> f64 {
    let rate = now.saturating_sub(before) as f64 / time.as_secs_f64().max(0.001);
    (rate * 100.0).round() / 100.0
}

impl Paces {
    /// Returns the messages started, done and failed per second, of each queue.
    fn rates(&mut self, now: BootInstant, counts: CountsByQueue) -> HashMap<String, [f64; 3]> {
        let before = self.older.as_ref().or(self.newer.as_ref());
        let rates = counts.iter().filter_map(|(queue, count)| {
            let (then, before) = before?;
            let rates = count.rates(before.get(queue)?, now.since(*then));
            Some((queue.clone(), rates))
        });
        let rates = rates.collect();
        let newer = self.newer.as_ref();
        if newer.is_none_or(|(then, _)| now.since(*then) >= MEASURED) {
            self.older = self.newer.replace((now, counts));
        }
        rates
    }
}

/// Returns the digest of what processes of a fleet should have in common. The file's name and the
/// places in it do not count.
fn digest(settings: &Settings) -> String {
    let (mut routes, mut queues) = (settings.routes.clone(), settings.queues.clone());
    for route in &mut routes {
        route.at.clear();
        route.plugin.at.clear();
        route.queues.iter_mut().for_each(|queue| queue.at.clear());
    }
    queues.iter_mut().for_each(|queue| queue.at.clear());
    let mut hash = Sha256::new();
    hash.update(format!("{routes:?}{queues:?}"));
    for limit in &settings.limits {
        // Overrides have no order.
        let mut overrides: Vec<_> = limit.overrides.iter().collect();
        overrides.sort_by_key(|(key, _)| *key);
        let (name, numbers) = (&limit.name, &limit.numbers);
        let (key, weight, shadow) = (&limit.key, &limit.weight, limit.shadow);
        hash.update(format!(
            "{name:?}{numbers:?}{key:?}{weight:?}{shadow}{overrides:?}"
        ));
    }
    let bytes = hash.finalize();
    let hex = bytes.iter().take(DIGEST_BYTES);
    hex.map(|byte| format!("{byte:02x}")).collect()
}

impl RunOperations {
    /// Publishes the summary of this process, and answers requests to all processes, until dropped.
    pub(crate) async fn publish_summaries(self: Arc<Self>) {
        let fleet = &self.live.fleet;
        let mut paces = Paces::default();
        let mut answers: Vec<(BootInstant, RequestAnswer)> = Vec::new();
        loop {
            let now = clock::now();
            answers.retain(|(at, _)| now.since(*at) < ANSWERED_FOR);
            let (requests, requested) = fleet.take_requests();
            for request in &requests {
                answers.extend(self.answer(request).into_iter().map(|answer| (now, answer)));
            }
            let summary = Summary {
                configuration: digest(&self.live.settings()),
                requested,
                answers: answers.iter().map(|(_, answer)| answer.clone()).collect(),
                ..self.summary(&mut paces, now)
            };
            fleet.publish(summary).await;
            tokio::select! {
                () = fleet.requested.notified() => {}
                () = clock::sleep_until(Some(now + fleet.interval())) => {}
            }
        }
    }

    /// Answers a request: finds the message in the attempts of this process, and cancels it.
    fn answer(&self, request: &FleetRequest) -> Vec<RequestAnswer> {
        let mut answers = Vec::new();
        for route in self.live.table().with_attempts() {
            let running = route.running.list(
                0,
                usize::MAX,
                |lane: usize| request.is_about(&route.queues[lane].text),
                &route.ledger,
                None,
            );
            for attempt in running {
                let found = attempt
                    .messages
                    .iter()
                    .find(|one| one.id == request.message);
                let Some(message) = found else { continue };
                let is_cancelled = message.cancelled
                    || request.cancels
                        && route.running.cancel_message(attempt.lane, &request.message) > 0;
                answers.push(RequestAnswer {
                    request: request.number,
                    attempt: route.attempt_id(attempt.number),
                    queue: route.queues[attempt.lane].text.clone(),
                    age_s: attempt.age.as_secs_f64(),
                    is_cancelled,
                });
            }
        }
        answers
    }

    fn summary(&self, paces: &mut Paces, now: BootInstant) -> Summary {
        let table = self.live.table();
        let counts = table
            .queues()
            .map(|one| (one.text.clone(), QueueCounts::of(&one.meter)));
        let rates = paces.rates(now, counts.collect());
        Summary {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at.to_string(),
            routes: table
                .routes
                .iter()
                .map(|route| route_summary(route))
                .collect(),
            queues: table
                .queues()
                .map(|queue| {
                    let rates = rates.get(&queue.text).copied();
                    let [started, done, failed] = rates.unwrap_or_default();
                    QueueSummary {
                        queue: queue.text.clone(),
                        is_paused: queue.meter.paused.load(Relaxed),
                        running: queue.meter.in_flight(),
                        started,
                        done,
                        failed,
                    }
                })
                .collect(),
            limits: self.live.fleet.limit_summaries(),
            ..Summary::default()
        }
    }

    /// Returns all processes of the fleet.
    pub(super) async fn fleet_view(&self) -> FleetView {
        let fleet = &self.live.fleet;
        let processes = fleet.processes().await;
        let (away, control) = (fleet.away(), fleet.control());
        let own = FleetView {
            store: fleet.place().to_owned(),
            scope: fleet.reach().word().into(),
            process: process::unique_name().to_owned(),
            old_since: away.as_ref().map(|away| away.since.to_string()),
            error: away.map(|away| away.why),
            log_level: control.log_level.clone(),
            ..FleetView::default()
        };
        let mut view = own.of(&processes);
        for limit in &mut view.limits {
            limit.live = control.limits.contains_key(&limit.limit);
        }
        view
    }

    /// Asks all processes for a message that runs, and waits for their answers.
    pub(super) async fn ask_fleet(
        &self,
        request: FleetRequest,
    ) -> Result<FoundMessages, CallProblem> {
        let fleet = &self.live.fleet;
        let asked = self
            .live
            .change_fleet(|control, now| control.request(request.clone(), now));
        let (number, _) = asked.await.map_err(|error| store_failed(&error))?;
        let until = clock::now() + FOUND_WITHIN;
        loop {
            let processes = fleet.processes().await;
            let found = found(number, &processes);
            let has_all = found.asked.0 > 0 && found.answered == found.asked;
            if has_all || clock::now() >= until {
                return Ok(found);
            }
            clock::sleep_until(Some(clock::now() + LOOK)).await;
        }
    }

    /// Whether other processes may run a message.
    pub(super) async fn has_others(&self) -> bool {
        let own = process::unique_name();
        let processes = self.live.fleet.processes().await;
        processes.iter().any(|(process, _)| process != own)
    }

    pub(super) async fn set_limit(
        &self,
        limit: &str,
        key: Option<String>,
        change: &LimitChange,
    ) -> Result<ControlResult, CallProblem> {
        let Some(known) = self.limits.iter().find(|one| one.name == limit) else {
            let all = self.limits.iter().map(|one| one.name.as_str());
            return Err(super::no_such("limit", limit, all));
        };
        if key.is_some() && known.key.is_none() {
            let wanted = "no key: all its messages count together";
            let problem = FieldProblem::new("key", "the limit has no keys", wanted);
            return Err(CallProblem::fields(vec![problem]));
        }
        let key = key.map(|key| known.own_key(key));
        let name = known.record(key.as_deref());
        let changed = self.live.change_fleet(|control, _| {
            control.change_limit(&name, change);
            Ok(())
        });
        changed.await.map_err(|error| store_failed(&error))?;
        Ok(controlled(
            &name,
            self.live.fleet.reach(),
            false,
            Vec::new(),
        ))
    }

    pub(super) async fn set_log_level(
        &self,
        level: Option<String>,
    ) -> Result<LogLevelResult, CallProblem> {
        if let Some(Err(why)) = level.as_deref().map(log::filter) {
            let wanted = "a level, or directives such as info,guest=debug";
            return Err(CallProblem::fields(vec![FieldProblem::new(
                "level", &why, wanted,
            )]));
        }
        let changed = self.live.change_fleet(|control, _| {
            control.log_level.clone_from(&level);
            Ok(())
        });
        changed.await.map_err(|error| store_failed(&error))?;
        Ok(LogLevelResult {
            level,
            affects: self.live.fleet.reach().word().into(),
        })
    }
}

fn route_summary(route: &LiveRoute) -> RouteSummary {
    let figures = route.figures();
    let held = figures.in_flight as u64;
    let started: u64 = route
        .queues
        .iter()
        .map(|queue| queue.meter.in_flight())
        .sum();
    RouteSummary {
        route: route.config.name.clone(),
        running: figures.attempts as u64,
        waiting: held.saturating_sub(started),
        held,
    }
}

/// Reports that the fleet's store could not do what was requested.
pub(in super::super) fn store_failed(error: &CallError) -> CallProblem {
    call_failed("The store of the fleet", error)
}

/// Returns the result of a change of controls.
pub(in super::super) fn controlled(
    target: &str,
    reach: Reach,
    paused: bool,
    queues: Vec<String>,
) -> ControlResult {
    let (until, within) = if reach == Reach::ThisProcess {
        ("process-ends", Duration::ZERO)
    } else {
        ("changed", APPLIED_WITHIN)
    };
    ControlResult {
        target: target.to_owned(),
        affects: reach.word().into(),
        until: until.into(),
        process: process::label(),
        within_s: within.as_secs().into(),
        paused,
        queues,
    }
}

/// Returns the answers to a request so far.
fn found(number: u64, processes: &FleetProcesses) -> FoundMessages {
    let answered = processes.iter().filter(|(_, one)| one.requested >= number);
    let items = processes.iter().flat_map(|(process, summary)| {
        let answers = summary.answers.iter();
        answers
            .filter(|answer| answer.request == number)
            .map(|answer| FoundAttempt {
                process: shown_name(process, processes),
                attempt: answer.attempt.clone(),
                queue: answer.queue.clone(),
                age_s: answer.age_s,
                cancelled: answer.is_cancelled,
            })
    });
    FoundMessages {
        items: items.collect(),
        asked: processes.len().into(),
        answered: answered.count().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_config::flags::Flags;
    use dispatcher_config::section::WrittenValue;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn name_of_the_file_and_places_in_it_do_not_count_as_configuration() {
        fn of(name: &str, text: &str) -> String {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            let mut flags = Flags::default();
            let path = path.to_string_lossy();
            flags.take("config", WrittenValue::new("--config", path));
            let (settings, problems) = dispatcher_config::settings(&flags);
            assert_eq!(problems, []);
            digest(&settings)
        }
        let text = "[queue.a]\nretention = '1h'\n[plugin.p]\nfunction = 'f'\n\
                    [limit.api]\nconcurrency = 5\n\
                    [[route]]\nqueues = ['local:a', 'b']\nplugin = 'p'\nlimits = ['api']\n";
        let first = of("first.toml", text);
        assert_eq!(first, of("second.toml", &format!("\n# moved\n{text}")));
        assert_ne!(first, of("third.toml", &text.replace("= 5", "= 6")));
        assert_ne!(first, of("fourth.toml", &text.replace("'b'", "'c'")));
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let began = clock::now();
        let mut paces = Paces::default();
        let mut rates = |after: Duration, done: u64| {
            let counts = QueueCounts {
                started: done + 1,
                done,
                failed: 0,
            };
            let counts = [("local:a".to_owned(), counts)];
            let rates = paces.rates(began + after, counts.into());
            rates.get("local:a").copied()
        };
        assert_eq!(rates(Duration::ZERO, 0), None);
        assert_eq!(rates(2 * SECOND, 20), Some([10.0, 10.0, 0.0]));
        // A summary that is published at once keeps the measurement long enough.
        assert_eq!(rates(2 * SECOND, 20), Some([10.0, 10.0, 0.0]));
        assert_eq!(rates(4 * SECOND, 20), Some([5.0, 5.0, 0.0]));
        assert_eq!(rates(6 * SECOND, 20), Some([0.0; 3]));
    }
}
