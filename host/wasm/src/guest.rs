//! What the host keeps beside one instance: its attempts, its limits and, once it asks for it, its
//! sandboxed WASI. Everything is shut but the clocks, chance, stdout, stderr and what is lent: variables,
//! connections.

use super::capability::folder::NotOpened;
use super::capability::http::{self, Hook};
use super::capability::lambda::{Denied, Lent};
use super::capability::refusals::Refusals;
use super::capability::{folder, network, queues, store};
use super::invocations::{Causes, Sent};
use super::limits::{HTTP_FIELDS, HostBudget, Limits};
use super::output::{Output, Stream, harmless};
use super::room::{Full, Held, Room};
use super::scene::{Printed, Told};
use super::shared::underway::{Job, Underway};
use super::tally::Tally;
use super::world::command::Environment;
use super::{Attempt, Peer};
use dispatcher_core::clock::Moment;
use dispatcher_core::lambda::Response;
use dispatcher_core::message::Verdict;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::{self, pipe::MemoryInputPipe};
use wasmtime_wasi::sockets::TcpSocket;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// What all instances of a plugin share.
#[derive(Default)]
pub(super) struct Settings {
    /// The plugin's name in logs.
    pub(super) name: String,
    /// The environment variables that it sees. It sees no others, but a command those of its message.
    pub(super) env: Vec<(String, String)>,
    /// Whether it is a command: a program that is given its message by WASI.
    pub(super) is_command: bool,
    /// The most memory of one instance, in bytes.
    pub(super) max_memory: usize,
    /// The most files, folders and sockets that one instance holds open.
    pub(super) max_open: usize,
    /// The longest that an attempt may take, where it is known.
    pub(super) timeout: Option<Duration>,
    /// The functions that it may invoke.
    pub(super) lambda: Option<Lent>,
    /// The queues that it may send to.
    pub(super) queues: Option<queues::Lent>,
    /// Where it may connect to.
    pub(super) peers: Vec<Peer>,
    /// Where it may send HTTP requests to; none is nowhere, too.
    pub(super) http: Option<Arc<http::Lent>>,
    /// What it may read as its configuration.
    pub(super) settings: BTreeMap<String, String>,
    /// The buckets that it may open.
    pub(super) stores: Option<store::Lent>,
    /// The folder that it may read.
    pub(super) folder: Option<folder::Lent>,
    /// What was refused to it.
    pub(super) refusals: Arc<Refusals>,
    /// Whether what it prints is of interest at level debug alone.
    pub(super) quiet_output: bool,
    /// Who is told of its attempts.
    pub(super) witness: Told,
    /// Counts its instances.
    pub(super) tally: Arc<Tally>,
}

/// What an instance works on.
enum Work {
    /// Nothing yet: it is made ahead, and stopped if it still computes by then.
    Ahead(Moment),
    /// One attempt at a time.
    One(Arc<Attempt>),
    /// Many at once.
    Many(Underway),
}

/// The data of one instance's store.
pub(super) struct Guest {
    work: Work,
    pub(super) limits: Limits,
    settings: Arc<Settings>,
    room: Room,
    /// Why messages failed whose functions it invoked.
    causes: Causes,
    /// What its WASI is made of, where that was opened before.
    opened: Option<Box<WasiCtxBuilder>>,
    /// Made when the guest first calls WASI: many never do, and it costs more than they do.
    wasi: Option<Box<Wasi>>,
}

struct Wasi {
    context: WasiCtx,
    http: WasiHttpCtx,
    /// What becomes of the HTTP requests that it sends.
    outgoing: Hook,
    table: ResourceTable,
    output: Output,
}

impl Guest {
    /// A guest about to work on `attempt`.
    pub(super) fn new(settings: Arc<Settings>, attempt: Arc<Attempt>) -> Self {
        Self::working_on(Work::One(attempt), settings)
    }

    /// A guest that is made before there is a message for it, which may take until then. Meanwhile
    /// it prints under no message's name, and has no room for invocations, messages and requests:
    /// whatever it began would be for nobody.
    pub(super) fn ahead(settings: Arc<Settings>, until: Moment) -> Self {
        let guest = Self::working_on(Work::Ahead(until), settings);
        guest.room.shut();
        guest
    }

    /// A guest that will be given many attempts at once.
    pub(super) fn shared(settings: Arc<Settings>, underway: Underway) -> Self {
        Self::working_on(Work::Many(underway), settings)
    }

    fn working_on(work: Work, settings: Arc<Settings>) -> Self {
        Self {
            work,
            limits: Limits::new(settings.max_memory, Arc::clone(&settings.tally)),
            room: Room::new(settings.max_memory),
            settings,
            causes: Causes::default(),
            opened: None,
            wasi: None,
        }
    }

