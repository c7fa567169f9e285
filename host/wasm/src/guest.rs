//! The host's state of one instance: its attempts, its limits and, once it is used, its sandboxed
//! WASI. Everything is denied except the clocks, random numbers, stdout, stderr and what is
//! granted: variables, connections.

use crate::attempt::label;
use crate::capability::caller::Caller;
use crate::capability::folder::NotOpened;
use crate::capability::http::HttpHook;
use crate::capability::network;
use crate::capability::refusals::Refusals;
use crate::capability::registry::{Grantee, PluginGrants};
use crate::capability::variables::Environment;
use crate::causes::Causes;
use crate::invocation_limit::InvocationLimit;
use crate::limits::{HTTP_FIELDS, HostBudget, InstanceLimits};
use crate::output::{LogEntry, Output, PrintedLine, Stream, escape_control_characters};
use crate::scene::SharedWitness;
use crate::tally::Tally;
use crate::underway::{SharedAttempt, Underway};
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::Verdict;
use dispatcher_core::queue::prefix::QueuePrefix;
use dispatcher_core::telemetry::metrics::of_plugins::PluginMeter;
use dispatcher_core::telemetry::trace::ActiveSpan;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::{GuestTaskId, ResourceTable};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// The settings that all instances of a plugin share.
#[derive(Default)]
pub(super) struct GuestSettings {
    /// The plugin's name in logs.
    pub(super) name: String,
    /// Whether it is a command: a program that receives its message through WASI.
    pub(super) is_command: bool,
    /// The maximum memory of one instance, in bytes.
    pub(super) max_memory: usize,
    /// The maximum number of attempts at once in one instance.
    pub(super) attempts: usize,
    /// The maximum number of files, folders and sockets that one instance holds open.
    pub(super) max_open: usize,
    /// The maximum duration of an attempt, if it is known.
    pub(super) timeout: Option<Duration>,
    /// The prefix of queue names, which the guest does not see.
    pub(super) queue_prefix: QueuePrefix,
    pub(super) granted: PluginGrants,
    pub(super) refusals: Arc<Refusals>,
    pub(super) meter: PluginMeter,
    /// Whether its output is logged only at level debug.
    pub(super) quiet_output: bool,
    /// The observer of its attempts.
    pub(super) witness: SharedWitness,
    /// Counts its instances.
    pub(super) tally: Arc<Tally>,
}

impl GuestSettings {
    /// Returns the limits of the host's memory for one instance.
    pub(super) fn budget(&self) -> HostBudget {
        HostBudget::of(self.max_memory, self.attempts)
    }
}

/// The work of an instance.
enum GuestWork {
    /// No attempt yet: it is created ahead, and stopped if it still computes at this time.
    Ahead(BootInstant),
    /// One attempt at a time.
    One(Arc<Attempt>),
    /// Many attempts at once.
    Many(Underway),
}

/// The data of one instance's store.
pub(super) struct Guest {
    work: GuestWork,
    /// The ticks for which its attempt has computed.
    ticks: u32,
    pub(super) limits: InstanceLimits,
    settings: Arc<GuestSettings>,
    limit: InvocationLimit,
    /// The causes of failed messages from the functions that it invoked.
    causes: Causes,
    /// The builder of its WASI context, if it was opened in advance.
    opened: Option<Box<WasiCtxBuilder>>,
    /// Created when the guest first calls WASI. Many guests never do, and it costs more than their
    /// work.
    wasi: Option<Box<Wasi>>,
}

struct Wasi {
    context: WasiCtx,
    http: WasiHttpCtx,
    /// The hook for the HTTP requests that it sends.
    outgoing: HttpHook,
    table: ResourceTable,
    output: Output,
}

impl Guest {
    /// Creates a guest that is about to work on `attempt`.
    pub(super) fn new(settings: Arc<GuestSettings>, attempt: Arc<Attempt>) -> Self {
        Self::working_on(GuestWork::One(attempt), settings)
    }

    /// Creates a guest before there is a message for it, which may take until `until`. Meanwhile
    /// its output belongs to no message, and it has no budget for invocations, messages and
    /// requests, because there is no attempt that they could be for.
    pub(super) fn ahead(settings: Arc<GuestSettings>, until: BootInstant) -> Self {
        let guest = Self::working_on(GuestWork::Ahead(until), settings);
        guest.limit.shut();
        guest
    }

    /// Creates a guest that will be given many attempts at once.
    pub(super) fn shared(settings: Arc<GuestSettings>, underway: Underway) -> Self {
        Self::working_on(GuestWork::Many(underway), settings)
    }

