//! The fleet's store, as this process uses it to operate the fleet: the control record, the
//! summaries, and since when the store does not answer. Knows neither routes nor queues.

use super::build::Backends;
use dispatcher_config::FleetPlace;
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::fleet::control;
use dispatcher_core::fleet::control::{FleetControl, FleetRequest, FollowedControl};
use dispatcher_core::fleet::keeper::Fleet;
use dispatcher_core::fleet::limit::LimitNumbers;
use dispatcher_core::fleet::summary::{LimitSummary, Summary};
use dispatcher_core::process;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{MutexGuard, Notify};

/// The interval at which the control record is read.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// The time limit for a call.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the summaries of all processes are not read again.
const LISTED_FOR: Duration = Duration::from_millis(250);
/// A summary is kept for so many intervals.
const KEPT_INTERVALS: u32 = 3;

/// The processes that obey a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    AllProcesses,
    ThisMachine,
    ThisProcess,
}

impl Reach {
    /// Returns its word in the API.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::AllProcesses => "all-processes",
            Self::ThisMachine => "this-machine",
            Self::ThisProcess => "this-process",
        }
    }
}

/// The kinds of calls whose failures are remembered.
#[derive(Debug, Clone, Copy)]
enum CallKind {
    Control,
    Publish,
    List,
}

/// A lasting failure of a kind of call.
#[derive(Debug, Clone)]
pub(crate) struct Away {
    pub since: Timestamp,
    pub why: String,
}

#[derive(Default)]
struct LinkState {
    control: Arc<FleetControl>,
    /// Requests that this process has not answered, and the number of the last one.
    requests: Vec<FleetRequest>,
    requested: u64,
    away: [Option<Away>; 3],
    logged: LogThrottle,
}

/// The processes of the fleet, each with its summary.
pub(crate) type FleetProcesses = Arc<Vec<(String, Summary)>>;

/// The connection of this process to its fleet.
#[derive(Default)]
pub(crate) struct FleetLink {
    store: Option<Arc<dyn FleetStore>>,
    place: String,
    is_shared: bool,
    followed: tokio::sync::Mutex<FollowedControl>,
    state: Mutex<LinkState>,
    listed: tokio::sync::Mutex<Option<(BootInstant, FleetProcesses)>>,
    limits: Option<Arc<Fleet>>,
    /// Notified when there are requests to answer.
    pub requested: Notify,
}

/// The turn of one task: values that were read before a change are not applied after it.
pub(crate) type FleetTurn<'a> = MutexGuard<'a, FollowedControl>;

impl FleetLink {
    /// Connects to the fleet's store, which may be open for `limits` already. They get their live
    /// numbers whenever the record is read. Without a store, the process is its own fleet.
    pub(crate) async fn open(
        backends: &Backends,
        place: Option<&FleetPlace>,
        opened: Option<Arc<dyn FleetStore>>,
        limits: Option<Arc<Fleet>>,
    ) -> Self {
        let Some(place) = place else {
            return Self::default();
        };
        let opening = async {
            if let Some(store) = opened {
                return Ok(store);
            }
            let client = backends.client(place.backend).await?;
            client.fleet(&place.name).await
        };
        let store = match within(opening).await {
            Ok(store) => Some(store),
            Err(error) => {
                tracing::warn!(store = %place, %error, "store of the fleet not opened; pauses, limits and log level of other processes do not apply here");
                None
            }
        };
        Self {
            store,
            place: place.to_string(),
            is_shared: !place.backend.facts().is_embedded,
            limits,
            ..Self::default()
        }
    }

    /// Returns what messages of a route with these limits may use together, with any keys.
    pub(crate) fn common(&self, limits: &[usize]) -> LimitNumbers {
        let fleet = self.limits.as_ref();
        fleet.map(|fleet| fleet.common(limits)).unwrap_or_default()
    }

    /// Returns the state of each limit.
    pub(crate) fn limit_summaries(&self) -> Vec<LimitSummary> {
        let limits = self.limits.as_ref();
        limits.map(|limits| limits.summaries()).unwrap_or_default()
    }

    /// Returns the name of the store.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Returns the processes that obey a change of the record.
    pub(crate) fn reach(&self) -> Reach {
        match &self.store {
            None => Reach::ThisProcess,
            Some(_) if self.is_shared => Reach::AllProcesses,
            Some(_) => Reach::ThisMachine,
        }
    }

    /// Returns the record as it was last read.
    pub(crate) fn control(&self) -> Arc<FleetControl> {
        self.state.lock().control.clone()
    }

