//! `dispatcher top` in a pseudo-terminal of 80×24, as over ssh.

use crate::operator::admin_api::ApiScene;
use crate::scene::send;
use dispatcher_tests::child::{Program, Signal, binary};
use dispatcher_tests::terminal;
use rustix::process::{Pid, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;

fn lines(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("not zero")
}

/// A terminal with a command in it.
struct TerminalScene {
    ours: File,
    theirs: File,
    /// What the command writes; read at all times, since a full terminal would stop it.
    written: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    child: Child,
    _tokens: tempfile::TempDir,
}

impl TerminalScene {
    /// `top` of the scene's process, with this token.
    fn top(scene: &ApiScene, token: &str) -> Self {
        let tokens = tempfile::tempdir().expect("a folder");
        let file = tokens.path().join("token");
        std::fs::write(&file, token).expect("written");
        let (ours, theirs) = terminal::open();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&theirs, size).expect("it has a size");
        let end = || theirs.try_clone().expect("a second handle");
        let child = Command::new(binary())
            .args(["top", "--admin", &scene.url, "--admin-token-file"])
            .arg(file)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("it starts");
        let (sender, written) = std::sync::mpsc::channel();
        let mut reader = ours.try_clone().expect("a second handle");
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            // Ends with an error when all other ends are closed.
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            ours,
            theirs,
            written,
            screen: vt100::Parser::new(lines(24), lines(80), 0),
            child,
            _tokens: tokens,
        }
    }

    /// What the screen shows once it holds this.
    fn wait_for(&mut self, part: &str) -> String {
        let deadline = std::time::Instant::now() + dispatcher_tests::PATIENCE;
        loop {
            let shown = self.screen.screen().contents();
            if shown.contains(part) {
                return shown;
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.written.recv_timeout(left) {
                Ok(written) => self.screen.process(&written),
                Err(error) => panic!(
                    "{error}; {part} in\n{shown}\nended: {:?}",
                    self.child.try_wait()
                ),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("it reads");
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).expect("it runs");
    }

    /// Reads on until the usual screen is shown.
    fn wait_until_restored(&mut self) {
        while self.screen.screen().alternate_screen() {
            let written = self.written.recv_timeout(dispatcher_tests::PATIENCE);
            self.screen.process(&written.expect("the usual screen"));
        }
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.theirs)
            .expect("it is a terminal")
            .local_modes;
        !modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }
}

impl Drop for TerminalScene {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn queues_are_watched_paused_and_resumed_at_80_columns() {
    let mut scene = ApiScene::verdicts(&[]);
    let folder = scene.running.data().clone();
    let mut top = TerminalScene::top(&scene, "operator");
    let shown = top.wait_for("local:default");
    for part in ["dispatcher ", "ready", "1 Queues (1)", "waiting", "q quit"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert!(top.is_raw(), "keys come at once");
    send(
        folder.path(),
        "default",
        ["done".to_owned(), "reject".to_owned()],
    )
    .await;
    top.wait_for("1 done");
    top.wait_for("1 dead-lettered");
    top.wait_for("local:default: p50 ");

    top.press("P");
    top.wait_for("pause local:default for all processes that read it?");
    top.press("n");
    top.wait_for("q quit");
    top.press("P");
    top.wait_for("y: yes");
    top.press("y");
    top.wait_for("local:default paused");
    scene
        .running
        .wait_for_line(|line| line.contains("\"message\":\"queue paused\""));
    top.wait_for("\u{2016} local:default");
    top.press("P");
    top.wait_for("resume local:default");
    top.press("y");
    scene
        .running
        .wait_for_line(|line| line.contains("\"message\":\"queue resumed\""));

    top.press("3");
    top.wait_for("dead-lettered  local:default");
    top.press("?");
    top.wait_for("Any key closes this.");
    top.press(" ");
    top.press("2");
    top.wait_for("No attempt is running.");
    top.press("D");
    top.wait_for("stop process");
    top.press("y");
    top.wait_for("the process stops");
    top.press("q");
    assert!(top.child.wait().expect("it ends").success());
    assert!(!top.is_raw(), "the terminal is as it was");
    assert_eq!(scene.running.wait_exit(), 0);
}

#[test]
fn keys_are_answered_while_the_process_hangs() {
    let mut scene = ApiScene::verdicts(&[]);
    let mut top = TerminalScene::top(&scene, "reader");
    top.wait_for("local:default");
    top.wait_for("backlog 0  oldest -  drains in 0s  dead letters 0");
    scene.running.signal(Signal::STOP);
    top.wait_for("no answer for");
    top.press("?");
    top.wait_for("Any key closes this.");
    top.press("qq");
    assert!(top.child.wait().expect("it ends").success());
    assert!(!top.is_raw(), "the terminal is as it was");
    scene.running.signal(Signal::CONT);
    scene.running.stop();
}

#[test]
fn an_action_that_was_confirmed_is_finished_before_the_end_and_its_result_shown() {
    let mut scene = ApiScene::verdicts(&[]);
    let mut top = TerminalScene::top(&scene, "operator");
    top.wait_for("backlog 0  oldest -");
    // It cannot answer before the end was typed.
    scene.running.signal(Signal::STOP);
    top.press("Pyq");
    top.wait_for("waiting for the answer to the last action");
    scene.running.signal(Signal::CONT);
    scene
        .running
        .wait_for_line(|line| line.contains("\"message\":\"queue paused\""));
    assert!(top.child.wait().expect("it ends").success());
    top.wait_until_restored();
    top.wait_for("local:default paused for all processes that read it");
    scene.running.stop();
}

#[test]
fn a_signal_restores_the_terminal() {
    let mut scene = ApiScene::verdicts(&[]);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut top = TerminalScene::top(&scene, "reader");
        top.wait_for("local:default");
        assert!(top.is_raw(), "{signal:?}");
        top.signal(signal);
        assert!(top.child.wait().expect("it ends").success(), "{signal:?}");
        assert!(!top.is_raw(), "{signal:?}: the terminal is as it was");
        top.wait_until_restored();
    }
    scene.running.stop();
}

#[test]
fn top_says_what_it_needs() {
    let nowhere = Program::new(["top"]).run();
    assert_eq!(nowhere.code, 2);
    assert!(
        nowhere.stderr.contains("--admin: no address"),
        "{nowhere:?}"
    );
    let mut scene = ApiScene::verdicts(&[]);
    let piped = Program::new(["top", "--admin", &scene.url]).run();
    assert_eq!(piped.code, 2);
    assert!(piped.stderr.contains("needs a terminal"), "{piped:?}");
    scene.running.stop();
}