    /// Opens what is lent and may take time to. To be called before it runs.
    pub(super) async fn open(&mut self) -> Result<(), NotOpened> {
        let settings = Arc::clone(&self.settings);
        if let Some(folder) = &settings.folder {
            self.opened = Some(folder.open().await?);
        }
        Ok(())
    }

    /// Gives a guest that has answered, or was made ahead, an attempt.
    pub(super) fn begin(&mut self, attempt: Arc<Attempt>) {
        if let Work::Ahead(_) = self.work {
            self.room.open();
        }
        self.limits.begin();
        self.causes.clear();
        if let Some(wasi) = &self.wasi {
            wasi.output.begin(label(&attempt));
        }
        self.work = Work::One(attempt);
    }

    /// The attempts of a shared instance.
    pub(super) fn underway(&mut self) -> Option<&mut Underway> {
        match &mut self.work {
            Work::One(_) | Work::Ahead(_) => None,
            Work::Many(underway) => Some(underway),
        }
    }

    /// The guest has answered this one of its many attempts. How much memory it has.
    pub(super) fn ended(&mut self, id: u64) -> (Option<Job>, usize) {
        // It survived what it was refused.
        self.limits.begin();
        if let Some(wasi) = &self.wasi {
            wasi.output.more();
        }
        let job = self.underway().and_then(|underway| underway.ended(id));
        (job, self.limits.memory())
    }

    /// An invocation has been answered: its messages fail, if they do, for what came of it.
    pub(super) fn invoked(&mut self, sent: &Sent, answer: &Result<Response, Denied>) {
        let attempt = match &self.work {
            Work::One(attempt) => Some(attempt),
            Work::Many(underway) => sent.first_id().and_then(|id| underway.attempt_of(id)),
            Work::Ahead(_) => None,
        };
        let messages = attempt.map_or(&[][..], |attempt| &attempt.messages);
        let failed = self
            .causes
            .invoked(&self.settings.name, sent, messages, answer);
        if let (true, Some(lent)) = (failed, &self.settings.lambda) {
            lent.failed();
        }
    }

    /// Gives verdicts the causes that are known of the functions that were invoked.
    pub(super) fn explain(&mut self, attempt: &Attempt, verdicts: &mut [Verdict]) {
        self.causes.explain(&attempt.messages, verdicts);
    }

    /// What it shares with all other instances of its plugin.
    pub(super) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings)
    }

    /// What it may read as its configuration.
    pub(super) fn variables(&self) -> &BTreeMap<String, String> {
        &self.settings.settings
    }

    /// How much of ours it may take.
    pub(super) fn room(&self) -> Room {
        self.room.clone()
    }

    /// Room for one more invocation of so many bytes.
    pub(super) fn hold(&self, bytes: usize) -> Result<Held, Full> {
        self.room.hold(bytes)
    }

    /// Writes what the guest printed without ending the line.
    pub(super) fn end(&self) {
        if let Some(wasi) = &self.wasi {
            wasi.output.end();
        }
    }

    /// The last lines that it printed.
    pub(super) fn printed(&self) -> Vec<Printed> {
        let wasi = self.wasi.as_ref();
        wasi.map(|wasi| wasi.output.last()).unwrap_or_default()
    }

    /// Whether nothing the guest answers counts any longer.
    pub(super) fn is_cancelled(&self) -> bool {
        match &self.work {
            Work::One(attempt) => attempt.cancelled.iter().all(|one| one.is_cancelled()),
            Work::Many(_) | Work::Ahead(_) => false,
        }
    }

    /// When its one attempt, or its making, must end.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match &self.work {
            Work::One(attempt) => Some(attempt.deadline),
            Work::Ahead(until) => Some(*until),
            Work::Many(_) => None,
        }
    }

    /// Whether what the guest answers about this message no longer counts.
    pub(super) fn is_message_cancelled(&self, id: &str) -> bool {
        let attempt = match &self.work {
            Work::One(attempt) => attempt,
            Work::Many(underway) => return underway.is_message_cancelled(id),
            Work::Ahead(_) => return true,
        };
        let messages = attempt.messages.iter();
        messages
            .zip(&attempt.cancelled)
            .find(|(message, _)| message.id == id)
            .is_none_or(|(_, cancelled)| cancelled.is_cancelled())
    }
}

