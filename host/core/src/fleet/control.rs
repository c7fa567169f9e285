//! The control record of a fleet: what operators set for all its processes, and what they ask all of
//! them. A record that a newer version wrote is refused. Pure, but for `read` and `change`, which
//! make the calls.

use super::limit::{LimitNumbers, Rate};
use super::{FOREVER, FleetStore, MOST_BYTES, RecordChange, Snapshot, read_record};
use crate::clock;
use crate::control::{ControlChange, QueueControl};
use crate::error_kind::{CallError, ErrorKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;
/// The name of the record. Names of limits do not begin with a slash.
const RECORD: &str = "/control";
/// The most requests that wait for answers.
const MOST_REQUESTS: usize = 16;
/// The time in milliseconds after which no process answers a request.
const ANSWERED_WITHIN: u64 = 10_000;
/// The most bytes of the id of a message that is looked for.
const LONGEST_ID: usize = 256;
/// How often a change is tried again because other processes were faster, and the longest wait.
const TRIES: u32 = 12;
const WAIT: Duration = Duration::from_millis(100);

/// The texts of a `QueueControl`, by queue or route.
type ControlTexts = BTreeMap<String, BTreeMap<String, String>>;

/// The content of the record. Nothing in it means as configured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetControl {
    format: u32,
    queues: ControlTexts,
    routes: ControlTexts,
    /// The live numbers of limits, by their names; those of one key by both, as in `api/acme`.
    pub limits: BTreeMap<String, LiveLimit>,
    /// The live weights of tenants, by route.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    weights: BTreeMap<String, BTreeMap<String, u32>>,
    /// The filter of log lines.
    pub log_level: Option<String>,
    /// The number of requests so far.
    requested: u64,
    requests: Vec<FleetRequest>,
}

/// The live numbers of a limit; `None` means as configured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveLimit {
    /// The most permits in use; at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The starts per second; finite and greater than 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The starts that may follow each other at once; at least 1. Without a rate it has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// A change of the numbers of a limit. A field that is `None` stays; `Some(None)` resets it to the
/// configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of `LiveLimit`")]
pub struct LimitChange {
    pub concurrency: Option<Option<u32>>,
    pub rate: Option<Option<f64>>,
    pub burst: Option<Option<u32>>,
}

/// A request to all processes: who runs this message?
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetRequest {
    /// Its number; later requests have greater ones.
    pub number: u64,
    /// The time of the store in milliseconds at which it was made.
    pub at: u64,
    /// The id of the message.
    pub message: String,
    /// The queue of the message; `None` for any.
    pub queue: Option<String>,
    /// Whether the message is cancelled where it runs.
    pub cancels: bool,
}

impl LiveLimit {
    /// Returns the numbers that hold in place of the configured ones.
    #[must_use]
    pub fn over(&self, configured: LimitNumbers) -> LimitNumbers {
        let per_second = self.rate.or(configured.rate.map(|rate| rate.per_second));
        let burst = self.burst.or(configured.rate.map(|rate| rate.burst));
        LimitNumbers {
            concurrency: self.concurrency.or(configured.concurrency),
            rate: per_second.map(|per_second| Rate {
                per_second,
                burst: burst.unwrap_or(1).max(1),
            }),
        }
    }

    fn changed(self, change: &LimitChange) -> Self {
        Self {
            concurrency: change.concurrency.unwrap_or(self.concurrency),
            rate: change.rate.unwrap_or(self.rate),
            burst: change.burst.unwrap_or(self.burst),
        }
    }
}

impl FleetControl {
    /// Returns the controls of a queue.
    #[must_use]
    pub fn queue(&self, queue: &str) -> QueueControl {
        control_of(&self.queues, queue)
    }

    /// Whether anything is set for a queue.
    #[must_use]
    pub fn has_queue(&self, queue: &str) -> bool {
        self.queues.contains_key(queue)
    }

    /// Returns the controls of a route. It has no rate.
    #[must_use]
    pub fn route(&self, route: &str) -> QueueControl {
        control_of(&self.routes, route)
    }

    /// Changes the controls of a queue.
    pub fn change_queue(&mut self, queue: &str, change: &ControlChange) {
        set(&mut self.queues, queue, change);
    }

    /// Changes the controls of a route.
    pub fn change_route(&mut self, route: &str, change: &ControlChange) {
        set(&mut self.routes, route, change);
    }

    /// Returns the weights of a route's tenants that replace the configured ones.
    #[must_use]
    pub fn weights(&self, route: &str) -> BTreeMap<String, u32> {
        self.weights.get(route).cloned().unwrap_or_default()
    }

