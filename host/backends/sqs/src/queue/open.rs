//! Opens a queue from a configured name: finds the client, the URL and the kind of queue. Errors
//! name the step that failed.

use super::address::{Address, OwnEndpoint, name_in_url};
use super::{Clients, QueueTarget};
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::types::QueueAttributeName;
use dispatcher_aws as aws;
use dispatcher_aws::SdkConfig;
use dispatcher_aws::failure::{About, CallName};
use dispatcher_core::clock;
use dispatcher_core::queue::{ErrorKind, QueueError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of names that `Sqs::names` returns: one page of ListQueues.
const MOST_NAMES: usize = 1_000;

/// The maximum number of attempts of a call whose response cannot be used, for example because a
/// proxy is starting or the response belongs to another call.
const ASKS: u32 = 4;

/// The pause before the second attempt; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(200);

/// The suffix of the names of FIFO queues, which no other queue may have.
const FIFO: &str = ".fifo";

/// SQS's default visibility timeout.
const DEFAULT_VISIBILITY: Duration = Duration::from_secs(30);

/// An SQS client for one configuration. Cheap to create; makes no call before `open`.
#[derive(Debug)]
pub struct Sqs {
    config: SdkConfig,
    /// The pair of clients for each region or endpoint that a queue's address contains.
    clients: Mutex<HashMap<Reach, Arc<Clients>>>,
}

/// The region and the endpoint, if they differ from the configured ones, and whether the endpoint
/// is for FIPS.
type Reach = (Option<String>, Option<(String, bool)>);

impl Sqs {
    /// Creates a client from the configuration of `aws::configuration`.
    pub fn connect(config: &SdkConfig) -> Self {
        Self {
            config: config.clone(),
            clients: Mutex::default(),
        }
    }

    /// Returns the sorted names of the queues in the configured account and region: all that begin
    /// with a prefix, or at most 1,000.
    pub async fn names(&self, prefix: Option<&str>) -> Result<Vec<String>, QueueError> {
        let clients = self.reach(None, None);
        let call = CallName {
            step: "ListQueues",
            about: About::All,
            place: &clients.place,
        };
        let most = prefix.map_or(MOST_NAMES, |_| usize::MAX);
        let mut names: Vec<String> = Vec::new();
        let mut token = None;
        loop {
            let page = clients
                .control
                .list_queues()
                .set_queue_name_prefix(
                    prefix
                        .filter(|prefix| !prefix.is_empty())
                        .map(str::to_owned),
                )
                .max_results(i32::try_from(MOST_NAMES).expect("a thousand"))
                .set_next_token(token)
                .send()
                .await
                .map_err(|error| call.failed(&error))?;
            names.extend(page.queue_urls().iter().map(|url| name_in_url(url).into()));
            token = page.next_token;
            if token.is_none() || names.len() >= most {
                break;
            }
        }
        names.sort();
        names.truncate(most);
        Ok(names)
    }

    /// Whether the redrive policy of another queue names this one.
    pub async fn has_sources(&self, name: &str) -> Result<bool, QueueError> {
        let (url, clients) = self.resolve(name).await?;
        let call = CallName {
            step: "ListDeadLetterSourceQueues",
            about: About::Queue(name),
            place: &clients.place,
        };
        let asked = clients
            .control
            .list_dead_letter_source_queues()
            .queue_url(url)
            .max_results(1)
            .send();
        match asked.await {
            Ok(sources) => Ok(!sources.queue_urls().is_empty()),
            Err(error) if error.meta().code() == Some("InvalidAction") => {
                self.is_redrive_target(name).await
            }
            Err(error) => Err(call.failed(&error)),
        }
    }

    /// Reads all redrive policies to find one that names this queue: some emulators do not know
    /// `ListDeadLetterSourceQueues`.
    async fn is_redrive_target(&self, name: &str) -> Result<bool, QueueError> {
        let own = self.find(name).await?.source;
        for other in self.names(None).await? {
            let target = match self.find(&other).await {
                Ok(found) => found.redrive.target,
                Err(error) if error.kind == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            if target.is_some_and(|target| *target == *own) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the tags of a queue.
    pub async fn tags(&self, name: &str) -> Result<BTreeMap<String, String>, QueueError> {
        let (url, clients) = self.resolve(name).await?;
        let call = CallName {
            step: "ListQueueTags",
            about: About::Queue(name),
            place: &clients.place,
        };
        let asked = clients.control.list_queue_tags().queue_url(url).send();
        let answer = asked.await.map_err(|error| call.failed(&error))?;
        Ok(answer.tags.into_iter().flatten().collect())
    }

    /// Returns the key of a queue that is encrypted with AWS KMS. Returns `None` for the keys of
    /// SQS, which need no permission: `alias/aws/sqs`, and SSE-SQS.
    pub async fn encryption(&self, name: &str) -> Result<Option<Encryption>, QueueError> {
        let (url, clients) = self.resolve(name).await?;
        let mut attributes = attributes(&clients, name, &url).await?;
        let key = attributes
            .remove(&QueueAttributeName::KmsMasterKeyId)
            .filter(|key| !key.is_empty() && !key.ends_with("alias/aws/sqs"));
        let queue = attributes.remove(&QueueAttributeName::QueueArn);
        Ok(key.map(|key| Encryption {
            key,
            queue: queue.unwrap_or_default(),
        }))
    }

    async fn resolve(&self, name: &str) -> Result<(String, Arc<Clients>), QueueError> {
        let address = Address::of(name);
        let clients = match &address {
            Address::Name(_) => self.reach(None, None),
            Address::Arn { region, .. } => self.reach(Some(region), None),
            Address::Url {
                region, endpoint, ..
            } => self.reach(region.as_deref(), *endpoint),
        };
        let url = queue_url(&clients, name, &address).await?;
        Ok((url, clients))
    }

    /// Finds a queue and reads its attributes.
    pub(super) async fn find(&self, name: &str) -> Result<OpenedQueue, QueueError> {
        let (url, clients) = self.resolve(name).await?;
        let attributes = attributes(&clients, name, &url).await?;
        let text = |key: &QueueAttributeName| attributes.get(key).map(String::as_str);
        let deduplicates = text(&QueueAttributeName::ContentBasedDeduplication) == Some("true");
        Ok(OpenedQueue {
            source: text(&QueueAttributeName::QueueArn)
                .unwrap_or_default()
                .into(),
            redrive: text(&QueueAttributeName::RedrivePolicy)
                .map_or_else(Redrive::default, redrive),
            visibility: text(&QueueAttributeName::VisibilityTimeout)
                .and_then(|seconds| seconds.parse().ok())
                .map_or(DEFAULT_VISIBILITY, Duration::from_secs),
            own_delay: text(&QueueAttributeName::DelaySeconds)
                .and_then(|seconds| seconds.parse().ok())
                .map_or(Duration::ZERO, Duration::from_secs),
            target: QueueTarget {
                name: name.to_owned(),
                fifo: name_in_url(&url).ends_with(FIFO),
                content_deduplication: deduplicates,
                url,
                clients,
            },
        })
    }

    /// Returns the clients for a region and endpoint, which are created once.
    fn reach(&self, region: Option<&str>, endpoint: Option<OwnEndpoint<'_>>) -> Arc<Clients> {
        let configured = self.config.region().map(AsRef::as_ref);
        let region = region.filter(|region| Some(*region) != configured);
        // A configured endpoint has priority over the one in a queue's URL, for proxies and
        // tunnels.
        let endpoint = if !aws::has_endpoint(&self.config, "SQS") {
            endpoint
        } else {
            None
        };
        let key = endpoint.map(|own| (own.origin.to_owned(), own.is_fips));
        let reach = (region.map(str::to_owned), key);
        let mut known = self.clients.lock();
        let clients = known.entry(reach).or_insert_with(|| {
            let mut config = match region {
                Some(region) => aws::for_region(&self.config, region),
                None => self.config.clone(),
            };
            if let Some(OwnEndpoint { origin, is_fips }) = endpoint {
                config = aws::for_named_endpoint(&config, origin, is_fips);
            }
            Arc::new(Clients::of(&config))
        });
        Arc::clone(clients)
    }
}

/// The AWS KMS encryption of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// The key in the queue's attributes: a key id, an alias (`alias/NAME`), or the ARN of either.
    pub key: String,
    /// The queue's ARN.
    pub queue: String,
}

/// An existing queue.
#[derive(Debug)]
pub(super) struct OpenedQueue {
    pub target: QueueTarget,
    /// Its ARN.
    pub source: String,
    pub visibility: Duration,
    /// Its `DelaySeconds`.
    pub own_delay: Duration,
    pub redrive: Redrive,
}

/// The redrive policy of a queue; empty if it has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Redrive {
    /// The ARN of the queue to which it moves messages.
    pub target: Option<String>,
    /// The number of receives after which it moves a message.
    pub most_receives: Option<u32>,
}

/// Parses `{"deadLetterTargetArn":"…","maxReceiveCount":5}`; the number may be a text.
fn redrive(policy: &str) -> Redrive {
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap_or_default();
    let number = policy.get("maxReceiveCount").and_then(|number| {
        let number = number.as_u64().or_else(|| number.as_str()?.parse().ok());
        u32::try_from(number?).ok()
    });
    let target = policy
        .get("deadLetterTargetArn")
        .and_then(|arn| arn.as_str());
    Redrive {
        target: target.map(str::to_owned),
        most_receives: number,
    }
}

async fn queue_url(
    clients: &Clients,
    queue: &str,
    address: &Address<'_>,
) -> Result<String, QueueError> {
    ask_until_clear(|| ask_for_url(clients, queue, address)).await
}

async fn ask_for_url(
    clients: &Clients,
    queue: &str,
    address: &Address<'_>,
) -> Result<String, QueueError> {
    let call = CallName {
        step: "GetQueueUrl",
        about: About::Queue(queue),
        place: &clients.place,
    };
    if !clients.has_region {
        return Err(call.refused(
            "no AWS region is configured; wanted AWS_REGION, a region in the profile, or the queue's ARN",
        ));
    }
    let builder = clients.control.get_queue_url();
    let request = match address {
        Address::Url { url, .. } => return Ok((*url).to_owned()),
        Address::Name(name) => builder.queue_name(*name),
        Address::Arn { account, name, .. } => builder
            .queue_name(*name)
            .queue_owner_aws_account_id(*account),
    };
    let answer = request.send().await.map_err(|error| call.failed(&error))?;
    let wanted = match address {
        Address::Name(name) | Address::Arn { name, .. } => *name,
        Address::Url { url, .. } => name_in_url(url),
    };
    let url = answer.queue_url.unwrap_or_default();
    if name_in_url(&url) != wanted {
        let words = format!("its answer is not about this queue: its QueueUrl is `{url}`");
        return Err(call.unclear(&words));
    }
    Ok(url)
}

/// Repeats a request after a pause if the response does not contain the requested data.
async fn ask_until_clear<T, F>(ask: impl Fn() -> F) -> Result<T, QueueError>
where
    F: Future<Output = Result<T, QueueError>>,
{
    let mut pause = PAUSE;
    for _ in 1..ASKS {
        match ask().await {
            Err(error) if error.kind == ErrorKind::Transient => {
                tracing::warn!(%error, "a queue cannot be opened yet; asking again");
            }
            outcome => return outcome,
        }
        clock::sleep_until(Some(clock::now() + pause)).await;
        pause *= 2;
    }
    ask().await
}

async fn attributes(
    clients: &Clients,
    queue: &str,
    url: &str,
) -> Result<HashMap<QueueAttributeName, String>, QueueError> {
    ask_until_clear(|| ask_for_attributes(clients, queue, url)).await
}

async fn ask_for_attributes(
    clients: &Clients,
    queue: &str,
    url: &str,
) -> Result<HashMap<QueueAttributeName, String>, QueueError> {
    let call = CallName {
        step: "GetQueueAttributes",
        about: About::Queue(queue),
        place: &clients.place,
    };
    let answer = clients
        .control
        .get_queue_attributes()
        .queue_url(url)
        .attribute_names(QueueAttributeName::All)
        .send()
        .await
        .map_err(|error| call.failed(&error))?;
    let attributes = answer.attributes.unwrap_or_default();
    let arn = attributes.get(&QueueAttributeName::QueueArn);
    let named = arn.and_then(|arn| arn.rsplit(':').next());
    if named != Some(name_in_url(url)) {
        let words = match arn {
            None => "its answer has no QueueArn".to_owned(),
            Some(arn) => format!("its answer is not about this queue: its QueueArn is `{arn}`"),
        };
        return Err(call.unclear(&words));
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redrive_policies_are_parsed() {
        for (policy, target, most) in [
            (
                r#"{"deadLetterTargetArn":"arn","maxReceiveCount":5}"#,
                Some("arn"),
                Some(5),
            ),
            (r#"{"maxReceiveCount":"1000"}"#, None, Some(1_000)),
            (r#"{"deadLetterTargetArn":"arn"}"#, Some("arn"), None),
            ("", None, None),
        ] {
            let wanted = Redrive {
                target: target.map(str::to_owned),
                most_receives: most,
            };
            assert_eq!(redrive(policy), wanted, "{policy}");
        }
    }
}
