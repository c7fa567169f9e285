//! What an earlier version left in tables of DynamoDB: today's program handles all of it.

use crate::scene::{field, printed, prints, run};
use crate::versions::earlier_content::{compare, controls_are_obeyed, lines};
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::dynamodb::{Dates, Item, Tables};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Map, Value, json};

/// The format that today's program writes.
const FORMAT: u32 = 1;
/// Tables of tasks.
const TABLES: [&str; 6] = ["orders", "copied", "letters", "held", "limited", "sharded"];
/// A queue on SQS, and the table with what is scheduled for it.
const MAIL: &str = "mail";
/// Longer than anybody waits for it here, and than tasks live otherwise.
const CENTURY: &str = "876000h";

/// A server with empty tables and a queue.
struct TablesScene {
    server: MiniStack,
    tables: Tables,
}

impl TablesScene {
    async fn new() -> Self {
        let server = MiniStack::start();
        let tables = Tables::at(&server.url());
        for table in TABLES {
            tables.create_named(table, Dates::Number).await;
        }
        SqsServer::at(&server.url()).create(MAIL, &[]).await;
        let scene = Self { server, tables };
        scene.call(&["schedule", "init", MAIL]);
        scene
    }

    fn program(&self, program: Program) -> Program {
        program.aws(&self.server.url())
    }

    fn call(&self, words: &[&str]) -> String {
        let ended = self.program(Program::new(words)).run();
        assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
        ended.stdout
    }

