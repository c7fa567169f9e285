//! Queues on PostgreSQL, as developers and operators use them: roles, transactions, TLS, a server
//! that dies.

use crate::scene::{guest, printed, prints, run};
use dispatcher_tests::certificates::Certificates;
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram, Signal};
use dispatcher_tests::postgres::PostgresServer;
use dispatcher_tests::toolchains;
use std::collections::BTreeSet;
use std::process::Command;

const MESSAGES: usize = 300;

/// A command of the program, to its end.
fn command(url: &str, arguments: &[&str]) -> ExitedProgram {
    Program::new(arguments)
        .env("DISPATCHER_POSTGRES_URL", url)
        .run()
}

/// A server of the test's own, prepared as its page says.
pub(super) fn prepared(more: &[&str], arguments: &[&str]) -> PostgresServer {
    let server = PostgresServer::start(more);
    let init = [&["postgres", "init"], arguments].concat();
    let done = command(&server.url(), &init);
    assert_eq!(done.code, 0, "{}", done.stderr);
    server
}

/// The program with a guest, receiving from the queue `jobs`.
fn receiving(url: &str, more: &[&str]) -> Program {
    let options = ["--queues", "postgres:jobs", "--postgres-url", url];
    run("verdicts", &[&options[..], more].concat())
}

fn started(program: Program) -> RunningProgram {
    let running = program.start();
    running.wait_for_line(|line| line.contains("\"running\""));
    running
}

