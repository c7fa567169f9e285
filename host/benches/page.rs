//! What the dashboard and `dispatcher dev` cost: the first page with 10,000 queues, pages of a million
//! dead letters, the processor time of the sampler with and without somebody who looks, and the time from
//! a save to the version that serves. `cargo bench --bench page -- [first] [letters] [sampler] [dev
//! [LANGUAGE…]]`; `dev` uses the tools that are on the `PATH`. Prints and judges nothing.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark paces itself and owns its threads"
)]

mod support;

use dispatcher_core::clock;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use support::figures::Samples;
use support::program::{Program, dispatcher, plugin};
use support::{admin, letters, queues};

const QUEUES: usize = 10_000;
const LETTERS: usize = 1_000_000;
/// How many queues an idle process has: the usual one, and as many as one page shows.
const IDLE_QUEUES: [usize; 2] = [1, 100];
const PAGES: usize = 20;
/// For how long processor time is counted.
const SPAN: Duration = Duration::from_secs(30);
/// Time for what a start leaves to be done.
const SETTLE: Duration = Duration::from_secs(5);
const SAVES: usize = 5;
/// Each language with the file of the handler.
const LANGUAGES: [(&str, &str); 6] = [
    ("rust", "src/lib.rs"),
    ("javascript", "handler.js"),
    ("typescript", "handler.ts"),
    ("c", "handler.c"),
    ("go", "main.go"),
    ("python", "app.py"),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let words: Vec<&str> = words
        .into_iter()
        .filter(|word| *word != "--bench")
        .collect();
    let wants = |part: &str| words.is_empty() || words.contains(&part);
    if wants("first") {
        first();
    }
    if wants("letters") {
        dead_letters();
    }
    if wants("sampler") {
        sampler();
    }
    if wants("dev") {
        let named = LANGUAGES.iter().any(|(name, _)| words.contains(name));
        for (language, handler) in LANGUAGES {
            if !named || words.contains(&language) {
                dev(language, handler);
            }
        }
    }
}

/// The overview of a process with many queues: of one that runs them, and of one that serves them.
fn first() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = queues::many(folder.path(), QUEUES);
    println!("\nthe overview with {QUEUES} queues");
    let run = ["run", "--config", &file, "--admin", "127.0.0.1:0"];
    let local = ["local", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    for (words, ready) in [
        (&run[..], "running"),
        (&local[..], "serving the embedded queue"),
    ] {
        let mut program = start(folder.path(), words);
        let address = admin::address(&mut program);
        let (at, _) = program.line(ready);
        let started = at.since(program.started);
        let first = overview(&address);
        let later = Samples::of((0..PAGES).map(|_| overview(&address)));
        println!(
            "{:<6} start {:>6.0} ms, first page {:>6.1} ms, later {later}, resident {:.0} MiB",
            words[0],
            started.as_secs_f64() * 1e3,
            first.as_secs_f64() * 1e3,
            program.memory().0
        );
        program.stop();
    }
}

/// How long the overview takes to come, whole.
fn overview(address: &str) -> Duration {
    admin::get(address, "/ui").0
}

