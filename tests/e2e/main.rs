//! The program as people start it: one file per promise.

use dispatcher_tests::child::Program;

#[test]
fn it_says_its_version() {
    let ended = Program::new(["--version"]).run();
    assert_eq!(ended.code, 0, "{ended:?}");
}
