//! Opens a queue from a written name: which client, which URL, which kind of queue, and which step
//! failed if any.

use super::address::{Address, name_in_url};
use super::{ClientKind, Clients, QueueTarget};
use aws_sdk_sqs::types::QueueAttributeName;
use dispatcher_aws as aws;
use dispatcher_aws::SdkConfig;
use dispatcher_aws::direct::Learner;
use dispatcher_aws::failure::{About, CallName};
use dispatcher_core::queue::QueueError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum names that `Sqs::names` fetches: what one page of ListQueues holds.
const MOST_NAMES: usize = 1_000;

/// SQS's default visibility timeout.
const DEFAULT_VISIBILITY: Duration = Duration::from_secs(30);

/// SQS as one configuration reaches it. Cheap to make; nothing is called before `open`.
#[derive(Debug)]
pub struct Sqs {
    config: SdkConfig,
    client: ClientKind,
    /// One pair of clients for each other region or endpoint that a queue's address names.
    clients: Mutex<HashMap<Reach, Arc<Clients>>>,
}

/// Region and endpoint, where they differ from the configured ones.
type Reach = (Option<String>, Option<String>);

impl Sqs {
    /// Takes the configuration of `aws::configuration`.
    pub fn connect(config: &SdkConfig) -> Self {
        Self {
            config: config.clone(),
            client: ClientKind::default(),
            clients: Mutex::default(),
        }
    }

    /// The same with another client for the calls of a message's life.
    #[must_use]
    pub fn with_client(self, client: ClientKind) -> Self {
        Self { client, ..self }
    }

    /// The names of the queues that exist in the configured account and region, sorted; at most
    /// 1,000.
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        let clients = self.reach(None, None);
        let call = CallName {
            step: "ListQueues",
            about: About::All,
            place: &clients.place,
        };
        let mut names: Vec<String> = Vec::new();
        let mut token = None;
        loop {
            let page = clients
                .control
                .list_queues()
                .max_results(i32::try_from(MOST_NAMES).expect("a thousand"))
                .set_next_token(token)
                .send()
                .await
                .map_err(|error| call.failed(&error))?;
            names.extend(page.queue_urls().iter().map(|url| name_in_url(url).into()));
            token = page.next_token;
            if token.is_none() || names.len() >= MOST_NAMES {
                break;
            }
        }
        names.sort();
        names.truncate(MOST_NAMES);
        Ok(names)
    }

    /// The key of a queue that is encrypted with AWS KMS. `None` where SQS's own keys do it, which
    /// need no permission: `alias/aws/sqs`, and SSE-SQS.
    pub async fn encryption(&self, name: &str) -> Result<Option<Encryption>, QueueError> {
        let (url, clients) = self.resolve(name).await?;
        let mut attributes = attributes(&clients, name, &url).await?;
        let key = attributes.remove(&QueueAttributeName::KmsMasterKeyId);
        let key = key.filter(|key| !key.is_empty() && !key.ends_with("alias/aws/sqs"));
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
            } => self.reach(*region, *endpoint),
        };
        let url = queue_url(&clients, name, &address).await?;
        Ok((url, clients))
    }

    /// Finds one queue and what kind it is.
    pub(super) async fn find(&self, name: &str) -> Result<OpenedQueue, QueueError> {
        let (url, clients) = self.resolve(name).await?;
        let attributes = attributes(&clients, name, &url).await?;
        let text = |key: &QueueAttributeName| attributes.get(key).map(String::as_str);
        let flag = |key| text(&key) == Some("true");
        let fifo = flag(QueueAttributeName::FifoQueue);
        let content_deduplication = flag(QueueAttributeName::ContentBasedDeduplication);
        Ok(OpenedQueue {
            source: text(&QueueAttributeName::QueueArn).unwrap_or(&url).into(),
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
                url,
                fifo,
                content_deduplication,
                clients,
            },
        })
    }

    /// The clients for a region and endpoint, made once.
    fn reach(&self, region: Option<&str>, endpoint: Option<&str>) -> Arc<Clients> {
        let configured = self.config.region().map(AsRef::as_ref);
        let region = region.filter(|region| Some(*region) != configured);
        // An endpoint that is configured outranks the one in a queue's URL: proxies and tunnels.
        let endpoint = endpoint.filter(|_| self.config.endpoint_url().is_none());
        let reach = (region.map(str::to_owned), endpoint.map(str::to_owned));
        let mut known = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = known.entry(reach).or_insert_with(|| {
            let mut config = match region {
                Some(region) => aws::for_region(&self.config, region),
                None => self.config.clone(),
            };
            if endpoint.is_some() {
                config = aws::for_endpoint(&config, endpoint);
            }
            Arc::new(Clients::of(&config, self.client))
        });
        Arc::clone(clients)
    }
}

/// How a queue is encrypted with AWS KMS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// As the queue has it: a key id, an alias (`alias/NAME`), or the ARN of either.
    pub key: String,
    /// The queue's ARN.
    pub queue: String,
}

/// A queue that exists.
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

/// A queue's redrive policy, as far as it has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Redrive {
    /// The ARN of the queue that it moves messages to.
    pub target: Option<String>,
    /// After so many receives.
    pub most_receives: Option<u32>,
}

/// Reads `{"deadLetterTargetArn":"…","maxReceiveCount":5}`; the number may be a text.
fn redrive(policy: &str) -> Redrive {
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap_or_default();
    let number = policy.get("maxReceiveCount");
    let number = number.and_then(|number| {
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
    let request = clients.control.get_queue_url();
    let request = match address {
        Address::Url { url, .. } => return Ok((*url).to_owned()),
        Address::Name(name) => request.queue_name(*name),
        Address::Arn { account, name, .. } => request
            .queue_name(*name)
            .queue_owner_aws_account_id(*account),
    };
    let answer = request.send().await.map_err(|error| call.failed(&error))?;
    answer
        .queue_url
        .ok_or_else(|| call.refused("the answer holds no URL"))
}

async fn attributes(
    clients: &Clients,
    queue: &str,
    url: &str,
) -> Result<HashMap<QueueAttributeName, String>, QueueError> {
    let call = CallName {
        step: "GetQueueAttributes",
        about: About::Queue(queue),
        place: &clients.place,
    };
    let learner = Learner::default();
    let answer = clients
        .control
        .get_queue_attributes()
        .queue_url(url)
        .attribute_names(QueueAttributeName::All)
        .customize()
        .interceptor(learner.clone())
        .send()
        .await
        .map_err(|error| call.failed(&error))?;
    if let Some(direct) = learner.take() {
        // Another queue may have been opened meanwhile; both calls showed the same.
        let _ = clients.direct.set(direct);
    }
    Ok(answer.attributes.unwrap_or_default())
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
