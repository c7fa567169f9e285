//! Guests with little memory that make the host use its own for them: random bytes, strings
//! that lie upon each other, listings, streams, open files. What they take of the host's memory follows what they
//! may have themselves.

use super::super::limits::{HostBudget, LISTINGS, open_each};
use super::hostile::{Guest, HARMLESS};
use super::*;
use dispatcher_core::files;
use std::path::Path;

/// What such a guest may have.
const SMALL: usize = 1 << 20;
/// How often it tries.
const TRIES: usize = 2_000;

fn small(guest: &Guest<'_>, runtime: &Runtime, folder: Option<&Path>) -> LoadedPlugin {
    let bytes = wat::parse_str(guest.text()).unwrap();
    let options = PluginOptions {
        max_memory: SMALL,
        ..granting(|grants| grants.folder = folder.map(Path::to_owned))
    };
    runtime.load_bytes("hostile", &bytes, options).unwrap()
}

/// A function of `wasi:random`, lowered as `$draw`.
fn random(interface: &str, function: &str, param: &str) -> String {
    format!(
        r#"(import "wasi:random/{interface}" (instance $random
            (export "{function}" (func (param "{param}" u64) (result (list u8))))))
        (core module $memory (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0))
        (core instance $shared (instantiate $memory))
        (core func $draw (canon lower (func $random "{function}")
            (memory (core memory $shared "memory")) (realloc (core func $shared "realloc"))))"#
    )
}

/// Draws 64 MiB at once, which it has no room for.
fn drawing(imports: &str) -> Guest<'_> {
    Guest {
        imports,
        granted: r#"(export "draw" (func $draw))"#,
        items: r#"(import "host" "draw" (func $draw (param i64 i32)))
            (memory (export "memory") 1)"#,
        handle: "(call $draw (i64.const 67108864) (i32.const 0))",
        ..HARMLESS
    }
}

const RANDOM: [(&str, &str, &str); 4] = [
    ("random@0.2.0", "get-random-bytes", "len"),
    ("insecure@0.2.0", "get-insecure-random-bytes", "len"),
    ("random@0.3.0", "get-random-bytes", "max-len"),
    ("insecure@0.3.0", "get-insecure-random-bytes", "max-len"),
];

/// Answers with a hundred reasons that are the same 900,000 bytes.
const OVERLAPPING: Guest<'_> = Guest {
    items: r#"(memory (export "memory") 15)"#,
    handle: "(local $at i32) (local.set $at (i32.const 2048))
        (loop $more
            (i32.store8 offset=8 (local.get $at) (i32.const 1))
            (i32.store offset=16 (local.get $at) (i32.const 16384))
            (i32.store offset=20 (local.get $at) (i32.const 900000))
            (local.set $at (i32.add (local.get $at) (i32.const 48)))
            (br_if $more (i32.lt_u (local.get $at) (i32.const 6848))))
        (i32.store (i32.const 8) (i32.const 2048))
        (i32.store (i32.const 12) (i32.const 100))",
    batch: true,
    ..HARMLESS
};

