//! Jobs of the embedded queues that are periodic or have a group, in one SQLite file of the data
//! folder, for all processes that share the folder. All other jobs are in the queue itself, whose
//! delays have no limit. Independent of the embedded queue's file.

mod schema;

use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::{
    Claim, ErrorKind, JobCancellation, JobOutcome, JobPage, ScheduleStore, ScheduledJob,
    StoreError, Unreadable,
};
use dispatcher_core::tasks;
use dispatcher_sqlite::{Database, Synchronous};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of jobs in one page.
const PAGE: usize = 500;

/// The schedule file of one data folder, opened when it is first needed. Cheap to create.
#[derive(Debug, Clone)]
pub struct File {
    folder: PathBuf,
    connection: Arc<Mutex<Option<Database>>>,
}

impl File {
    /// Creates the schedule without opening the file. Adding a job creates the file; reading does
    /// not.
    pub fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            connection: Arc::default(),
        }
    }

    /// Runs a step in one transaction, on a thread that may block.
    async fn run<T, F>(&self, make: bool, step: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let Self {
            folder, connection, ..
        } = self.clone();
        let work = tasks::blocking(move || {
            let mut connection = connection.lock();
            if connection.is_none() {
                if !make && !schema::was_made(&folder) {
                    return Err(schema::failed(
                        &folder,
                        ErrorKind::NotFound,
                        "there is none yet",
                    ));
                }
                *connection = Some(schema::open(&folder)?);
            }
            let connection = connection.as_mut().expect("it was just opened");
            let before = connection.total_changes();
            let committed = connection.transact(Synchronous::Full, step);
            let value = committed.map_err(|error| schema::not_committed(&folder, &error))?;
            // The scheduler reads the due jobs once a second, mostly without a change.
            if connection.total_changes() == before {
                connection.tidy();
            }
            Ok(value)
        });
        work.finished().await
    }
}

fn signed(date: Timestamp) -> i64 {
    i64::try_from(date.0).unwrap_or(i64::MAX)
}

fn date(column: i64) -> Timestamp {
    Timestamp(u64::try_from(column).unwrap_or(0))
}

fn read(row: &Row<'_>) -> rusqlite::Result<ScheduledJob> {
    let json: String = row.get(4)?;
    let attributes = serde_json::from_str(&json).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, error.into())
    })?;
    let pattern: Option<String> = row.get(6)?;
    let zone: Option<String> = row.get(7)?;
    let token: Option<String> = row.get(8)?;
    let until: Option<i64> = row.get(9)?;
    Ok(ScheduledJob {
        id: row.get(0)?,
        queue: row.get(1)?,
        due: date(row.get(2)?),
        message: OutgoingMessage {
            body: row.get(3)?,
            attributes,
            delay: Duration::ZERO,
            group: row.get(5)?,
            ..OutgoingMessage::default()
        },
        every: pattern
            .zip(zone)
            .map(|(pattern, zone)| Periodic { pattern, zone }),
        claim: token.zip(until).map(|(token, until)| Claim {
            token,
            until: date(until),
        }),
        stamp: row.get::<_, i64>(2)?.to_string(),
    })
}

/// Parses the due time and the id of the last job of a page, as `due` writes them.
fn after(place: Option<&str>) -> Option<(i64, String)> {
    let (due, id) = place?.split_once(' ')?;
    Some((due.parse().ok()?, id.to_owned()))
}

fn whole<T: Clone>(
    count: usize,
    outcome: Result<Vec<T>, StoreError>,
) -> Vec<Result<T, StoreError>> {
    match outcome {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); count],
    }
}

#[async_trait::async_trait]
impl ScheduleStore for File {
    fn place(&self) -> String {
        schema::path(&self.folder).display().to_string()
    }

    async fn add(&self, job: &ScheduledJob) -> Result<bool, StoreError> {
        let job = job.clone();
        let attributes = serde_json::to_string(&job.message.attributes_with_trace())
            .map_err(|error| schema::failed(&self.folder, ErrorKind::Invalid, error))?;
        self.run(true, move |file| {
            let every = job.every.as_ref();
            let added = file.execute(
                "INSERT INTO jobs (id, queue, due, body, attributes, message_group, pattern, zone)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
                params![
                    job.id,
                    job.queue,
                    signed(job.due),
                    job.message.body,
                    attributes,
                    job.message.group,
                    every.map(|every| &every.pattern),
                    every.map(|every| &every.zone),
                ],
            )?;
            Ok(added > 0)
        })
        .await
    }

