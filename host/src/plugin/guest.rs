//! What the host keeps beside one instance: its attempt, its limits and, once it asks for it, its
//! sandboxed WASI. Everything is shut but the clocks, chance, stdout, stderr and lent variables.

use super::Attempt;
use super::limits::Limits;
use super::output::{Output, Stream};
use std::sync::Arc;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

/// What all instances of a plugin share.
#[derive(Debug)]
pub(super) struct Settings {
    /// The plugin's name in logs.
    pub(super) name: String,
    /// The environment variables that it sees; it sees no others.
    pub(super) env: Vec<(String, String)>,
    /// The most memory of one instance, in bytes.
    pub(super) max_memory: usize,
}

/// The data of one instance's store.
pub(super) struct Guest {
    pub(super) attempt: Arc<Attempt>,
    pub(super) limits: Limits,
    settings: Arc<Settings>,
    /// Made when the guest first calls WASI: many never do, and it costs more than they do.
    wasi: Option<Box<Wasi>>,
}

struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
    output: Output,
}

impl Guest {
    /// A guest about to work on `attempt`.
    pub(super) fn new(settings: Arc<Settings>, attempt: Arc<Attempt>) -> Self {
        Self {
            attempt,
            limits: Limits::new(settings.max_memory),
            settings,
            wasi: None,
        }
    }

    /// Gives a guest that has answered another attempt.
    pub(super) fn begin(&mut self, attempt: Arc<Attempt>) {
        self.limits.begin();
        if let Some(wasi) = &self.wasi {
            wasi.output.begin(label(&attempt));
        }
        self.attempt = attempt;
    }

    /// Writes what the guest printed without ending the line.
    pub(super) fn end(&self) {
        if let Some(wasi) = &self.wasi {
            wasi.output.end();
        }
    }

    /// Whether nothing the guest answers counts any longer.
    pub(super) fn is_cancelled(&self) -> bool {
        self.attempt.cancelled.iter().all(|one| one.is_cancelled())
    }

    /// Whether what the guest answers about this message no longer counts.
    pub(super) fn is_message_cancelled(&self, id: &str) -> bool {
        let messages = self.attempt.messages.iter();
        messages
            .zip(&self.attempt.cancelled)
            .find(|(message, _)| message.id == id)
            .is_none_or(|(_, cancelled)| cancelled.is_cancelled())
    }
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = self
            .wasi
            .get_or_insert_with(|| Box::new(Wasi::shut(&self.settings, &self.attempt)));
        WasiCtxView {
            ctx: &mut wasi.context,
            table: &mut wasi.table,
        }
    }
}

impl Wasi {
    fn shut(settings: &Settings, attempt: &Attempt) -> Self {
        let output = Output::new(&settings.name, label(attempt));
        let context = WasiCtx::builder()
            .envs(&settings.env)
            .stdout(output.pipe(Stream::Stdout))
            .stderr(output.pipe(Stream::Stderr))
            .socket_addr_check(|_, _| Box::pin(std::future::ready(false)))
            .allow_ip_name_lookup(false)
            .allow_tcp(false)
            .allow_udp(false)
            .build();
        Self {
            context,
            table: ResourceTable::new(),
            output,
        }
    }
}

/// What a line that the guest prints is filed under.
fn label(attempt: &Attempt) -> String {
    match attempt.messages.as_slice() {
        [] => String::new(),
        [one] => one.id.clone(),
        [first, rest @ ..] => format!("{} and {} more", first.id, rest.len()),
    }
}
