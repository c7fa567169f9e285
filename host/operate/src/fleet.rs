//! The fleet as operators see it: all processes, what differs between them, and sums. Pure.

use crate::answers;
use crate::schema::{Count, Word};
use dispatcher_core::fleet::summary::{LimitSummary, QueueSummary, RouteSummary, Summary};
use dispatcher_core::process::label_in;
use std::collections::BTreeMap;

answers! {
    /// All processes that share a store.
    pub struct FleetView {
        /// The store that they share.
        store: String,
        /// Which processes these are: `all-processes` of the fleet, those of `this-machine` with the
        /// same data folder, or only `this-process`.
        scope: Word,
        /// This process.
        process: String,
        /// Since when this is old, because the store does not answer or takes no summaries.
        old_since: Option<String>,
        /// Why it is old.
        error: Option<String>,
        /// The live filter of log lines; nothing if each process has the configured one.
        log_level: Option<String>,
        /// The processes, by name.
        processes: Vec<FleetProcess>,
        /// The differences between them.
        differences: Vec<FleetDifference>,
        /// The queues of all processes, the busiest first.
        queues: Vec<FleetQueue>,
        /// The limits of all processes, the busiest first.
        limits: Vec<FleetLimit>,
        /// How many of their routes, queues and limits are missing here, because summaries have at
        /// most 4 KB.
        left_out: Count,
    }

    /// A process of the fleet.
    pub struct FleetProcess {
        /// Its id and machine. If several processes have the same, with a part that tells them
        /// apart.
        id: String,
        /// The version of the program.
        version: String,
        /// The digest of its routes, queues and limits as configured.
        configuration: String,
        /// When it started.
        started_at: String,
        /// Attempts under way.
        running: Count,
        /// Messages that it holds and has not started.
        waiting: Count,
        /// Its routes.
        routes: Vec<FleetRoute>,
        /// Messages handled and deleted per second.
        done: f64,
        /// Messages per second whose attempt failed.
        failed: f64,
    }

    /// A route of a process of the fleet.
    pub struct FleetRoute {
        /// Its name.
        route: String,
        /// Attempts under way.
        running: Count,
        /// Messages that have not started.
        waiting: Count,
        /// Messages held, started or not.
        held: Count,
    }

    /// Something that is not the same in all processes.
    pub struct FleetDifference {
        /// `version` or `configuration`.
        what: Word,
        /// Its values.
        values: Vec<FleetValue>,
    }

    /// A value, and the processes that have it.
    pub struct FleetValue {
        /// The value.
        value: String,
        /// The processes.
        processes: Vec<String>,
    }

    /// A queue in all processes together.
    pub struct FleetQueue {
        /// The queue, as the configuration names it.
        queue: String,
        /// How many processes receive from it.
        processes: Count,
        /// The number of them in which it is paused.
        paused: Count,
        /// Messages in attempts.
        running: Count,
        /// Messages started per second.
        started: f64,
        /// Messages handled and deleted per second.
        done: f64,
        /// Messages per second whose attempt failed.
        failed: f64,
    }

    /// A limit in all processes together.
    pub struct FleetLimit {
        /// Its name.
        limit: String,
        /// The most messages that run, for each key; nothing if unlimited.
        concurrency: Option<Count>,
        /// The starts per second, for each key; nothing if unlimited.
        rate: Option<f64>,
        /// Whether an operator has set its numbers.
        live: bool,
        /// Permits in use.
        used: Count,
        /// Messages that wait for it.
        waiting: Count,
        /// The processes that use it.
        holders: Count,
        /// The keys for which most messages wait.
        keys: Vec<FleetKey>,
    }

    /// A key of a limit in all processes together.
    pub struct FleetKey {
        /// The key.
        key: String,
        /// Permits in use.
        used: Count,
        /// Messages that wait.
        waiting: Count,
    }

    /// Where a message runs.
    pub struct FoundMessages {
        /// Its attempts.
        items: Vec<FoundAttempt>,
        /// How many processes were asked.
        asked: Count,
        /// How many of them have answered.
        answered: Count,
    }

    /// An attempt of a process of the fleet.
    pub struct FoundAttempt {
        /// The process.
        process: String,
        /// The id of the attempt, unique in its process.
        attempt: String,
        /// The queue of the message.
        queue: String,
        /// The time since the start of the attempt, in seconds.
        age_s: f64,
        /// Whether the message is cancelled.
        cancelled: bool,
    }

    /// The log level of a fleet.
    pub struct LogLevelResult {
        /// The filter of log lines; nothing if each process has the configured one.
        level: Option<String>,
        /// Where it applies: in `all-processes` of the fleet, in those of `this-machine` with the
        /// same data folder, or in `this-process`.
        affects: Word,
    }
}

/// The keys of a limit that are shown.
const MOST_KEYS: usize = 10;

