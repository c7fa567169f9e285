//! One queue: a table in the layout of pgmq. `statements` has its SQL, `content` reads and writes
//! messages, `receipt` names deliveries, `claim` receives, and `settle` ends and extends deliveries.
//!
//! pgmq's own functions are not called: they know only a message's id, so a late worker would delete
//! what another one handles.

mod claim;
mod content;
mod controls;
mod receipt;
mod settle;
mod statements;

use crate::server::errors;
use crate::server::time::{ServerTime, micros};
use crate::server::{Server, StatementError, Value};
use claim::{ClaimState, READ_BYTES};
use content::{Columns, Headers};
pub(crate) use controls::{change_control, controls, names, unprepared};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{ContentError, Message, Outcome, OutgoingMessage, Receipt};
use dispatcher_core::queue::{
    Ask, BrowseCursor, BrowsePage, Delays, Depth, Identity, ItemError, PurgeStep, Queue,
    QueueError, QueueFacts, ReceivedMessages,
};
use dispatcher_core::schedule::LOOK_INTERVAL;
use receipt::Delivery;
use settle::RecentCopies;
use statements::{QueueTables, Statements};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

/// The maximum number of messages of one call.
const BATCH: usize = 100;
/// The maximum number of messages that one statement removes from a queue.
const PURGED_AT_ONCE: i64 = 10_000;
/// The longest `wait` of one receive: that of SQS, so that routes behave alike.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// The suffix of the default dead-letter queue.
pub(crate) const DEAD: &str = ".dead";
/// The maximum length of a name: a table's has 63 characters, with what pgmq adds.
pub(crate) const LONGEST_NAME: usize = 47;
/// The maximum number of messages of one kind that are counted.
const COUNTED: i64 = 100_000;

/// How a queue is opened.
#[derive(Debug, Clone, Default)]
pub struct QueueOptions<'a> {
    /// The dead-letter queue by its bare name; `None` for the default.
    pub dead_letter: Option<&'a str>,
    /// Whether messages that are done move to the archive.
    pub archive: bool,
    /// The bytes that the process may hold.
    pub budget: Option<Arc<Budget>>,
}

/// One open queue.
pub struct PostgresQueue {
    identity: Identity,
    server: Server,
    statements: Statements,
    /// Its bare name, and that of its table.
    name: String,
    table: String,
    dead_letter_queue: Option<String>,
    dead_lettered: RecentCopies,
    claims: ClaimState,
    /// Whether the queue has existed. One that is gone since is not created by a receive.
    is_there: AtomicBool,
    budget: Option<Arc<Budget>>,
}

impl PostgresQueue {
    /// Opens a queue by its bare name. The first send or receive creates one that does not exist. Dead
    /// letters go to `NAME.dead` by default; a queue whose name ends in `.dead` has no default.
    ///
    /// # Errors
    /// Fails if the server cannot be reached, or lacks what `dispatcher postgres init` makes.
    pub async fn open(
        server: &Server,
        name: &str,
        options: QueueOptions<'_>,
    ) -> Result<Self, QueueError> {
        let named = options.dead_letter.map(str::to_owned);
        let dead_letter = named.or_else(|| default_dead_letters(name));
        let found = if dead_letter.as_deref() == Some(name) {
            Some(format!("`{name}` cannot be its own dead-letter queue"))
        } else {
            let both = [Some(name), dead_letter.as_deref()];
            both.into_iter().flatten().find_map(not_a_name)
        };
        if let Some(message) = found {
            let kind = ErrorKind::Invalid;
            return Err(QueueError { kind, message });
        }
        let is_there = prepare(server, name).await?;
        let table = table(name);
        let tables = QueueTables {
            table: table.clone(),
            dead_letter: dead_letter.as_deref().map(self::table),
            archive: options.archive,
        };
        let claims = ClaimState::default();
        server.listener.add(&table, &claims.wakes);
        let full = format!("postgres:{name}");
        Ok(Self {
            identity: Identity {
                name: full.clone(),
                source: full,
                visibility: Duration::from_secs(30),
                batch: BATCH,
                longest_wait: LONGEST_WAIT,
                proof_wait: Duration::ZERO,
                ordered_groups: true,
                deduplicates: false,
                dead_letters: dead_letter.is_some(),
                most_receives: None,
                redrive_target: false,
            },
            server: server.clone(),
            statements: Statements::of(&tables),
            name: name.to_owned(),
            table,
            dead_letter_queue: dead_letter,
            dead_lettered: RecentCopies::default(),
            claims,
            is_there: AtomicBool::new(is_there),
            budget: options.budget,
        })
    }