    /// Takes the requests that this process must answer, and returns the number of the last request.
    pub(crate) fn take_requests(&self) -> (Vec<FleetRequest>, u64) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.requests), state.requested)
    }

    /// Returns the failure that has lasted for longest.
    pub(crate) fn away(&self) -> Option<Away> {
        let state = self.state.lock();
        let away = state.away.iter().flatten();
        away.min_by_key(|away| away.since.0).cloned()
    }

    /// Waits until no other task reads or changes the record.
    pub(crate) async fn turn(&self) -> FleetTurn<'_> {
        self.followed.lock().await
    }

    /// Reads the record. Returns whether it has changed.
    pub(crate) async fn look(&self, turn: &mut FleetTurn<'_>) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        let read = within(control::read(&**store)).await;
        let Ok(snapshot) = self.note(CallKind::Control, read) else {
            return false;
        };
        let (control, requests) = match turn.take(&snapshot) {
            Ok(Some(new)) => new,
            Ok(None) => return false,
            Err(error) => {
                tracing::error!(store = self.place, %error, "control record of the fleet refused; nothing changed");
                return false;
            }
        };
        if let Some(limits) = &self.limits {
            limits.set_live(&control.limits);
        }
        if !requests.is_empty() {
            self.requested.notify_one();
        }
        let mut state = self.state.lock();
        state.requests.extend(requests);
        state.requested = turn.requested();
        state.control = Arc::new(control);
        true
    }

    /// Changes the record, and reads it again.
    pub(crate) async fn change<T>(
        &self,
        turn: &mut FleetTurn<'_>,
        decide: impl Fn(&mut FleetControl, u64) -> Result<T, CallError> + Sync,
    ) -> Result<T, CallError> {
        let Some(store) = &self.store else {
            return Err(no_store());
        };
        let changed = within(control::change(&**store, decide)).await?;
        self.look(turn).await;
        Ok(changed)
    }

    /// Returns how often a summary is published.
    pub(crate) fn interval(&self) -> Duration {
        let store = self.store.as_ref();
        store.map_or(INTERVAL, |store| store.interval())
    }

    /// Publishes the summary of this process.
    pub(crate) async fn publish(&self, summary: Summary) {
        let Some(store) = &self.store else { return };
        let kept = store.interval() * KEPT_INTERVALS;
        let published = within(store.publish(process::unique_name(), &summary.text(), kept)).await;
        let _ = self.note(CallKind::Publish, published);
    }

    /// Removes the summary of this process, which ends.
    pub(crate) async fn leave(&self) {
        let Some(store) = &self.store else { return };
        if self.away().is_some() {
            return;
        }
        // An empty summary is not shown, and ends at once.
        let ends = Duration::from_millis(1);
        let _ = within(store.publish(process::unique_name(), "", ends)).await;
    }

    /// Returns the processes of the fleet. If the store does not answer, those of its last answer.
    pub(crate) async fn processes(&self) -> FleetProcesses {
        let mut listed = self.listed.lock().await;
        if let Some((at, processes)) = &*listed
            && clock::now().since(*at) < LISTED_FOR
        {
            return processes.clone();
        }
        let Some(store) = &self.store else {
            return FleetProcesses::default();
        };
        let read = within(store.published()).await;
        let before = listed.take().map(|(_, processes)| processes);
        let processes = match self.note(CallKind::List, read) {
            Err(_) => before.unwrap_or_default(),
            Ok(published) => {
                let read = published.into_iter().filter_map(|(process, text)| {
                    Summary::of_text(&text).map(|summary| (process, summary))
                });
                Arc::new(read.collect())
            }
        };
        *listed = Some((clock::now(), processes.clone()));
        processes
    }

    /// Whether a process of the fleet reads a queue, or has queues that its summary leaves out.
    pub(crate) async fn reads(&self, queue: &str) -> bool {
        let processes = self.processes().await;
        processes.iter().any(|(_, process)| {
            process.left_out > 0 || process.queues.iter().any(|one| one.queue == queue)
        })
    }

    /// Remembers since when a kind of call fails, and logs it.
    fn note<T>(&self, kind: CallKind, result: Result<T, CallError>) -> Result<T, CallError> {
        let mut state = self.state.lock();
        let Err(error) = &result else {
            state.away[kind as usize] = None;
            return result;
        };
        let since = state.away[kind as usize].as_ref().map(|away| away.since);
        state.away[kind as usize] = Some(Away {
            since: since.unwrap_or_else(clock::wall_clock_now),
            why: error.to_string(),
        });
        if state.logged.should_log(clock::now()) {
            tracing::warn!(store = self.place, %error, "store of the fleet failed, retried; what was known before applies");
        }
        result
    }
}

/// Returns the error of a process without a store.
fn no_store() -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message: "this process has no store that a fleet shares".to_owned(),
    }
}

