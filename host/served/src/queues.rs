//! Operations on queues: create, find, list, configure, tag, purge, delete.

use super::attributes;
use super::attributes::is_fifo;
use super::fault::{Fault, FaultKind};
use super::input::{Attributes, Create, List, OfQueue, Permission, Tags, Texts};
use super::permissions;
use super::service::{Service, url};
use dispatcher_local::queue::{KnownQueue, QueueSettings, arn};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// SQS's limits.
const MOST_TAGS: usize = 50;
const MOST_LISTED: usize = 1000;
const LONGEST_NAME: usize = 80;
/// The time in which a queue can be purged once.
const PURGE: Duration = Duration::from_secs(60);

impl Service {
    pub(super) async fn create_queue(&self, host: &str, asked: Create) -> Result<Value, Fault> {
        let name = name(asked.queue_name)?;
        let given = asked.attributes.unwrap_or_default();
        let tags = asked.tags.unwrap_or_default();
        few_enough(&tags)?;
        check_name(&name, attributes::wants_fifo(&given))?;
        let settings = attributes::new(&name, &given, tags)?;
        if let Some(redrive) = &settings.redrive {
            self.dead_letter_queue(&given, &redrive.dead_letter_queue)
                .await?;
        }
        if let Some(known) = self.store.create(&name, settings).await? {
            same(&known, &given)?;
        }
        self.forget(&name);
        Ok(json!({"QueueUrl": url(host, &name)}))
    }

    /// Checks that the queue that a redrive policy names exists.
    async fn dead_letter_queue(&self, given: &Texts, name: &str) -> Result<(), Fault> {
        match self.named(name).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.kind == FaultKind::QueueDoesNotExist => Err(Fault::value(
                given.get("RedrivePolicy").map_or("", String::as_str),
                "RedrivePolicy",
                "Dead letter target does not exist.",
            )),
            Err(fault) => Err(fault),
        }
    }

    pub(super) async fn queue_url(&self, host: &str, asked: Create) -> Result<Value, Fault> {
        let name = name(asked.queue_name)?;
        let known = self.named(&name).await?;
        Ok(json!({"QueueUrl": url(host, &known.name)}))
    }

    pub(super) async fn delete_queue(
        &self,
        path: Option<&str>,
        asked: OfQueue,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        self.forget(&queue.name);
        let deleted = self.store.delete_queue(&queue.name).await?;
        self.forget(&queue.name);
        self.forget_purge(queue.id);
        if deleted {
            Ok(Value::Null)
        } else {
            Err(Fault::no_queue())
        }
    }

    pub(super) async fn purge_queue(
        &self,
        path: Option<&str>,
        asked: OfQueue,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        if !self.may_purge(queue.id, PURGE) {
            return Err(Fault::new(
                FaultKind::PurgeQueueInProgress,
                format!(
                    "Only one PurgeQueue operation on {} is allowed every 60 seconds.",
                    queue.name
                ),
            ));
        }
        self.store.purge(queue.id).await?;
        Ok(Value::Null)
    }

    pub(super) async fn list_queues(&self, host: &str, asked: List) -> Result<Value, Fault> {
        let prefix = asked.queue_name_prefix.clone().unwrap_or_default();
        let (after, max) = page(&asked)?;
        let mut names = self.store.list(&prefix, &after, max + 1).await?;
        let more = names.len() > max;
        names.truncate(max);
        let mut fields = Map::new();
        if !names.is_empty() {
            let urls = names.iter().map(|name| Value::from(url(host, name)));
            fields.insert("QueueUrls".into(), urls.collect());
        }
        // Only clients that asked for pages can use the next one.
        if more
            && asked.max_results.is_some()
            && let Some(last) = names.last()
        {
            fields.insert("NextToken".into(), last.clone().into());
        }
        Ok(fields.into())
    }

    pub(super) async fn list_sources(
        &self,
        path: Option<&str>,
        host: &str,
        asked: List,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let (after, max) = page(&asked)?;
        let mut names: Vec<_> = self
            .store
            .sources(&queue.name)
            .await?
            .into_iter()
            .filter(|name| *name > after)
            .collect();
        let more = names.len() > max;
        names.truncate(max);
        let urls: Vec<_> = names.iter().map(|name| url(host, name)).collect();
        // The only list of this protocol whose name begins with a small letter.
        let mut answer = json!({"queueUrls": urls});
        if more && let Some(last) = names.last() {
            answer["NextToken"] = last.clone().into();
        }
        Ok(answer)
    }

    pub(super) async fn queue_attributes(
        &self,
        path: Option<&str>,
        asked: Attributes,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let wanted = asked.attribute_names.unwrap_or_default();
        attributes::check(&wanted)?;
        if wanted.is_empty() {
            return Ok(json!({}));
        }
        // Reads the store, so that a change by another process is shown at once.
        let known = self
            .store
            .find(&queue.name)
            .await?
            .ok_or_else(Fault::no_queue)?;
        let depth = if wanted.iter().any(|name| name == "All" || is_count(name)) {
            self.store.depth_of(known.id).await?
        } else {
            dispatcher_core::queue::Depth::default()
        };
        let shown: Map<String, Value> = attributes::all(&known, &depth)
            .into_iter()
            .filter(|(name, _)| {
                wanted
                    .iter()
                    .any(|wanted| wanted == "All" || wanted == name)
            })
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        if shown.is_empty() {
            Ok(json!({}))
        } else {
            Ok(json!({"Attributes": shown}))
        }
    }

    pub(super) async fn set_attributes(
        &self,
        path: Option<&str>,
        asked: Attributes,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let given = asked.attributes.unwrap_or_default();
        let mut settings = queue.settings.clone();
        attributes::apply(&mut settings, &queue.name, &given)?;
        if let Some(redrive) = &settings.redrive
            && given.contains_key("RedrivePolicy")
        {
            self.dead_letter_queue(&given, &redrive.dead_letter_queue)
                .await?;
        }
        let name = queue.name.clone();
        self.change_settings(&queue, move |settings| {
            // Checked above with the same outcome: only the values decide.
            let _ = attributes::apply(settings, &name, &given);
        })
        .await
    }

    async fn change_settings(
        &self,
        queue: &KnownQueue,
        change: impl Fn(&mut QueueSettings) + Send + 'static,
    ) -> Result<Value, Fault> {
        let changed = self.store.change(&queue.name, change).await?;
        self.forget(&queue.name);
        if changed {
            Ok(Value::Null)
        } else {
            Err(Fault::no_queue())
        }
    }

    pub(super) async fn tag(&self, path: Option<&str>, asked: Tags) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let tags = asked.tags.ok_or_else(|| Fault::missing("Tags"))?;
        let mut all = queue.settings.tags.clone();
        all.extend(tags.clone());
        few_enough(&all)?;
        self.change_settings(&queue, move |settings| settings.tags.extend(tags.clone()))
            .await
    }

    pub(super) async fn untag(&self, path: Option<&str>, asked: Tags) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let keys = asked.tag_keys.ok_or_else(|| Fault::missing("TagKeys"))?;
        self.change_settings(&queue, move |settings| {
            settings.tags.retain(|key, _| !keys.contains(key));
        })
        .await
    }

    pub(super) async fn list_tags(
        &self,
        path: Option<&str>,
        asked: OfQueue,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let known = self
            .store
            .find(&queue.name)
            .await?
            .ok_or_else(Fault::no_queue)?;
        if known.settings.tags.is_empty() {
            Ok(json!({}))
        } else {
            Ok(json!({"Tags": known.settings.tags}))
        }
    }

    /// Adds a permission to the queue's policy, which is stored and shown, but has no effect.
    pub(super) async fn add_permission(
        &self,
        path: Option<&str>,
        asked: Permission,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let added = permissions::NewPermission::of(asked)?;
        let arn = arn(&queue.name);
        added.to(policy(&queue.settings), &arn)?;
        self.change_settings(&queue, move |settings| {
            // Checked above with the same outcome: only the values decide.
            if let Ok(changed) = added.to(policy(settings), &arn) {
                settings.other.insert(permissions::POLICY.into(), changed);
            }
        })
        .await
    }

    pub(super) async fn remove_permission(
        &self,
        path: Option<&str>,
        asked: Permission,
    ) -> Result<Value, Fault> {
        let queue = self.queue(path, asked.queue_url.as_deref()).await?;
        let label = permissions::label(asked.label)?;
        permissions::without(policy(&queue.settings), &label)?;
        self.change_settings(&queue, move |settings| {
            // Checked above with the same outcome: only the values decide.
            match permissions::without(policy(settings), &label) {
                Ok(Some(changed)) => {
                    settings.other.insert(permissions::POLICY.into(), changed);
                }
                Ok(None) => drop(settings.other.remove(permissions::POLICY)),
                Err(_) => {}
            }
        })
        .await
    }
}

