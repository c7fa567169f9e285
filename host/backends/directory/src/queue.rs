//! One queue: sending, receiving, settling, counting. A step that changes a message is a rename of its
//! file: of two processes that try the same one, one finds the file gone.

use crate::name::Name;
use dispatcher_core::backend::QueueTerms;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{Attribute, Message, Outcome, Outgoing, Receipt};
use dispatcher_core::queue::{
    Ask, DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, Depth, Identity, ItemError, Queue, QueueError,
    Received, Trouble,
};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const BATCH: usize = 10;
/// How often a receive that waits looks at the folder.
const LOOK: Duration = Duration::from_millis(50);
/// How long moving a dead letter may take.
const MOVE: Duration = Duration::from_secs(60);

/// What stands in a message's file.
#[derive(Serialize, Deserialize)]
struct Content {
    body: String,
    attributes: Vec<Attribute>,
    group: Option<String>,
}

/// A folder of files.
pub(crate) struct DirectoryQueue {
    identity: Identity,
    folder: PathBuf,
    dead_letters: Option<PathBuf>,
    budget: Option<Arc<Budget>>,
}

/// A call on a file that failed. What is wrong with a disk may pass.
pub(crate) fn failed(path: &Path, error: &std::io::Error) -> QueueError {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => Trouble::Denied,
        _ => Trouble::Passing,
    };
    let message = format!("{}: {error}", path.display());
    QueueError { kind, message }
}

fn of_item(path: &Path, error: &std::io::Error) -> ItemError {
    if error.kind() == ErrorKind::NotFound {
        return ItemError::Gone(format!("{} is gone", path.display()));
    }
    ItemError::Passing(format!("{}: {error}", path.display()))
}

/// Writes a message so that it is there wholly or not at all, also after a loss of power: a reader
/// ignores the file until it has its name.
fn write(folder: &Path, name: &Name, content: &Content) -> Result<(), std::io::Error> {
    let (unfinished, finished) = (
        folder.join(format!("{}.new", name.id)),
        folder.join(name.to_string()),
    );
    let mut file = File::create(&unfinished)?;
    file.write_all(&serde_json::to_vec(content)?)?;
    file.sync_all()?;
    fs::rename(unfinished, finished)?;
    File::open(folder)?.sync_all()
}

impl DirectoryQueue {
    /// Makes the folders that are missing.
    pub(crate) fn open(
        root: &Path,
        queue: &str,
        terms: QueueTerms<'_>,
    ) -> Result<Self, QueueError> {
        let folder = root.join(queue);
        let dead_letters = terms.dead_letter.map(|name| root.join(name));
        for path in [Some(&folder), dead_letters.as_ref()].into_iter().flatten() {
            fs::create_dir_all(path).map_err(|error| failed(path, &error))?;
        }
        let name = format!("directory:{queue}");
        Ok(Self {
            identity: Identity {
                source: name.clone(),
                name,
                visibility: Duration::from_secs(30),
                batch: BATCH,
                longest_wait: Duration::from_secs(20),
                proof_wait: Duration::ZERO,
                ordered_groups: false,
                dead_letters: dead_letters.is_some(),
                most_receives: None,
                redrive_target: false,
            },
            folder,
            dead_letters,
            budget: terms.budget.cloned(),
        })
    }

