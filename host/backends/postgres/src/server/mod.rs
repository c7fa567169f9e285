//! The connections to one server. Statements are not prepared, so that a pooler may stand between.

pub mod address;
pub(crate) mod errors;
mod keywords;
pub(crate) mod listener;
pub(crate) mod time;
mod tls;

use address::{Address, Surroundings};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use dispatcher_core::clock;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use errors::call_error;
use listener::Listener;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, IsolationLevel, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The time limit of a statement. Each is short; one that takes longer waits for a lock, or the
/// server is gone.
const ANSWER: Duration = Duration::from_secs(10);
/// The time limit of an installation, which may build indexes of existing queues.
const INSTALLATION: Duration = Duration::from_secs(600);
/// The time limit of cancelling a statement.
const CANCEL: Duration = Duration::from_secs(5);

/// A value of a statement, with its type.
pub(crate) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections to one server. Clones share them.
#[derive(Clone)]
pub struct Server {
    pool: Pool,
    tls: MakeRustlsConnect,
    /// The connection that notifications come by.
    pub(crate) listener: Arc<Listener>,
    /// The name of the server in messages.
    place: Arc<str>,
}

/// Why a statement failed.
pub(crate) enum StatementError {
    /// The server refused it because of a value in it.
    Value(CallError),
    /// It failed otherwise.
    Call(CallError),
}

impl From<StatementError> for CallError {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Value(error) | StatementError::Call(error) => error,
        }
    }
}

impl Server {
    /// Reads the address; `None` is libpq's default. Connections are made when they are needed, at
    /// most `connections`, and one that listens.
    ///
    /// # Errors
    /// Returns what is wrong with the address.
    pub fn new(url: Option<&str>, connections: usize) -> Result<Self, CallError> {
        let address = Address::read(url, &Surroundings::of_process()).map_err(invalid)?;
        let tls = address.tls.connector().map_err(invalid)?;
        let place: Arc<str> = address.place().into();
        let manager = Manager::from_config(
            address.config.clone(),
            tls.clone(),
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let built = Pool::builder(manager).max_size(connections).build();
        let pool = built.map_err(|error| CallError {
            kind: ErrorKind::Invalid,
            message: format!("PostgreSQL at {place}: {error}"),
        })?;
        Ok(Self {
            pool,
            tls: tls.clone(),
            listener: Listener::new((address.config, tls), place.clone()),
            place,
        })
    }

    /// Returns the name of the server and the database.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Runs a statement as a transaction of its own.
    pub(crate) async fn run(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, CallError> {
        Ok(self.try_run(sql, values).await?)
    }

    /// Runs a statement as `run` does, and tells refused values from other failures.
    pub(crate) async fn try_run(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, StatementError> {
        let connection = self.connection().await.map_err(StatementError::Call)?;
        let answered = within(ANSWER, connection.query_typed(sql, values)).await;
        self.judge(connection, answered).await
    }

    /// Runs several statements without values, as one transaction.
    pub(crate) async fn run_script(&self, sql: &str) -> Result<(), CallError> {
        let connection = self.connection().await?;
        let answered = within(INSTALLATION, connection.batch_execute(sql)).await;
        Ok(self.judge(connection, answered).await?)
    }

    /// Runs a statement that locks what it finds, and then one for the `ids` in its only row, in one
    /// transaction. The second sees what was committed before the locks were taken. Its last value
    /// is the ids. Returns the row, and the second answer, which is empty if there are no ids.
    pub(crate) async fn run_locked(
        &self,
        find: (&str, &[Value<'_>]),
        act: (&str, &[Value<'_>]),
    ) -> Result<(Option<Row>, Vec<Row>), CallError> {
        let mut connection = self.connection().await?;
        let both = async {
            let terms = connection
                .build_transaction()
                .isolation_level(IsolationLevel::ReadCommitted);
            let transaction = terms.start().await?;
            let found = transaction.query_typed(find.0, find.1).await?.pop();
            let ids: Vec<i64> = match &found {
                Some(found) => found.try_get("ids")?,
                None => Vec::new(),
            };
            if ids.is_empty() {
                transaction.rollback().await?;
                return Ok((found, Vec::new()));
            }
            let mut values = act.1.to_vec();
            values.push((&ids, Type::INT8_ARRAY));
            let rows = transaction.query_typed(act.0, &values).await?;
            transaction.commit().await?;
            Ok((found, rows))
        };
        let answered = within(ANSWER, both).await;
        Ok(self.judge(connection, answered).await?)
    }

    async fn connection(&self) -> Result<Object, CallError> {
        let connected = within(ANSWER, self.pool.get()).await;
        match connected {
            Some(Ok(connection)) => Ok(connection),
            Some(Err(deadpool_postgres::PoolError::Backend(error))) => {
                Err(call_error(&error, &self.place))
            }
            Some(Err(error)) => Err(self.unreachable(&error.to_string())),
            None => Err(self.unreachable("no connection in time")),
        }
    }

    /// Returns the answer of a statement. One that was not answered in time is cancelled: once it gets
    /// the lock that it waits for, it would take messages that no process handles.
    async fn judge<T>(
        &self,
        connection: Object,
        answered: Option<Result<T, Error>>,
    ) -> Result<T, StatementError> {
        match answered {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) if errors::is_about_values(&error) => {
                Err(StatementError::Value(call_error(&error, &self.place)))
            }
            Some(Err(error)) => Err(StatementError::Call(call_error(&error, &self.place))),
            None => {
                let cancelling = connection.cancel_token();
                within(CANCEL, cancelling.cancel_query(self.tls.clone())).await;
                drop(Object::take(connection));
                Err(StatementError::Call(self.unreachable("no answer in time")))
            }
        }
    }

    fn unreachable(&self, why: &str) -> CallError {
        CallError {
            kind: ErrorKind::Unreachable,
            message: format!("PostgreSQL at {}: {why}", self.place),
        }
    }
}

/// Returns the error for an address that cannot be used.
fn invalid(found: String) -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message: format!("the address of PostgreSQL: {found}"),
    }
}

/// Returns the result, or `None` after this time.
async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = clock::sleep_until(Some(clock::now() + time)) => None,
    }
}
