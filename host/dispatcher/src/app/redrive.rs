//! Prepares a redrive from names: opens the queue, its destination or the source queues that dead
//! letters name, and runs the command that edits bodies. Moves no message itself.

use super::build::Backends;
use dispatcher_config::backends::all;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::Message;
use dispatcher_core::queue::Queue;
use dispatcher_core::tasks;
use dispatcher_operate::redrive::{Destinations, LetterSource, Marks, Redrive, Review};
use dispatcher_operate::select::Selection;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// The time limit of the command for one body.
const EDIT: Duration = Duration::from_secs(60);
/// The interval at which the end of the command is polled.
const LOOK: Duration = Duration::from_millis(5);
/// The maximum size of the body that a command returns, in bytes.
const LONGEST: u64 = 1 << 30;
/// The number of bytes of its stderr that are reported.
const TOLD: usize = 200;

/// The queues to open, and the options of the redrive.
pub(crate) struct RedriveOpening<'a> {
    pub from: &'a QueueName,
    pub to: Option<&'a QueueName>,
    pub selection: Selection,
    pub marks: Marks,
    pub review: Option<Arc<dyn Review>>,
}

/// Opens a queue and, if all messages go to one queue, the destination. Reports all problems at
/// once.
pub(crate) async fn open(
    backends: Arc<Backends>,
    opening: RedriveOpening<'_>,
) -> Result<Redrive, Vec<Problem>> {
    let RedriveOpening {
        from,
        to,
        selection,
        marks,
        review,
    } = opening;
    let mut problems = Vec::new();
    let mut opened = Vec::new();
    for (at, name) in [("queue", Some(from)), ("to", to)] {
        let Some(name) = name else { continue };
        match backends.open_existing(name).await {
            Ok(queue) => opened.push(queue),
            Err(error) => problems.push(backends.problem(at, name, &error).await),
        }
    }
    let mut opened = opened.into_iter();
    let (Some(source), target) = (opened.next(), opened.next()) else {
        return Err(problems);
    };
    if let Some(to) = to.filter(|to| is_fifo(to)) {
        let has_groups = is_fifo(from) || source.identity().ordered_groups;
        if !has_groups {
            let found =
                format!("`{to}` is a FIFO queue, and the messages of `{from}` have no group");
            problems.push(Problem::new("to", found, "a standard queue"));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let (tracer, sent) = (backends.tracer(), backends.sent());
    let destinations = Sources {
        backends,
        from: from.clone(),
        queue: source.clone(),
        all: target,
        by_policy: OnceCell::new(),
    };
    Ok(Redrive {
        is_fifo: is_fifo(from),
        from: source,
        to: Arc::new(destinations),
        selection,
        marks,
        review,
        tracer,
        sent,
    })
}

fn is_fifo(name: &QueueName) -> bool {
    name.backend.is_fifo(&name.name)
}

/// The source queues of letters.
struct Sources {
    backends: Arc<Backends>,
    from: QueueName,
    queue: Arc<dyn Queue>,
    all: Option<Arc<dyn Queue>>,
    /// The queue whose redrive policy leads to `from`, or the reason why there is not exactly one.
    by_policy: OnceCell<Result<String, String>>,
}

impl Sources {
    /// Returns the queue of a letter's source. The backend of the letter's queue is tried first.
    fn name(&self, source: &str) -> Result<QueueName, String> {
        let mut backends = std::iter::once(self.from.backend).chain(all().iter().copied());
        let named = backends.find_map(|backend| QueueName::of_source(backend, source));
        let Some(name) = named else {
            return Err(format!(
                "its source `{source}` is not a queue of this program; give --to"
            ));
        };
        // The sender of the letter may have written anything there.
        let checked: Result<QueueName, String> = name.to_string().parse();
        checked.map_err(|error| format!("its source: {error}"))
    }

    async fn policy_source(&self) -> Result<String, String> {
        let found = self.by_policy.get_or_init(|| async {
            let sources = self
                .queue
                .redrive_sources()
                .await
                .map_err(|error| format!("it names no source, and {error}"))?;
            match &sources[..] {
                [] => Err("it names no source; give --to".to_owned()),
                [one] => Ok(one.clone()),
                several => Err(format!(
                    "it names no source, and {} queues have this one as their dead-letter queue; give --to",
                    several.len()
                )),
            }
        });
        found.await.clone()
    }
}

#[async_trait::async_trait]
impl Destinations for Sources {
    fn all(&self) -> Option<Arc<dyn Queue>> {
        self.all.clone()
    }

    async fn source(&self, source: Option<&LetterSource>) -> Result<Arc<dyn Queue>, String> {
        let by_policy;
        let source = match source {
            Some(source) => source.name(),
            None => {
                by_policy = self.policy_source().await?;
                &by_policy
            }
        };
        let name = self.name(source)?;
        let opened = self.backends.open_existing(&name).await;
        opened.map_err(|error| format!("its source `{name}` cannot be opened: {error}; give --to"))
    }
}

/// A command that receives each body on stdin and writes the new one to stdout.
pub(super) struct Editor {
    /// The argument of `sh -c`.
    pub command: String,
}

#[async_trait::async_trait]
impl Review for Editor {
    async fn review(
        &self,
        message: &Message,
        cancel: &CancellationToken,
    ) -> Result<String, String> {
        edit(&self.command, &message.body, cancel).await
    }
}

async fn edit(command: &str, body: &str, cancel: &CancellationToken) -> Result<String, String> {
    let started = Command::new("sh")
        .args(["-c", command])
        // A process group lets it be killed together with all its children.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = started.map_err(|error| format!("--edit cannot be run: {error}"))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = body.to_owned();
    let written = tasks::blocking(move || {
        // A command need not read its input.
        let _ = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
    });
    let out = tasks::blocking(move || stdout.map(|stdout| bounded(stdout, LONGEST)));
    let told = tasks::blocking(move || stderr.map(|stderr| bounded(stderr, TOLD as u64)));
    let until = clock::now() + EDIT;
    let status = wait(&mut child, until, cancel).await?;
    let printed = async {
        written.finished().await;
        (out.finished().await, told.finished().await)
    };
    let late = clock::sleep_until(Some(until));
    let (bytes, told) = tokio::select! {
        biased;
        (bytes, told) = printed => (bytes.unwrap_or_default(), told.unwrap_or_default()),
        () = late => return Err(format!("--edit left its output open for longer than {EDIT:?}")),
    };
    if !status.success() {
        let told = String::from_utf8_lossy(&told).trim().to_owned();
        return Err(format!("--edit ended with {status}: {told}"));
    }
    let mut edited = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("--edit did not print text: byte {at} is not UTF-8")
    })?;
    // Most tools end their output with a line break that is not part of the body.
    if edited.ends_with('\n') && !body.ends_with('\n') {
        edited.pop();
    }
    Ok(edited)
}