    async fn due(&self, until: Timestamp, from: Option<&str>) -> Result<JobPage, StoreError> {
        let (due, id) = after(from).unwrap_or((i64::MIN, String::new()));
        let found = self.run(false, move |file| {
            let mut find = file.prepare_cached(
                "SELECT id, queue, due, body, attributes, message_group, pattern, zone, token, until
                 FROM jobs WHERE due <= ?1 AND (due, id) > (?2, ?3) ORDER BY due, id LIMIT ?4",
            )?;
            let most = i64::try_from(PAGE).unwrap_or(i64::MAX);
            let mut rows = find.query(params![signed(until), due, id, most])?;
            let (mut jobs, mut unreadable, mut last) = (Vec::new(), Vec::new(), None);
            let mut count = 0;
            while let Some(row) = rows.next()? {
                count += 1;
                let at = (row.get::<_, i64>(2)?, row.get::<_, String>(0)?);
                match read(row) {
                    Ok(job) => jobs.push(job),
                    Err(why) => unreadable.push(Unreadable {
                        id: at.1.clone(),
                        queue: row.get(1).ok(),
                        why: why.to_string(),
                        stamp: at.0.to_string(),
                    }),
                }
                last = Some(at);
            }
            let next = match last {
                Some((due, id)) if count == PAGE => Some(format!("{due} {id}")),
                _ => None,
            };
            Ok(JobPage {
                jobs,
                next,
                unreadable,
            })
        });
        match found.await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(JobPage::default()),
            outcome => outcome,
        }
    }

    async fn claim(
        &self,
        jobs: &[ScheduledJob],
        claim: &Claim,
        now: Timestamp,
    ) -> Vec<Result<bool, StoreError>> {
        let (count, jobs, claim) = (jobs.len(), jobs.to_vec(), claim.clone());
        let outcome = self.run(false, move |file| {
            let mut take = file.prepare_cached(
                "UPDATE jobs SET token = ?3, until = ?4
                 WHERE id = ?1 AND due = ?2 AND (until IS NULL OR until < ?5)",
            )?;
            let until = signed(claim.until);
            let mut one = |job: &ScheduledJob| {
                let row = params![job.id, signed(job.due), claim.token, until, signed(now)];
                Ok(take.execute(row)? > 0)
            };
            jobs.iter().map(&mut one).collect()
        });
        whole(count, outcome.await)
    }

    async fn end(&self, endings: &[JobOutcome]) -> Vec<Result<(), StoreError>> {
        let (count, endings) = (endings.len(), endings.to_vec());
        let outcome = self.run(false, move |file| {
            for JobOutcome { job, token, next } in &endings {
                match next {
                    None => file.execute(
                        "DELETE FROM jobs WHERE id = ?1 AND token = ?2",
                        params![job.id, token],
                    )?,
                    Some(next) => file.execute(
                        "UPDATE jobs SET due = ?3, token = NULL, until = NULL
                         WHERE id = ?1 AND token = ?2",
                        params![job.id, token, signed(*next)],
                    )?,
                };
            }
            Ok(vec![(); endings.len()])
        });
        whole(count, outcome.await)
    }

    async fn set_aside(
        &self,
        job: &Unreadable,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (id, due, reason) = (job.id.clone(), job.stamp.clone(), reason.to_owned());
        let kept = self.run(false, move |file| {
            file.execute_batch(schema::DEAD)?;
            let due: i64 = due.parse().unwrap_or(i64::MAX);
            // A claim that cannot be read belongs to no process.
            let which = "WHERE id = ?1 AND due = ?2
                         AND (until IS NULL OR typeof(until) <> 'integer' OR until < ?3)";
            let kept = file.execute(
                &format!(
                    "INSERT OR REPLACE INTO dead SELECT id, queue, due, body, attributes,
                     message_group, pattern, zone, ?4, ?3 FROM jobs {which}"
                ),
                params![id, due, signed(now), reason],
            )?;
            file.execute(
                &format!("DELETE FROM jobs {which}"),
                params![id, due, signed(now)],
            )?;
            Ok(kept > 0)
        });
        kept.await
    }

    async fn cancel(&self, id: &str, now: Timestamp) -> Result<JobCancellation, StoreError> {
        let id = id.to_owned();
        match self
            .run(false, move |file: &Connection| {
                let free = "DELETE FROM jobs WHERE id = ?1 AND (until IS NULL OR until < ?2)";
                if file.execute(free, params![id, signed(now)])? > 0 {
                    return Ok(JobCancellation::Yes);
                }
                let find = "SELECT 1 FROM jobs WHERE id = ?1";
                let found = file.query_row(find, params![id], |_| Ok(())).optional()?;
                Ok(found.map_or(JobCancellation::Unknown, |()| JobCancellation::BeingSent))
            })
            .await
        {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(JobCancellation::Unknown),
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests;
