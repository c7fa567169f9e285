//! A server's program as a child process that ends with this one, however this one ends. Knows no
//! protocol.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Ends the server with its standard input: however the test binary ends, the pipe closes.
const UNTIL_STDIN_ENDS: &str = r#"
"$@" </dev/null >/dev/null &
server=$!
echo "$server"
exec 1>&-
cat >/dev/null
kill -9 "$server" 2>/dev/null
"#;

/// The program. Ends when dropped.
#[derive(Debug)]
pub struct TiedServer {
    shell: Child,
    alive: Option<ChildStdin>,
    server: Pid,
}

impl TiedServer {
    /// Starts it as the command says.
    pub fn start(wanted: &Command) -> Self {
        let program = wanted.get_program();
        let mut command = Command::new("sh");
        command
            .args(["-c", UNTIL_STDIN_ENDS, "server"])
            .arg(program);
        command.args(wanted.get_args());
        for (name, value) in wanted.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("the shell tells the server's id");
        let server = line.trim().parse().ok().and_then(Pid::from_raw);
        Self {
            alive: shell.stdin.take(),
            shell,
            server: server.expect("a process id"),
        }
    }

    /// Kills it as a crash does.
    pub fn kill(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = kill_process(self.server, Signal::KILL);
        drop(self.alive.take());
        let _ = self.shell.wait();
    }

    /// Its process id, for whoever measures it.
    pub fn id(&self) -> i32 {
        self.server.as_raw_nonzero().get()
    }
}

impl Drop for TiedServer {
    fn drop(&mut self) {
        self.kill();
    }
}
