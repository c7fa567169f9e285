//! An AWS account, or an emulator in its place, with a spending limit: names what is made so that all
//! of it can be found and removed later, counts calls, and stops when the limit is reached. Knows no
//! check.

use crate::child::Program;
use crate::dynamodb::{Dates, Tables};
use crate::sqs::{self, SqsServer};
use aws_sdk_dynamodb::client::Waiters as _;
use aws_sdk_lambda::client::Waiters as _;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::{FunctionCode, Runtime};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use dispatcher_aws as aws;
use dispatcher_aws::{Region, SdkConfig};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// The longest prefix: a queue's name has 80 characters at most, and 40 are ours.
pub const LONGEST_PREFIX: usize = 40;

/// How long a run may take before another takes what it left behind for abandoned.
const ABANDONED: Duration = Duration::from_secs(2 * 60 * 60);

/// What one call costs at most, in billionths of a dollar: list prices of us-east-1 in November 2026
/// rounded up, free tiers left out. Calls that AWS does not bill count as the dearest of their service.
const PRICES: [(Service, u64); 3] = [
    // $0.50 a million FIFO requests, and one request for every 64 KiB.
    (Service::Sqs, 1_000),
    // A transactional write of 4 KB: 8 units of $0.625 a million.
    (Service::DynamoDb, 5_000),
    // $0.20 a million, and a second of 128 MB.
    (Service::Lambda, 2_300),
];

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Amazon SQS.
    Sqs,
    /// Amazon DynamoDB.
    DynamoDb,
    /// AWS Lambda.
    Lambda,
}

impl Service {
    /// What one call costs at most, in billionths of a dollar.
    pub fn price_nano_usd(self) -> u64 {
        let row = PRICES.iter().find(|(service, _)| *service == self);
        row.map_or(0, |(_, price)| *price)
    }

    fn of(request: &HttpRequest) -> Self {
        match request.headers().get("x-amz-target") {
            Some(target) if target.starts_with("AmazonSQS") => Self::Sqs,
            Some(target) if target.starts_with("DynamoDB") => Self::DynamoDb,
            _ => Self::Lambda,
        }
    }
}

/// Counts what calls cost, and refuses those beyond the limit.
#[derive(Debug)]
pub struct Meter {
    limit_nano_usd: u64,
    spent_nano_usd: AtomicU64,
    calls: AtomicU64,
}

impl Meter {
    /// A limit in US dollars.
    pub fn new(limit_usd: f64) -> Self {
        Self {
            limit_nano_usd: nano(limit_usd),
            spent_nano_usd: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    /// Counts calls before they are made.
    ///
    /// # Errors
    /// The limit would be passed: then they must not be made.
    pub fn spend(&self, service: Service, calls: u64) -> Result<(), String> {
        let price = service.price_nano_usd().saturating_mul(calls);
        let before = self.spent_nano_usd.fetch_add(price, Ordering::Relaxed);
        if before.saturating_add(price) > self.limit_nano_usd {
            self.spent_nano_usd.fetch_sub(price, Ordering::Relaxed);
            let limit = dollars(self.limit_nano_usd);
            return Err(format!("the spending limit of {limit} is reached"));
        }
        self.calls.fetch_add(calls, Ordering::Relaxed);
        Ok(())
    }

    /// What was spent at most, in US dollars, and in how many calls.
    pub fn spent(&self) -> (f64, u64) {
        let nano = self.spent_nano_usd.load(Ordering::Relaxed);
        (usd(nano), self.calls.load(Ordering::Relaxed))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float becomes the nearest whole number in range"
)]
fn nano(usd: f64) -> u64 {
    (usd * 1e9).round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn usd(nano: u64) -> f64 {
    nano as f64 / 1e9
}

fn dollars(nano: u64) -> String {
    format!("${:.4}", usd(nano))
}

/// A client of HTTP that is asked before every call.
#[derive(Debug, Clone)]
struct MeteredStream<T> {
    inner: T,
    meter: Arc<Meter>,
}

impl<T: HttpClient + Clone + 'static> HttpClient for MeteredStream<T> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(MeteredStream {
            inner: self.inner.http_connector(settings, components),
            meter: Arc::clone(&self.meter),
        })
    }
}

impl HttpConnector for MeteredStream<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        match self.meter.spend(Service::of(&request), 1) {
            Ok(()) => self.inner.call(request),
            Err(why) => HttpConnectorFuture::ready(Err(ConnectorError::user(why.into()))),
        }
    }
}