impl Guest {
    fn wasi(&mut self) -> &mut Wasi {
        let (work, settings, room) = (&self.work, &self.settings, &self.room);
        let opened = &mut self.opened;
        self.wasi.get_or_insert_with(|| {
            let context = opened
                .take()
                .map_or_else(WasiCtx::builder, |opened| *opened);
            Box::new(match work {
                Work::One(attempt) => Wasi::of(context, settings, room, Some(attempt)),
                // Which of them it prints for is not known, or there is none.
                Work::Many(_) | Work::Ahead(_) => Wasi::of(context, settings, room, None),
            })
        })
    }

    /// What it holds handles of.
    pub(super) fn table(&mut self) -> &mut ResourceTable {
        &mut self.wasi().table
    }

    /// How much of the host's memory it may take.
    pub(super) fn budget(&self) -> HostBudget {
        HostBudget::of(self.settings.max_memory)
    }

    /// How many handles of this kind it holds.
    pub(super) fn holds<T: 'static>(&mut self) -> usize {
        let entries = self.table().iter_mut();
        entries.filter(|entry| entry.is::<T>()).count()
    }

    /// Whether it may open another file, folder or socket.
    pub(super) fn may_open(&mut self) -> bool {
        self.open_files() < self.settings.max_open
    }

    /// Whether more are open than it may open.
    pub(super) fn holds_too_many_files(&mut self) -> bool {
        self.open_files() > self.settings.max_open
    }

    fn open_files(&mut self) -> usize {
        let is_open = |entry: &&mut (dyn Any + Send)| {
            entry.is::<Descriptor>() || entry.is::<p2::TcpSocket>() || entry.is::<TcpSocket>()
        };
        self.table().iter_mut().filter(is_open).count()
    }
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = self.wasi();
        WasiCtxView {
            ctx: &mut wasi.context,
            table: &mut wasi.table,
        }
    }
}

impl WasiHttpView for Guest {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let deadline = self.deadline();
        let handles = self.budget().http_handles;
        let wasi = self.wasi();
        wasi.outgoing.deadline = deadline;
        wasi.table.set_max_capacity(handles);
        WasiHttpCtxView {
            hooks: &mut wasi.outgoing,
            table: &mut wasi.table,
            ctx: &mut wasi.http,
        }
    }
}

impl Wasi {
    /// For an instance that works on this attempt, or on none or many at once.
    fn of(
        mut context: WasiCtxBuilder,
        settings: &Settings,
        room: &Room,
        attempt: Option<&Attempt>,
    ) -> Self {
        let output = Output::new(&settings.name, attempt.map(label), settings.quiet_output);
        let budget = HostBudget::of(settings.max_memory);
        match attempt.filter(|_| settings.is_command) {
            Some(attempt) => give(&mut context, settings, attempt),
            None => drop(context.envs(&settings.env)),
        }
        context
            .stdout(output.pipe(Stream::Stdout))
            .stderr(output.pipe(Stream::Stderr));
        context.max_random_size(budget.call as u64);
        network::lend(
            &mut context,
            &settings.name,
            &settings.refusals,
            &settings.peers,
        );
        let mut table = ResourceTable::new();
        table.set_max_capacity(budget.handles);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HTTP_FIELDS);
        Self {
            context: context.build(),
            http,
            outgoing: Hook::new(settings.http.clone(), room.clone()),
            table,
            output,
        }
    }
}

/// Gives a command its message: the body on stdin, the rest in the environment.
fn give(context: &mut WasiCtxBuilder, settings: &Settings, attempt: &Attempt) {
    // Many programs take for granted that there is a name of theirs.
    context.arg(&settings.name);
    let Some(message) = attempt.messages.first() else {
        return;
    };
    let environment = Environment::of(message, attempt, &settings.env);
    if !environment.left_out.is_empty() {
        let names = environment.left_out.join(", ");
        tracing::warn!(
            plugin = settings.name,
            message_id = message.id,
            "not in the command's environment, since they are binary, have a NUL, share their variable or are too long: {}",
            harmless(&names.chars().take(NAMES).collect::<String>())
        );
    }
    context
        .envs(&environment.variables)
        .stdin(MemoryInputPipe::new(message.body.clone()));
}

/// The most characters of the names of attributes in one line of the log.
const NAMES: usize = 200;

/// Whose attempt it is: the queue, and the label of its messages.
pub(super) fn place(attempt: &Attempt) -> (String, String) {
    let queue = attempt
        .messages
        .first()
        .map(|message| message.queue.clone());
    (queue.unwrap_or_default(), label(attempt))
}

/// What a line that the guest prints is filed under.
fn label(attempt: &Attempt) -> String {
    match attempt.messages.as_slice() {
        [] => String::new(),
        [one] => one.id.clone(),
        [first, rest @ ..] => format!("{} and {} more", first.id, rest.len()),
    }
}
