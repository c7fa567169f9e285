//! What becomes of a test that the machine cannot run: it is skipped, and where nothing may be skipped
//! it fails. Knows no test.

/// Says that something is not tested here, and why. Under `CI=true`, as `.ci/run` sets it, that is a
/// failure. The caller returns.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub fn skip(why: &str) {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!is_ci, "{why}, which CI must have");
    eprintln!("SKIPPED: {why}");
}