/// Pages of a dead-letter queue with a million messages on the embedded queue.
fn dead_letters() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalStore::open(folder.path()).expect("it opens");
    let dead: Arc<dyn Queue> = Arc::new(store.queue("work.dead", None).expect("it opens"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(letters::fill(&dead, "local:work", LETTERS, 1_000));
    drop((dead, store));
    println!(
        "\na dead-letter queue with {LETTERS} messages of {} reasons",
        letters::REASONS
    );
    let file = plugin("verdicts");
    let token = admin::token_file(folder.path());
    let run = ["run", "--plugin", &file, "--queues", "local:work"];
    let served = ["--admin", "127.0.0.1:0", "--admin-token-file", &token];
    let mut program = start(folder.path(), &[&run[..], &served].concat());
    let address = admin::address(&mut program);
    program.line("running");
    let queue = "/ui/dead-letters?queue=local%3Awork.dead";
    let (_, first) = admin::get(&address, queue);
    let next = first.split_once(">Next</a>").expect("more pages follow").0;
    let (_, next) = next.rsplit_once("href=\"").expect("it is a link");
    let next = next.trim_end_matches('"').replace("&amp;", "&");
    for (what, path) in [
        ("the queues with dead letters", "/ui/dead-letters"),
        ("the first messages", queue),
        ("the messages after them", &*next),
        (
            "those of one reason",
            &*format!("{queue}&reason=bank%207%24"),
        ),
        (
            "the question before a purge",
            "/ui/confirm/purge?target=local%3Awork.dead",
        ),
    ] {
        let times = Samples::of((0..PAGES).map(|_| admin::get(&address, path).0));
        println!("{what:<38} {times}");
    }
    println!("resident {:.0} MiB", program.memory().0);
    program.stop();
}

/// Processor time of an idle process: without an admin address, with one, and with an open page.
fn sampler() {
    println!(
        "\nprocessor time of an idle process over {} s",
        SPAN.as_secs()
    );
    for queues in IDLE_QUEUES {
        for (what, is_served, is_open) in [
            ("without an admin address", false, false),
            ("with one, nobody looks", true, false),
            ("with one open page", true, true),
        ] {
            idle(queues, what, is_served, is_open);
        }
    }
}

fn idle(queues: usize, what: &str, is_served: bool, is_open: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = plugin("verdicts");
    let names: Vec<String> = (0..queues).map(|at| format!("local:idle-{at}")).collect();
    let names = names.join(",");
    let mut words = vec!["run", "--plugin", &file, "--queues", &names];
    if is_served {
        words.extend(["--admin", "127.0.0.1:0"]);
    }
    let mut program = start(folder.path(), &words);
    let address = is_served.then(|| admin::address(&mut program));
    program.line("running");
    let tab = address.filter(|_| is_open).map(|address| open(&address));
    sleep(SETTLE);
    let before = program.thread_times();
    sleep(SPAN);
    let spent = program.cpu_since(&before);
    println!(
        "{:<40} {:.3} % of a core, resident {:.1} MiB",
        format!("{queues} queues, {what}"),
        100.0 * spent.as_secs_f64() / SPAN.as_secs_f64(),
        program.memory().0
    );
    drop(tab);
    program.stop();
}

/// Follows the overview as a browser does, until dropped.
fn open(address: &str) -> TcpStream {
    overview(address);
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /ui/live?view=overview HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let reading = BufReader::new(stream.try_clone().expect("a second handle"));
    std::thread::spawn(move || reading.lines().map_while(Result::ok).for_each(drop));
    stream
}

/// From a save to the version that takes new attempts.
fn dev(language: &str, handler: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path().join("orders");
    let new = ["plugin", "new", "--lang", language, "orders"];
    let built = [&new[..], &["plugin", "build", "orders"]]
        .into_iter()
        .all(|words| {
            let mut command = dispatcher(folder.path(), words);
            let ended = command.current_dir(folder.path()).output();
            ended.is_ok_and(|ended| ended.status.success())
        });
    if !built {
        println!("{language:<11} cannot be built here: its tools are not on the PATH");
        return;
    }
    let mut program = start(folder.path(), &["dev", "orders", "--log-format", "json"]);
    program.line("\"running\"");
    let handler = project.join(handler);
    let first = std::fs::read_to_string(&handler).expect("the template has it");
    let took = (0..SAVES).map(|save| {
        let at = first.rfind(" cents").expect("the template prints it");
        let text = format!("{} {save}{}", &first[..at], &first[at..]);
        let beside = handler.with_extension("new~");
        std::fs::write(&beside, text).expect("the folder is ours");
        let saved = clock::now();
        std::fs::rename(&beside, &handler).expect("the folder is ours");
        let (served, _) = program.line("replaced: new attempts run this version");
        served.since(saved)
    });
    let took: Vec<Duration> = took.collect();
    let each: Vec<String> = took
        .iter()
        .map(|took| format!("{:.2}", took.as_secs_f64()))
        .collect();
    println!(
        "{language:<11} {} s from the save to the version that serves",
        each.join(" ")
    );
    program.stop();
}

fn start(folder: &Path, words: &[&str]) -> Program {
    let mut command = dispatcher(folder, words);
    command.current_dir(folder);
    Program::start(command)
}