/// An account, and one run of the suites in it.
#[derive(Debug)]
pub struct Account {
    config: SdkConfig,
    endpoint: Option<String>,
    names: Names,
    /// What its calls cost.
    pub meter: Arc<Meter>,
}

/// How what a run makes is called: `PREFIX-BEGIN-NUMBER-HINT`, with its beginning in seconds since 1970
/// in hexadecimal.
#[derive(Debug)]
pub struct Names {
    prefix: String,
    began_s: u64,
    made: AtomicUsize,
}

impl Names {
    /// Names that begin so.
    ///
    /// # Errors
    /// The prefix is not one that queues, tables and functions may all begin with.
    pub fn new(prefix: &str, now: SystemTime) -> Result<Self, String> {
        let good = prefix.len() <= LONGEST_PREFIX
            && prefix.starts_with(|c: char| c.is_ascii_alphabetic())
            && prefix
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !good {
            return Err(format!(
                "the prefix `{prefix}`; wanted a letter and then letters, digits and dashes, \
                 {LONGEST_PREFIX} in all at most"
            ));
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            began_s: seconds(now),
            made: AtomicUsize::new(0),
        })
    }

    /// A name that nothing else has.
    pub fn fresh(&self, hint: &str) -> String {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let Self {
            prefix, began_s, ..
        } = self;
        format!("{prefix}-{began_s:08x}-{number}-{hint}")
    }

    /// The beginning of the run that made something of this name, unless no run of this prefix did.
    fn began_s(&self, name: &str) -> Option<u64> {
        let rest = name.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let (began, rest) = rest.split_once('-')?;
        let (number, _) = rest.split_once('-')?;
        number.parse::<usize>().ok()?;
        u64::from_str_radix(began, 16)
            .ok()
            .filter(|_| began.len() == 8)
    }

    /// Whether this run made it, or one so long ago that it cannot continue.
    fn may_remove(&self, name: &str, now: SystemTime) -> bool {
        self.began_s(name).is_some_and(|began| {
            began == self.began_s || began + ABANDONED.as_secs() < seconds(now)
        })
    }
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Something that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    service: Service,
    /// What people know it by.
    pub name: String,
    /// What it is removed by: a queue's URL.
    handle: String,
}

impl fmt::Display for Resource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.service {
            Service::Sqs => "queue",
            Service::DynamoDb => "table",
            Service::Lambda => "function",
        };
        write!(out, "{kind} {}", self.name)
    }
}

/// What of a prefix is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountKind {
    /// What this run made, and what runs left behind that began more than two hours ago.
    OwnAndAbandoned,
    /// All, also of a run that is running.
    All,
}

/// The code of the function: does what bodies say, and complains of a record that is not as Lambda's
/// own event source mapping makes it.
const HANDLER: &str = r#"
WANTED = {"messageId", "receiptHandle", "body", "attributes", "messageAttributes", "md5OfBody",
          "eventSource", "eventSourceARN", "awsRegion"}

def handle(event, context):
    failures = []
    for record in event["Records"]:
        missing = WANTED - set(record)
        if missing or record["eventSource"] != "aws:sqs":
            raise ValueError("not as Lambda makes it: " + str(sorted(missing)))
        verb, _, argument = record["body"].partition(":")
        received = int(record["attributes"]["ApproximateReceiveCount"])
        if verb == "raise-until" and received < int(argument):
            raise RuntimeError("not before " + argument)
        if verb == "fail-until" and received < int(argument):
            failures.append({"itemIdentifier": record["messageId"]})
        if verb == "reject-always":
            raise RuntimeError("never")
    return {"batchItemFailures": failures}
"#;

impl Account {
    /// The account of the credentials that the AWS tools would use, or an emulator at an address.
    ///
    /// # Errors
    /// The prefix is none, or no region is configured.
    pub async fn connect(
        endpoint: Option<&str>,
        prefix: &str,
        limit_usd: f64,
    ) -> Result<Self, String> {
        let names = Names::new(prefix, SystemTime::now())?;
        let meter = Arc::new(Meter::new(limit_usd));
        let config = match endpoint {
            Some(url) => sqs::configuration(url),
            None => aws::configuration(None).await,
        };
        if config.region().is_none() {
            return Err("no AWS region; wanted AWS_REGION or a region in the profile".into());
        }
        let client = aws_smithy_http_client::Builder::new()
            .tls_provider(tls::Provider::Rustls(CryptoMode::AwsLc))
            .build_https();
        let client = MeteredStream {
            inner: client,
            meter: Arc::clone(&meter),
        };
        Ok(Self {
            config: config.to_builder().http_client(client).build(),
            endpoint: endpoint.map(str::to_owned),
            names,
            meter,
        })
    }

