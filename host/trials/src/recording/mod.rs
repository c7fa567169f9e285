//! Records messages and their verdicts on disk for replay: which are recorded, what is redacted and
//! how they are written. Does not depend on queues or plugins.

pub mod entry;
mod pages;
pub mod redact;
mod writer;

use dispatcher_core::message::{Message, Verdict};
use entry::RecordedMessage;
pub(crate) use pages::ENDING;
use redact::Rule;
use std::path::{Path, PathBuf};
use std::time::Duration;
use writer::RecordingWriter;

/// The settings of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingTerms {
    /// The folder; created if it does not exist.
    pub folder: PathBuf,
    /// The rules by which messages are redacted before they are written.
    pub redact: Vec<Rule>,
    /// The maximum size of all files in the folder together, in bytes; the oldest are deleted.
    pub most: u64,
}

/// Records the messages of one plugin. Dropping it writes the entries that still wait.
#[derive(Debug)]
pub struct Recorder {
    plugin: String,
    redact: Vec<Rule>,
    writer: RecordingWriter,
}

impl Recorder {
    /// Checks that the folder is writable. The folder and a file in it are created with the first
    /// message.
    ///
    /// # Errors
    /// Returns one line with the folder if it is not writable.
    pub fn open(plugin: &str, terms: &RecordingTerms) -> Result<Self, String> {
        let writer = pages::may_write(&terms.folder)
            .and_then(|()| RecordingWriter::start(&terms.folder, plugin, terms.most))
            .map_err(|error| format!("{}: {error}", terms.folder.display()))?;
        Ok(Self {
            plugin: plugin.to_owned(),
            redact: terms.redact.clone(),
            writer,
        })
    }

    /// Returns the number of messages recorded since it was opened, and the number left out.
    pub fn counts(&self) -> (u64, u64) {
        self.writer.counts()
    }

    /// Returns the folder that it writes to.
    pub fn folder(&self) -> &Path {
        self.writer.folder()
    }

    /// Records a message and the verdict that `version` returned after `took`. Returns at once.
    /// Messages that cannot be written fast enough are left out, which is logged.
    pub fn keep(&self, message: &Message, verdict: &Verdict, version: &str, took: Duration) {
        // Redact on this thread, so that redacted values never leave it.
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
