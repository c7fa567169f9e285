//! Jobs of queues on Redis, beside their queue on its server. Each step is one script there
//! (`lua`). A step whose answer was lost is repeated once; it changes nothing if it was carried
//! out. `wire` encodes jobs. Independent of how the queues are stored.

mod wire;

use crate::server::errors::{is_doubtful, unexpected_answer};
use crate::server::link::{Link, RedisAddress};
use crate::server::{CALL, LONGEST};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::schedule::{
    Claim, ErrorKind, JobCancellation, JobOutcome, JobPage, ScheduleStore, ScheduledJob,
    StoreError, Unreadable,
};
use redis::{FromRedisValue, Script, ScriptInvocation, Value};
use std::sync::LazyLock;

/// The maximum number of jobs in one page.
const PAGE: usize = 500;

macro_rules! script {
    ($flags:literal, $name:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                $flags,
                include_str!("lua/prelude.lua"),
                include_str!(concat!("lua/", $name, ".lua"))
            ))
        })
    };
}

/// The scripts. All but `ADD` run beyond `maxmemory` (Redis 7.0, "script flags"). None of them is
/// flagged as read-only, so that a replica, which may be behind, refuses reads as well.
static ADD: LazyLock<Script> = script!("", "add");
static DUE: LazyLock<Script> = script!("#!lua flags=allow-oom\n", "due");
static CLAIM: LazyLock<Script> = script!("#!lua flags=allow-oom\n", "claim");
static END: LazyLock<Script> = script!("#!lua flags=allow-oom\n", "end");
static ASIDE: LazyLock<Script> = script!("#!lua flags=allow-oom\n", "aside");
static CANCEL: LazyLock<Script> = script!("#!lua flags=allow-oom\n", "cancel");

/// The schedules of one server under one prefix.
pub struct Redis {
    link: Link,
    prefix: String,
}

impl Redis {
    /// Reads the address. The connection is made when it is first needed. All keys begin with
    /// `{prefix:`.
    pub fn new(place: impl Into<RedisAddress>, prefix: &str) -> Result<Self, StoreError> {
        Ok(Self::on(Link::new(&place.into())?, prefix))
    }

    /// Creates the schedules on a connection that others use as well.
    pub fn on(link: Link, prefix: &str) -> Self {
        Self {
            link,
            prefix: prefix.to_owned(),
        }
    }

    /// Returns the schedule of the queue of this bare name.
    pub fn schedule(&self, name: &str) -> Schedule {
        let base = format!("{{{}:{name}}}:schedule", self.prefix);
        Schedule {
            link: self.link.of(&base),
            base,
            queue: format!("redis:{name}"),
        }
    }
}

/// The schedule of one queue.
#[derive(Clone)]
pub struct Schedule {
    link: Link,
    base: String,
    queue: String,
}

impl Schedule {
    /// Runs one step, and once more if it is unknown whether it was carried out.
    async fn run<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        match self.link.run(call).await {
            Err(error) if is_doubtful(&error) => self.link.run(call).await,
            outcome => outcome,
        }
    }

    fn unexpected_answer(&self, what: &str) -> StoreError {
        unexpected_answer(self.link.place(), what)
    }
}

fn invalid(message: String) -> StoreError {
    StoreError {
        kind: ErrorKind::Invalid,
        message,
    }
}

/// Returns a new id for a call.
fn fresh() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

#[async_trait::async_trait]
impl ScheduleStore for Schedule {
    fn place(&self) -> String {
        format!("{} on Redis at {}", self.base, self.link.place())
    }

    async fn add(&self, job: &ScheduledJob) -> Result<bool, StoreError> {
        let record = wire::write(job)
            .map_err(|error| invalid(format!("the job cannot be written as JSON: {error}")))?;
        let bytes = record.len();
        if bytes > LONGEST {
            let why = format!("the message has {bytes} bytes as JSON, at most {LONGEST} fit");
            return Err(invalid(why));
        }
        let mut call = ADD.key(&self.base);
        call.arg(fresh())
            .arg(&job.id)
            .arg(wire::digits(job.due))
            .arg(record);
        self.run(&call).await
    }

    async fn due(&self, until: Timestamp, after: Option<&str>) -> Result<JobPage, StoreError> {
        let late = Timestamp(until.0.saturating_add(1));
        let mut call = DUE.key(&self.base);
        call.arg(after.unwrap_or_default())
            .arg(wire::digits(late))
            .arg(PAGE)
            .arg(CALL);
        let answer: Vec<Value> = self.run(&call).await?;
        let read = wire::page(&answer, &self.queue);
        read.ok_or_else(|| self.unexpected_answer("reading what is due"))
    }

    async fn claim(
        &self,
        jobs: &[ScheduledJob],
        claim: &Claim,
        now: Timestamp,
    ) -> Vec<Result<bool, StoreError>> {
        let mut call = CLAIM.key(&self.base);
        call.arg(&claim.token).arg(claim.until.0).arg(now.0);
        for job in jobs {
            call.arg(&job.id).arg(&job.stamp);
        }
        match self.run::<Vec<bool>>(&call).await {
            Ok(answers) if answers.len() == jobs.len() => answers.into_iter().map(Ok).collect(),
            Ok(_) => vec![Err(self.unexpected_answer("a claim")); jobs.len()],
            Err(error) => vec![Err(error); jobs.len()],
        }
    }

    async fn end(&self, endings: &[JobOutcome]) -> Vec<Result<(), StoreError>> {
        let mut call = END.key(&self.base);
        for JobOutcome { job, token, next } in endings {
            let next = next.map(wire::digits).unwrap_or_default();
            call.arg(&job.id).arg(token).arg(next);
        }
        vec![self.run::<()>(&call).await; endings.len()]
    }

    async fn set_aside(
        &self,
        job: &Unreadable,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut call = ASIDE.key(&self.base);
        call.arg(fresh()).arg(&job.stamp).arg(now.0).arg(reason);
        self.run(&call).await
    }

    async fn cancel(&self, id: &str, now: Timestamp) -> Result<JobCancellation, StoreError> {
        let mut call = CANCEL.key(&self.base);
        call.arg(fresh()).arg(id).arg(now.0);
        match self.run::<u64>(&call).await? {
            0 => Ok(JobCancellation::Unknown),
            1 => Ok(JobCancellation::Yes),
            2 => Ok(JobCancellation::BeingSent),
            _ => Err(self.unexpected_answer("a cancel")),
        }
    }
}