/// The folder that is granted: `$folders`, `$open`, `$read` and `$list`, in a memory that is shared with
/// the guest.
const FILES: &str = r#"
    (import "wasi:io/streams@0.2.0" (instance $streams
        (export "input-stream" (type (sub resource)))))
    (alias export $streams "input-stream" (type $input))
    (import "wasi:filesystem/types@0.2.0" (instance $files
        (alias outer 1 $input (type $outer))
        (export "input-stream" (type $stream (eq $outer)))
        (export "descriptor" (type $d (sub resource)))
        (export "directory-entry-stream" (type $l (sub resource)))
        (type $e (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota"
            "exist" "file-too-large" "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io"
            "is-directory" "loop" "too-many-links" "message-size" "name-too-long" "no-device" "no-entry"
            "no-lock" "insufficient-memory" "insufficient-space" "not-directory" "not-empty"
            "not-recoverable" "unsupported" "no-tty" "no-such-device" "overflow" "not-permitted" "pipe"
            "read-only" "invalid-seek" "text-file-busy" "cross-device"))
        (export "error-code" (type $error (eq $e)))
        (type $p (flags "symlink-follow"))
        (export "path-flags" (type $path (eq $p)))
        (type $o (flags "create" "directory" "exclusive" "truncate"))
        (export "open-flags" (type $open (eq $o)))
        (type $f (flags "read" "write" "file-integrity-sync" "data-integrity-sync"
            "requested-write-sync" "mutate-directory"))
        (export "descriptor-flags" (type $flags (eq $f)))
        (export "[method]descriptor.open-at" (func (param "self" (borrow $d))
            (param "path-flags" $path) (param "path" string) (param "open-flags" $open)
            (param "flags" $flags) (result (result (own $d) (error $error)))))
        (export "[method]descriptor.read-via-stream" (func (param "self" (borrow $d))
            (param "offset" u64) (result (result (own $stream) (error $error)))))
        (export "[method]descriptor.read-directory" (func (param "self" (borrow $d))
            (result (result (own $l) (error $error)))))))
    (alias export $files "descriptor" (type $descriptor))
    (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
        (alias outer 1 $descriptor (type $outer))
        (export "descriptor" (type $d (eq $outer)))
        (export "get-directories" (func (result (list (tuple (own $d) string)))))))
    (core module $memory (memory (export "memory") 1) (global $free (mut i32) (i32.const 4096))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            (global.get $free) (global.set $free (i32.add (global.get $free) (i32.const 64)))))
    (core instance $shared (instantiate $memory))
    (core func $folders (canon lower (func $preopens "get-directories")
        (memory (core memory $shared "memory")) (realloc (core func $shared "realloc"))))
    (core func $open (canon lower (func $files "[method]descriptor.open-at")
        (memory (core memory $shared "memory"))))
    (core func $read (canon lower (func $files "[method]descriptor.read-via-stream")
        (memory (core memory $shared "memory"))))
    (core func $list (canon lower (func $files "[method]descriptor.read-directory")
        (memory (core memory $shared "memory"))))"#;
const FILES_LENT: &str = r#"(export "memory" (memory $shared "memory"))
    (export "folders" (func $folders)) (export "open" (func $open))
    (export "read" (func $read)) (export "list" (func $list))"#;
const FILES_ITEMS: &str = r#"
    (import "host" "memory" (memory $memory 1))
    (import "host" "folders" (func $folders (param i32)))
    (import "host" "open" (func $open (param i32 i32 i32 i32 i32 i32 i32)))
    (import "host" "read" (func $read (param i32 i64 i32)))
    (import "host" "list" (func $list (param i32 i32)))
    (export "memory" (memory $memory)) (data (i32.const 3000) "file")"#;

/// Opens the file, then does this with `$folder` and `$file` until it is refused or was done often
/// enough, and drops nothing. Traps unless it was done so often before it was refused for want of
/// memory.
fn hoarding(call: &str, allowed: usize) -> String {
    format!(
        "(local $folder i32) (local $file i32) (local $done i32)
        (call $folders (i32.const 2048))
        (local.set $folder (i32.load (i32.load (i32.const 2048))))
        (call $open (local.get $folder) (i32.const 0) (i32.const 3000) (i32.const 4) (i32.const 0)
            (i32.const 1) (i32.const 2064))
        (local.set $file (i32.load (i32.const 2068)))
        (block $refused (loop $more
            {call}
            (br_if $refused (i32.load8_u (i32.const 2064)))
            (local.set $done (i32.add (local.get $done) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $done) (i32.const {TRIES})))))
        (if (i32.ne (local.get $done) (i32.const {allowed})) (then unreachable))
        (if (i32.ne (i32.load8_u (i32.const 2068)) (i32.const 22)) (then unreachable))"
    )
}