    /// What adapters are connected with.
    pub fn config(&self) -> &SdkConfig {
        &self.config
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        let region = self.config.region().map_or("no region", Region::as_ref);
        match &self.endpoint {
            Some(url) => format!("the emulator at {url}"),
            None => format!("AWS in {region}"),
        }
    }

    /// The program with the credentials of this account.
    pub fn program(&self, program: Program) -> Program {
        match &self.endpoint {
            Some(url) => program.aws(url),
            None => {
                let home = std::env::var("HOME").unwrap_or_default();
                let own = std::env::vars().filter(|(name, _)| name.starts_with("AWS_"));
                // Where the tools look if nothing says otherwise.
                let program = program
                    .env("AWS_CONFIG_FILE", &format!("{home}/.aws/config"))
                    .env(
                        "AWS_SHARED_CREDENTIALS_FILE",
                        &format!("{home}/.aws/credentials"),
                    )
                    .env("AWS_EC2_METADATA_DISABLED", "false");
                own.fold(program, |program, (name, value)| program.env(&name, &value))
            }
        }
    }

    /// A new queue; its name. FIFO queues get their suffix.
    pub async fn create_queue(&self, hint: &str, attributes: &[(&str, &str)]) -> String {
        let fifo = attributes.contains(&("FifoQueue", "true"));
        let name = self.names.fresh(hint) + if fifo { ".fifo" } else { "" };
        self.sqs().create(&name, attributes).await;
        note(&format!("created queue {name}"));
        name
    }

    /// A new table in the layout of AWS's LIFO sample, ready; its name.
    pub async fn create_table(&self, hint: &str, dates: Dates) -> String {
        let name = self.names.fresh(hint);
        let tables = self.tables();
        tables.create_named(&name, dates).await;
        note(&format!("created table {name}"));
        let waiter = tables.client.wait_until_table_exists().table_name(&name);
        waiter
            .wait(crate::PATIENCE)
            .await
            .expect("it becomes ready");
        name
    }

    /// A new function, ready; its name. `role` is what it runs as, an ARN.
    pub async fn create_function(&self, hint: &str, role: &str) -> String {
        let name = self.names.fresh(hint);
        let lambda = self.lambda();
        let code = FunctionCode::builder().zip_file(Blob::new(crate::lambda::archive(HANDLER)));
        lambda
            .create_function()
            .function_name(&name)
            .runtime(Runtime::from("python3.11"))
            .handler("handler.handle")
            .role(role)
            .timeout(10)
            .code(code.build())
            .send()
            .await
            .unwrap_or_else(|error| panic!("cannot create {name}: {error:?}"));
        note(&format!("created function {name}"));
        let waiter = lambda.wait_until_function_active_v2().function_name(&name);
        waiter
            .wait(crate::PATIENCE)
            .await
            .expect("it becomes ready");
        name
    }

    /// A client of SQS that is not the program's.
    pub fn sqs(&self) -> SqsServer {
        SqsServer {
            client: aws_sdk_sqs::Client::new(&self.config),
        }
    }

    fn tables(&self) -> Tables {
        Tables {
            client: aws_sdk_dynamodb::Client::new(&self.config),
        }
    }

    fn lambda(&self) -> aws_sdk_lambda::Client {
        aws_sdk_lambda::Client::new(&self.config)
    }

