//! A PostgreSQL server that peers share, with the jobs of each as its own producer sends them: fill a
//! queue, wait until it is empty, what that cost. Knows no worker.

use crate::contest::Broker;
use crate::postgres_server::PostgresServer;
use crate::support::program::{Program, TICKS};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::thread::sleep;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

/// Between two looks whether a queue is empty.
const LOOK: Duration = Duration::from_millis(5);
/// Jobs that are sent in one transaction.
const BATCH: usize = 1_000;

/// Whose jobs they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostgresJobs {
    Dispatcher,
    Pgmq,
    Graphile,
    PgBoss,
}

/// A name that is one in SQL without quotes.
pub(crate) fn name(queue: &str) -> String {
    queue.to_lowercase().replace(['-', ' ', ','], "_")
}

/// The server.
pub(crate) struct PostgresBroker<'a> {
    server: PostgresServer,
    runtime: &'a Runtime,
    client: Client,
    kind: PostgresJobs,
    queue: String,
    filled: BootInstant,
}

impl<'a> PostgresBroker<'a> {
    /// Starts one that waits for its disk, as by default, and counts statements.
    pub(crate) fn start(runtime: &'a Runtime) -> Self {
        let server = PostgresServer::start(&[
            "-c",
            "shared_preload_libraries=pg_stat_statements",
            "-c",
            "shared_buffers=512MB",
            "-c",
            "max_wal_size=8GB",
            "-c",
            "max_connections=200",
        ]);
        // What the benchmark itself asks is told apart by its role.
        server.sql("CREATE ROLE bench LOGIN SUPERUSER");
        server.sql("CREATE EXTENSION pg_stat_statements");
        let client = runtime.block_on(async {
            let connected = tokio_postgres::connect(&server.url_of("bench"), NoTls).await;
            let (client, connection) = connected.expect("the server answers");
            tokio::spawn(connection);
            client
        });
        Self {
            server,
            runtime,
            client,
            kind: PostgresJobs::Dispatcher,
            queue: String::new(),
            filled: clock::now(),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// What the server calls itself.
    pub(crate) fn version(&self) -> String {
        self.ask("SELECT 'PostgreSQL ' || current_setting('server_version')")
    }

    fn ask<T: for<'r> tokio_postgres::types::FromSql<'r>>(&self, sql: &str) -> T {
        let row = self.runtime.block_on(self.client.query_one(sql, &[]));
        row.expect(sql).get(0)
    }

    fn run(&self, sql: &str) {
        let done = self.runtime.block_on(self.client.batch_execute(sql));
        done.expect(sql);
    }

    /// The statement that sends this many jobs.
    fn sends(&self, count: usize, body: &str) -> String {
        let queue = &self.queue;
        let one = match self.kind {
            PostgresJobs::Dispatcher => format!("dispatcher.send('{queue}', '{body}')"),
            PostgresJobs::Pgmq => format!("pgmq.send('{queue}', '{body}')"),
            PostgresJobs::Graphile => {
                format!("graphile_worker.add_job('{queue}', payload := '{body}')")
            }
            PostgresJobs::PgBoss => {
                return format!(
                    "INSERT INTO pgboss.job (name, data) \
                     SELECT '{queue}', '{body}' FROM generate_series(1, {count})"
                );
            }
        };
        format!("SELECT {one} FROM generate_series(1, {count})")
    }

    fn is_drained(&self) -> bool {
        let queue = &self.queue;
        let left = match self.kind {
            PostgresJobs::Dispatcher | PostgresJobs::Pgmq => format!("pgmq.q_{queue}"),
            PostgresJobs::Graphile => "graphile_worker._private_jobs".to_owned(),
            PostgresJobs::PgBoss => {
                format!("pgboss.job WHERE name = '{queue}' AND state < 'completed'")
            }
        };
        self.ask(&format!("SELECT NOT EXISTS (SELECT FROM {left})"))
    }
}

impl Broker for PostgresBroker<'_> {
    type Kind = PostgresJobs;

    fn open(&mut self, kind: PostgresJobs, queue: &str) {
        self.kind = kind;
        self.queue = name(queue);
        let queue = &self.queue;
        match kind {
            PostgresJobs::Dispatcher => {
                self.run(&format!("SELECT dispatcher.create_queue('{queue}')"));
            }
            PostgresJobs::Pgmq => self.run(&format!("SELECT pgmq.create('{queue}')")),
            PostgresJobs::Graphile => {}
            PostgresJobs::PgBoss => {
                let options = "{\"policy\": \"standard\"}";
                self.run(&format!(
                    "SELECT pgboss.create_queue('{queue}', '{options}')"
                ));
            }
        }
    }

    fn fill(&mut self, program: &Program, count: usize, body: &str) {
        program.hold();
        self.send(count, body);
        // A checkpoint in one drain and not in another would compare nothing.
        self.run("CHECKPOINT");
        self.run("SELECT pg_stat_statements_reset()");
        self.filled = clock::now();
        program.resume();
    }

    fn send(&mut self, count: usize, body: &str) {
        let mut left = count;
        while left > 0 {
            let now = left.min(BATCH);
            self.run(&self.sends(now, body));
            left -= now;
        }
    }

    fn drained(&mut self) -> Duration {
        while !self.is_drained() {
            sleep(LOOK);
        }
        clock::now().since(self.filled)
    }

    fn calls(&mut self) -> u64 {
        let calls: i64 = self.ask(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements \
             WHERE userid <> 'bench'::regrole",
        );
        calls.unsigned_abs()
    }

    /// Of all its processes, ended ones included.
    fn cpu(&self) -> Duration {
        let server = self.server.id().to_string();
        let processes = std::fs::read_dir("/proc").expect("Linux");
        let ticks = processes.filter_map(Result::ok).filter_map(|process| {
            let text = std::fs::read_to_string(process.path().join("stat")).ok()?;
            let (id, rest) = text.split_once(' ')?;
            let fields: Vec<&str> = rest.rsplit(')').next()?.split_whitespace().collect();
            let number = |place: usize| fields.get(place)?.parse::<f64>().ok();
            if id == server {
                Some(number(11)? + number(12)? + number(13)? + number(14)?)
            } else if fields.get(1) == Some(&server.as_str()) {
                Some(number(11)? + number(12)?)
            } else {
                None
            }
        });
        Duration::from_secs_f64(ticks.sum::<f64>() / TICKS)
    }
}