const LISTING: &str = "(call $list (local.get $folder) (i32.const 2064))";
const READING: &str = "(call $read (local.get $file) (i64.const 0) (i32.const 2064))";
const OPENING: &str = "(call $open (local.get $folder) (i32.const 0) (i32.const 3000) (i32.const 4)
    (i32.const 0) (i32.const 1) (i32.const 2064))";

fn on_files(handle: &str) -> Guest<'_> {
    Guest {
        imports: FILES,
        granted: FILES_LENT,
        items: FILES_ITEMS,
        handle,
        ..HARMLESS
    }
}

/// A folder to grant: a file, and names that fill a listing.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "contents").unwrap();
    for number in 0..1_000 {
        let name = format!("{number:0200}");
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    folder
}

#[test]
fn finding_16_random_bytes_beyond_the_budget_are_not_generated() {
    let runtime = runtime(1);
    for (interface, function, param) in RANDOM {
        let imports = random(interface, function, param);
        let why = trap(one(&small(&drawing(&imports), &runtime, None), ""));
        // WASI 0.3 gives fewer than were asked for.
        let wanted = if interface.ends_with("0.2.0") {
            "exceeds limit 1048576"
        } else {
            "beyond end of memory"
        };
        assert!(why.contains(wanted), "{interface}: {why}");
    }
}

#[test]
fn finding_16_listings_streams_and_open_files_are_bounded() {
    let (runtime, folder) = (runtime(2), folder());
    // The folder itself is open as well.
    let open = open_each(files::raise_limit().1, 2) - 2;
    for (call, allowed) in [
        (LISTING, LISTINGS),
        (READING, HostBudget::of(SMALL, 1).buffers),
        (OPENING, open),
    ] {
        let handle = hoarding(call, allowed);
        let plugin = small(&on_files(&handle), &runtime, Some(folder.path()));
        assert_eq!(one(&plugin, ""), Verdict::Done, "{call}");
    }
}

/// What its own process is given to do.
const CASE: &str = "DISPATCHER_TEST_HOSTILE_CASE";

/// Bytes of a line of this process's status.
#[cfg(target_os = "linux")]
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.unwrap().parse::<usize>().unwrap() << 10
}

/// Does what it is told and says how much memory that took at most. Runs in its own process, where
/// nobody else takes any.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "finding_16_hostile_calls_leave_host_memory_small runs it, as a process"]
fn a_hostile_process() {
    let case = std::env::var(CASE).unwrap();
    let (runtime, folder) = (runtime(1), folder());
    let imports = |at: usize| random(RANDOM[at].0, RANDOM[at].1, RANDOM[at].2);
    let listing = hoarding(LISTING, LISTINGS);
    let plugin = match case.as_str() {
        "overlapping strings" => small(&OVERLAPPING, &runtime, None),
        "listings" => small(&on_files(&listing), &runtime, Some(folder.path())),
        number => {
            let imports = imports(number.parse().unwrap());
            small(&drawing(&imports), &runtime, None)
        }
    };
    // What was compiled counts no more.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    for _ in 0..3 {
        drop(one(&plugin, ""));
    }
    println!("peak: {}", status("VmHWM:").saturating_sub(before));
}

#[cfg(target_os = "linux")]
#[test]
fn finding_16_hostile_calls_leave_host_memory_small() {
    /// What attempts take in any case, some 8 MiB in a debug build, and what the budget allows beside.
    const MOST: usize = 24 << 20;
    let itself = std::env::current_exe().unwrap();
    let name = "tests::hostile_host_memory::a_hostile_process";
    for case in ["0", "1", "2", "3", "overlapping strings", "listings"] {
        let ran = std::process::Command::new(&itself)
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env(CASE, case)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        let peak = said.lines().find_map(|line| line.split_once("peak: "));
        let peak: usize = peak
            .unwrap_or_else(|| panic!("{case}: {ran:?}"))
            .1
            .parse()
            .unwrap();
        println!("{case}: {peak} bytes");
        assert!(peak < MOST, "{case}: {peak} bytes of the host's");
    }
}