impl FleetView {
    /// Says which processes these are.
    #[must_use]
    pub fn scope_line(&self) -> String {
        let (count, store) = (self.processes.len(), &self.store);
        let processes = if count == 1 { "process" } else { "processes" };
        match &*self.scope {
            "all-processes" => format!("{count} {processes} of the fleet in {store}"),
            "this-machine" => format!(
                "This machine only: {count} {processes} with the same data folder; the store of \
                 [fleet] joins machines"
            ),
            _ => "This process only: it has no store for a fleet".to_owned(),
        }
    }

    /// Returns how many messages of a route the other processes hold and have not started; 0 if
    /// that is old.
    #[must_use]
    pub fn waiting_elsewhere(&self, route: &str) -> u64 {
        if self.old_since.is_some() {
            return 0;
        }
        let others = self.processes.iter().filter(|one| one.id != self.process);
        let routes = others.flat_map(|one| &one.routes);
        let same = routes.filter(|one| one.route == route);
        same.map(|one| one.waiting.0).sum()
    }

    /// Adds the processes, what differs between them, and the sums.
    #[must_use]
    pub fn of(self, summaries: &[(String, Summary)]) -> Self {
        let (mut queues, mut limits) = (BTreeMap::new(), BTreeMap::new());
        for (_, summary) in summaries {
            for queue in &summary.queues {
                let sum: &mut FleetQueue = queues.entry(&queue.queue).or_default();
                sum.add(queue);
            }
            for limit in &summary.limits {
                let sum: &mut FleetLimit = limits.entry(&limit.limit).or_default();
                sum.add(limit);
            }
        }
        let mut queues: Vec<FleetQueue> = queues.into_values().collect();
        queues.sort_by(|one, other| other.load().total_cmp(&one.load()));
        let mut limits: Vec<FleetLimit> = limits.into_values().collect();
        limits.sort_by_key(|one| std::cmp::Reverse((one.waiting.0, one.used.0)));
        for limit in &mut limits {
            limit
                .keys
                .sort_by_key(|one| std::cmp::Reverse((one.waiting.0, one.used.0)));
            limit.keys.truncate(MOST_KEYS);
        }
        let left_out: u64 = summaries.iter().map(|(_, one)| one.left_out).sum();
        let process = shown_name(&self.process, summaries);
        let rows = summaries.iter().map(|(name, summary)| FleetProcess {
            id: shown_name(name, summaries),
            ..FleetProcess::of(summary)
        });
        let mut processes: Vec<FleetProcess> = rows.collect();
        processes.sort_by(|one, other| one.id.cmp(&other.id));
        let differences = [
            difference("version", &processes, |one| &one.version),
            difference("configuration", &processes, |one| &one.configuration),
        ];
        Self {
            process,
            processes,
            differences: differences.into_iter().flatten().collect(),
            queues,
            limits,
            left_out: left_out.into(),
            ..self
        }
    }
}

/// Returns the name of a process as it is shown: without the part that is different at each start,
/// unless several processes have the same label.
#[must_use]
pub fn shown_name(name: &str, processes: &[(String, Summary)]) -> String {
    let label = label_in(name);
    let others = processes.iter().filter(|(other, _)| other != name);
    let is_ambiguous = others
        .map(|(other, _)| label_in(other))
        .any(|other| other == label);
    let shown = if is_ambiguous { name } else { label };
    shown.to_owned()
}

impl FleetProcess {
    fn of(summary: &Summary) -> Self {
        let (routes, queues) = (summary.routes.iter(), summary.queues.iter());
        let running: u64 = routes.clone().map(|route| route.running).sum();
        let waiting: u64 = routes.clone().map(|route| route.waiting).sum();
        Self {
            id: String::new(),
            version: summary.version.clone(),
            configuration: summary.configuration.clone(),
            started_at: summary.started_at.clone(),
            running: running.into(),
            waiting: waiting.into(),
            routes: routes.map(route).collect(),
            done: queues.clone().map(|queue| queue.done).sum(),
            failed: queues.map(|queue| queue.failed).sum(),
        }
    }
}

fn route(route: &RouteSummary) -> FleetRoute {
    FleetRoute {
        route: route.route.clone(),
        running: route.running.into(),
        waiting: route.waiting.into(),
        held: route.held.into(),
    }
}

/// Returns a difference if there is more than one value.
fn difference(
    what: &'static str,
    processes: &[FleetProcess],
    value: impl Fn(&FleetProcess) -> &String,
) -> Option<FleetDifference> {
    let mut by_value: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for process in processes {
        let same = by_value.entry(value(process)).or_default();
        same.push(process.id.clone());
    }
    let values = by_value.iter().map(|(value, processes)| FleetValue {
        value: (*value).clone(),
        processes: processes.clone(),
    });
    (by_value.len() > 1).then(|| FleetDifference {
        what: what.into(),
        values: values.collect(),
    })
}

