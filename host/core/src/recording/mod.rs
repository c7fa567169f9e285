//! Records messages and their verdicts on disk for replay: what is kept, what is redacted, and how
//! it is written. Knows neither queues nor plugins.

pub mod entry;
mod pages;
pub mod redact;
mod writer;

use crate::message::{Message, Verdict};
use entry::RecordedMessage;
pub(crate) use pages::ENDING;
use redact::Rule;
use std::path::{Path, PathBuf};
use std::time::Duration;
use writer::RecordingWriter;

/// What is recorded, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingTerms {
    /// The folder; made if it is not there.
    pub folder: PathBuf,
    /// What is redacted before anything is written.
    pub redact: Vec<Rule>,
    /// Maximum bytes of all files of the folder together; the oldest are deleted.
    pub most: u64,
}

/// Keeps messages of one plugin. Ends, with all written, when dropped.
#[derive(Debug)]
pub struct Recorder {
    plugin: String,
    redact: Vec<Rule>,
    writer: RecordingWriter,
}

impl Recorder {
    /// Makes nothing: the folder and a file in it come with the first message.
    ///
    /// # Errors
    /// One line that names the folder, if nothing could be written there.
    pub fn open(plugin: &str, terms: &RecordingTerms) -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{}: {error}", terms.folder.display());
        pages::may_write(&terms.folder).map_err(named)?;
        Ok(Self {
            plugin: plugin.to_owned(),
            redact: terms.redact.clone(),
            writer: RecordingWriter::start(&terms.folder, plugin, terms.most).map_err(named)?,
        })
    }

    /// How many messages were written since it was opened, and how many left out.
    pub fn counts(&self) -> (u64, u64) {
        self.writer.counts()
    }

    /// Where it writes.
    pub fn folder(&self) -> &Path {
        self.writer.folder()
    }

    /// Records a message and the verdict of `version` after this time. Returns at once; messages
    /// that cannot be written fast enough are left out, which is logged.
    pub fn keep(&self, message: &Message, verdict: &Verdict, version: &str, took: Duration) {
        // What is redacted never leaves this thread.
        let message = redact::message(&self.redact, message);
        let mut entry = RecordedMessage::new(&self.plugin, version, message, verdict, took);
        if !self.redact.is_empty() {
            entry.answer = entry.answer.without_guest_text();
        }
        self.writer.write(entry);
    }
}

#[cfg(test)]
mod tests;
