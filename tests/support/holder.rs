//! Another program that has a database file open and holds a lock on it. Knows no table.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that has begun something with a database file and does not come to an end. Killed when
/// dropped.
#[derive(Debug)]
pub struct Holder(Child);

impl Holder {
    /// One that writes to the file.
    pub fn writing(database: &Path) -> Self {
        Self::of(database, "BEGIN IMMEDIATE")
    }

    /// One that reads from the file.
    pub fn reading(database: &Path) -> Self {
        Self::of(database, "BEGIN; SELECT count(*) FROM sqlite_schema")
    }

    fn of(database: &Path, begin: &str) -> Self {
        let script = "import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2].split(';'):
    held.execute(statement).fetchall()
print('held', flush=True)
sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(database)
            .arg(begin)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there, as the tests need it");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let holder = Self(child);
        let line = lines.map_while(Result::ok).next();
        assert_eq!(line.as_deref(), Some("held"));
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
