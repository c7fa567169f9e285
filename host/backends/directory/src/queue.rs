//! One queue: sending, receiving, settling, counting. A step that changes a message is a rename of its
//! file: of two processes that try the same one, one finds the file gone.

use crate::name::{Name, new_id};
use dispatcher_core::backend::QueueTerms;
use dispatcher_core::clock::{self, Timestamp};
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{
    Attribute, ContentError, Message, Outcome, OutgoingMessage, Receipt,
};
use dispatcher_core::queue::{
    Ask, DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, Depth, ErrorKind, Identity, ItemError, Queue,
    QueueError, ReceivedMessages,
};
use std::fs::{self, File};
use std::io::{self, Error, Result as IoResult, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a receive that waits looks at the folder.
const LOOK: Duration = Duration::from_millis(50);
/// How long moving a dead letter may take.
const MOVE: Duration = Duration::from_secs(60);

/// The content of a message's file, as JSON: its body, attributes and group.
type Content = (String, Vec<Attribute>, Option<String>);

pub(crate) fn failed(path: &Path, error: &Error) -> QueueError {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::AccessDenied,
        // What is wrong with a disk may pass.
        _ => ErrorKind::Transient,
    };
    let message = format!("{}: {error}", path.display());
    QueueError { kind, message }
}

fn item_failed(path: &Path, error: &Error) -> ItemError {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => ItemError::Gone(message),
        _ => ItemError::Transient(message),
    }
}

/// The names of what is in a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Result<Vec<String>, QueueError> {
    let entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<IoResult<Vec<_>>>)
        .map_err(|error| failed(folder, &error))?;
    let mut names: Vec<_> = entries
        .iter()
        .map(fs::DirEntry::file_name)
        .filter_map(|name| name.into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// Writes a message so that it is there wholly or not at all, also after a loss of power: a reader
/// ignores the file until it has its name.
fn write(folder: &Path, name: &Name, content: &Content) -> Result<(), ItemError> {
    let write = || {
        let unfinished = folder.join(format!("{}.new", name.id));
        let mut file = File::create(&unfinished)?;
        file.write_all(&serde_json::to_vec(content)?)?;
        file.sync_all()?;
        fs::rename(unfinished, folder.join(name.to_string()))?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| item_failed(folder, &error))
}

/// A folder of files.
pub(crate) struct DirectoryQueue {
    identity: Identity,
    folder: PathBuf,
    dead_letters: Option<PathBuf>,
    budget: Option<Arc<Budget>>,
}

impl DirectoryQueue {
    /// Makes the folders that are missing.
    pub(crate) fn open(root: &Path, queue: &str, terms: QueueTerms<'_>) -> IoResult<Self> {
        let folder = root.join(queue);
        let dead_letters = terms.dead_letter.map(|name| root.join(name));
        fs::create_dir_all(&folder)?;
        dead_letters.as_ref().map(fs::create_dir_all).transpose()?;
        let identity = Identity {
            name: format!("directory:{queue}"),
            source: format!("directory:{queue}"),
            visibility: Duration::from_secs(30),
            batch: 10,
            longest_wait: Duration::from_secs(20),
            proof_wait: Duration::ZERO,
            ordered_groups: false,
            deduplicates: false,
            dead_letters: dead_letters.is_some(),
            most_receives: None,
            redrive_target: false,
        };
        Ok(Self {
            identity,
            folder,
            dead_letters,
            budget: terms.budget.cloned(),
        })
    }

    /// All messages, the oldest first.
    fn names(&self) -> Result<Vec<Name>, QueueError> {
        let entries = entries(&self.folder)?;
        Ok(entries
            .iter()
            .filter_map(|text| Name::parse(text))
            .collect())
    }

    /// Returns the messages that can be received.
    fn visible(&self, now: Timestamp) -> Result<Vec<Name>, QueueError> {
        let mut names = self.names()?;
        names.retain(|name| name.visible_at <= now);
        Ok(names)
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// Returns the file of a delivery, unless the message was received again since.
    fn held(&self, receipt: &Receipt) -> Result<Name, ItemError> {
        let mut names = self
            .names()
            .map_err(|error| ItemError::Transient(error.message))?
            .into_iter();
        let held = names.find(|name| name.receipt() == receipt.0);
        held.ok_or_else(|| ItemError::Gone("it was deleted, or received again".to_owned()))
    }

    /// Takes the messages that can be received now.
    fn take(&self, ask: Ask) -> Result<ReceivedMessages, QueueError> {
        let now = clock::wall_clock_now();
        let mut names = self.visible(now)?;
        if ask.newest_first {
            names.reverse();
        }
        let mut received = ReceivedMessages::default();
        for name in names {
            if received.messages.len() == ask.max {
                return Ok(received);
            }
            let taken = name.taken(now, now + ask.visibility);
            match fs::rename(self.path(&name), self.path(&taken)) {
                Ok(()) => {
                    let message = self.read(&taken)?;
                    let budget = self.budget.iter();
                    received
                        .held
                        .extend(budget.map(|budget| budget.take(message.held_bytes())));
                    received.messages.push(message);
                }
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&self.path(&name), &error)),
            }
        }
        received.drained = received.messages.len() < ask.max;
        Ok(received)
    }

    fn read(&self, name: &Name) -> Result<Message, QueueError> {
        let path = self.path(name);
        let bytes = fs::read(&path).map_err(|error| failed(&path, &error))?;
        let mut message = Message {
            id: name.id.clone(),
            queue: self.identity.name.clone(),
            source: self.identity.source.clone(),
            receipt: Receipt(name.receipt()),
            receive_count: name.receives,
            sent_at: name.sent_at(),
            first_received_at: Some(name.first_received_at),
            ..Message::default()
        };
        match serde_json::from_slice::<Content>(&bytes) {
            Ok(content) => (message.body, message.attributes, message.group) = content,
            Err(error) => message.unreadable = Some(ContentError::Unreadable(error.to_string())),
        }
        Ok(message)
    }

    /// Makes a message that is held visible after this time.
    fn hide(&self, held: &Name, time: Duration, is_leased: bool) -> Result<Name, ItemError> {
        let hidden = Name {
            visible_at: clock::wall_clock_now() + time,
            is_leased,
            ..held.clone()
        };
        let done = fs::rename(self.path(held), self.path(&hidden));
        done.map_err(|error| item_failed(&self.path(held), &error))?;
        Ok(hidden)
    }

    fn remove(&self, held: &Name) -> Result<(), ItemError> {
        let path = self.path(held);
        fs::remove_file(&path).map_err(|error| item_failed(&path, &error))
    }

    fn end(&self, message: &Message, outcome: &Outcome) -> Result<(), ItemError> {
        let held = self.held(&message.receipt)?;
        match outcome {
            Outcome::Delete => self.remove(&held),
            Outcome::Release(time) => self.hide(&held, *time, false).map(drop),
            Outcome::DeadLetter(reason) => self.dead_letter(&held, message, reason),
        }
    }

    /// Writes the message to the other folder before it is removed from this one: a kill between the two
    /// moves it again, under the same name, and loses nothing.
    fn dead_letter(&self, held: &Name, message: &Message, why: &str) -> Result<(), ItemError> {
        let Some(to) = &self.dead_letters else {
            return Err(ItemError::Refused(
                "there is no dead-letter queue".to_owned(),
            ));
        };
        // Nobody else may receive it meanwhile.
        let held = self.hide(held, MOVE, true)?;
        let mut attributes = message.attributes.clone();
        attributes.retain(|one| ![DEAD_LETTER_REASON, DEAD_LETTER_SOURCE].contains(&&*one.name));
        attributes.push(Attribute::text(DEAD_LETTER_REASON, why));
        attributes.push(Attribute::text(DEAD_LETTER_SOURCE, &message.source));
        let content = (message.body.clone(), attributes, message.group.clone());
        write(to, &Name::new(held.id.clone(), Timestamp(0)), &content)?;
        self.remove(&held)
    }

    fn put(&self, item: &OutgoingMessage) -> Result<String, ItemError> {
        let now = clock::wall_clock_now();
        let name = Name::new(new_id(now), now + item.delay);
        let attributes = item.attributes_with_trace();
        let content = (item.body.clone(), attributes, item.group.clone());
        write(&self.folder, &name, &content)?;
        Ok(name.id)
    }
}