    fn working_on(work: GuestWork, settings: Arc<GuestSettings>) -> Self {
        Self {
            work,
            ticks: 0,
            limits: InstanceLimits::new(settings.max_memory, Arc::clone(&settings.tally)),
            limit: InvocationLimit::new(settings.max_memory),
            settings,
            causes: Causes::default(),
            opened: None,
            wasi: None,
        }
    }

    /// Opens the grants that may take time to open. Must be called before the guest runs.
    pub(super) async fn open(&mut self) -> Result<(), NotOpened> {
        let settings = Arc::clone(&self.settings);
        if let Some(folder) = &settings.granted.folder {
            self.opened = Some(folder.open().await?);
        }
        Ok(())
    }

    /// Gives an attempt to a guest that has answered or was created ahead.
    pub(super) fn begin(&mut self, attempt: Arc<Attempt>) {
        if let GuestWork::Ahead(_) = self.work {
            self.limit.open();
        }
        self.ticks = 0;
        self.limits.begin();
        self.causes.clear();
        if let Some(wasi) = &self.wasi {
            wasi.output.begin(label(&attempt));
        }
        self.work = GuestWork::One(attempt);
    }

    /// Counts a tick for which its attempt has computed, and returns how many that are.
    pub(super) fn count_tick(&mut self) -> u32 {
        self.ticks = self.ticks.saturating_add(1);
        self.ticks
    }

    /// Returns the attempts of a shared instance.
    pub(super) fn underway(&mut self) -> Option<&mut Underway> {
        match &mut self.work {
            GuestWork::One(_) | GuestWork::Ahead(_) => None,
            GuestWork::Many(underway) => Some(underway),
        }
    }

    /// Ends one of many attempts, which the guest has answered. Returns the attempt, and the size
    /// of the guest's memory in bytes.
    pub(super) fn ended(&mut self, id: u64) -> (Option<SharedAttempt>, usize) {
        // The guest survived any refusal of memory.
        self.limits.begin();
        if let Some(wasi) = &self.wasi {
            wasi.output.more();
        }
        let job = self.underway().and_then(|underway| underway.ended(id));
        (job, self.limits.memory())
    }

    /// Adds the known causes from the invoked functions to the verdicts.
    pub(super) fn explain(&mut self, attempt: &Attempt, verdicts: &mut [Verdict]) {
        self.causes.explain(&attempt.messages, verdicts);
    }

    /// Returns the settings that it shares with all other instances of its plugin.
    pub(super) fn settings(&self) -> Arc<GuestSettings> {
        Arc::clone(&self.settings)
    }

    /// Logs the lines that the guest printed without ending them.
    pub(super) fn end(&self) {
        if let Some(wasi) = &self.wasi {
            wasi.output.end();
        }
    }

    /// Returns the last lines that it printed.
    pub(super) fn printed(&self) -> Vec<PrintedLine> {
        let wasi = self.wasi.as_ref();
        wasi.map(|wasi| wasi.output.last()).unwrap_or_default()
    }

    /// Drops the lines of a panic that the record of the failed attempt has whole.
    pub(super) fn reported(&self) {
        if let Some(wasi) = &self.wasi {
            wasi.output.reported();
        }
    }

    /// Whether Python's interpreter has printed that a coroutine was never awaited.
    pub(super) fn has_lost_coroutine(&self) -> bool {
        let wasi = self.wasi.as_ref();
        wasi.is_some_and(|wasi| wasi.output.has_lost_coroutine())
    }

    /// Logs a line that the guest logs itself.
    pub(super) fn log(&mut self, entry: &LogEntry) {
        self.wasi().output.log(entry);
    }

    /// Returns the attempt on this message, if it is running here.
    pub(super) fn attempt_at(&self, message_id: &str) -> Option<&Arc<Attempt>> {
        let attempt = self.attempt(Some(message_id))?;
        let mut messages = attempt.messages.iter();
        messages.any(|one| one.id == message_id).then_some(attempt)
    }

    /// Whether no answer of the guest counts any longer.
    pub(super) fn is_cancelled(&self) -> bool {
        match &self.work {
            GuestWork::One(attempt) => attempt.cancelled.iter().all(|one| one.is_cancelled()),
            GuestWork::Many(_) | GuestWork::Ahead(_) => false,
        }
    }