    /// Changes the weight of a route's tenant; `None` resets it to the configured one.
    pub fn change_weight(&mut self, route: &str, tenant: &str, weight: Option<u32>) {
        let mut of_route = self.weights(route);
        match weight {
            Some(weight) => of_route.insert(tenant.to_owned(), weight),
            None => of_route.remove(tenant),
        };
        self.weights.remove(route);
        if !of_route.is_empty() {
            self.weights.insert(route.to_owned(), of_route);
        }
    }

    /// Changes the numbers of a limit.
    pub fn change_limit(&mut self, limit: &str, change: &LimitChange) {
        let changed = self.limits.get(limit).copied().unwrap_or_default();
        let changed = changed.changed(change);
        if changed == LiveLimit::default() {
            self.limits.remove(limit);
        } else {
            self.limits.insert(limit.to_owned(), changed);
        }
    }

    /// Adds a request at the time `now` of the store. Returns its number.
    ///
    /// # Errors
    /// Fails if too many requests wait, or if the id is too long.
    pub fn request(&mut self, request: FleetRequest, now: u64) -> Result<u64, CallError> {
        self.requests.retain(|one| one.is_fresh(now));
        if request.message.len() > LONGEST_ID {
            return Err(refused(format!(
                "ids of messages have at most {LONGEST_ID} bytes"
            )));
        }
        if self.requests.len() >= MOST_REQUESTS {
            return Err(CallError {
                kind: ErrorKind::Transient,
                message: format!("{MOST_REQUESTS} other requests wait for answers; try it again"),
            });
        }
        self.requested += 1;
        self.requests.push(FleetRequest {
            number: self.requested,
            at: now,
            ..request
        });
        Ok(self.requested)
    }

    fn of_text(text: Option<&str>) -> Result<Self, CallError> {
        let Some(text) = text else {
            return Ok(Self::default());
        };
        let mut control: Self = read_record(text, FORMAT)
            .map_err(|why| refused(format!("the control record of the fleet: {why}")))?;
        for weights in control.weights.values_mut() {
            weights.retain(|_, weight| *weight > 0);
        }
        for limit in control.limits.values_mut() {
            limit.concurrency = limit.concurrency.filter(|most| *most > 0);
            limit.rate = limit.rate.filter(|rate| crate::control::is_rate(*rate));
        }
        Ok(control)
    }

    fn text(&self) -> Result<String, CallError> {
        let written = Self {
            format: FORMAT,
            ..self.clone()
        };
        // Maps with texts as keys, numbers and texts always become JSON.
        let text = serde_json::to_string(&written).unwrap_or_default();
        if text.len() > MOST_BYTES {
            return Err(refused(format!(
                "the control record of the fleet is full ({} KiB): reset pauses and limits that \
                 are not needed",
                MOST_BYTES >> 10
            )));
        }
        Ok(text)
    }
}

impl FleetRequest {
    /// Whether the message may be of this queue.
    #[must_use]
    pub fn is_about(&self, queue: &str) -> bool {
        self.queue.as_ref().is_none_or(|one| one == queue)
    }

    /// A clock that was set back is not a reason to keep a request.
    fn is_fresh(&self, now: u64) -> bool {
        self.at.abs_diff(now) <= ANSWERED_WITHIN
    }
}

fn control_of(texts: &ControlTexts, name: &str) -> QueueControl {
    let fields = texts.get(name).into_iter().flatten();
    QueueControl::of_fields(fields.map(|(name, value)| (name.as_str(), value.as_str())))
}

fn set(texts: &mut ControlTexts, name: &str, change: &ControlChange) {
    let fields = texts.entry(name.to_owned()).or_default();
    for (field, value) in change.fields() {
        match value {
            Some(value) => fields.insert(field.to_owned(), value),
            None => fields.remove(field),
        };
    }
    if fields.is_empty() {
        texts.remove(name);
    }
}

fn refused(message: String) -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message,
    }
}

/// The part of the record that a process has seen.
#[derive(Debug, Default)]
pub struct FollowedControl {
    seen: Option<Option<String>>,
    /// The number of the last request that it has seen.
    requested: Option<u64>,
}