    /// Returns the largest body that is read.
    fn largest(&self) -> i64 {
        let capacity = self.budget.as_ref().map(|budget| budget.capacity());
        capacity.map_or(i64::MAX, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    /// Runs a statement with the largest body as $1, and returns its messages.
    async fn read(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Message>, QueueError> {
        let largest = self.largest();
        let all = [&[(&largest as _, Type::INT8)], values].concat();
        let Some(rows) = self.rows_if_there(sql, &all).await? else {
            return Ok(Vec::new());
        };
        self.messages(&rows)
    }

    /// Runs a statement; `None` if the queue was not created yet.
    async fn rows_if_there(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Option<Vec<Row>>, QueueError> {
        match self.server.run(sql, values).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error)
                if error.kind == ErrorKind::NotFound && !self.is_there.load(Ordering::Relaxed) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn messages(&self, rows: &[Row]) -> Result<Vec<Message>, QueueError> {
        let messages = rows.iter().map(|row| self.message(row)).collect();
        let read: Result<_, tokio_postgres::Error> = messages;
        read.map_err(|error| self.unexpected(&error))
    }

    /// Reads the columns of a message. Its receipt is valid if it was just received.
    fn message(&self, row: &Row) -> Result<Message, tokio_postgres::Error> {
        let count: i32 = row.try_get("read_ct")?;
        let id: i64 = row.try_get("msg_id")?;
        let at: Option<ServerTime> = row.try_get("last_read_at")?;
        let sent_at: ServerTime = row.try_get("enqueued_at")?;
        let column: Option<&str> = row.try_get("headers")?;
        let headers = column.map(Headers::read).unwrap_or_default();
        let body: Option<String> = row.try_get("body")?;
        let bytes: i64 = row.try_get("bytes")?;
        let first_read = headers.first_read.map(ServerTime::of_unix_micros);
        Ok(Message {
            id: id.to_string(),
            queue: self.identity.name.clone(),
            source: self.identity.source.clone(),
            unreadable: body.is_none().then(|| ContentError::TooLarge {
                bytes: bytes.unsigned_abs(),
                most: self.largest().unsigned_abs(),
            }),
            body: body.unwrap_or_default(),
            receipt: Delivery { id, count, at }.receipt(),
            receive_count: u32::try_from(count).unwrap_or_default(),
            sent_at: Some(sent_at.timestamp()),
            first_received_at: first_read.or(at).map(ServerTime::timestamp),
            group: headers.group,
            attributes: headers.attributes,
            ..Message::default()
        })
    }

    fn unexpected(&self, error: &tokio_postgres::Error) -> QueueError {
        QueueError {
            kind: ErrorKind::Invalid,
            message: format!("`{}`: unexpected columns: {error}", self.identity.name),
        }
    }

    /// Sends messages by one statement.
    async fn send_batch(&self, items: &[(Columns, Duration)]) -> Result<Vec<i64>, StatementError> {
        let bodies: Vec<_> = items.iter().map(|(columns, _)| &*columns.message).collect();
        let headers: Vec<_> = items
            .iter()
            .map(|(columns, _)| columns.headers.as_deref())
            .collect();
        let delays: Vec<_> = items.iter().map(|(_, delay)| micros(*delay)).collect();
        let values: [Value<'_>; 3] = [
            (&bodies, Type::TEXT_ARRAY),
            (&headers, Type::TEXT_ARRAY),
            (&delays, Type::INT8_ARRAY),
        ];
        let rows = self.server.try_run(&self.statements.send, &values).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

/// Returns the queue that gets the dead letters of a queue by default, if its name is not too long.
pub(crate) fn default_dead_letters(name: &str) -> Option<String> {
    let fits = name.len() + DEAD.len() <= LONGEST_NAME;
    (fits && !name.ends_with(DEAD)).then(|| format!("{name}{DEAD}"))
}

/// Says why this is not the name of a queue. pgmq keeps `Jobs` and `jobs` in one table.
fn not_a_name(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    if lower != name {
        return Some(format!(
            "`{name}` has capital letters, and tables of pgmq have none; wanted `{lower}`"
        ));
    }
    let is_long = name.len() > LONGEST_NAME;
    is_long.then(|| format!("`{name}` has more than {LONGEST_NAME} characters, pgmq's limit"))
}

/// Prepares a queue that another client of pgmq has made. Returns whether the queue exists.
async fn prepare(server: &Server, queue: &str) -> Result<bool, CallError> {
    let table = table(queue);
    let sql = "SELECT dispatcher.is_prepared($1), to_regclass(format('pgmq.%I', $2)) IS NOT NULL";
    let values: [Value<'_>; 2] = [(&queue, Type::TEXT), (&table, Type::TEXT)];
    let rows = server.run(sql, &values).await?;
    let found = rows.first().map(|row| (row.get(0), row.get(1)));
    let (is_prepared, is_there): (bool, bool) = found.unwrap_or_default();
    if is_there && !is_prepared {
        create(server, queue).await?;
    }
    Ok(is_there)
}

/// Creates a queue, or adds what it lacks.
async fn create(server: &Server, queue: &str) -> Result<(), CallError> {
    let values: [Value<'_>; 1] = [(&queue, Type::TEXT)];
    let sql = "SELECT dispatcher.create_queue($1)";
    server.run(sql, &values).await?;
    tracing::info!(
        queue = format!("postgres:{queue}"),
        "queue created or prepared"
    );
    Ok(())
}

/// Reads a count.
fn count(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).unsigned_abs()
}

/// Returns the name of a queue's table, as pgmq names it.
fn table(queue: &str) -> String {
    format!("q_{queue}")
}

#[async_trait::async_trait]
impl Queue for PostgresQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn facts(&self) -> QueueFacts {
        QueueFacts {
            // A delayed message delays the rest of its group and cannot be listed. So a scheduled
            // message waits in the table of schedules until it is due within two looks at it.
            delays: Delays {
                longest_in_group: Duration::ZERO,
                longest_scheduled: LOOK_INTERVAL * 2,
                takes_any: true,
                ..Delays::ANY
            },
            can_browse: true,
            finds_by_id: true,
            ..QueueFacts::default()
        }
    }

    fn dead_letter_queue(&self) -> Option<String> {
        let name = self.dead_letter_queue.as_ref()?;
        Some(format!("postgres:{name}"))
    }

    fn dead_letter_id(&self, id: &str) -> Option<String> {
        self.dead_lettered.copy_of(id)
    }

    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        self.receive_messages(ask, hurry).await
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        self.extend_deliveries(items).await
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        self.settle_deliveries(items).await
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        let mut answers = Vec::with_capacity(items.len());
        let mut columns = Vec::with_capacity(items.len());
        for item in items {
            let one = Columns::of(item);
            answers.push(one.map(|one| {
                columns.push((one, item.delay));
                String::new()
            }));
        }
        let mut stored = self.send_batch(&columns).await;
        if let Err(StatementError::Call(error)) = &stored
            && error.kind == ErrorKind::NotFound
            && create(&self.server, &self.name).await.is_ok()
        {
            stored = self.send_batch(&columns).await;
        }
        if stored.is_ok() {
            self.is_there.store(true, Ordering::Relaxed);
        }
        let sent = match stored {
            Ok(ids) => ids.into_iter().map(|id| Ok(id.to_string())).collect(),
            Err(StatementError::Call(error)) => errors::all(&error, columns.len()),
            // The statement stored nothing. One of them cannot be stored.
            Err(StatementError::Value(_)) => self.send_each(&columns).await,
        };
        let places = answers.iter_mut().filter(|answer| answer.is_ok());
        places.zip(sent).for_each(|(place, answer)| *place = answer);
        answers
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let values: [Value<'_>; 1] = [(&COUNTED, Type::INT8)];
        let rows = self.rows_if_there(&self.statements.depth, &values).await?;
        let Some(row) = rows.as_ref().and_then(|rows| rows.first()) else {
            return Ok(Depth::default());
        };
        let oldest: Option<i64> = row.get(3);
        Ok(Depth {
            waiting: count(row, 0),
            in_flight: count(row, 1),
            delayed: count(row, 2),
            oldest: oldest.map(|millis| Duration::from_millis(millis.max(0).unsigned_abs())),
        })
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        let most = i64::try_from(max).unwrap_or(i64::MAX);
        let values: [Value<'_>; 1] = [(&most, Type::INT8)];
        let mut messages = self.read(&self.statements.peek, &values).await?;
        for message in &mut messages {
            message.receipt = Receipt::default();
        }
        Ok(messages)
    }

    async fn browse(
        &self,
        after: Option<&BrowseCursor>,
        max: usize,
    ) -> Result<BrowsePage, QueueError> {
        let after: i64 = match after {
            Some(cursor) => cursor.0.parse().map_err(|_| QueueError {
                kind: ErrorKind::Invalid,
                message: format!("`{}` is no position in a queue", cursor.0),
            })?,
            None => 0,
        };
        let most = i64::try_from(max).unwrap_or(i64::MAX);
        let values: [Value<'_>; 3] = [
            (&after, Type::INT8),
            (&most, Type::INT8),
            (&READ_BYTES, Type::INT8),
        ];
        let messages = self.read(&self.statements.list, &values).await?;
        let next = messages.last().map(|last| BrowseCursor(last.id.clone()));
        Ok(BrowsePage { messages, next })
    }

    async fn browse_end(&self) -> Result<BrowseCursor, QueueError> {
        let rows = self.rows_if_there(&self.statements.end, &[]).await?;
        let row = rows.as_ref().and_then(|rows| rows.first());
        let last: i64 = row.map_or(0, |row| row.get(0));
        Ok(BrowseCursor(last.to_string()))
    }

    async fn receive_these(
        &self,
        listed: &[Receipt],
        visibility: Duration,
    ) -> Result<Vec<Message>, QueueError> {
        self.receive_listed(listed, visibility).await
    }

    async fn find_waiting(&self, id: &str) -> Result<Option<Message>, QueueError> {
        let Ok(id) = id.parse::<i64>() else {
            return Ok(None);
        };
        let values: [Value<'_>; 1] = [(&id, Type::INT8)];
        // People know a dead letter by the id that it had before. Its queue is read for it.
        if self.name.ends_with(DEAD)
            && let Some(copy) = self.read(&self.statements.find_copy, &values).await?.pop()
        {
            return Ok(Some(copy));
        }
        Ok(self.read(&self.statements.find, &values).await?.pop())
    }

    async fn cancel_delayed(&self, id: &str) -> Result<bool, QueueError> {
        let Ok(id) = id.parse::<i64>() else {
            return Ok(false);
        };
        let values: [Value<'_>; 1] = [(&id, Type::INT8)];
        let removed = self.rows_if_there(&self.statements.cancel_delayed, &values);
        Ok(removed.await?.is_some_and(|rows| !rows.is_empty()))
    }

    async fn purge(&self) -> Result<PurgeStep, QueueError> {
        let values: [Value<'_>; 1] = [(&PURGED_AT_ONCE, Type::INT8)];
        let rows = self.rows_if_there(&self.statements.purge, &values).await?;
        let counted = rows.as_ref().and_then(|rows| rows.first());
        let removed: i64 = counted.map_or(0, |row| row.get(0));
        Ok(PurgeStep {
            removed: Some(removed.unsigned_abs()),
            has_more: removed == PURGED_AT_ONCE,
        })
    }
}

impl PostgresQueue {
    /// Sends messages one by one, in their order. One that cannot be stored holds up no other.
    async fn send_each(&self, items: &[(Columns, Duration)]) -> Vec<Result<String, ItemError>> {
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            let sent = self.send_batch(std::slice::from_ref(item)).await;
            answers.push(match sent {
                Ok(ids) => Ok(ids.first().map(ToString::to_string).unwrap_or_default()),
                Err(StatementError::Value(error)) => Err(ItemError::Refused(error.message)),
                Err(StatementError::Call(error)) => {
                    // Later messages must not overtake it.
                    let left = items.len() - answers.len();
                    answers.extend(errors::all(&error, left));
                    break;
                }
            });
        }
        answers
    }
}
