//! Guests that eat memory, compute forever, trap and flood, beside good ones on other queues: the
//! good ones are all done, and the process stays within its bounds.

use crate::scene::{guest, printed, prints, send, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal};

const GOOD: usize = 300;
const MISDEEDS: [&str; 8] = [
    "eat",
    "loop",
    "trap",
    "grow:60",
    "recurse",
    "flood",
    "loop-calls",
    "stack",
];
/// Attempts of the bad route at once, and what each instance may have, in MiB.
const AT_ONCE: u64 = 4;
const EACH_MIB: u64 = 64;
/// What the program itself may have, in MiB: far more than it needs, in a build with debug
/// assertions and compiling several plugins.
const ITSELF_MIB: u64 = 300;

/// The most memory that a process has ever had, in MiB.
fn peak_mib(running: &RunningProgram) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.id()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        / 1024
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn good_messages_pass_beside_hostile_guests() {
    let configuration = format!(
        "[plugin.good]\nfile = \"{0}\"\n[plugin.bad]\nfile = \"{0}\"\ntimeout = \"300ms\"\n\
         max-memory = \"{EACH_MIB}MiB\"\n[[route]]\nplugin = \"good\"\nqueues = [\"local:good\"]\n\
         [[route]]\nplugin = \"bad\"\nqueues = [\"local:bad\"]\nconcurrency = {AT_ONCE}\n\
         retry = {{ first = \"1ms\", most = \"1ms\", attempts = 2 }}\n",
        guest("verdicts")
    );
    let folder = std::sync::Arc::new(tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("dispatcher.toml");
    std::fs::write(file, configuration).expect("the folder is ours");
    let bad = MISDEEDS.iter().cycle().take(3 * MISDEEDS.len());
    let bad = bad.map(|body| (*body).to_owned());
    send(folder.path(), "bad", bad).await;
    let arguments = ["run", "--config", "dispatcher.toml", "--log-format", "json"];
    let mut running = Program::new(arguments).sharing(&folder).start();
    running.wait_for_line(|line| line.contains("trapped"));
    let good = (0..GOOD).map(|n| format!("print:good {n}"));
    send(folder.path(), "good", good).await;
    running.wait_for_lines(GOOD, |line| printed(line) && line.contains("good "));
    until_depth(folder.path(), "good", |depth| depth == Default::default()).await;
    until_depth(folder.path(), "bad", |depth| depth == Default::default()).await;
    let peak = peak_mib(&running);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let mut done = prints(&running);
    done.retain(|line| line.starts_with("good "));
    done.sort();
    done.dedup();
    assert_eq!(done.len(), GOOD);
    assert!(peak <= AT_ONCE * EACH_MIB + ITSELF_MIB, "{peak} MiB");
}
