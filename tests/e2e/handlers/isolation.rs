//! No fresh instance reads what an earlier message left in memory, of its own plugin or of another:
//! not after the kernel has swapped the pages out, and not while the kernel moves them. Both need root.

use crate::scene::{depth, field, send, until_depth};
use dispatcher_core::queue::Depth;
use dispatcher_tests::child::{Program, RunningProgram};
use dispatcher_tests::limited::MemoryLimit;
use dispatcher_tests::skip::skip;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// A plugin that rejects its message with what it finds in memory that it has not written. Into each page
/// of that memory it then writes the body, if that begins with `w`, and waits. `PAGES` is the number
/// of its memory's pages; the first two are for the host and for `DATA`. `STEP` is how far apart it looks;
/// `NAME` tells plugins apart.
const LOOKS: &str = concat!(
    "(component",
    include_str!("../../../host/wasm/src/tests/types.wat"),
    r#"
    (import "wasi:io/poll@0.2.0" (instance $poll
        (export "pollable" (type $p (sub resource)))
        (export "[method]pollable.block" (func (param "self" (borrow $p))))))
    (alias export $poll "pollable" (type $pollable))
    (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
        (alias outer 1 $pollable (type $outer))
        (export "pollable" (type $p (eq $outer)))
        (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
    (core func $subscribe (canon lower (func $clock "subscribe-duration")))
    (core func $block (canon lower (func $poll "[method]pollable.block")))
    (core instance $host
        (export "subscribe" (func $subscribe)) (export "block" (func $block)))
    (core module $m
        (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
        (import "host" "block" (func $block (param i32)))
        (memory (export "memory") PAGES)
        (data (i32.const 32768) "DATA")
        (global $next (mut i32) (i32.const 1024))
        (func (export "NAME"))
        (func (export "realloc") (param i32 i32 i32) (param $size i32) (result i32)
            (global.set $next
                (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
            (global.get $next)
            (global.set $next (i32.add (global.get $next) (local.get $size))))
        (func (export "handle") (param $message i32) (result i32)
            (local $body i32) (local $length i32) (local $at i32) (local $end i32)
            (local.set $body (i32.load offset=20 (local.get $message)))
            (local.set $length (i32.load offset=24 (local.get $message)))
            (local.set $end (i32.shl (memory.size) (i32.const 16)))
            (local.set $at (i32.const 131072))
            (loop $look
                (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then
                    (i32.store8 (i32.const 0) (i32.const 1))
                    (i32.store8 (i32.const 8) (i32.const 1))
                    (i32.store (i32.const 16) (local.get $at))
                    (i32.store (i32.const 20) (local.get $length))
                    (return (i32.const 0))))
                (local.set $at (i32.add (local.get $at) (i32.const STEP)))
                (br_if $look (i32.lt_u (local.get $at) (local.get $end))))
            (if (i32.eq (i32.load8_u (local.get $body)) (i32.const 119)) (then
                (local.set $at (i32.const 131072))
                (loop $write
                    (memory.copy (local.get $at) (local.get $body) (local.get $length))
                    (local.set $at (i32.add (local.get $at) (i32.const 4096)))
                    (br_if $write (i32.lt_u (local.get $at) (local.get $end))))
                (call $block (call $subscribe (i64.const 20000000)))))
            (i32.const 0)))
    (core instance $i (instantiate $m (with "host" (instance $host))))
    (func $handle (param "message" $message) (result (result (error $failure)))
        (canon lift (core func $i "handle") (memory (core memory $i "memory"))
            (realloc (core func $i "realloc"))))
    (instance $handler (export "handle" (func $handle)))
    (export "dispatcher:plugin/handler@0.1.0" (instance $handler)))"#
);

const MIB: u64 = 1 << 20;
/// A page of the kernel.
const PAGE: u64 = 4096;

/// So much data is copied into each instance, and so much is mapped: two engines, each with its own memories.
const DATA: [usize; 2] = [0, 80 << 10];

/// Writes such a plugin with so much memory, into which it looks at every so many bytes.
fn write_plugin(folder: &Path, name: &str, memory: u64, step: u64, data: usize) {
    let pages = 2 + memory / (64 << 10);
    let text = LOOKS.replace("PAGES", &pages.to_string());
    let text = text.replace("DATA", &"d".repeat(data));
    let text = text.replace("STEP", &step.to_string());
    let bytes = wat::parse_str(text.replace("NAME", name)).expect("a component");
    std::fs::write(folder.join(name).with_extension("wasm"), bytes).expect("written");
}

/// A counter of the kernel.
fn kernel_count(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").expect("the kernel's counters");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let count = line.and_then(|line| line.trim().parse().ok());
    count.unwrap_or_else(|| panic!("no number of {name}"))
}

/// Returns once all messages of a queue have ended; each found its memory empty.
async fn assert_each_found_nothing(running: &RunningProgram, queue: &str) {
    let data = running.data().path();
    until_depth(data, queue, |depth| depth == Depth::default()).await;
    let rejected = depth(data, &format!("{queue}.dead")).await.waiting;
    let lines = running.lines(|line| line.contains("\"message dead-lettered\""));
    let found = lines.first().map(|line| field(line, "reason"));
    assert_eq!(rejected, 0, "{queue}: an instance found {found:?}");
}

/// A data folder with the plugin `own`, and `other` which is the same but in name.
fn with_plugins(memory: u64, step: u64, data: usize) -> Arc<TempDir> {
    let (_, folder) = Program::new(["queues"]).into_command();
    write_plugin(folder.path(), "own", memory, step, data);
    write_plugin(folder.path(), "other", memory, step, data);
    folder
}

/// A run of both plugins, each on a queue of its name.
fn run_both(data: &Arc<TempDir>, concurrency: usize) -> Program {
    let both = ["own", "other"].map(|name| {
        format!(
            "[plugin.{name}]\nfile = \"{name}.wasm\"\nmax-memory = \"192MiB\"\n\
             [[route]]\nplugin = \"{name}\"\nqueues = [\"local:{name}\"]\nconcurrency = {concurrency}\n"
        )
    });
    Program::new(["run", "--config", "settings.toml", "--log-format", "json"])
        .sharing(data)
        .file("settings.toml", &both.concat())
}

fn bodies(begin: &'static str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{begin} {number:06}"))
}

/// An instance writes more than the process may hold: when it ends, the kernel has swapped a part out,
/// beginning with what it wrote first. Those that follow are more than the engine has slots.
#[tokio::test]
async fn fresh_instance_finds_nothing_of_swapped_memory() {
    const LIMIT: u64 = 128 * MIB;
    const WRITTEN: u64 = LIMIT + 32 * MIB;
    let Some(limit) = MemoryLimit::with_swap(LIMIT, 1024 * MIB) else {
        return;
    };
    for data in DATA {
        nothing_of_swapped_memory(&limit, LIMIT, WRITTEN, data).await;
    }
}

async fn nothing_of_swapped_memory(limit: &MemoryLimit, most: u64, written: u64, data: usize) {
    let data = with_plugins(written, 16 * PAGE, data);
    let before = kernel_count("pswpout");
    let mut running = limit.run(run_both(&data, 1)).start();
    let messages = bodies("write", 2).chain(bodies("look", 50));
    send(data.path(), "own", messages).await;
    assert_each_found_nothing(&running, "own").await;
    send(data.path(), "other", bodies("look", 50)).await;
    assert_each_found_nothing(&running, "other").await;
    running.stop();
    let swapped = (kernel_count("pswpout") - before) * PAGE;
    assert!(
        swapped >= written - most,
        "{swapped} bytes were swapped out"
    );
}

/// Lets the kernel compact memory again and again until dropped.
struct Compaction {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Compaction {
    const FILE: &str = "/proc/sys/vm/compact_memory";
    const THREADS: usize = 2;

    /// `None` without root; says so.
    fn start() -> Option<Self> {
        if let Err(why) = std::fs::write(Self::FILE, "1") {
            skip(&format!("compaction needs root ({}: {why})", Self::FILE));
            return None;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let compact = || {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::fs::write(Self::FILE, "1").expect("it was allowed before");
                }
            })
        };
        let threads = std::iter::repeat_with(compact)
            .take(Self::THREADS)
            .collect();
        Some(Self { is_over, threads })
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has said why it ended early, if it has.
            let _ = thread.join();
        }
    }
}

/// Compaction moves pages of all processes, as large pages and NUMA balancing do. A page on its way is
/// not present. Here it moves pages of instances that wait, some of which end meanwhile.
#[tokio::test]
async fn fresh_instance_finds_nothing_of_memory_that_the_kernel_moves() {
    for data in DATA {
        nothing_of_moved_memory(data).await;
    }
}

async fn nothing_of_moved_memory(data: usize) {
    const MESSAGES: usize = 6_000;
    let data = with_plugins(MIB, PAGE, data);
    for queue in ["own", "other"] {
        send(data.path(), queue, bodies("write", MESSAGES)).await;
    }
    let before = kernel_count("pgmigrate_success");
    let Some(compaction) = Compaction::start() else {
        return;
    };
    let mut running = run_both(&data, 24).start();
    for queue in ["own", "other"] {
        // Each wait has its own end.
        for left in (0..MESSAGES).step_by(200).rev() {
            until_depth(data.path(), queue, |depth| depth.waiting <= left as u64).await;
        }
        assert_each_found_nothing(&running, queue).await;
    }
    drop(compaction);
    running.stop();
    let moved = kernel_count("pgmigrate_success") - before;
    assert!(moved > 0, "no page was moved");
}
