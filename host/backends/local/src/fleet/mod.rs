//! The records of a fleet in one SQLite file of the data folder, for all processes of the machine
//! that share the folder. Independent of the embedded queue's file.
//!
//! Its time is the time since boot, which does not jump, so only records that are kept forever
//! outlive a restart of the machine.

mod steps;

#[cfg(test)]
mod tests;

use dispatcher_core::clock;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::{FleetStore, RecordChange, Snapshot};
use dispatcher_sqlite as sqlite;
use dispatcher_sqlite::{Call, Caller, CommitError, Database, GroupWriter, Schema, Synchronous};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use steps::{FleetAnswer, FleetCall};

const SCHEMA: Schema = Schema {
    // `difl`
    application: 0x6469_666c,
    version: 1,
    tables: &[steps::TABLES],
    upgrades: &[],
    // Another process holds the lock for less than a millisecond.
    patience: sqlite::patience::<2_000>,
    // A loss of power ends all that most records are about.
    counter: None,
    reports_locks: true,
};

/// The maximum number of calls in one transaction.
const GROUP: usize = 64;

/// A fleet of one data folder. Its thread ends when it is dropped.
pub struct LocalFleet {
    file: PathBuf,
    calls: Caller<FleetCall, Result<FleetAnswer, CallError>>,
}

impl LocalFleet {
    /// Opens `fleet-NAME.db` in the folder; creates both if they are missing. Blocks for some
    /// milliseconds.
    ///
    /// # Errors
    /// Fails if the file cannot be created or was not written by dispatcher.
    pub fn open(folder: &Path, name: &str) -> Result<Self, CallError> {
        let file = folder.join(format!("fleet-{name}.db"));
        let opened = SCHEMA.open(&file, &folder.join(format!("fleet-{name}.lock")));
        let ([database, _], _) = opened.map_err(|error| failed(&file, error.kind, &error))?;
        let calls = Caller::start("fleet", {
            let file = file.clone();
            move |calls| serve(&file, database, calls)
        });
        Ok(Self {
            calls: calls.map_err(|error| failed(&file, ErrorKind::Transient, &error))?,
            file,
        })
    }

    async fn ask(&self, asked: FleetCall) -> Result<FleetAnswer, CallError> {
        let answer = self.calls.ask(asked).await;
        answer.unwrap_or_else(|why| Err(failed(&self.file, ErrorKind::Transient, &why)))
    }
}

/// Answers until the last caller is gone.
fn serve(
    file: &Path,
    database: Database,
    calls: Receiver<Call<FleetCall, Result<FleetAnswer, CallError>>>,
) {
    let boot = clock::boot().unwrap_or_default();
    let mut writer = GroupWriter::new(database, calls, GROUP);
    while let Some(calls) = writer.gather(None) {
        let answered = writer.transact(Synchronous::Normal, |transaction| {
            let now = since_boot();
            steps::begin(transaction, &boot, now)?;
            let answers = calls
                .iter()
                .map(|call| steps::answer(transaction, &call.asked, now));
            answers.collect::<rusqlite::Result<Vec<FleetAnswer>>>()
        });
        match answered {
            Ok(answers) => {
                for (call, answer) in calls.into_iter().zip(answers) {
                    call.answer(Ok(answer));
                }
            }
            Err(error) => {
                let error = not_committed(file, &error);
                for call in calls {
                    call.answer(Err(error.clone()));
                }
            }
        }
    }
}

fn since_boot() -> u64 {
    let since = clock::now().since(clock::BootInstant::default());
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn not_committed(file: &Path, error: &CommitError) -> CallError {
    match error {
        CommitError::Lost(damage) => failed(file, ErrorKind::Transient, damage),
        CommitError::Begin(error) | CommitError::Within(error) => {
            failed(file, sqlite::judge(error), &sqlite::explain(error, file))
        }
    }
}

fn failed(file: &Path, kind: ErrorKind, cause: &dyn std::fmt::Display) -> CallError {
    CallError {
        kind,
        message: format!("`{}`: {cause}", file.display()),
    }
}

#[async_trait::async_trait]
impl FleetStore for LocalFleet {
    async fn read(&self, names: &[String]) -> Result<Snapshot, CallError> {
        let answer = self.ask(FleetCall::Read(names.to_vec())).await?;
        Ok(Snapshot {
            now: answer.now,
            records: answer.records,
        })
    }

    async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError> {
        let answer = self.ask(FleetCall::Replace(changes.to_vec())).await?;
        Ok(answer.is_changed)
    }

    async fn publish(
        &self,
        process: &str,
        summary: &str,
        keep_for: Duration,
    ) -> Result<(), CallError> {
        let asked = FleetCall::Publish(process.to_owned(), summary.to_owned(), keep_for);
        self.ask(asked).await.map(drop)
    }

    async fn published(&self) -> Result<Vec<(String, String)>, CallError> {
        Ok(self.ask(FleetCall::Published).await?.summaries)
    }
}
