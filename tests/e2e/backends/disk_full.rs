//! A full disk under the local queue: said in one plain line, nothing lost, and all continues once
//! there is room. A limit of the file size stands for the disk, since everybody may set one; where
//! a small file system may be mounted without being root, a real one fills up as well.

use crate::scene::{depth, field, guest, printed, prints, send, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal, binary};
use dispatcher_tests::limited::may_mount;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// From now on files of this process may grow to so many bytes at most; without a number to any.
fn limit_files(running: &RunningProgram, most: Option<u64>) {
    let limit = Rlimit {
        current: most,
        maximum: None,
    };
    let id = i32::try_from(running.id()).ok().and_then(Pid::from_raw);
    prlimit(id, Resource::Fsize, limit).expect("it is our child");
}

/// A shell that runs the program, deaf to the signal that otherwise ends who exceeds the limit; as
/// on a full disk the write itself fails.
fn deaf(script: &str, arguments: &[&str]) -> Program {
    let script = format!("trap '' XFSZ; {script}");
    let binary = binary().display().to_string();
    let words = ["-c", &script, &binary].map(str::to_owned).into_iter();
    Program::of(
        "/bin/sh",
        words.chain(arguments.iter().map(|word| (*word).to_owned())),
    )
}

#[tokio::test]
async fn full_disk_is_reported_and_work_continues_when_space_is_free() {
    let plugin = guest("verdicts");
    let arguments = ["run", "--log-format", "json", "--plugin", &plugin];
    let mut running = deaf("exec \"$0\" \"$@\"", &arguments).start();
    let data = running.data().clone();
    let bodies = |from: usize| (from..from + 50).map(|n| format!("print:{n}"));
    send(data.path(), "default", bodies(0)).await;
    running.wait_for_lines(50, printed);
    // One is worked on when the disk becomes full, and cannot be settled.
    send(data.path(), "default", ["sleep:1500".to_owned()]).await;
    until_depth(data.path(), "default", |depth| depth.in_flight == 1).await;
    limit_files(&running, Some(0));
    send(data.path(), "default", bodies(50)).await;
    let line = running.wait_for_line(|line| line.contains("receive failed"));
    let said = field(&line, "error");
    assert!(
        said.contains("the local queue in") && !said.contains('\n'),
        "{said}"
    );
    limit_files(&running, None);
    running.wait_for_lines(100, printed);
    until_depth(data.path(), "default", |depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let mut handled = prints(&running);
    assert_eq!(handled.len(), 100, "each of them once");
    handled.sort();
    handled.dedup();
    assert_eq!(handled.len(), 100);
    assert_eq!(depth(data.path(), "default.dead").await, Default::default());
}

#[tokio::test]
async fn send_refused_by_a_full_disk_gets_no_id_and_sent_messages_are_kept() {
    let first = Program::new(["send", "local:default", "kept"]);
    let (mut command, data) = first.into_command();
    assert!(command.output().expect("it starts").status.success());
    let body = "x".repeat(100_000);
    // In blocks of 512 bytes: some fit beside what is there.
    let script = "ulimit -f 600; while \"$0\" send local:default \"$1\"; do :; done";
    let filled = deaf(script, &[&body]).sharing(&data).run();
    assert_eq!(filled.stderr.lines().count(), 1, "{}", filled.stderr);
    assert!(filled.stderr.contains("local:default"), "{}", filled.stderr);
    let acknowledged = filled.stdout.lines().count() as u64;
    assert_eq!(
        depth(data.path(), "default").await.waiting,
        acknowledged + 1
    );
}

#[test]
fn file_system_that_fills_up_loses_nothing_and_continues_when_it_grows() {
    if !may_mount() {
        return;
    }
    let body = format!("print:{}", "x".repeat(100_000));
    let plugin = guest("verdicts");
    // Three come before the disk is full, at the least; then nothing can be received either. Whether
    // the program can open its file then depends on the last pages: a supervisor starts it again.
    let script = "mount -t tmpfs -o size=3m none \"$DISPATCHER_DATA\" && cd \"$DISPATCHER_DATA\" &&
        while \"$0\" send local:default \"$1\" >> /dev/stderr; do :; done
        (trap 'kill -TERM $child' TERM
         while \"$0\" run --log-format json --plugin \"$2\" & child=$!; do
             wait $child; code=$?
             if [ $code -eq 0 ]; then exit 0; elif [ $code -gt 128 ]; then break; fi
             sleep 0.2
         done
         wait $child) & supervisor=$!
        read -r _; mount -o remount,size=64m \"$DISPATCHER_DATA\"
        read -r _; kill -TERM $supervisor; wait $supervisor";
    let program = deaf(script, &[&body, &plugin]);
    let (command, data) = program.into_command();
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut unshared = vec!["-Urm".into(), "/bin/sh".into()];
    unshared.extend(words);
    let (input, mut steps) = std::io::pipe().expect("a pipe");
    let mut running = Program::of("unshare", unshared)
        .sharing(&data)
        .start_reading(input);
    running.wait_for_line(|line| line.contains("local:default") && line.contains("error"));
    let is_id = |line: &str| line.len() == 36 && line.matches('-').count() == 4;
    let sent = running.lines(is_id).len();
    assert!(sent > 3, "{sent} fitted");
    running.wait_for_line(|line| {
        line.contains("receive failed")
            || line.starts_with("error: --queues") && line.contains("full")
    });
    std::io::Write::write_all(&mut steps, b"grow\n").expect("it reads");
    running.wait_for_lines(sent, printed);
    std::io::Write::write_all(&mut steps, b"stop\n").expect("it reads");
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(running.lines(printed).len(), sent, "each of them once");
}