    /// Whether the guest's answer about this message no longer counts.
    pub(super) fn is_message_cancelled(&self, id: &str) -> bool {
        let attempt = match &self.work {
            GuestWork::One(attempt) => attempt,
            GuestWork::Many(underway) => return underway.is_message_cancelled(id),
            GuestWork::Ahead(_) => return true,
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
        let (work, settings, limit) = (&self.work, &self.settings, &self.limit);
        let opened = &mut self.opened;
        self.wasi.get_or_insert_with(|| {
            let context = opened
                .take()
                .map_or_else(WasiCtx::builder, |opened| *opened);
            Box::new(match work {
                GuestWork::One(attempt) => Wasi::of(context, settings, limit, Some(attempt)),
                // It is not known for which attempt it prints, or there is none.
                GuestWork::Many(_) | GuestWork::Ahead(_) => {
                    Wasi::of(context, settings, limit, None)
                }
            })
        })
    }
}

impl Caller for Guest {
    fn plugin(&self) -> &str {
        &self.settings.name
    }

    fn refusals(&self) -> &Arc<Refusals> {
        &self.settings.refusals
    }

    fn limit(&self) -> &InvocationLimit {
        &self.limit
    }

    fn budget(&self) -> HostBudget {
        self.settings.budget()
    }

    fn max_open(&self) -> usize {
        self.settings.max_open
    }

    fn is_shared(&self) -> bool {
        matches!(self.work, GuestWork::Many(_))
    }

    /// Returns the end of its creation, if it is created ahead.
    fn deadline(&self) -> Option<BootInstant> {
        match &self.work {
            GuestWork::One(attempt) => Some(attempt.deadline.get()),
            GuestWork::Ahead(until) => Some(*until),
            GuestWork::Many(_) => None,
        }
    }

    fn attempt(&self, message_id: Option<&str>) -> Option<&Arc<Attempt>> {
        match &self.work {
            GuestWork::One(attempt) => Some(attempt),
            GuestWork::Many(underway) => message_id.and_then(|id| underway.attempt_of(id)),
            GuestWork::Ahead(_) => None,
        }
    }

    fn attempt_of(&self, task: Option<GuestTaskId>) -> Option<&Arc<Attempt>> {
        match &self.work {
            GuestWork::One(attempt) => Some(attempt),
            GuestWork::Many(underway) => Some(&underway.of_task(task?)?.attempt),
            GuestWork::Ahead(_) => None,
        }
    }

    fn span_of(&self, task: Option<GuestTaskId>) -> Option<ActiveSpan> {
        match &self.work {
            GuestWork::Many(underway) => underway.of_task(task?)?.span.clone(),
            // The code that polls the guest works in the attempt's span.
            GuestWork::One(_) | GuestWork::Ahead(_) => None,
        }
    }

    fn causes(&mut self) -> &mut Causes {
        &mut self.causes
    }
}

impl Grantee for Guest {
    fn all_granted(&self) -> &PluginGrants {
        &self.settings.granted
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
    /// Creates the WASI context of an instance that works on this attempt, or on none or many at
    /// once.
    fn of(
        mut context: WasiCtxBuilder,
        settings: &GuestSettings,
        limit: &InvocationLimit,
        attempt: Option<&Attempt>,
    ) -> Self {
        let output = Output::new(&settings.name, attempt.map(label), settings.quiet_output);
        let budget = settings.budget();
        match attempt {
            Some(attempt) if settings.is_command => give(&mut context, settings, attempt),
            _ => drop(context.envs(&settings.granted.env.0)),
        }
        context
            .stdout(output.pipe(Stream::Stdout))
            .stderr(output.pipe(Stream::Stderr));
        context.max_random_size(budget.call as u64);
        network::grant(&mut context, &settings.refusals, &settings.granted.peers);
        let mut table = ResourceTable::new();
        table.set_max_capacity(budget.handles);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HTTP_FIELDS);
        Self {
            context: context.build(),
            http,
            outgoing: HttpHook::new(settings.granted.http.clone(), limit.clone()),
            table,
            output,
        }
    }
}

/// Passes a command its message: the body on stdin, the rest in the environment.
fn give(context: &mut WasiCtxBuilder, settings: &GuestSettings, attempt: &Attempt) {
    // Many programs assume that they have a name.
    context.arg(&settings.name);
    let Some(message) = attempt.messages.first() else {
        return;
    };
    let queue = settings.queue_prefix.bare(&message.queue);
    let environment = Environment::of(message, queue, attempt, &settings.granted.env.0);
    if !environment.left_out.is_empty() {
        let list = environment.left_out.join(", ");
        let names = escape_control_characters(&list.chars().take(NAMES).collect::<String>());
        tracing::warn!(
            plugin = settings.name,
            message_id = message.id,
            names,
            "attributes omitted from the environment of the command"
        );
    }
    context
        .envs(&environment.variables)
        .stdin(MemoryInputPipe::new(message.body.clone()));
}

/// The maximum number of characters of attribute names in one log line.
const NAMES: usize = 200;
