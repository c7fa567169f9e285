//! A guest sees no variables but those that it is granted.

use crate::tests::*;

#[test]
fn only_granted_variables_are_visible() {
    assert!(std::env::vars().count() > 0);
    assert_eq!(rejection(&verdicts(), "env"), "GREETING=hello");
    assert_eq!(rejection(&verdicts(), "arguments"), "");
}
