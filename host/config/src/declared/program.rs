//! The settings of a process: its limits, metrics, admin address and log, and those of commands
//! that the file does not have.

use super::macros::settings;
use super::{Group, Reload, Setting, SettingPart, Shape, Table};
use crate::LogFormat;
use crate::problem::Problem;
use crate::section::WrittenValue;
use crate::value;
use crate::value::BareUnit;
use dispatcher_core::memory;
use dispatcher_core::telemetry::readiness::ReadyWhen;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

/// With what a stop needs besides it fits into the 30 s after which Kubernetes and ECS kill, see
/// `app/stop.rs`.
const GRACE: Duration = Duration::from_secs(20);
/// Far beyond any machine.
const MOST_MESSAGE_MEMORY: usize = 1 << 40;
const MOST_WORKERS: usize = 1_024;
const LOOK: Duration = Duration::from_secs(60);
const SHORTEST_LOOK: Duration = Duration::from_secs(1);
/// Jobs are read 15 minutes ahead: with less to spare, one look that fails would make them late.
const LONGEST_LOOK: Duration = Duration::from_secs(600);

settings! {
    /// `[dispatcher]`, and its flags.
    SETTINGS of SettingPart::Program, in &[Table::Dispatcher];
    /// The settings of a run that stand alone.
    struct ProgramSettings;

    /// How long running attempts may continue after SIGTERM or SIGINT; a stop takes at most 4 s
    /// more than this, or at most 8 s more than poll-for if that is longer
    "shutdown-grace" => Setting::new("TIME").default("20s").flag(Group::Limits),
        shutdown_grace: Duration = |given| {
            let any = Duration::ZERO..=Duration::MAX;
            given.one(|given| value::duration(given, BareUnit::Refused, &any)).unwrap_or(GRACE)
        };

    /// Maximum bytes of held messages, as in 64MiB; a larger message is dead-lettered
    "message-memory" => Setting::new("SIZE")
        .default("an eighth of the container's or the machine's memory")
        .flag(Group::Limits),
        message_memory: Option<u64> = |given| {
            let least = usize::try_from(memory::LEAST).unwrap_or(usize::MAX);
            let bytes = given.one(|given| value::size(given, &(least..=MOST_MESSAGE_MEMORY)));
            bytes.map(|bytes| bytes as u64)
        };

    /// Threads that run plugins
    "workers" => Setting::new("N").default("one per processor").flag(Group::Limits),
        workers: NonZeroUsize = |given| {
            let number = given.one(|given| value::number(given, &(1..=MOST_WORKERS)));
            number.and_then(NonZeroUsize::new).unwrap_or_else(processors)
        };

    /// How often to look for due scheduled messages for SQS, 1 to 600 seconds
    "schedule-interval" => Setting::new("S").default("60").flag(Group::ScheduleInterval),
        schedule_interval: Duration = |given| {
            let range = SHORTEST_LOOK..=LONGEST_LOOK;
            given.one(|given| value::duration(given, BareUnit::Seconds, &range)).unwrap_or(LOOK)
        };

    /// How often to look for queues that match patterns in `queues`, 1 to 3600 seconds
    "discovery-interval" => Setting::new("S").default("60").applies(Reload::Live).flag(Group::Queues),
        discovery_interval: Duration = |given| {
            let range = Duration::from_secs(1)..=Duration::from_secs(3600);
            let given = given.one(|given| value::duration(given, BareUnit::Seconds, &range));
            given.unwrap_or(Duration::from_secs(60))
        };

    /// When /readyz answers 200: while any-route works, or only while every-route and each of its
    /// queues and accounts does
    "ready-when" => Setting::new("any-route|every-route")
        .default("any-route")
        .flag(Group::Metrics),
        ready_when: ReadyWhen = |given| {
            let words = [
                ("any-route", ReadyWhen::AnyRoute),
                ("every-route", ReadyWhen::EveryRoute),
            ];
            given.one(|given| value::choice(given, &words)).unwrap_or_default()
        };

    /// The name of this program in metrics: their namespace is Dispatcher-NAME
    "name" => Setting::new("NAME").flag(Group::Metrics),
        name: Option<String> = |given| given.one(value::namespace);
}