#[test]
fn roles_have_the_rights_that_init_gives_and_no_others() {
    let server = PostgresServer::start(&["-c", "fsync=off"]);
    server.sql("CREATE ROLE worker LOGIN; CREATE ROLE app LOGIN; CREATE ROLE stranger LOGIN");
    let roles = ["--worker-role", "worker", "--producer-role", "app"];
    let init = [&["postgres", "init"], &roles[..]].concat();
    for _ in 0..2 {
        let done = command(&server.url(), &init);
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
    let mut running = started(receiving(&server.url_of("worker"), &[]));
    running.wait_for_line(|line| line.contains("queue created or prepared"));
    let sent = server.try_sql("app", "SELECT dispatcher.send('jobs', 'print:1')");
    assert_eq!(sent.as_deref(), Ok("1"));
    running.wait_for_line(printed);
    // The worker has created the queue and a dead letter creates another one.
    let sent = server.try_sql("app", "SELECT dispatcher.send('jobs', 'reject')");
    assert_eq!(sent.as_deref(), Ok("2"));
    running.wait_for_line(|line| line.contains("dead-lettered"));
    running.stop();
    for denied in [
        "SELECT * FROM pgmq.q_jobs",
        "DELETE FROM pgmq.q_jobs",
        "SELECT dispatcher.create_queue('more')",
    ] {
        let error = server.try_sql("app", denied).expect_err(denied);
        assert!(error.contains("permission denied"), "{denied}: {error}");
    }
    let refused = command(&server.url_of("stranger"), &["send", "postgres:jobs", "x"]);
    assert_eq!(refused.code, 2);
    let says =
        "permission denied for schema dispatcher; run `dispatcher postgres init --worker-role";
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let server = PostgresServer::start(&["-c", "fsync=off"]);
    for arguments in [
        &["queues", "postgres:"][..],
        &["send", "postgres:jobs", "x"],
    ] {
        let refused = command(&server.url(), arguments);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        let says = "run `dispatcher postgres init`";
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
    let printed = command(&server.url(), &["postgres", "init", "--print"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let said = command(&server.url(), &["postgres", "init"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let plugin = guest("hello");
    let check = ["check", "--queues", "postgres:typo", "--plugin", &plugin];
    let checked = command(&server.url(), &check);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    let made = server.sql("SELECT count(*) FROM pgmq.meta");
    assert_eq!(made, "0", "a check creates nothing");
    for wrong in ["'postgres:jobs'", "'a b'", "repeat('x', 48)"] {
        let create = format!("SELECT dispatcher.create_queue({wrong})");
        let error = server.try_sql("dispatcher", &create).expect_err(wrong);
        assert!(error.contains("is not valid; wanted"), "{error}");
    }
    for (call, says) in [
        ("send('jobs', NULL::jsonb)", "is NULL"),
        ("send('jobs', '{}'::jsonb, '[1]')", "no JSON object"),
    ] {
        let call = format!("SELECT dispatcher.{call}");
        let error = server.try_sql("dispatcher", &call).expect_err(says);
        assert!(error.contains(says), "{error}");
    }
    // As psql runs it in a migration.
    server.sql(&printed.stdout);
    let sent = command(&server.url(), &["send", "postgres:jobs", "x"]);
    assert_eq!((sent.code, sent.stdout.trim()), (0, "1"), "{}", sent.stderr);
}

#[test]
fn job_of_a_transaction_is_handled_once_it_is_committed() {
    let server = prepared(&["-c", "fsync=off"], &[]);
    server.sql("CREATE TABLE orders (id int); SELECT dispatcher.create_queue('jobs')");
    let mut running = started(receiving(&server.url(), &[]));
    let order = |id: usize| {
        format!(
            "INSERT INTO orders VALUES ({id}); \
             SELECT dispatcher.send('jobs', 'print:{id}', '{{\"tenant\": \"t\"}}', \
             message_group => 'customer')"
        )
    };
    for (id, end) in [
        (1, "ROLLBACK"),
        (2, "COMMIT"),
        (3, "ROLLBACK"),
        (4, "COMMIT"),
    ] {
        let mut session = server.session("dispatcher");
        session.run("BEGIN");
        session.run(&order(id));
        session.run(end);
    }
    running.wait_for_lines(2, printed);
    running.stop();
    assert_eq!(prints(&running), ["2", "4"]);
    assert_eq!(server.sql("SELECT id FROM orders ORDER BY id"), "2\n4");
    assert_eq!(server.sql("SELECT count(*) FROM pgmq.q_jobs"), "0");
}

#[test]
fn messages_survive_kills_of_the_server_and_of_the_process() {
    let mut server = prepared(&[], &[]);
    server.sql(&format!(
        "SELECT dispatcher.create_queue('jobs'); \
         SELECT dispatcher.send('jobs', 'print:' || n) FROM generate_series(1, {MESSAGES}) n"
    ));
    // Short, so that what a killed one held comes back soon.
    let options = [
        "--visibility",
        "3",
        "--max-attempts",
        "1000",
        "--concurrency",
        "4",
    ];
    let mut handled = BTreeSet::new();
    let mut running = started(receiving(&server.url(), &options));
    for round in 0..4 {
        running.wait_for_lines(20, printed);
        if round % 2 == 0 {
            server = server.again();
            running.wait_for_line(|line| line.contains("receives again"));
        }
        running.signal(Signal::KILL);
        assert_eq!(running.wait_exit(), 137);
        handled.extend(prints(&running));
        running = started(receiving(&server.url(), &options));
    }
    while server.sql("SELECT count(*) FROM pgmq.q_jobs") != "0" {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    running.stop();
    handled.extend(prints(&running));
    let all: BTreeSet<String> = (1..=MESSAGES).map(|n| n.to_string()).collect();
    assert_eq!(handled, all);
    let dead = "SELECT to_regclass('pgmq.\"q_jobs.dead\"') IS NULL";
    assert_eq!(server.sql(dead), "t", "nothing was dead-lettered");
}

#[test]
fn modes_of_tls_are_those_of_libpq() {
    let certificates = Certificates::of("localhost");
    let server = PostgresServer::with_tls(&certificates);
    let authority = format!("sslrootcert={}", certificates.authority());
    let at = |host: &str, terms: &[&str]| {
        let port = server.port();
        format!(
            "postgres://dispatcher@{host}:{port}/postgres?{}",
            terms.join("&")
        )
    };
    let init = ["postgres", "init"];
    let with_authority = |host: &str, mode: &str| at(host, &[mode, &authority]);
    for url in [
        at("127.0.0.1", &["sslmode=disable"]),
        at("127.0.0.1", &["sslmode=require"]),
        with_authority("127.0.0.1", "sslmode=verify-ca"),
        with_authority("localhost", "sslmode=verify-full"),
    ] {
        let done = command(&url, &init);
        assert_eq!(done.code, 0, "{url}: {}", done.stderr);
    }
    for (url, says) in [
        (
            with_authority("127.0.0.1", "sslmode=verify-full"),
            "not valid for name",
        ),
        // As libpq does: a list of authorities is there to be used.
        (
            at(
                "localhost",
                &[
                    "sslmode=require",
                    &format!("sslrootcert={}", crate::scene::tls_file("ca.pem")),
                ],
            ),
            "certificate",
        ),
        (
            at("localhost", &["sslmode=verify"]),
            "`verify` is no sslmode; wanted disable",
        ),
    ] {
        let refused = command(&url, &init);
        assert_ne!(refused.code, 0, "{url}");
        assert!(refused.stderr.contains(says), "{url}: {}", refused.stderr);
    }
    let as_node = at("localhost", &["sslmode=require", "user=node"]);
    let refused = command(&as_node, &init);
    assert!(refused.stderr.contains("certificate"), "{}", refused.stderr);
    let (certificate, key) = (certificates.certificate(), certificates.key());
    let shown = format!("{as_node}&sslcert={certificate}&sslkey={key}");
    let done = command(&shown, &init);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let url = with_authority("localhost", "sslmode=verify-full");
    let mut running = started(receiving(&url, &[]));
    running.wait_for_line(|line| line.contains("queue created or prepared"));
    server.sql("SELECT dispatcher.send('jobs', 'print:1')");
    running.wait_for_line(printed);
    let encrypted = "SELECT bool_and(ssl), count(*) > 1 FROM pg_stat_ssl JOIN pg_stat_activity \
                     USING (pid) WHERE application_name = 'dispatcher'";
    assert_eq!(server.sql(encrypted), "t|t");
    running.stop();
}

/// A client of pgmq for Python, which also brings its SQL, and one for JavaScript.
const PYTHON: [&str; 2] = ["pgmq==1.1.4", "psycopg[binary]==3.3.2"];
const JAVASCRIPT: [&str; 1] = ["pgmq-js@1.3.1"];

const INSTALL: &str = "
import sys
from pgmq.install import get_embedded_install_sql, install_pgmq_sql
install_pgmq_sql(get_embedded_install_sql(), dsn=sys.argv[1])
";

const SEND: &str = "
import sys
from pgmq import PGMQueue
queues = PGMQueue(conn_string=sys.argv[1], init_extension=False)
queues.create_queue('jobs')
queues.send('jobs', 'print:python', headers={'x-pgmq-group': 'g'})
";

const READ: &str = "
import sys
from pgmq import PGMQueue
queues = PGMQueue(conn_string=sys.argv[1], init_extension=False)
[message] = queues.read_batch('jobs', vt=60, batch_size=10)
assert message.message == {'n': 1}, message
assert message.headers == {'tenant': 't'}, message
assert queues.delete('jobs', message.msg_id)
";

const SEND_AND_READ: &str = "
const { Pgmq } = require('pgmq-js');
const [host, port] = ['127.0.0.1', Number(process.argv[2])];
const login = { host, port, database: 'postgres', user: 'dispatcher', password: '', ssl: false };
(async () => {
  const pgmq = await Pgmq.new(login, { skipExtensionCreation: true });
  if (process.argv[3] === 'send') {
    await pgmq.msg.send('jobs', 'print:javascript');
  } else {
    const { message, msgId } = await pgmq.msg.read('jobs', 60);
    if (message.n !== 2) throw new Error(JSON.stringify(message));
    if (!await pgmq.msg.archive('jobs', msgId)) throw new Error('not archived');
  }
  await pgmq.close();
})().catch((error) => { console.error(error); process.exit(1); });
";

fn python_script(server: &PostgresServer, script: &str) {
    let mut command = Command::new(toolchains::python(&PYTHON));
    succeeds(command.args(["-c", script, &server.url()]));
}

fn succeeds(command: &mut Command) {
    let done = command.output().expect("it starts");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
}

#[test]
fn clients_of_pgmq_and_dispatcher_share_queues() {
    let server = PostgresServer::start(&["-c", "fsync=off"]);
    python_script(&server, INSTALL);
    python_script(&server, SEND);
    let done = command(&server.url(), &["postgres", "init"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let port = server.port().to_string();
    let javascript = |verb: &str| {
        let Some(folder) = toolchains::node_packages(&JAVASCRIPT) else {
            return false;
        };
        let mut node = Command::new("node");
        node.args(["-e", SEND_AND_READ, "-", &port, verb]);
        succeeds(node.current_dir(folder));
        true
    };
    let mut running = started(receiving(&server.url(), &[]));
    running.wait_for_lines(1, printed);
    let has_node = javascript("send");
    running.wait_for_lines(1 + usize::from(has_node), printed);
    running.stop();
    assert_eq!(prints(&running)[0], "python");
    let url = server.url();
    let send = |body: &str| {
        let arguments = ["send", "postgres:jobs", body, "--attribute", "tenant=t"];
        let sent = command(&url, &arguments);
        assert_eq!(sent.code, 0, "{}", sent.stderr);
    };
    send(r#"{"n":1}"#);
    python_script(&server, READ);
    if has_node {
        send(r#"{"n":2}"#);
        javascript("read");
        assert_eq!(server.sql("SELECT message FROM pgmq.a_jobs"), r#"{"n": 2}"#);
    }
    assert_eq!(server.sql("SELECT count(*) FROM pgmq.q_jobs"), "0");
}

#[test]
fn pgmq_is_installed_after_dispatcher() {
    let server = prepared(&["-c", "fsync=off"], &[]);
    let sent = command(&server.url(), &["send", "postgres:jobs", "print:before"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    python_script(&server, INSTALL);
    python_script(&server, SEND);
    let mut running = started(receiving(&server.url(), &[]));
    running.wait_for_lines(2, printed);
    running.stop();
    let mut found = prints(&running);
    found.sort();
    assert_eq!(found, ["before", "python"]);
}

#[test]
fn scheduled_message_waits_in_the_database_and_can_be_cancelled() {
    let server = prepared(&["-c", "fsync=off"], &[]);
    let good = |arguments: &[&str]| {
        let done = command(&server.url(), arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
        done.stdout.trim().to_owned()
    };
    let add = |more: &[&str]| good(&[&["schedule", "add", "postgres:jobs"], more].concat());
    let id = add(&["--in", "36h", "--body", "milk"]);
    let cron = ["--cron", "0 9 * * *", "--tz", "Europe/Berlin"];
    add(&[&cron[..], &["--body", "good morning"]].concat());
    let listed = good(&["schedule", "list", "postgres:jobs"]);
    assert!(
        listed.contains("milk") && listed.contains("0 9 * * *"),
        "{listed}"
    );
    good(&["schedule", "cancel", &id]);
    let listed = good(&["schedule", "list", "postgres:jobs"]);
    assert!(!listed.contains("milk"), "{listed}");
    let mut running = started(receiving(&server.url(), &[]));
    add(&["--in", "3s", "--body", "print:on time"]);
    running.wait_for_line(printed);
    running.stop();
    assert_eq!(prints(&running), ["on time"]);
}
