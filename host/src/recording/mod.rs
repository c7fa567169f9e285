//! Messages kept on disk with what became of them, to be run again: what is kept of one, what is
//! blotted out, and how it gets there. Knows neither queues nor plugins.

pub mod entry;
pub mod redact;
mod writer;

use crate::message::{Message, Verdict};
use entry::Entry;
use redact::Rule;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use writer::ENDING;
use writer::Writer;

/// What is recorded, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The folder; made if it is not there.
    pub folder: PathBuf,
    /// What is blotted out before anything is written.
    pub redact: Vec<Rule>,
    /// The most bytes of all files of the folder together; the oldest are deleted.
    pub most: u64,
}

/// Keeps messages of one plugin. Ends, with all written, when dropped.
#[derive(Debug)]
pub struct Recorder {
    plugin: String,
    redact: Vec<Rule>,
    writer: Writer,
}

impl Recorder {
    /// Opens a file of its own in the folder.
    ///
    /// # Errors
    /// One line that names the folder, if nothing can be written there.
    pub fn open(plugin: &str, terms: &Terms) -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{}: {error}", terms.folder.display());
        Ok(Self {
            plugin: plugin.to_owned(),
            redact: terms.redact.clone(),
            writer: Writer::start(&terms.folder, plugin, terms.most).map_err(named)?,
        })
    }

    /// Where it writes.
    pub fn folder(&self) -> &Path {
        self.writer.folder()
    }

    /// Keeps a message and what `version` made of it in this time. Returns at once; what cannot be
    /// written as fast is left out, and that is said.
    pub fn keep(&self, message: &Message, verdict: &Verdict, version: &str, took: Duration) {
        // What is blotted out never leaves this thread.
        let message = redact::message(&self.redact, message);
        self.writer
            .write(Entry::new(&self.plugin, version, message, verdict, took));
    }
}
