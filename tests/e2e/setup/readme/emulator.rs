//! Classic mode without an account, as its page describes it.

use super::{blocks, commands_of, folder, read};
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::toolchains::python;

/// The part of the page of classic mode that needs no account: its script, then its commands.
#[test]
fn classic_mode_works_on_the_emulator_as_its_page_says() {
    let page = read("host/docs/classic-mode.md");
    let (_, part) = page.split_once("## Try it without an account").expect("it");
    let (part, _) = part.split_once("\n## ").expect("another part");
    let emulator = MiniStack::start();
    let [script] = &blocks(part, "python")[..] else {
        panic!("one script, not {part}");
    };
    let setup = Program::of(python(&["boto3==1.43.106"]), ["-c", script])
        .aws(&emulator.url())
        // boto3 reads the region from nowhere else.
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .run();
    assert_eq!(setup.code, 0, "{setup:?}");
    let folder = folder();
    let program = |words: &[String]| Program::new(words).sharing(&folder).aws(&emulator.url());
    let commands = commands_of(part);
    let [good, bad, run, peek, redrive] = &commands[..] else {
        panic!("five commands, not {commands:?}");
    };
    for send in [good, bad] {
        assert_eq!(program(send).run().code, 0, "{send:?}");
    }
    let more = ["--poll-for", "1", "--log-level", "debug"].map(str::to_owned);
    let mut running = program(&[&run[..], &more].concat()).start();
    running.wait_for_line(|line| line.contains("message done"));
    running.wait_for_line(|line| line.contains("message dead-lettered"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let looked = program(peek).run();
    assert!(looked.stdout.contains("cannot handle fail 2"), "{looked:?}");
    let redriven = program(redrive).run();
    assert_eq!(redriven.code, 0, "{redriven:?}");
    assert!(redriven.stdout.contains("1 moved"), "{redriven:?}");
}
