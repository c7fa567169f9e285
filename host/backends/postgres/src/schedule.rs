//! Scheduled messages of all queues of the database, in the table `dispatcher.jobs`. Times are in
//! milliseconds since 1970, on the clocks of the processes.

use crate::server::{Server, Value};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::error_kind::ErrorKind;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::{
    Claim, JobCancellation, JobOutcome, JobPage, ScheduleStore, ScheduledJob, StoreError,
    Unreadable,
};
use std::collections::BTreeSet;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// The maximum number of jobs in one page.
const PAGE: i64 = 500;

const ADD: &str = "
    INSERT INTO dispatcher.jobs (id, queue, due, body, attributes, message_group, pattern, zone)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING 1";

const DUE: &str = "
    SELECT id, queue, due, body, attributes, message_group, pattern, zone, token, until
    FROM dispatcher.jobs WHERE due <= $1 AND (due, id) > ($2, $3) ORDER BY due, id LIMIT $4";

/// Claims jobs that have not changed and that no other process claims.
const CLAIM: &str = "
    UPDATE dispatcher.jobs j SET token = $3, until = $4
    FROM unnest($1, $2) AS wanted (id, due)
    WHERE j.id = wanted.id AND j.due = wanted.due AND (j.until IS NULL OR j.until < $5)
    RETURNING j.id";

/// Ends claims: without a next time the job is removed.
const END: &str = "
    WITH ending AS (
        SELECT * FROM unnest($1, $2, $3) AS ending (id, token, next)
    ), removed AS (
        DELETE FROM dispatcher.jobs j USING ending e
        WHERE j.id = e.id AND j.token = e.token AND e.next IS NULL
    )
    UPDATE dispatcher.jobs j SET due = e.next, token = NULL, until = NULL
    FROM ending e WHERE j.id = e.id AND j.token = e.token AND e.next IS NOT NULL";

const SET_ASIDE: &str = "
    WITH gone AS (
        DELETE FROM dispatcher.jobs
        WHERE id = $1 AND due = $2 AND (until IS NULL OR until < $3)
        RETURNING id, to_jsonb(jobs) AS job
    )
    INSERT INTO dispatcher.dead_jobs (id, job, reason) SELECT id, job, $4 FROM gone
    ON CONFLICT (id) DO UPDATE SET job = excluded.job, reason = excluded.reason, since = now()
    RETURNING 1";

const CANCEL: &str = "
    WITH cancelled AS (
        DELETE FROM dispatcher.jobs WHERE id = $1 AND (until IS NULL OR until < $2) RETURNING 1
    )
    SELECT EXISTS (SELECT FROM cancelled), EXISTS (SELECT FROM dispatcher.jobs WHERE id = $1)";

/// The schedule of one database.
pub struct PostgresSchedule {
    server: Server,
}

impl PostgresSchedule {
    /// Creates the schedule.
    #[must_use]
    pub fn on(server: &Server) -> Self {
        Self {
            server: server.clone(),
        }
    }
}

fn signed(date: Timestamp) -> i64 {
    i64::try_from(date.0).unwrap_or(i64::MAX)
}

fn date(column: i64) -> Timestamp {
    Timestamp(u64::try_from(column).unwrap_or_default())
}

/// Reads a job, or says why it cannot be read.
fn read(row: &Row) -> Result<ScheduledJob, String> {
    let attributes: Vec<Attribute> =
        serde_json::from_str(row.get("attributes")).map_err(|error| error.to_string())?;
    let (pattern, zone): (Option<String>, Option<String>) = (row.get("pattern"), row.get("zone"));
    let (token, until): (Option<String>, Option<i64>) = (row.get("token"), row.get("until"));
    let due: i64 = row.get("due");
    Ok(ScheduledJob {
        id: row.get("id"),
        queue: row.get("queue"),
        due: date(due),
        message: OutgoingMessage {
            body: row.get("body"),
            attributes,
            group: row.get("message_group"),
            ..OutgoingMessage::default()
        },
        every: pattern
            .zip(zone)
            .map(|(pattern, zone)| Periodic { pattern, zone }),
        claim: token.zip(until).map(|(token, until)| Claim {
            token,
            until: date(until),
        }),
        stamp: due.to_string(),
    })
}

#[async_trait::async_trait]
impl ScheduleStore for PostgresSchedule {
    fn place(&self) -> String {
        format!("the table dispatcher.jobs of {}", self.server.place())
    }

