//! A store and a queue in memory for the tests of the mover.

use super::decide::{AHEAD, SendLimits};
use super::mover::{NotSent, Outlet};
use super::{
    Claim, ErrorKind, JobCancellation, JobOutcome, JobPage, ScheduleStore, ScheduledJob,
    StoreError, Unreadable,
};
use crate::clock;
use crate::clock::Timestamp;
use crate::message::OutgoingMessage;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The limits of a standard queue of SQS.
pub(super) const STANDARD: SendLimits = SendLimits {
    longest_delay: AHEAD,
    longest_delay_in_group: AHEAD,
    own_delay: Duration::ZERO,
    batch: 10,
    ordered: false,
};
/// The limits of a FIFO queue of SQS.
pub(super) const FIFO: SendLimits = SendLimits {
    longest_delay: Duration::ZERO,
    longest_delay_in_group: Duration::ZERO,
    own_delay: Duration::ZERO,
    batch: 10,
    ordered: true,
};

/// A store in memory, in pages of seven, that fails when told to; to claim a job with `unclaimed` in
/// its id fails always.
#[derive(Default)]
pub(crate) struct FakeSchedule {
    /// The jobs that it holds, by id.
    pub jobs: Mutex<BTreeMap<String, ScheduledJob>>,
    /// How many of the next ends fail.
    pub failing_ends: Mutex<usize>,
    /// How they fail; without it there is no answer.
    pub failing: Mutex<Option<ErrorKind>>,
    /// How many of the next claims are carried out and not answered.
    pub lost_claims: Mutex<usize>,
    /// Jobs that cannot be read.
    pub unreadable: Mutex<Vec<Unreadable>>,
    /// Those of them that were set aside, with their reasons.
    pub aside: Mutex<Vec<(String, String)>>,
    /// How the next looks fail.
    pub failing_looks: Mutex<Vec<ErrorKind>>,
}

impl FakeSchedule {
    /// Puts these in.
    pub(crate) fn holding(jobs: impl IntoIterator<Item = ScheduledJob>) -> Self {
        let jobs = jobs.into_iter().map(|job| (job.id.clone(), job));
        Self {
            jobs: Mutex::new(jobs.collect()),
            ..Self::default()
        }
    }
}

/// The place of a job in the pages of those that are due.
fn page_key(job: &ScheduledJob) -> String {
    format!("{:020} {}", job.due.0, job.id)
}

fn no_answer() -> StoreError {
    StoreError {
        kind: ErrorKind::Unreachable,
        message: "no answer".into(),
    }
}

#[async_trait::async_trait]
impl ScheduleStore for FakeSchedule {
    fn place(&self) -> String {
        "memory".into()
    }

    async fn add(&self, job: &ScheduledJob) -> Result<bool, StoreError> {
        let mut jobs = self.jobs.lock().unwrap();
        let is_new = !jobs.contains_key(&job.id);
        if is_new {
            jobs.insert(job.id.clone(), job.clone());
        }
        Ok(is_new)
    }

    async fn due(&self, until: Timestamp, after: Option<&str>) -> Result<JobPage, StoreError> {
        if let Some(kind) = self.failing_looks.lock().unwrap().pop() {
            let message = "no look".to_owned();
            return Err(StoreError { kind, message });
        }
        let jobs = self.jobs.lock().unwrap();
        let mut due: Vec<ScheduledJob> = jobs
            .values()
            .filter(|job| job.due <= until)
            .cloned()
            .collect();
        due.sort_by_key(|job| (job.due, job.id.clone()));
        due.retain(|job| after.is_none_or(|after| *page_key(job) > *after));
        let more = due.len() > 7;
        due.truncate(7);
        let next = if more { due.last().map(page_key) } else { None };
        let unreadable = match after {
            None => self.unreadable.lock().unwrap().clone(),
            Some(_) => Vec::new(),
        };
        Ok(JobPage {
            jobs: due,
            next,
            unreadable,
        })
    }

    async fn claim(
        &self,
        wanted: &[ScheduledJob],
        claim: &Claim,
        now: Timestamp,
    ) -> Vec<Result<bool, StoreError>> {
        let mut jobs = self.jobs.lock().unwrap();
        let mut answers = Vec::with_capacity(wanted.len());
        for job in wanted {
            if job.id.contains("unclaimed") {
                answers.push(Err(StoreError {
                    kind: ErrorKind::Transient,
                    message: "slow down".into(),
                }));
                continue;
            }
            let found = jobs
                .get_mut(&job.id)
                .filter(|found| found.due == job.due && !super::decide::is_claimed(found, now));
            let claimed = found.map(|found| found.claim = Some(claim.clone()));
            let mut lost = self.lost_claims.lock().unwrap();
            if *lost > 0 {
                *lost -= 1;
                answers.push(Err(no_answer()));
            } else {
                answers.push(Ok(claimed.is_some()));
            }
        }
        answers
    }

