//! Messages that applications send to PostgreSQL in the transaction that writes their data, with the
//! clients and the code of the page: both are there, or neither.

#[expect(unreachable_pub, reason = "the page shows it for a file of its own")]
mod place_order;

use crate::backends::postgres::prepared;
use crate::languages::page_examples::shown;
use dispatcher_tests::postgres::PostgresServer;
use dispatcher_tests::toolchains;
use std::process::Command;
use tokio_postgres::NoTls;

const PAGE: &str = "host/docs/postgres.md";
const PYTHON: [&str; 1] = ["psycopg[binary]==3.3.2"];
const JAVASCRIPT: [&str; 1] = ["pg@8.16.3"];

/// A server with the queue, and a table that refuses a second order with the same id at the commit,
/// which is after the send.
fn shop() -> PostgresServer {
    let server = prepared(&["-c", "fsync=off"], &[]);
    server.sql("SELECT dispatcher.create_queue('jobs')");
    server
        .sql("CREATE TABLE orders (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, total bigint)");
    server
}

/// The first order is there with its message. Another one with its id fails, and sends nothing.
fn sends_with_the_order(mut place: impl FnMut(&PostgresServer) -> Result<(), String>) {
    let server = shop();
    place(&server).expect("the first order is placed");
    let error = place(&server).expect_err("the second order has the same id");
    assert!(error.contains("orders_id_key"), "{error}");
    assert_eq!(server.sql("SELECT id, total FROM orders"), "7|990");
    let messages = server.sql("SELECT message FROM pgmq.q_jobs");
    assert_eq!(messages, r#"{"id": 7, "total": 990}"#);
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let done = command.output().expect("it starts");
    if done.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

#[test]
fn python_of_the_page_sends_in_its_transaction() {
    let example = shown(PAGE, "python", "def place_order");
    let call = "import sys\nplace_order(sys.argv[1], {'id': 7, 'total': 990})";
    let script = format!("{example}\n\n{call}\n");
    sends_with_the_order(|server| {
        let mut python = Command::new(toolchains::python(&PYTHON));
        succeeds(python.args(["-c", &script, &server.url()]))
    });
}

#[test]
fn javascript_of_the_page_sends_in_its_transaction() {
    let Some(folder) = toolchains::node_packages(&JAVASCRIPT) else {
        return;
    };
    let example = shown(PAGE, "js", "function placeOrder");
    let call = "await placeOrder(process.argv[1], { id: 7, total: 990 });";
    let script = format!("{example}\n{call}\n");
    sends_with_the_order(|server| {
        let mut node = Command::new("node");
        node.args(["--input-type=module", "-e", &script, &server.url()]);
        succeeds(node.current_dir(&folder))
    });
}

#[test]
fn rust_of_the_page_sends_in_its_transaction() {
    let example = shown(PAGE, "rust", "fn place_order");
    let (_, code) = include_str!("place_order.rs")
        .split_once("\n\n")
        .expect("a first line");
    assert_eq!(example, code, "{PAGE}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    sends_with_the_order(|server| {
        let placed = runtime.block_on(async {
            let connected = tokio_postgres::connect(&server.url(), NoTls).await;
            let (mut client, connection) = connected.expect("the server answers");
            tokio::spawn(connection);
            place_order::place_order(&mut client, 7, 990).await
        });
        placed.map_err(|error| format!("{:?}", error.as_db_error()))
    });
}
