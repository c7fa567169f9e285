//! The first ten minutes: no account, no server, one file.

use crate::scene::{depth, printed, run};
use dispatcher_tests::child::{Program, Signal};

#[tokio::test]
async fn message_sent_from_another_terminal_is_handled() {
    let mut running = run("hello", &[]).start();
    running.wait_for_line(|line| line.contains("running"));
    let sent = Program::new(["send", "local:default", "hello"])
        .sharing(running.data())
        .run();
    assert_eq!(sent.code, 0, "{sent:?}");
    let id = sent.stdout.trim();
    running.wait_for_line(|line| printed(line) && line.contains("hello") && line.contains(id));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(
        depth(running.data().path(), "default").await,
        Default::default()
    );
}

#[test]
fn human_log_is_not_json_and_progress_line_is_off_when_piped() {
    let plugin = crate::scene::guest("hello");
    let mut running = Program::new(["run", "--plugin", &plugin]).start();
    let sent = Program::new(["send", "local:default", "good day"])
        .sharing(running.data())
        .run();
    assert_eq!(sent.code, 0, "{sent:?}");
    let line = running.wait_for_line(|line| line.contains("good day"));
    assert!(!line.starts_with('{'), "{line}");
    running.signal(Signal::INT);
    assert_eq!(running.wait_exit(), 0);
    let all = running.text(dispatcher_tests::child::Stream::Err);
    assert!(
        !all.contains("msg/s") && !all.contains('\r') && !all.contains('\u{1b}'),
        "{all:?}"
    );
}
