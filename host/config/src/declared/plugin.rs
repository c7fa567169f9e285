//! The settings of a plugin: what it is, what it may use, how it is run and tried.

use super::macros::settings;
use super::{Group, Reload, Setting, SettingPart, Shape, Table};
use crate::name::QueueName;
use crate::problem::Problem;
use crate::section::WrittenValue;
use crate::value;
use crate::value::BareUnit;
use crate::{HttpHost, Peer, Place, Secret, function, secret};
use dispatcher_core::handler::TimeLimit;
use dispatcher_core::queue::VISIBILITY_CEILING;
use std::path::PathBuf;
use std::time::Duration;

/// The longest that an attempt may take by default.
pub const TIMEOUT: Duration = Duration::from_secs(30);
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(1);
const MOST_WARM: usize = 1_000;
const MAX_MEMORY: usize = 64 << 20;
/// The memory of a forwarder, one instance of which holds the events of many attempts.
const FORWARD_MEMORY: usize = 256 << 20;
/// Maximum attempts that share an instance of a forwarder, which mostly waits.
const FORWARD_SHARED: usize = 1_000;
/// Maximum spans of one attempt.
const MOST_SPANS: usize = 1_000;
const MOST_SHARED: usize = 10_000;
/// One page of WebAssembly's memory.
pub(crate) const LEAST_MEMORY: usize = 64 << 10;
/// All that a 32-bit guest can address.
const MOST_MEMORY: usize = 4 << 30;

/// A setting that a plugin takes with it when it is replaced.
const fn replaced(value: &'static str) -> Setting {
    Setting::new(value).applies(Reload::Plugin)
}

/// A list of what the plugin may use.
const fn allowed(value: &'static str) -> Setting {
    replaced(value).shape(Shape::List).flag(Group::Guest)
}

