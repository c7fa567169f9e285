//! Pseudo-terminals. Knows no program.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;

/// Both ends of a new one: the tester's, and the one that a program takes for its terminal.
pub fn open() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&ours).expect("granted");
    unlockpt(&ours).expect("unlocked");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().expect("UTF-8"));
    (File::from(ours), theirs.expect("the other end"))
}