async fn within<T>(call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    tokio::select! {
        answer = call => answer,
        () = clock::sleep_until(Some(clock::now() + PATIENCE)) => Err(CallError {
            kind: ErrorKind::Unreachable,
            message: format!("no answer within {} s", PATIENCE.as_secs()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::control::ControlChange;
    use dispatcher_core::fleet::{RecordChange, Snapshot};

    /// A store of one record, which may be away or full.
    #[derive(Default)]
    struct OneRecord {
        record: Mutex<Option<String>>,
        summaries: Mutex<Vec<(String, String)>>,
        is_away: Mutex<bool>,
    }

    impl OneRecord {
        fn answer<T>(&self, answer: T) -> Result<T, CallError> {
            if *self.is_away.lock() {
                return Err(CallError {
                    kind: ErrorKind::Unreachable,
                    message: "connection refused".to_owned(),
                });
            }
            Ok(answer)
        }
    }

    #[async_trait::async_trait]
    impl FleetStore for OneRecord {
        async fn read(&self, _: &[String]) -> Result<Snapshot, CallError> {
            self.answer(Snapshot {
                now: 1_000,
                records: vec![self.record.lock().clone()],
            })
        }

        async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError> {
            self.answer(())?;
            *self.record.lock() = changes.first().map(|change| change.text.clone());
            Ok(true)
        }

        async fn publish(&self, process: &str, text: &str, _: Duration) -> Result<(), CallError> {
            self.answer(())?;
            *self.summaries.lock() = vec![(process.to_owned(), text.to_owned())];
            Ok(())
        }

        async fn published(&self) -> Result<Vec<(String, String)>, CallError> {
            self.answer(self.summaries.lock().clone())
        }
    }

    fn link(store: &Arc<OneRecord>) -> FleetLink {
        FleetLink {
            store: Some(store.clone()),
            place: "redis:default".to_owned(),
            is_shared: true,
            ..FleetLink::default()
        }
    }

    const PAUSED: ControlChange = ControlChange {
        paused: Some(true),
        concurrency: None,
        rate: None,
        prefetch: None,
    };

    async fn pause(link: &FleetLink) -> Result<(), CallError> {
        link.change(&mut link.turn().await, |control, _| {
            control.change_queue("orders", &PAUSED);
            Ok(())
        })
        .await
    }

    async fn look(link: &FleetLink) -> bool {
        link.look(&mut link.turn().await).await
    }

    #[tokio::test]
    async fn change_by_one_is_seen_by_the_other() {
        let store = Arc::default();
        let [one, other] = [link(&store), link(&store)];
        assert!(look(&other).await, "the first look");
        pause(&one).await.expect("stored");
        assert!(one.control().queue("orders").paused, "it applies at once");
        assert!(look(&other).await && !look(&other).await);
        assert!(other.control().queue("orders").paused);
        assert_eq!(one.reach(), Reach::AllProcesses);
    }

    #[tokio::test]
    async fn what_was_known_stays_while_the_store_is_away() {
        let store: Arc<OneRecord> = Arc::default();
        let link = link(&store);
        pause(&link).await.expect("stored");
        link.publish(Summary::default()).await;
        assert_eq!(link.processes().await.len(), 1);
        assert!(link.away().is_none());
        *store.is_away.lock() = true;
        assert!(!look(&link).await);
        assert!(pause(&link).await.is_err());
        assert!(link.control().queue("orders").paused);
        *link.listed.lock().await = None;
        let away = link.away().expect("it is away");
        assert!(away.why.contains("connection refused"), "{}", away.why);
        link.publish(Summary::default()).await;
        let since = link.away().expect("it is still away").since;
        assert_eq!(since.0, away.since.0, "since the first failure");
        *store.is_away.lock() = false;
        look(&link).await;
        assert!(link.away().is_some(), "the summary is not published yet");
        link.publish(Summary::default()).await;
        assert!(link.away().is_none());
    }

    #[tokio::test]
    async fn record_of_a_newer_version_changes_nothing() {
        let store: Arc<OneRecord> = Arc::default();
        let link = link(&store);
        pause(&link).await.expect("stored");
        *store.record.lock() = Some(r#"{"format":7}"#.to_owned());
        assert!(!look(&link).await);
        assert!(link.control().queue("orders").paused);
        let refused = pause(&link).await.expect_err("it is newer");
        assert!(refused.message.contains("newer version"), "{refused}");
        assert_eq!(store.record.lock().as_deref(), Some(r#"{"format":7}"#));
    }

    #[tokio::test]
    async fn process_without_a_store_is_alone() {
        let link = FleetLink::default();
        assert!(!look(&link).await);
        assert!(pause(&link).await.is_err());
        link.publish(Summary::default()).await;
        assert_eq!(link.processes().await.len(), 0);
        assert_eq!(link.reach(), Reach::ThisProcess);
    }
}