#[async_trait::async_trait]
impl Queue for DirectoryQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    async fn receive(
        &self,
        ask: Ask,
        hurry: &CancellationToken,
    ) -> Result<ReceivedMessages, QueueError> {
        let until = clock::now() + ask.wait;
        loop {
            let received = self.take(ask)?;
            let now = clock::now();
            if !received.messages.is_empty() || now >= until || hurry.is_cancelled() {
                return Ok(received);
            }
            let look = clock::sleep_until(Some(until.min(now + LOOK)));
            // What is left of the pause when the token is set is not waited for.
            let _ = hurry.run_until_cancelled(look).await;
        }
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        items
            .iter()
            .map(|(receipt, time): &(Receipt, Duration)| {
                let held = self.held(receipt)?;
                self.hide(&held, *time, true).map(drop)
            })
            .collect()
    }

    /// A delivery that is named twice is ended once; its second answer is that of the first.
    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let mut answers: Vec<Result<(), ItemError>> = Vec::with_capacity(items.len());
        for (message, outcome) in items {
            let before = items[..answers.len()].iter();
            let same = before
                .zip(&answers)
                .find(|(item, _)| item.0.receipt == message.receipt);
            let answer = same.map(|(_, answer)| answer.clone());
            answers.push(answer.unwrap_or_else(|| self.end(message, outcome)));
        }
        answers
    }

    async fn send(&self, items: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        items.iter().map(|item| self.put(item)).collect()
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let now = clock::wall_clock_now();
        let mut depth = Depth::default();
        for name in self.names()? {
            match (name.visible_at <= now, name.is_leased) {
                (true, _) => depth.waiting += 1,
                (false, true) => depth.in_flight += 1,
                (false, false) => depth.delayed += 1,
            }
        }
        Ok(depth)
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        let names = self.visible(clock::wall_clock_now())?;
        names.iter().take(max).map(|name| self.read(name)).collect()
    }
}