/// Returns the policy of a queue.
fn policy(settings: &QueueSettings) -> Option<&str> {
    settings.other.get(permissions::POLICY).map(String::as_str)
}

fn is_count(name: &str) -> bool {
    name.starts_with("ApproximateNumberOf")
}

fn name(given: Option<String>) -> Result<String, Fault> {
    let given = given.filter(|name| !name.is_empty());
    given.ok_or_else(|| Fault::missing("QueueName"))
}

/// Checks a queue's name. The name of a FIFO queue ends with .fifo, and no other name does.
fn check_name(name: &str, fifo: bool) -> Result<(), Fault> {
    let bare = name.strip_suffix(".fifo").unwrap_or(name);
    let is_legal = !bare.is_empty()
        && name.len() <= LONGEST_NAME
        && bare
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c));
    if is_legal && is_fifo(name) == fifo {
        return Ok(());
    }
    let why = if fifo {
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, \
         must end with .fifo suffix and be 1 to 80 in length"
    } else {
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    };
    Err(Fault::new(FaultKind::InvalidParameterValue, why))
}

fn few_enough(tags: &Texts) -> Result<(), Fault> {
    match tags.len() {
        0..=MOST_TAGS => Ok(()),
        more => Err(Fault::new(
            FaultKind::InvalidParameterValue,
            format!("A queue has at most {MOST_TAGS} tags; these would be {more}."),
        )),
    }
}

/// Checks that an existing queue has the given attributes: the same queue may be created again.
fn same(known: &KnownQueue, given: &Texts) -> Result<(), Fault> {
    match attributes::differences(known, given)?.first() {
        None => Ok(()),
        Some(attribute) => Err(Fault::new(
            FaultKind::QueueNameExists,
            format!(
                "A queue already exists with the same name and a different value for attribute \
                 {attribute}"
            ),
        )),
    }
}

/// Returns the name after which a page begins, and the maximum number of names in it.
fn page(asked: &List) -> Result<(String, usize), Fault> {
    let max = match asked.max_results {
        None => MOST_LISTED,
        Some(max) => usize::try_from(max)
            .ok()
            .filter(|max| (1..=MOST_LISTED).contains(max))
            .ok_or_else(|| Fault::value(max, "MaxResults", "Must be between 1 and 1000."))?,
    };
    Ok((asked.next_token.clone().unwrap_or_default(), max))
}