    fn report(&self, words: &[&str]) -> Value {
        let text = self.call(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// With these settings of the backend, and tasks that live longer than anybody keeps a file.
    fn configured(&self, settings: &str, program: Program) -> Program {
        let file = format!("[backend.dynamodb]\n{settings}\ntime-to-live = \"{CENTURY}\"\n");
        self.program(program.file("dispatcher.toml", &file))
            .env("DISPATCHER_CONFIG", "dispatcher.toml")
    }

    /// Sends with these settings.
    fn send(&self, settings: &str, words: &[&str]) {
        let words = [&["send"], words].concat();
        let ended = self.configured(settings, Program::new(&words)).run();
        assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
    }

    fn start(&self, queues: &str, more: &[&str]) -> RunningProgram {
        let arguments = [&["--queues", queues, "--schedule-interval", "1"], more].concat();
        let running = self.configured("", run("verdicts", &arguments)).start();
        running.wait_for_line(|line| line.contains("\"running\""));
        running
    }

    async fn until(&self, table: &str, status: &str) {
        let is_there = |statuses: &std::collections::BTreeMap<_, _>| statuses.contains_key(status);
        self.tables.until(table, is_there).await;
    }

    /// Leaves every kind of item behind, by the program alone: also one of an earlier version does it.
    async fn content_is_left(&self) {
        self.send("", &["dynamodb:copied", "reject:copied"]);
        let dead = ["--dead-letter", "dynamodb:letters"];
        let mut running = self.start("dynamodb:copied", &dead);
        self.until("copied", "FAILURE").await;
        running.stop();

        let mut running = self.start("dynamodb:orders", &[]);
        let tenant = ["--attribute", "tenant=7"];
        let refused = ["dynamodb:orders", "reject:no such order"];
        self.send("", &[&refused[..], &tenant].concat());
        self.until("orders", "FAILURE").await;
        self.send("", &["dynamodb:orders", "done"]);
        self.until("orders", "SUCCESS").await;
        self.send("", &["dynamodb:orders", "retry:60000"]);
        running.wait_for_line(|line| line.contains("retr"));
        self.until("orders", "PENDING").await;
        self.send("", &["dynamodb:orders", "sleep:3000"]);
        self.until("orders", "TAKEN").await;
        running.signal(Signal::KILL);
        running.wait_exit();

        self.send("", &["dynamodb:orders", "print:plain"]);
        self.send("", &["dynamodb:orders", r#"{"columns":1,"two":[true]}"#]);
        let attributed = ["dynamodb:orders", "print:attributed"];
        self.send("", &[&attributed[..], &tenant].concat());
        let delayed = ["dynamodb:orders", "print:delayed", "--delay"];
        self.send("", &[&delayed[..], &["60s"]].concat());
        let later = ["dynamodb:orders", "print:much later", "--delay"];
        self.send("", &[&later[..], &[CENTURY]].concat());
        self.send("", &["dynamodb:held", "print:held"]);
        self.send("", &["dynamodb:limited", "print:limited"]);
        for body in ["print:sharded 1", "print:sharded 2"] {
            self.send("shards = 2", &["dynamodb:sharded", body]);
        }
        self.call(&["pause", "dynamodb:held"]);
        let limit = ["limit", "dynamodb:limited", "--rate", "50"];
        self.call(&[&limit[..], &["--concurrency", "1"]].concat());
        let schedule = |when: &[&str], body: &str| {
            self.call(&[&["schedule", "add", MAIL, "--body", body], when].concat());
        };
        schedule(&["--in", "16m"], "print:scheduled");
        let yearly = ["--cron", "0 9 1 1 *", "--tz", "Europe/Berlin"];
        schedule(&yearly, "print:yearly");
        let far = ["--at", "2100-01-01T00:00:00Z", "--attribute", "kind=x"];
        schedule(&far, "print:far");
    }

    /// All items, one a line.
    async fn content(&self) -> Vec<Value> {
        let mut content = Vec::new();
        for table in TABLES.iter().chain(&[MAIL]) {
            let items = self.tables.all(table).await;
            let mut items: Vec<Value> = items.iter().map(written).collect();
            items.sort_by_key(Value::to_string);
            let line = |item| json!({ "table": table, "item": item });
            content.extend(items.into_iter().map(line));
        }
        content
    }
}

/// An item as the AWS command line has it.
fn written(item: &Item) -> Value {
    let mut columns: Vec<_> = item.iter().collect();
    columns.sort_by_key(|(name, _)| *name);
    let columns = columns.into_iter();
    let columns = columns.map(|(name, value)| (name.clone(), written_value(value)));
    Value::Object(columns.collect())
}

fn written_value(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({ "S": text }),
        AttributeValue::N(digits) => json!({ "N": digits }),
        AttributeValue::Bool(value) => json!({ "BOOL": value }),
        AttributeValue::Null(_) => json!({ "NULL": true }),
        AttributeValue::L(list) => {
            json!({ "L": list.iter().map(written_value).collect::<Vec<_>>() })
        }
        AttributeValue::M(map) => json!({ "M": written(map) }),
        other => panic!("no line has {other:?}"),
    }
}

fn read(item: &Map<String, Value>) -> Item {
    let columns = item.iter();
    let columns = columns.map(|(name, value)| (name.clone(), read_value(value)));
    columns.collect()
}

fn read_value(value: &Value) -> AttributeValue {
    let fields = value.as_object().expect("a type and a value");
    let (kind, value) = fields.iter().next().expect("a type");
    let text = || value.as_str().expect("a text").to_owned();
    match kind.as_str() {
        "S" => AttributeValue::S(text()),
        "N" => AttributeValue::N(text()),
        "BOOL" => AttributeValue::Bool(value == true),
        "NULL" => AttributeValue::Null(true),
        "L" => {
            let list = value.as_array().expect("a list").iter();
            AttributeValue::L(list.map(read_value).collect())
        }
        "M" => AttributeValue::M(read(value.as_object().expect("a map"))),
        other => panic!("`{other}` is no type of a line"),
    }
}

async fn loaded(format: u32) -> TablesScene {
    let scene = TablesScene::new().await;
    for line in lines("dynamodb", format) {
        let table = line["table"].as_str().expect("a table");
        let item = read(line["item"].as_object().expect("an item"));
        let put = scene.tables.client.put_item().table_name(table);
        let put = put.set_item(Some(item)).send().await;
        put.unwrap_or_else(|error| panic!("{line}: {error:?}"));
    }
    scene
}

#[tokio::test]
async fn program_leaves_content_of_the_kept_format_in_tables() {
    let scene = TablesScene::new().await;
    scene.content_is_left().await;
    compare("dynamodb", FORMAT, &scene.content().await);
}

#[tokio::test]
async fn content_of_format_1_in_tables_is_handled() {
    let scene = loaded(1).await;
    let letters = scene.report(&["peek", "dynamodb:letters"]);
    assert_eq!(letters[0]["body"], "reject:copied", "{letters}");
    let failed = scene.report(&["peek", "dynamodb:orders/FAILURE"]);
    assert_eq!(failed[0]["body"], "reject:no such order", "{failed}");
    assert!(failed[0].to_string().contains("tenant"), "{failed}");
    let copied = scene.report(&["redrive", "dynamodb:copied/FAILURE"]);
    assert_eq!(copied["matched"], 0, "its letter is the copy: {copied}");
    let scheduled = scene.report(&["schedule", "list", MAIL]);
    assert_eq!(scheduled.as_array().map(Vec::len), Some(3), "{scheduled}");

    // The second attempt is the last: the count of a retried task has stayed.
    let queues = "dynamodb:orders,dynamodb:held,dynamodb:limited,dynamodb:sharded,mail";
    let mut running = scene.start(queues, &["--max-attempts", "2"]);
    controls_are_obeyed(&running, "dynamodb");
    for body in [
        "plain",
        "attributed",
        "delayed",
        "limited",
        "sharded 1",
        "sharded 2",
        "scheduled",
    ] {
        running.wait_for_line(|line| printed(line) && field(line, "message") == body);
    }
    running.wait_for_line(|line| line.contains("released tasks of dead workers"));
    // The retried one, and one whose columns are its body.
    let dead = running.wait_for_lines(2, |line| line.contains("\"message dead-lettered\""));
    let attempts = dead.iter().map(|line| field(line, "attempts"));
    let mut attempts: Vec<_> = attempts.collect();
    attempts.sort();
    assert_eq!(attempts, ["1", "2"], "{dead:?}");
    let is_settled = |statuses: &std::collections::BTreeMap<String, usize>| {
        statuses.get("PENDING") == Some(&1) && !statuses.contains_key("TAKEN")
    };
    scene.tables.until("orders", is_settled).await;
    let left = scene.report(&["schedule", "list", MAIL]);
    let bodies: Vec<_> = (0..2).map(|at| left[at]["body"].clone()).collect();
    assert_eq!(bodies, ["print:yearly", "print:far"], "{left}");
    let heard = prints(&running);
    let quiet = ["held", "much later", "far"];
    assert!(
        !heard.iter().any(|body| quiet.contains(&&**body)),
        "{heard:?}"
    );

    scene.call(&["resume", "dynamodb:held"]);
    running.wait_for_line(|line| printed(line) && field(line, "message") == "held");
    let all = ["redrive", "dynamodb:orders/FAILURE"];
    let chosen = ["--reason", "no such order", "--apply"];
    let moved = scene.report(&[&all[..], &chosen].concat());
    assert_eq!(moved["moved"], 1, "{moved}");
    running.wait_for_lines(3, |line| line.contains("\"message dead-lettered\""));
    running.stop();
}
