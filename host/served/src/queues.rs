//! Operations on queues: create, find, list, configure, tag, purge, delete.

use super::attributes;
use super::fault::{Fault, FaultKind};
use super::input::{Attributes, Create, List, OfQueue, Tags, Texts};
use super::service::{Service, url};
use dispatcher_local::queue::KnownQueue;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// SQS's limits.
const MOST_TAGS: usize = 50;
const MOST_LISTED: usize = 1000;
const LONGEST_NAME: usize = 80;
/// A queue is purged once in this time.
const PURGE: Duration = Duration::from_secs(60);

impl Service {
    pub(super) async fn create_queue(&self, host: &str, asked: Create) -> Result<Value, Fault> {
        let name = name(asked.queue_name)?;
        let given = asked.attributes.unwrap_or_default();
        let tags = asked.tags.unwrap_or_default();
        few_enough(&tags)?;
        check_name(&name)?;
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

    /// A redrive policy names a queue that exists.
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
        match deleted {
            true => Ok(Value::Null),
            false => Err(Fault::no_queue()),
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
        // Only those who asked for pages know what to do with the next.
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
        let names = self.store.sources(&queue.name).await?;
        let mut names: Vec<_> = names.into_iter().filter(|name| *name > after).collect();
        let more = names.len() > max;
        names.truncate(max);
        let urls: Vec<_> = names.iter().map(|name| url(host, name)).collect();
        // The one list of this protocol whose name begins small.
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
        // What was set a moment ago by another process is shown at once.
        let known = self.store.find(&queue.name).await?;
        let known = known.ok_or_else(Fault::no_queue)?;
        let depth = match wanted.iter().any(|name| name == "All" || is_count(name)) {
            true => self.store.depth_of(known.id).await?,
            false => dispatcher_core::queue::Depth::default(),
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
        match shown.is_empty() {
            true => Ok(json!({})),
            false => Ok(json!({"Attributes": shown})),
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
            // Looked at above, with the same outcome: only values decide.
            let _ = attributes::apply(settings, &name, &given);
        })
        .await
    }

    async fn change_settings(
        &self,
        queue: &KnownQueue,
        change: impl Fn(&mut dispatcher_local::queue::QueueSettings) + Send + 'static,
    ) -> Result<Value, Fault> {
        let changed = self.store.change(&queue.name, change).await?;
        self.forget(&queue.name);
        match changed {
            true => Ok(Value::Null),
            false => Err(Fault::no_queue()),
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
        let known = self.store.find(&queue.name).await?;
        let known = known.ok_or_else(Fault::no_queue)?;
        match known.settings.tags.is_empty() {
            true => Ok(json!({})),
            false => Ok(json!({"Tags": known.settings.tags})),
        }
    }

    /// Taken and forgotten: nobody is kept out here.
    pub(super) async fn permit(&self, path: Option<&str>, asked: OfQueue) -> Result<Value, Fault> {
        self.queue(path, asked.queue_url.as_deref()).await?;
        Ok(Value::Null)
    }
}

fn is_count(name: &str) -> bool {
    name.starts_with("ApproximateNumberOf")
}

fn name(given: Option<String>) -> Result<String, Fault> {
    let given = given.filter(|name| !name.is_empty());
    given.ok_or_else(|| Fault::missing("QueueName"))
}

fn check_name(name: &str) -> Result<(), Fault> {
    let bare = name.strip_suffix(".fifo").unwrap_or(name);
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    match !bare.is_empty() && name.len() <= LONGEST_NAME && bare.chars().all(legal) {
        true => Ok(()),
        false => Err(Fault::new(
            FaultKind::InvalidParameterValue,
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )),
    }
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

/// The same queue may be made again; another of its name may not.
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

/// The name after which a page begins, and how many it has.
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