settings! {
    /// Settings of `[dispatcher]` that are read together: metrics, and the admin address.
    ADMIN of SettingPart::Program, in &[Table::Dispatcher];

    /// Where to publish metrics: CloudWatch, Embedded Metric Format on stdout, or none
    "metrics" => Setting::new("cloudwatch|emf|none")
        .default("cloudwatch with --name, else none").flag(Group::Metrics);

    /// How often metrics are published, 1 to 3600 seconds
    "metrics-interval" => Setting::new("S").default("60").flag(Group::Metrics);

    /// The admin address, as in 127.0.0.1:9090: a process serves probes, metrics for Prometheus,
    /// the dashboard (/ui) and the admin API there, and other commands send it their requests
    /// there. An address that other machines can reach needs a token or a trusted
    /// proxy
    "admin" => Setting::new("ADDR").default("none").flag(Group::AdminAddress);

    /// File with the token of the admin address: required for actions, and for addresses that other
    /// machines can reach. Reloaded at SIGHUP
    "admin-token-file" => Setting::new("FILE").path().flag(Group::AdminAddress);

    /// File with a token for the admin address that only permits reading. Reloaded at SIGHUP
    "admin-read-token-file" => Setting::new("FILE").path().flag(Group::AdminAccess);

    /// File with a token for the admin address that only permits sending messages. Reloaded at
    /// SIGHUP
    "admin-send-token-file" => Setting::new("FILE").path().flag(Group::AdminAccess);

    /// File or URL with the keys (a JSON Web Key Set) of a trusted proxy, which signs who sends a
    /// request. A file is reloaded at SIGHUP
    "admin-proxy-keys" => Setting::new("FILE|URL").path().flag(Group::AdminAccess);

    /// The header in which the proxy sends its JSON Web Token
    "admin-proxy-header" => Setting::new("NAME").default("authorization").flag(Group::AdminAccess);

    /// The issuer that the proxy's tokens name
    "admin-proxy-issuer" => Setting::new("TEXT").flag(Group::AdminAccess);

    /// The audience that the proxy's tokens name
    "admin-proxy-audience" => Setting::new("TEXT").flag(Group::AdminAccess);

    /// The claim that is a person's name in the audit log
    "admin-proxy-name" => Setting::new("CLAIM").default("email").flag(Group::AdminAccess);

    /// A claim of those who may act, as in groups=operators; may be repeated
    "admin-proxy-operate" => Setting::new("CLAIM=VALUE").shape(Shape::List).default("nobody")
        .flag(Group::AdminAccess);

    /// A claim of those who may read; may be repeated
    "admin-proxy-read" => Setting::new("CLAIM=VALUE").shape(Shape::List)
        .default("all with a token of the proxy").flag(Group::AdminAccess);

    /// Queues that messages may be sent to by the admin API, besides the queues of the routes
    "admin-send-queues" => Setting::new("QUEUE").shape(Shape::List).names_queues()
        .flag(Group::AdminAccess);

    /// Whether the admin address shows the bodies and attributes of messages, without what the
    /// recording rules of their plugin redact
    "admin-bodies" => Setting::new("true|false")
        .shape(Shape::Switch)
        .default("false")
        .flag(Group::AdminAccess);

    /// The path below which a reverse proxy serves the admin address, as in /dispatcher; links in
    /// the pages begin with it
    "admin-prefix" => Setting::new("PATH").default("none").flag(Group::Metrics);

    /// What the dashboard calls this environment, as in production; names that begin with prod are
    /// shown in red
    "admin-environment" => Setting::new("NAME").default("none").flag(Group::Metrics);

    /// Which queues to ask for their depth, for /metrics and metrics by OTLP: free (local and
    /// Redis), cheap (also SQS, where each queue and dead-letter queue costs a billed call), all
    /// (also DynamoDB, where it reads the whole index), or none
    "metrics-depths" => Setting::new("free|cheap|all|none").default("cheap").flag(Group::Metrics);

    /// Minimum time between two such requests to a queue, 1 to 3600 seconds
    "metrics-depths-interval" => Setting::new("S").default("60").flag(Group::Metrics);

    /// What a million calls cost in US dollars, as in sqs=0.40 or sqs-fifo=0.50, for metrics and the
    /// dashboard. The default is the list price of US East, see https://aws.amazon.com/sqs/pricing
    "call-price" => Setting::new("KIND=DOLLARS")
        .shape(Shape::List)
        .default("the list price");

    /// A host name that the admin address accepts, besides IP addresses and localhost; may be
    /// repeated
    "admin-host" => Setting::new("NAME").shape(Shape::List).flag(Group::AdminAccess);
}

settings! {
    /// Settings that the file does not have.
    LOCAL of SettingPart::Program, in &[];
    /// The settings of `dispatcher local` besides the data folder.
    struct LocalSettings;

    /// Read settings from this TOML file; without it no file is read
    "config" => Setting::new("FILE").flag(Group::File);

    /// The address to listen on; port 0 is any free port
    "listen" => Setting::new("ADDR").default("127.0.0.1:9324").flag(Group::Listen),
        listen: SocketAddr = |given| {
            given.one(address).unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9_324))
        };
}

settings! {
    /// Settings of the log on stderr.
    LOG of SettingPart::Program, in &[Table::Dispatcher];
    /// The contents and the form of the log.
    struct LogSettings;

    /// Format of log lines: text or json
    "log-format" => Setting::new("FORMAT").default("text").flag(Group::Log),
        format: LogFormat = |given| {
            let words = [("text", LogFormat::Text), ("json", LogFormat::Json)];
            given.one(|given| value::choice(given, &words)).unwrap_or_default()
        };

    /// What to log: off, error, warn, info, debug or trace, or directives such as warn,guest=debug
    /// (`guest` is the output of plugins)
    "log-level" => Setting::new("LEVEL").default("info").applies(Reload::Live).flag(Group::Log),
        level: String = |given| given.one(log_level).unwrap_or_else(|| "info".to_owned());
}

fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn address(given: &WrittenValue) -> Result<SocketAddr, Problem> {
    given.text.parse().map_err(|_| {
        let found = format!("`{}` is not an address", given.text);
        let wanted = "ADDRESS:PORT, as in 127.0.0.1:9324";
        Problem::new(&given.at, found, wanted)
    })
}

/// A level, or directives as `RUST_LOG` has them.
fn log_level(given: &WrittenValue) -> Result<String, Problem> {
    match dispatcher_telemetry::log::filter(&given.text) {
        Ok(_) => Ok(given.text.clone()),
        Err(why) => {
            let found = format!("`{}` is not a log level: {why}", given.text);
            let wanted = "error, warn, info, debug or trace, or directives such as guest=debug";
            Err(Problem::new(&given.at, found, wanted))
        }
    }
}