    async fn end(&self, endings: &[JobOutcome]) -> Vec<Result<(), StoreError>> {
        let mut jobs = self.jobs.lock().unwrap();
        let mut failing = self.failing_ends.lock().unwrap();
        let mut one = |ending: &JobOutcome| {
            if *failing > 0 {
                *failing -= 1;
                let message = "no answer".to_owned();
                let kind = self
                    .failing
                    .lock()
                    .unwrap()
                    .unwrap_or(ErrorKind::Unreachable);
                return Err(StoreError { kind, message });
            }
            let id = &ending.job.id;
            if !jobs.get(id).is_some_and(|job: &ScheduledJob| {
                job.claim
                    .as_ref()
                    .is_some_and(|claim| claim.token == ending.token)
            }) {
                return Ok(());
            }
            match ending.next {
                None => drop(jobs.remove(id)),
                Some(next) => {
                    let job = jobs.get_mut(id).expect("it was just seen");
                    (job.due, job.claim) = (next, None);
                }
            }
            Ok(())
        };
        endings.iter().map(&mut one).collect()
    }

    async fn set_aside(
        &self,
        job: &Unreadable,
        reason: &str,
        _: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut unreadable = self.unreadable.lock().unwrap();
        let before = unreadable.len();
        unreadable.retain(|one| one != job);
        let aside = (job.id.clone(), reason.to_owned());
        self.aside.lock().unwrap().push(aside);
        Ok(unreadable.len() < before)
    }

    async fn cancel(&self, id: &str, now: Timestamp) -> Result<JobCancellation, StoreError> {
        let mut jobs = self.jobs.lock().unwrap();
        Ok(match jobs.get(id) {
            None => JobCancellation::Unknown,
            Some(job) if super::decide::is_claimed(job, now) => JobCancellation::BeingSent,
            Some(_) => {
                jobs.remove(id);
                JobCancellation::Yes
            }
        })
    }
}

/// A queue that keeps what it is sent; a body with `refused` in it is refused, the first with
/// `busy` once. A queue whose name begins with `dead` answers, that it cannot, when `q` has taken
/// something. What it takes a queue does not say if its name begins with `silent`, and only after
/// half a minute if with `slow`.
#[derive(Default)]
pub(super) struct TakenJobs {
    /// All bodies with their delays, in order.
    pub messages: Mutex<Vec<OutgoingMessage>>,
    /// When each came.
    pub dates: Mutex<Vec<Timestamp>>,
    /// Whether it is one that keeps order and delays nothing.
    pub fifo: bool,
    /// Whether it was busy once.
    pub busy: Mutex<bool>,
    /// Set when it has taken something.
    pub taken: CancellationToken,
}

impl TakenJobs {
    /// All bodies so far, sorted.
    pub(super) fn bodies(&self) -> Vec<String> {
        let messages = self.messages.lock().unwrap();
        let mut bodies: Vec<String> = messages.iter().map(|one| one.body.clone()).collect();
        bodies.sort();
        bodies
    }

    fn take(&self, item: OutgoingMessage) -> Result<(), NotSent> {
        if item.body.contains("refused") {
            return Err(NotSent::Refused("too long".into()));
        }
        let mut busy = self.busy.lock().unwrap();
        if item.body.contains("busy") && !*busy {
            *busy = true;
            return Err(NotSent::Transient("slow down".into()));
        }
        self.messages.lock().unwrap().push(item);
        self.dates.lock().unwrap().push(clock::wall_clock_now());
        self.taken.cancel();
        Ok(())
    }
}

#[async_trait::async_trait]
impl Outlet for TakenJobs {
    async fn reach(&self, queue: &str) -> Result<SendLimits, String> {
        if queue.starts_with("silent") {
            std::future::pending::<()>().await;
        }
        if queue.starts_with("slow") {
            let later = clock::now() + Duration::from_secs(30);
            clock::sleep_until(Some(later)).await;
        }
        if queue != "q" && !queue.starts_with("dead") && !queue.starts_with("slow") {
            return Err(format!("there is no queue `{queue}`"));
        }
        Ok(if self.fifo { FIFO } else { STANDARD })
    }

    async fn send(&self, queue: &str, items: Vec<OutgoingMessage>) -> Vec<Result<(), NotSent>> {
        if queue.starts_with("dead") {
            self.taken.cancelled().await;
            return items
                .iter()
                .map(|_| Err(NotSent::Transient("no answer".into())))
                .collect();
        }
        assert!(items.len() <= 10);
        items.into_iter().map(|item| self.take(item)).collect()
    }
}