    /// What there is of the prefix, of this run and others.
    ///
    /// # Errors
    /// A list cannot be had.
    pub async fn remains(&self) -> Result<Vec<Resource>, String> {
        let mut all = Vec::new();
        let prefix = format!("{}-", self.names.prefix);
        let mut queues = self.sqs().client.list_queues().queue_name_prefix(&prefix);
        queues = queues.max_results(1_000);
        let mut queues = queues.into_paginator().items().send();
        while let Some(url) = queues.next().await {
            let url = url.map_err(|error| format!("ListQueues: {error:?}"))?;
            let name = url.rsplit('/').next().unwrap_or_default().to_owned();
            all.push((Service::Sqs, name, url));
        }
        let mut tables = self
            .tables()
            .client
            .list_tables()
            .into_paginator()
            .items()
            .send();
        while let Some(name) = tables.next().await {
            let name = name.map_err(|error| format!("ListTables: {error:?}"))?;
            all.push((Service::DynamoDb, name.clone(), name));
        }
        let mut functions = self
            .lambda()
            .list_functions()
            .into_paginator()
            .items()
            .send();
        while let Some(function) = functions.next().await {
            let function = function.map_err(|error| format!("ListFunctions: {error:?}"))?;
            let name = function.function_name.unwrap_or_default();
            all.push((Service::Lambda, name.clone(), name));
        }
        let ours = all
            .into_iter()
            .filter(|(_, name, _)| self.names.began_s(name).is_some());
        let resource = |(service, name, handle)| Resource {
            service,
            name,
            handle,
        };
        Ok(ours.map(resource).collect())
    }

    /// Removes what was made; answers with what is left, and why it could not be removed.
    ///
    /// # Errors
    /// What there is cannot be told.
    pub async fn remove(&self, which: AccountKind) -> Result<Vec<(Resource, String)>, String> {
        let now = SystemTime::now();
        let mut left = Vec::new();
        for resource in self.remains().await? {
            if which == AccountKind::OwnAndAbandoned && !self.names.may_remove(&resource.name, now)
            {
                continue;
            }
            match self.remove_one(&resource).await {
                Ok(()) => note(&format!("removed {resource}")),
                Err(why) => left.push((resource, why)),
            }
        }
        Ok(left)
    }

    async fn remove_one(&self, resource: &Resource) -> Result<(), String> {
        let handle = &resource.handle;
        let text = |error: &dyn fmt::Debug| format!("{error:?}");
        match resource.service {
            Service::Sqs => {
                let call = self.sqs().client.delete_queue().queue_url(handle).send();
                call.await.map(drop).map_err(|error| text(&error))
            }
            Service::DynamoDb => {
                let call = self
                    .tables()
                    .client
                    .delete_table()
                    .table_name(handle)
                    .send();
                call.await.map(drop).map_err(|error| text(&error))
            }
            Service::Lambda => {
                let call = self.lambda().delete_function().function_name(handle).send();
                call.await.map(drop).map_err(|error| text(&error))
            }
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "what is made is told at once: the run may be killed"
)]
fn note(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn own_resource_names_are_distinguished_from_foreign_and_running_ones() {
        let began = 0x6900_0000;
        let names = Names::new("suite", at(began)).expect("a prefix");
        let own = names.fresh("orders");
        assert_eq!(own, "suite-69000000-0-orders");
        assert_ne!(names.fresh("orders"), own);
        assert!(names.may_remove(&own, at(began)));
        let earlier = "suite-68ffff00-3-orders.fifo";
        assert!(!names.may_remove(earlier, at(began)), "it may go on");
        assert!(names.may_remove(earlier, at(began + 3 * 60 * 60)));
        for foreign in [
            "suite",
            "suite-orders",
            "suite-1-2-3",
            "suiteb-69000000-0-a",
            "a",
        ] {
            let later = at(began + 1_000_000);
            assert!(!names.may_remove(foreign, later), "{foreign}");
        }
    }

    #[test]
    fn prefix_that_some_service_would_refuse_is_refused() {
        for bad in ["", "1a", "a_b", "a.b", &"a".repeat(LONGEST_PREFIX + 1)] {
            assert!(Names::new(bad, at(0)).is_err(), "{bad}");
        }
        let longest = "a".repeat(LONGEST_PREFIX);
        let names = Names::new(&longest, at(u64::from(u32::MAX))).expect("a prefix");
        assert!(names.fresh("conformance-dead").len() + ".fifo".len() <= 80);
    }

    #[test]
    fn calls_beyond_the_limit_are_refused_and_not_counted() {
        let meter = Meter::new(0.000_002_5);
        assert_eq!(meter.spend(Service::Sqs, 2), Ok(()));
        let refused = meter.spend(Service::Sqs, 1).expect_err("beyond");
        assert!(refused.contains("$0.0000"), "{refused}");
        assert_eq!(meter.spent(), (0.000_002, 2));
    }
}