    async fn add(&self, job: &ScheduledJob) -> Result<bool, StoreError> {
        let json = serde_json::to_string(&job.message.attributes_with_trace());
        let attributes = json.map_err(|error| StoreError {
            kind: ErrorKind::Invalid,
            message: error.to_string(),
        })?;
        let due = signed(job.due);
        let pattern = job.every.as_ref().map(|every| &every.pattern);
        let zone = job.every.as_ref().map(|every| &every.zone);
        let values: [Value<'_>; 8] = [
            (&job.id, Type::TEXT),
            (&job.queue, Type::TEXT),
            (&due, Type::INT8),
            (&job.message.body, Type::TEXT),
            (&attributes, Type::TEXT),
            (&job.message.group, Type::TEXT),
            (&pattern, Type::TEXT),
            (&zone, Type::TEXT),
        ];
        Ok(!self.server.run(ADD, &values).await?.is_empty())
    }

    async fn due(&self, until: Timestamp, after: Option<&str>) -> Result<JobPage, StoreError> {
        let place = after.and_then(|after| after.split_once(' '));
        let (due, id) = place.unwrap_or(("", ""));
        let (until, due) = (signed(until), due.parse().unwrap_or(i64::MIN));
        let values: [Value<'_>; 4] = [
            (&until, Type::INT8),
            (&due, Type::INT8),
            (&id, Type::TEXT),
            (&PAGE, Type::INT8),
        ];
        let rows = self.server.run(DUE, &values).await?;
        let mut page = JobPage::default();
        for row in &rows {
            match read(row) {
                Ok(job) => page.jobs.push(job),
                Err(why) => page.unreadable.push(Unreadable {
                    id: row.get("id"),
                    queue: row.get("queue"),
                    why,
                    stamp: row.get::<_, i64>("due").to_string(),
                }),
            }
        }
        if rows.len() == usize::try_from(PAGE).unwrap_or_default()
            && let Some(last) = rows.last()
        {
            let (due, id): (i64, &str) = (last.get("due"), last.get("id"));
            page.next = Some(format!("{due} {id}"));
        }
        Ok(page)
    }

    async fn claim(
        &self,
        jobs: &[ScheduledJob],
        claim: &Claim,
        now: Timestamp,
    ) -> Vec<Result<bool, StoreError>> {
        let ids: Vec<&str> = jobs.iter().map(|job| &*job.id).collect();
        let due: Vec<i64> = jobs.iter().map(|job| signed(job.due)).collect();
        let (until, now) = (signed(claim.until), signed(now));
        let values: [Value<'_>; 5] = [
            (&ids, Type::TEXT_ARRAY),
            (&due, Type::INT8_ARRAY),
            (&claim.token, Type::TEXT),
            (&until, Type::INT8),
            (&now, Type::INT8),
        ];
        match self.server.run(CLAIM, &values).await {
            Ok(rows) => {
                let claimed: BTreeSet<&str> = rows.iter().map(|row| row.get(0)).collect();
                ids.iter().map(|id| Ok(claimed.contains(id))).collect()
            }
            Err(error) => vec![Err(error); jobs.len()],
        }
    }

    async fn end(&self, endings: &[JobOutcome]) -> Vec<Result<(), StoreError>> {
        let ids: Vec<&str> = endings.iter().map(|one| &*one.job.id).collect();
        let tokens: Vec<&str> = endings.iter().map(|one| &*one.token).collect();
        let next: Vec<Option<i64>> = endings.iter().map(|one| one.next.map(signed)).collect();
        let values: [Value<'_>; 3] = [
            (&ids, Type::TEXT_ARRAY),
            (&tokens, Type::TEXT_ARRAY),
            (&next, Type::INT8_ARRAY),
        ];
        let ended = self.server.run(END, &values).await.map(drop);
        vec![ended; endings.len()]
    }

    async fn set_aside(
        &self,
        job: &Unreadable,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (due, now) = (job.stamp.parse().unwrap_or(i64::MAX), signed(now));
        let values: [Value<'_>; 4] = [
            (&job.id, Type::TEXT),
            (&due, Type::INT8),
            (&now, Type::INT8),
            (&reason, Type::TEXT),
        ];
        Ok(!self.server.run(SET_ASIDE, &values).await?.is_empty())
    }

    async fn cancel(&self, id: &str, now: Timestamp) -> Result<JobCancellation, StoreError> {
        let now = signed(now);
        let values: [Value<'_>; 2] = [(&id, Type::TEXT), (&now, Type::INT8)];
        let rows = self.server.run(CANCEL, &values).await?;
        let found = rows.first().map(|row| (row.get(0), row.get(1)));
        Ok(match found {
            Some((true, _)) => JobCancellation::Yes,
            Some((false, true)) => JobCancellation::BeingSent,
            _ => JobCancellation::Unknown,
        })
    }
}
