//! A guest that may have little memory makes the host allocate for it, on many workers at once: the
//! process stays as small as it is otherwise.

use crate::scene::send;
use dispatcher_tests::child::{Program, RunningProgram};

/// A plugin that draws 64 MiB of random bytes, with 64 KiB to keep them in.
const DRAWS: &str = concat!(
    r#"(component
    (import "wasi:random/random@0.2.0" (instance $random
        (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
"#,
    include_str!("../../../host/wasm/src/tests/types.wat"),
    r#"
    (core module $memory (memory (export "memory") 1)
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024))
    (core instance $shared (instantiate $memory))
    (core func $draw (canon lower (func $random "get-random-bytes")
        (memory (core memory $shared "memory")) (realloc (core func $shared "realloc"))))
    (core module $m
        (import "host" "draw" (func $draw (param i64 i32)))
        (memory (export "memory") 1)
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
        (func (export "handle") (param i32) (result i32)
            (call $draw (i64.const 67108864) (i32.const 0)) i32.const 0))
    (core instance $host (export "draw" (func $draw)))
    (core instance $i (instantiate $m (with "host" (instance $host))))
    (func $handle (param "message" $message) (result (result (error $failure)))
        (canon lift (core func $i "handle") (memory (core memory $i "memory"))
            (realloc (core func $i "realloc"))))
    (instance $handler (export "handle" (func $handle)))
    (export "dispatcher:plugin/handler@0.1.0" (instance $handler)))"#
);

/// Guests at once, each on its own thread.
const WORKERS: usize = 16;
/// What the program may have, in MiB: far more than it needs, in a build with debug assertions.
const MOST_MIB: u64 = 250;

/// The most memory that a process has ever had, in MiB.
fn peak_mib(running: &RunningProgram) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.id()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).expect("a number");
    kib / 1024
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn finding_16_random_bytes_for_small_guests_leave_host_memory_small() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("draws.wasm");
    std::fs::write(&file, wat::parse_str(DRAWS).expect("a component")).expect("written");
    let (file, workers) = (file.display().to_string(), WORKERS.to_string());
    let mut running = Program::new([
        "run",
        "--log-format",
        "json",
        "--plugin",
        &file,
        "--max-memory",
        "1MiB",
        "--workers",
        &workers,
        "--concurrency",
        &workers,
    ])
    .start();
    let bodies = (0..4 * WORKERS).map(|number| number.to_string());
    send(running.data().path(), "default", bodies).await;
    running.wait_for_lines(4 * WORKERS, |line| line.contains("trapped"));
    let peak = peak_mib(&running);
    println!("{peak} MiB at most");
    running.stop();
    assert!(peak < MOST_MIB, "{peak} MiB");
}