impl FleetDifference {
    /// Says what differs, and in how many processes.
    #[must_use]
    pub fn line(&self) -> String {
        let values = self.values.iter().map(|value| {
            let first = value.processes.first().map_or("", String::as_str);
            match value.processes.len() {
                1 => format!("{} in {first}", value.value),
                all => format!("{} in {all} processes", value.value),
            }
        });
        let values = values.collect::<Vec<_>>().join(", ");
        format!("The {} differs: {values}", self.what)
    }
}

impl FleetQueue {
    fn add(&mut self, queue: &QueueSummary) {
        self.queue.clone_from(&queue.queue);
        self.processes.0 += 1;
        self.paused.0 += u64::from(queue.is_paused);
        self.running.0 += queue.running;
        self.started += queue.started;
        self.done += queue.done;
        self.failed += queue.failed;
    }

    fn load(&self) -> f64 {
        self.running.0 as f64 + self.started + self.done + self.failed
    }
}

impl FleetLimit {
    fn add(&mut self, limit: &LimitSummary) {
        self.limit.clone_from(&limit.limit);
        self.concurrency = limit.concurrency.map(Count::from).or(self.concurrency);
        self.rate = limit.rate.or(self.rate);
        self.used.0 += limit.used;
        self.waiting.0 += limit.waiting;
        self.holders.0 += u64::from(limit.used > 0);
        for one in &limit.keys {
            let found = self.keys.iter_mut().find(|known| known.key == one.key);
            if let Some(known) = found {
                known.used.0 += one.used;
                known.waiting.0 += one.waiting;
                continue;
            }
            self.keys.push(FleetKey {
                key: one.key.clone(),
                used: one.used.into(),
                waiting: one.waiting.into(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::fleet::summary::KeySummary;

    fn summary(version: &str, is_paused: bool, used: u64) -> Summary {
        Summary {
            version: version.to_owned(),
            routes: vec![RouteSummary {
                route: "mail".to_owned(),
                running: 2,
                waiting: 3,
                held: 5,
            }],
            queues: vec![QueueSummary {
                queue: "orders".to_owned(),
                is_paused,
                running: 2,
                done: 1.5,
                ..QueueSummary::default()
            }],
            limits: vec![LimitSummary {
                limit: "api".to_owned(),
                concurrency: Some(40),
                used,
                waiting: 4,
                keys: vec![KeySummary {
                    key: "acme".to_owned(),
                    used,
                    waiting: 4,
                }],
                ..LimitSummary::default()
            }],
            left_out: 1,
            ..Summary::default()
        }
    }

    #[test]
    fn starts_with_the_same_label_are_told_apart() {
        let summaries = ["1@web/0a", "1@web/0b", "1@db/0c"]
            .map(|name| (name.to_owned(), summary("1", false, 0)));
        let own = FleetView {
            process: "1@web/0b".to_owned(),
            ..FleetView::default()
        };
        let view = own.of(&summaries);
        let ids: Vec<&str> = view.processes.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["1@db", "1@web/0a", "1@web/0b"]);
        assert_eq!(view.process, "1@web/0b");
        assert_eq!(view.waiting_elsewhere("mail"), 6, "three in each");
        let old = FleetView {
            old_since: Some("2026-11-28T10:00:00Z".to_owned()),
            ..view
        };
        assert_eq!(old.waiting_elsewhere("mail"), 0);
        let alone = FleetView {
            process: "1@db/0c".to_owned(),
            ..FleetView::default()
        };
        assert_eq!(alone.of(&summaries).process, "1@db");
    }

    #[test]
    fn processes_are_summed_up_and_compared() {
        let summaries = [("b", "2", true, 3), ("a", "1", false, 0)]
            .map(|(id, version, paused, used)| (id.to_owned(), summary(version, paused, used)));
        let view = FleetView::default().of(&summaries);
        let ids: Vec<&str> = view.processes.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(
            (view.processes[0].running.0, view.processes[0].waiting.0),
            (2, 3)
        );
        let queue = &view.queues[0];
        assert_eq!(
            (queue.processes.0, queue.paused.0, queue.running.0),
            (2, 1, 4)
        );
        assert_eq!(queue.done, 3.0);
        let limit = &view.limits[0];
        assert_eq!((limit.used.0, limit.waiting.0, limit.holders.0), (3, 8, 1));
        assert_eq!(limit.keys[0].waiting.0, 8);
        assert_eq!(view.left_out.0, 2);
        let [difference] = &view.differences[..] else {
            panic!("{:?}", view.differences);
        };
        assert_eq!(difference.what, "version");
        assert_eq!(difference.values[0].processes, ["a"]);
    }
}