settings! {
    /// `[plugin.NAME]`, and the flags of the only route's plugin.
    SETTINGS of SettingPart::Plugin, in &[Table::Plugin];
    /// The settings of a plugin that stand alone.
    struct PluginSettings;

    /// The WebAssembly component that handles the messages: a file, which may be replaced at run
    /// time, or oci://HOST/NAME@sha256:DIGEST
    "file" => replaced("FILE").path().flag_named("plugin", Group::Handler);

    /// The Lambda function that messages are forwarded to as SQS events: NAME, NAME:ALIAS or ARN
    "function" => Setting::new("NAME").flag(Group::Handler);

    /// The [account.NAME] of its functions
    "account" => Setting::new("NAME").default("the account whose patterns match, else the process's own"),
        account: Option<String> = |given| given.one(|given| value::text(given, "the name of an account"));

    /// Whether to wait for the function's response (sync) or only until Lambda has accepted the
    /// event (async), after which a message counts as done
    "invocation" => Setting::new("sync|async").default("sync").flag(Group::Handler);

    /// Respect the batchItemFailures in the function's response
    "partial-failures" => Setting::new("true|false").shape(Shape::Switch).flag(Group::Handler);

    /// Pass the tenant of the messages to functions, as TenantId; a batch then has messages of one
    /// tenant. Functions with tenant isolation need it
    "tenant-id" => Setting::new("true|false").shape(Shape::Switch).default("false").flag(Group::Handler),
        tenant_id: bool = |given| given.one(value::switch).unwrap_or_default();

    /// The HTTP service that each message or batch is posted to, as in http://127.0.0.1:8080/jobs;
    /// the response's status is its outcome
    "forward" => Setting::new("URL").flag(Group::Handler);

    /// A header of every request to the service, as in authorization=Bearer x; may be repeated,
    /// and DISPATCHER_FORWARD_HEADER has one per line
    "forward-header" => Setting::new("NAME=VALUE").shape(Shape::Map).flag(Group::Handler);

    /// A header whose value is read from a file, for credentials; the file is read again while the
    /// program runs; may be repeated, and DISPATCHER_FORWARD_HEADER_FILE has one per line
    "forward-header-file" => Setting::new("NAME=FILE").shape(Shape::Map).path()
        .flag(Group::Handler);

    /// The file with the key that signs every request to the service
    "forward-key-file" => Setting::new("FILE").path().flag(Group::Handler);

    /// Stop an attempt after this long
    "timeout" => Setting::new("TIME")
        .default("30s; for --function a little more than the timeout of the function")
        .flag(Group::Guest),
        timeout: Option<Duration> = |given| {
            let range = SHORTEST_ATTEMPT..=VISIBILITY_CEILING;
            given.one(|given| value::duration(given, BareUnit::Refused, &range))
        };

    /// Stop an attempt after this long if its handler has requested more time than --timeout
    "max-timeout" => Setting::new("TIME").default("the timeout").flag(Group::Guest),
        max_timeout: Option<Duration> = |given| {
            let range = SHORTEST_ATTEMPT..=VISIBILITY_CEILING;
            given.one(|given| value::duration(given, BareUnit::Refused, &range))
        };

    /// Maximum memory of one instance
    "max-memory" => Setting::new("SIZE").default("64MiB; 256MiB for --function and --forward")
        .flag(Group::Guest),
        max_memory: Option<usize> = |given| {
            given.one(|given| value::size(given, &(LEAST_MEMORY..=MOST_MEMORY)))
        };

    /// An environment variable for the plugin, which sees no others; may be repeated, and
    /// DISPATCHER_ENV has one per line
    "env" => replaced("K=V").shape(Shape::Map).flag(Group::Guest),
        env: Vec<(String, String)> = |given| given.entries(variable);

    /// An environment variable whose value is read from a file, at the start and at a SIGHUP; may
    /// be repeated, and DISPATCHER_ENV_FILE has one per line
    "env-file" => replaced("K=FILE").shape(Shape::Map).path().flag(Group::Guest),
        env_file: Vec<(String, Secret)> = |given| given.entries(of_file);

    /// A Lambda function that the plugin may invoke: a name, NAME:ALIAS or ARN, in which * matches
    /// any characters; may be repeated, and DISPATCHER_ALLOW_LAMBDA has one per line
    "allow-lambda" => allowed("PATTERN"),
        allow_lambda: Vec<String> = |given| given.each(function::pattern);

    /// A queue that the plugin may send to, with a delay of any length: a name, an SQS URL or ARN,
    /// or local:NAME, as the plugin writes it; may be repeated, and DISPATCHER_ALLOW_SEND has one
    /// per line
    "allow-send" => allowed("QUEUE").names_queues(),
        allow_send: Vec<QueueName> = |given| given.each(queue);

    /// An address to which the plugin may open TCP connections, as in 192.0.2.7:7000; may be
    /// repeated, and DISPATCHER_ALLOW_CONNECT has one per line
    "allow-connect" => allowed("IP:PORT"),
        allow_connect: Vec<Peer> = |given| given.each(peer);

    /// A host that the plugin may send HTTP requests to: a name, *.NAME, IP address, network such
    /// as 10.0.0.0/8 or localhost, optionally with http:// or https:// before it and :PORT after
    /// it; may be repeated, and DISPATCHER_ALLOW_HTTP has one per line
    "allow-http" => allowed("HOST"),
        allow_http: Vec<HttpHost> = |given| given.each(host);

    /// A folder that the plugin may read but not write; the plugin sees it as /
    "allow-read" => replaced("FOLDER").path().flag(Group::Guest),
        allow_read: Option<PathBuf> = |given| {
            given.one(|given| value::text(given, "a folder")).map(PathBuf::from)
        };

    /// Maximum spans of each attempt that the plugin exports through wasi:otel, 1 to 1000, while traces
    /// are exported; experimental
    "allow-spans" => replaced("N").flag(Group::Guest),
        allow_spans: Option<usize> = |given| {
            given.one(|given| value::number(given, &(1..=MOST_SPANS)))
        };

    /// A setting that the plugin reads through wasi:config; may be repeated, and
    /// DISPATCHER_SETTING has one per line
    "setting" => replaced("K=V").shape(Shape::Map).flag(Group::Guest),
        setting: Vec<(String, String)> = |given| given.entries(variable);

    /// A setting whose value is read from a file, at the start and at a SIGHUP; may be repeated,
    /// and DISPATCHER_SETTING_FILE has one per line
    "setting-file" => replaced("K=FILE").shape(Shape::Map).path().flag(Group::Guest),
        setting_file: Vec<(String, Secret)> = |given| given.entries(of_file);

    /// A key-value bucket that the plugin opens as NAME through wasi:keyvalue: in the data folder
    /// (local:BUCKET) or on the Redis server (redis:BUCKET); may be repeated, and DISPATCHER_STORE
    /// has one per line
    "store" => replaced("NAME=WHERE").shape(Shape::Map).flag(Group::Guest),
        store: Vec<(String, Place)> = |given| given.entries(|_, given| place(given));

    /// Use an instance for this many attempts
    "reuse.count" => replaced("N").default("a fresh instance for each").shorthand()
        .flag_named("reuse", Group::Instances);

    /// Use an instance no longer than this, if instances are reused
    "reuse.age" => replaced("TIME").default("10m");

    /// Do not reuse an instance whose memory has grown beyond this, if instances are reused
    "reuse.memory" => replaced("SIZE").default("half of max-memory");

    /// Create this many instances ahead of messages, 0 to 1000
    "warm" => replaced("N")
        .default("as many as --workers for components of 1 MiB or more, else 0")
        .flag(Group::Instances),
        warm: Option<usize> = |given| given.one(|given| value::number(given, &(0..=MOST_WARM)));

    /// Maximum concurrent attempts that share an instance, 1 to 10000; more than 1 suits async
    /// handlers
    "instance-concurrency" => Setting::new("N").default("1; 1000 for --function and --forward")
        .flag(Group::Instances),
        instance_concurrency: Option<usize> = |given| {
            given.one(|given| value::number(given, &(1..=MOST_SHARED)))
        };

    /// A new version that handles a share of the messages; it is rolled back if it fails more often
    /// than the current version
    "canary.file" => replaced("FILE").path().shorthand().flag_named("canary", Group::Trials);

    /// The canary's share of the messages, as in 0.05 or 5%
    "canary.share" => replaced("SHARE").default("0.1").flag_named("canary-share", Group::Trials);

    /// A new version that runs on the same messages without access to anything outside; its answers
    /// are only compared
    "shadow.file" => replaced("FILE").path().shorthand().flag_named("shadow", Group::Trials);

    /// Record messages and their verdicts in this folder, for `plugin replay`
    "record.folder" => Setting::new("FOLDER").path().shorthand()
        .flag_named("record", Group::Trials);

    /// What to redact in recorded messages: a place in a JSON body, as in /customer/email or
    /// /items/*/name, or attribute:NAME; may be repeated
    "record.redact" => Setting::new("PLACE").shape(Shape::List)
        .flag_named("record-redact", Group::Trials);

    /// The share of the messages to record, as in 0.05 or 5%
    "record.share" => Setting::new("SHARE").default("1").flag_named("record-share", Group::Trials);

    /// Maximum size of the folder of --record; the oldest recordings are deleted
    "record.most" => Setting::new("SIZE").default("1GiB").flag_named("record-most", Group::Trials);
}