impl FollowedControl {
    /// Returns what is new in the record: its content, and the requests to answer. A process answers
    /// none that were made before its start. `None` if nothing has changed.
    ///
    /// # Errors
    /// Fails once for each content that this version cannot read.
    pub fn take(
        &mut self,
        snapshot: &Snapshot,
    ) -> Result<Option<(FleetControl, Vec<FleetRequest>)>, CallError> {
        let text = snapshot.records.first().cloned().flatten();
        if self.seen.as_ref() == Some(&text) {
            return Ok(None);
        }
        let read = FleetControl::of_text(text.as_deref());
        self.seen = Some(text);
        let control = read?;
        let requested = control.requested;
        let before = self.requested.replace(requested).unwrap_or(requested);
        // A store that lost its content counts from the beginning.
        let before = if before > requested { 0 } else { before };
        let requests = control.requests.iter();
        let fresh = requests.filter(|one| one.number > before && one.is_fresh(snapshot.now));
        let new = fresh.cloned().collect();
        Ok(Some((control, new)))
    }

    /// Returns the number of the last request that was seen.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.requested.unwrap_or_default()
    }
}

/// Reads the record.
///
/// # Errors
/// Fails if the store fails.
pub async fn read(store: &dyn FleetStore) -> Result<Snapshot, CallError> {
    store.read(&[RECORD.to_owned()]).await
}