/// Reads a stream up to a limit, and drops the rest.
fn bounded(mut stream: impl Read, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A partial read is used.
    let _ = stream.by_ref().take(most).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    bytes
}

/// Waits for the end of the command, and kills it on a timeout or a cancellation. Kills its
/// background processes as well, which would keep its output open.
async fn wait(
    child: &mut Child,
    until: BootInstant,
    cancel: &CancellationToken,
) -> Result<ExitStatus, String> {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| "--edit has no process id".to_owned())?;
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), ended) {
            Ok(Some(_)) => return end_all(child, pid),
            Ok(None) => {}
            Err(error) => return Err(format!("--edit: {error}")),
        }
        let look = clock::sleep_until(Some(clock::now() + LOOK));
        let why = match cancel.run_until_cancelled(look).await {
            None => "--edit was stopped".to_owned(),
            Some(()) if clock::now() >= until => format!("--edit took longer than {EDIT:?}"),
            Some(()) => continue,
        };
        end_all(child, pid)?;
        return Err(why);
    }
}

/// Kills the processes of the command's group. Its process id is not reused until it is waited for.
fn end_all(child: &mut Child, pid: Pid) -> Result<ExitStatus, String> {
    // Fails only if all processes have ended.
    let _ = kill_process_group(pid, Signal::KILL);
    child.wait().map_err(|error| format!("--edit: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn edited(command: &str, body: &str) -> Result<String, String> {
        edit(command, body, &CancellationToken::new()).await
    }

    #[tokio::test]
    async fn a_command_gets_the_body_and_its_output_is_the_new_one() {
        assert_eq!(edited("tr a-z A-Z", "héllo").await, Ok("HéLLO".into()));
        assert_eq!(edited("echo new", "old").await, Ok("new".into()));
        let with_end = "with its own end\n";
        assert_eq!(edited("cat", with_end).await, Ok(with_end.into()));
        let long = "x".repeat(3_000_000);
        assert_eq!(edited("cat", &long).await, Ok(long.clone()));
        let unread = edited("true", &long).await;
        assert_eq!(unread, Ok(String::new()), "it reads nothing");
    }

    #[tokio::test]
    async fn a_command_that_fails_or_prints_no_text_leaves_the_letter() {
        let answer = edited("echo broken >&2; exit 3", "x").await;
        let error = answer.expect_err("it failed");
        assert!(
            error.contains("exit status: 3") && error.ends_with("broken"),
            "{error}"
        );
        let error = edited(r"printf 'a\377'", "x").await.expect_err("no text");
        assert!(error.contains("byte 1 is not UTF-8"), "{error}");
    }

    #[tokio::test]
    async fn what_a_command_leaves_in_the_background_ends_with_it() {
        let command = "sleep 1000 & echo new";
        assert_eq!(edited(command, "old").await, Ok("new".into()));
    }

    #[tokio::test]
    async fn a_command_is_stopped_with_the_run() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let error = edit("sleep 100", "x", &cancel).await;
        assert_eq!(error.expect_err("stopped"), "--edit was stopped");
    }
}