impl PluginSettings {
    /// How long attempts may take whose `timeout` is this.
    pub fn time_limit(&self, timeout: Duration) -> TimeLimit {
        TimeLimit {
            timeout,
            longest: self.max_timeout.unwrap_or(timeout),
        }
    }

    /// The most memory of one instance, of a plugin that forwards messages or of another.
    pub fn max_memory_of(&self, forwards: bool) -> usize {
        let default = if forwards { FORWARD_MEMORY } else { MAX_MEMORY };
        self.max_memory.unwrap_or(default)
    }

    /// Maximum attempts that share an instance, of a plugin that forwards messages or of
    /// another.
    pub fn instance_concurrency_of(&self, forwards: bool) -> usize {
        let default = if forwards { FORWARD_SHARED } else { 1 };
        self.instance_concurrency.unwrap_or(default)
    }
}

fn queue(given: &WrittenValue) -> Result<QueueName, Problem> {
    let name = given.text.trim().parse();
    name.map_err(|found| Problem::new(&given.at, found, ""))
}

fn peer(given: &WrittenValue) -> Result<Peer, Problem> {
    let found = format!("`{}` is not an address to connect to", given.text.trim());
    let peer = given.text.parse();
    peer.map_err(|wanted: &str| Problem::new(&given.at, found, wanted))
}

fn host(given: &WrittenValue) -> Result<HttpHost, Problem> {
    let found = format!("`{}` is not a host to send requests to", given.text.trim());
    let host = given.text.parse();
    host.map_err(|wanted: &str| Problem::new(&given.at, found, wanted))
}

fn place(given: &WrittenValue) -> Result<Place, Problem> {
    let found = format!("`{}` is not the location of a bucket", given.text.trim());
    let place = given.text.parse::<Place>();
    place.map_err(|wanted| Problem::new(&given.at, found, wanted))
}

fn of_file(key: &str, given: &WrittenValue) -> Result<Secret, Problem> {
    variable(key, given)?;
    secret::read(given, &format!("value of `{key}`"))
}

fn variable(key: &str, given: &WrittenValue) -> Result<String, Problem> {
    if value::is_key(key) && !given.text.contains('\0') {
        return Ok(given.text.clone());
    }
    let found = format!("`{key}` cannot be a variable");
    Err(Problem::new(&given.at, found, "a name without `=`"))
}