/// Changes the record. `decide` gets its content and the time of the store, and is called again if
/// another process was faster.
///
/// # Errors
/// Fails if the store or `decide` fails, if a newer version wrote the record, or if it is full. If
/// the store fails, the change may have been made.
pub async fn change<T>(
    store: &dyn FleetStore,
    decide: impl Fn(&mut FleetControl, u64) -> Result<T, CallError>,
) -> Result<T, CallError> {
    for _ in 0..TRIES {
        let snapshot = read(store).await?;
        let stands = snapshot.records.into_iter().next().flatten();
        let mut control = FleetControl::of_text(stands.as_deref())?;
        let decided = decide(&mut control, snapshot.now)?;
        let written = RecordChange {
            name: RECORD.to_owned(),
            text: control.text()?,
            stands,
            keep_for: FOREVER,
        };
        if store.replace(&[written]).await? {
            return Ok(decided);
        }
        let wait = WAIT.mul_f64(fastrand::f64());
        clock::sleep_until(Some(clock::now() + wait)).await;
    }
    Err(CallError {
        kind: ErrorKind::Transient,
        message: format!("other processes changed the control record {TRIES} times in between"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(control: &FleetControl, now: u64) -> Snapshot {
        Snapshot {
            now,
            records: vec![Some(control.text().expect("it fits"))],
        }
    }

    fn find(message: &str) -> FleetRequest {
        FleetRequest {
            message: message.to_owned(),
            ..FleetRequest::default()
        }
    }

    const PAUSE: ControlChange = ControlChange {
        paused: Some(true),
        concurrency: Some(Some(3)),
        rate: None,
        prefetch: None,
    };

    #[test]
    fn controls_survive_being_written_and_read() {
        let mut control = FleetControl::default();
        control.change_queue("orders", &PAUSE);
        control.change_route("mail", &PAUSE);
        let limited = LimitChange {
            rate: Some(Some(5.0)),
            burst: Some(Some(2)),
            ..LimitChange::default()
        };
        control.change_limit("api", &limited);
        control.log_level = Some("debug".to_owned());
        let mut followed = FollowedControl::default();
        let (read, requests) = followed
            .take(&snapshot(&control, 0))
            .expect("readable")
            .expect("new");
        assert!(requests.is_empty());
        assert!(read.queue("orders").paused && read.route("mail").paused);
        assert_eq!(read.queue("orders").concurrency, Some(3));
        assert_eq!(read.queue("mail"), QueueControl::default());
        assert_eq!(read.limits["api"].rate, Some(5.0));
        assert_eq!(read.log_level.as_deref(), Some("debug"));
        let again = followed.take(&snapshot(&control, 0)).expect("readable");
        assert_eq!(again, None, "it has not changed");
    }

    #[test]
    fn resets_leave_nothing_behind() {
        let mut control = FleetControl::default();
        control.change_queue("orders", &PAUSE);
        control.change_queue("orders", &ControlChange::RESET);
        assert!(control.has_queue("orders"), "a reset keeps the pause");
        let resumed = ControlChange {
            paused: Some(false),
            ..ControlChange::default()
        };
        control.change_queue("orders", &resumed);
        let limited = LimitChange {
            rate: Some(Some(5.0)),
            ..LimitChange::default()
        };
        control.change_limit("api", &limited);
        let reset = LimitChange {
            rate: Some(None),
            ..LimitChange::default()
        };
        control.change_limit("api", &reset);
        assert_eq!(control, FleetControl::default());
    }

    #[test]
    fn live_numbers_replace_the_configured_ones_one_by_one() {
        let rate = Some(Rate {
            per_second: 10.0,
            burst: 4,
        });
        let configured = LimitNumbers {
            concurrency: Some(7),
            rate,
        };
        assert_eq!(LiveLimit::default().over(configured), configured);
        let live = LiveLimit {
            rate: Some(2.0),
            ..LiveLimit::default()
        };
        let over = live.over(configured);
        assert_eq!(over.concurrency, Some(7));
        assert_eq!(
            over.rate.map(|rate| (rate.per_second, rate.burst)),
            Some((2.0, 4))
        );
        let over = live.over(LimitNumbers::default());
        assert_eq!(
            over.rate.map(|rate| (rate.per_second, rate.burst)),
            Some((2.0, 1))
        );
    }

    #[test]
    fn newer_format_is_refused_once_and_a_change_too() {
        let text = r#"{"format":2,"queues":{"orders":{"paused":"true"}}}"#.to_owned();
        let snapshot = Snapshot {
            now: 0,
            records: vec![Some(text.clone())],
        };
        let mut followed = FollowedControl::default();
        let refused = followed.take(&snapshot).expect_err("it is newer");
        assert!(refused.message.contains("newer version"), "{refused}");
        assert_eq!(followed.take(&snapshot), Ok(None));
        assert!(FleetControl::of_text(Some(&text)).is_err());
        assert!(FleetControl::of_text(Some("nonsense")).is_err());
    }

    #[test]
    fn full_record_takes_no_more() {
        let mut control = FleetControl::default();
        for number in 0..2_000 {
            control.change_queue(&format!("queue-{number}"), &PAUSE);
        }
        let full = control.text().expect_err("it is full");
        assert!(full.message.contains("full (64 KiB)"), "{full}");
    }

    #[test]
    fn request_is_answered_once_by_those_who_were_there() {
        let mut control = FleetControl::default();
        let mut early = FollowedControl::default();
        early.take(&snapshot(&control, 1_000)).expect("readable");
        let number = control.request(find("m1"), 1_000).expect("there is room");
        let mut late = FollowedControl::default();
        let at_late = late.take(&snapshot(&control, 1_100)).expect("readable");
        assert!(at_late.expect("new").1.is_empty(), "it started later");
        let taken = early.take(&snapshot(&control, 1_900)).expect("readable");
        let (_, asked) = taken.expect("new");
        assert_eq!((asked.len(), asked[0].number), (1, number));
        control.log_level = Some("warn".to_owned());
        for followed in [&mut early, &mut late] {
            let taken = followed.take(&snapshot(&control, 2_000)).expect("readable");
            assert!(taken.expect("new").1.is_empty(), "it was answered");
            assert_eq!(followed.requested(), number);
        }
    }

    #[test]
    fn old_request_is_not_answered_and_makes_room() {
        let mut control = FleetControl::default();
        let mut slow = FollowedControl::default();
        slow.take(&snapshot(&control, 0)).expect("readable");
        for _ in 0..MOST_REQUESTS {
            control.request(find("m1"), 1_000).expect("there is room");
        }
        assert!(control.request(find("m2"), 1_000).is_err());
        assert!(control.request(find(&"m".repeat(300)), 90_000).is_err());
        let taken = slow.take(&snapshot(&control, 90_000)).expect("readable");
        assert!(taken.expect("new").1.is_empty());
        let number = control.request(find("m2"), 90_000).expect("there is room");
        assert_eq!((number, control.requests.len()), (17, 1));
    }

    #[test]
    fn store_that_lost_its_content_counts_from_the_beginning() {
        let control = FleetControl {
            requested: 40,
            ..FleetControl::default()
        };
        let mut followed = FollowedControl::default();
        followed.take(&snapshot(&control, 0)).expect("readable");
        let mut fresh = FleetControl::default();
        fresh.request(find("m1"), 10).expect("there is room");
        let taken = followed.take(&snapshot(&fresh, 10)).expect("readable");
        assert_eq!(taken.expect("new").1.len(), 1);
    }

    #[test]
    fn weight_of_a_tenant_replaces_the_configured_one_until_it_is_reset() {
        let mut control = FleetControl::default();
        control.change_weight("jobs", "acme", Some(4));
        control.change_weight("jobs", "other", Some(2));
        let text = control.text().expect("it fits");
        let mut read = FleetControl::of_text(Some(&text)).expect("it can be read");
        let weights = [("acme".to_owned(), 4), ("other".to_owned(), 2)];
        assert_eq!(read.weights("jobs"), BTreeMap::from(weights));
        assert!(read.weights("mail").is_empty());
        read.change_weight("jobs", "acme", None);
        read.change_weight("jobs", "other", None);
        assert!(!read.text().expect("it fits").contains("weights"));
    }
}