    /// All messages, the oldest first.
    fn names(&self) -> Result<Vec<Name>, QueueError> {
        let wrong = |error| failed(&self.folder, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(wrong)? {
            let file = entry.map_err(wrong)?.file_name();
            names.extend(file.to_str().and_then(Name::parse));
        }
        names.sort();
        Ok(names)
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.folder.join(name.to_string())
    }

    /// Changes a message; fails if somebody else has changed it meanwhile.
    fn change(&self, from: &Name, to: &Name) -> Result<(), std::io::Error> {
        fs::rename(self.path(from), self.path(to))
    }

    /// The file of a delivery, as long as nobody has received the message since.
    fn held(&self, receipt: &Receipt) -> Result<Name, ItemError> {
        let names = self
            .names()
            .map_err(|error| ItemError::Passing(error.message))?;
        let mut names = names.into_iter();
        names
            .find(|name| name.receipt() == receipt.0)
            .ok_or_else(|| ItemError::Gone("it was deleted, or received again".to_owned()))
    }

    /// Takes the messages that can be received now.
    fn take(&self, ask: Ask) -> Result<Received, QueueError> {
        let now = clock::today();
        let mut names = self.names()?;
        names.retain(|name| name.visible_at <= now);
        if ask.newest_first {
            names.reverse();
        }
        let mut received = Received::default();
        for name in &names {
            if received.messages.len() == ask.max {
                return Ok(received);
            }
            let taken = Name {
                receives: name.receives + 1,
                visible_at: now + ask.visibility,
                first_received_at: match name.receives {
                    0 => now,
                    _ => name.first_received_at,
                },
                is_leased: true,
                ..name.clone()
            };
            match self.change(name, &taken) {
                Ok(()) => received.messages.push(self.read(&taken)?),
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&self.path(name), &error)),
            }
        }
        received.drained = received.messages.len() < ask.max;
        if let Some(budget) = &self.budget {
            let messages = received.messages.iter();
            received.held = messages.map(|one| budget.take(one.held_bytes())).collect();
        }
        Ok(received)
    }

    fn read(&self, name: &Name) -> Result<Message, QueueError> {
        let path = self.path(name);
        let bytes = fs::read(&path).map_err(|error| failed(&path, &error))?;
        let content = serde_json::from_slice::<Content>(&bytes);
        let message = Message {
            id: name.id.clone(),
            queue: self.identity.name.clone(),
            source: self.identity.source.clone(),
            receipt: Receipt(name.receipt()),
            receive_count: name.receives,
            sent_at: name.sent_at(),
            first_received_at: Some(name.first_received_at),
            ..Message::default()
        };
        Ok(match content {
            Ok(Content {
                body,
                attributes,
                group,
            }) => Message {
                body,
                attributes,
                group,
                ..message
            },
            Err(error) => Message {
                unreadable: Some(error.to_string()),
                ..message
            },
        })
    }

    /// Makes a message that is held visible after this time.
    fn hide(&self, held: &Name, time: Duration, is_leased: bool) -> Result<Name, ItemError> {
        let changed = Name {
            visible_at: clock::today() + time,
            is_leased,
            ..held.clone()
        };
        let done = self.change(held, &changed);
        done.map_err(|error| of_item(&self.path(held), &error))?;
        Ok(changed)
    }

    fn end(&self, message: &Message, outcome: &Outcome) -> Result<(), ItemError> {
        let held = self.held(&message.receipt)?;
        match outcome {
            Outcome::Delete => self.remove(&held),
            Outcome::Release(time) => self.hide(&held, *time, false).map(drop),
            Outcome::DeadLetter(reason) => self.dead_letter(&held, message, reason),
        }
    }

    fn remove(&self, held: &Name) -> Result<(), ItemError> {
        let path = self.path(held);
        fs::remove_file(&path).map_err(|error| of_item(&path, &error))
    }

    /// Writes the message to the other folder before it is removed from this one: a kill between the two
    /// moves it again, under the same name, and loses nothing.
    fn dead_letter(&self, held: &Name, message: &Message, why: &str) -> Result<(), ItemError> {
        let to = self.dead_letters.as_ref();
        let to =
            to.ok_or_else(|| ItemError::Refused("there is no dead-letter queue".to_owned()))?;
        // Nobody else may receive it meanwhile.
        let held = self.hide(held, MOVE, true)?;
        let mut attributes = message.attributes.clone();
        attributes.retain(|one| one.name != DEAD_LETTER_REASON && one.name != DEAD_LETTER_SOURCE);
        attributes.push(Attribute::text(DEAD_LETTER_REASON, why));
        attributes.push(Attribute::text(DEAD_LETTER_SOURCE, &message.source));
        let content = Content {
            body: message.body.clone(),
            attributes,
            group: message.group.clone(),
        };
        let waiting = Name {
            receives: 0,
            visible_at: Timestamp(0),
            first_received_at: Timestamp(0),
            is_leased: false,
            ..held.clone()
        };
        write(to, &waiting, &content).map_err(|error| of_item(to, &error))?;
        self.remove(&held)
    }

    fn put(&self, item: &Outgoing) -> Result<String, ItemError> {
        let now = clock::today();
        let name = Name::new(now, now + item.delay);
        let content = Content {
            body: item.body.clone(),
            attributes: item.attributes.clone(),
            group: item.group.clone(),
        };
        let written = write(&self.folder, &name, &content);
        written.map_err(|error| of_item(&self.folder, &error))?;
        Ok(name.id)
    }
}

#[async_trait::async_trait]
impl Queue for DirectoryQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    async fn receive(&self, ask: Ask, hurry: &CancellationToken) -> Result<Received, QueueError> {
        let until = clock::now() + ask.wait;
        loop {
            let received = self.take(ask)?;
            let now = clock::now();
            if !received.messages.is_empty() || now >= until || hurry.is_cancelled() {
                return Ok(received);
            }
            tokio::select! {
                () = clock::sleep_until(Some(until.min(now + LOOK))) => {}
                () = hurry.cancelled() => {}
            }
        }
    }

    async fn extend(&self, items: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        let extend = |(receipt, time): &(Receipt, Duration)| {
            let held = self.held(receipt)?;
            self.hide(&held, *time, true).map(drop)
        };
        items.iter().map(extend).collect()
    }

    /// A message that is named twice is deleted once; the second answer is that of the first.
    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let mut answers: Vec<Result<(), ItemError>> = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let before = items[..at].iter().position(|other| other == item);
            let answer = match before {
                Some(before) => answers[before].clone(),
                None => self.end(&item.0, &item.1),
            };
            answers.push(answer);
        }
        answers
    }

    async fn send(&self, items: &[Outgoing]) -> Vec<Result<String, ItemError>> {
        items.iter().map(|item| self.put(item)).collect()
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let now = clock::today();
        let mut depth = Depth::default();
        for name in self.names()? {
            let count = match (name.visible_at <= now, name.is_leased) {
                (true, _) => &mut depth.waiting,
                (false, true) => &mut depth.in_flight,
                (false, false) => &mut depth.delayed,
            };
            *count += 1;
        }
        Ok(depth)
    }

    async fn peek(&self, max: usize) -> Result<Vec<Message>, QueueError> {
        let now = clock::today();
        let mut names = self.names()?;
        names.retain(|name| name.visible_at <= now);
        names.iter().take(max).map(|name| self.read(name)).collect()
    }
}
