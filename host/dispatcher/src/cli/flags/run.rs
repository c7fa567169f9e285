//! The flags of a run, in groups as its help shows them.

use super::{GuestArgs, LogArgs, PlaceArgs, TableArgs};
use clap::Args;

/// What a run is made of.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub handler: HandlerArgs,
    #[command(flatten)]
    pub queues: QueueArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub guest: GuestArgs,
    #[command(flatten)]
    pub instances: InstanceArgs,
    #[command(flatten)]
    pub trials: TrialArgs,
    #[command(flatten)]
    pub schedule: ScheduleArgs,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub places: PlaceArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// What handles the messages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Handler: a component or a Lambda function")]
pub struct HandlerArgs {
    /// The WebAssembly component that handles the messages: a file, which may be replaced while it
    /// runs, or oci://HOST/NAME@sha256:DIGEST
    #[arg(long, value_name = "FILE")]
    pub plugin: Option<String>,
    /// The Lambda function that messages are forwarded to as SQS events: NAME, NAME:ALIAS or ARN
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Whether to wait for the function's answer (sync) or to leave Lambda alone with the event
    /// (async), after which a message counts as done [default: sync]
    #[arg(long, value_name = "sync|async")]
    pub invocation: Option<String>,
    /// Heed the batchItemFailures that the function answers with
    #[arg(long, value_name = "true|false")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub partial_failures: Option<String>,
}

/// Which messages, and what becomes of them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Queues")]
pub struct QueueArgs {
    /// Queues, the most urgent first; or each with a weight, as in payments:3,default:1
    /// [default: local:default]
    #[arg(long, value_name = "LIST")]
    pub queues: Option<String>,
    /// How long one receive waits for messages, 0 to 20 seconds [default: 20]
    #[arg(long, value_name = "S")]
    #[arg(allow_negative_numbers = true)]
    pub poll_for: Option<String>,
    /// The pause after a receive that brought nothing, in seconds [default: 0]
    #[arg(long, value_name = "S")]
    #[arg(allow_negative_numbers = true)]
    pub sleep: Option<String>,
    /// How long a received message stays invisible unless extended, 0 to 43200 seconds
    /// [default: as the queue says]
    #[arg(long, value_name = "S")]
    #[arg(allow_negative_numbers = true)]
    pub visibility: Option<String>,
    /// Where rejected messages go: a queue on the same backend
    #[arg(long, value_name = "QUEUE")]
    pub dead_letter: Option<String>,
    /// Dead-letter a message after so many attempts [default: 10 where there is a dead-letter
    /// queue, as every local queue has; else as the queue's redrive policy says]
    #[arg(long, value_name = "N")]
    pub max_attempts: Option<String>,
    /// Start what came first (fifo) or what was sent last (lifo); newest first is exact on local
    /// queues and a choice among what --prefetch holds elsewhere [default: fifo]
    #[arg(long, value_name = "fifo|lifo")]
    pub order: Option<String>,
    /// Handle messages that share a group one at a time and in order: the name of an attribute, or a
    /// JSON pointer into the body, as in /order/customer; for queues that are not FIFO
    #[arg(long, value_name = "WHERE")]
    pub group_by: Option<String>,
    /// Handle nothing that was sent longer ago, as in 10m [default: handle all]
    #[arg(long, value_name = "TIME")]
    pub max_age: Option<String>,
    /// What becomes of messages older than --max-age [default: dead-letter]
    #[arg(long, value_name = "dead-letter|drop")]
    pub shed: Option<String>,
    /// Remember what is done for so long in the data folder, and delete it without running when it
    /// is delivered again, after a restart as well [default: only while the process lives]
    #[arg(long, value_name = "TIME")]
    pub idempotency: Option<String>,
}

/// How much at once.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// The most attempts at once, as in 50; or those at the messages of one queue, as in
    /// payments=5; may be repeated or hold both, as in 50,payments=5 [default: 50]
    #[arg(long, value_name = "N|QUEUE=N")]
    pub concurrency: Vec<String>,
    /// The most messages of one queue that are started in a second, a minute or an hour by
    /// this process, as in payments=100/s; may be repeated or hold several with commas
    #[arg(long, value_name = "QUEUE=N/s")]
    pub rate: Vec<String>,
    /// The most messages of one attempt, 1 to 10000 [default: 1]
    #[arg(long, value_name = "N")]
    pub batch_size: Option<String>,
    /// How long a message waits for others to share its attempt, 0 to 300 seconds [default: 0]
    #[arg(long, value_name = "S")]
    #[arg(allow_negative_numbers = true)]
    pub batch_window: Option<String>,
    /// The most messages held beyond those that run, so that the next is at hand; all are leased
    /// [default: 0]
    #[arg(long, value_name = "N")]
    pub prefetch: Option<String>,
    /// How long running attempts may go on after SIGTERM or SIGINT; a stop may take 5 s longer
    /// [default: 20s]
    #[arg(long, value_name = "TIME")]
    pub shutdown_grace: Option<String>,
    /// The most bytes of messages held at once, as in 64MiB; a larger message is dead-lettered
    /// [default: an eighth of the container's or the machine's memory]
    #[arg(long, value_name = "SIZE")]
    pub message_memory: Option<String>,
    /// Threads that run plugins [default: one per processor]
    #[arg(long, value_name = "N")]
    pub workers: Option<String>,
}

/// How instances of the plugin are used.
#[derive(Debug, Args)]
#[command(next_help_heading = "Plugin")]
pub struct InstanceArgs {
    /// Use an instance for so many attempts [default: a fresh instance for each]
    #[arg(long, value_name = "N")]
    pub reuse: Option<String>,
    /// Make so many instances ahead, so that a message need not wait for its own, 0 to 1000
    /// [default: as many as --workers for components of 1 MiB or more, else 0]
    #[arg(long, value_name = "N")]
    pub warm: Option<String>,
    /// The most attempts that share an instance, 1 to 10000; more than 1 suits handlers that are
    /// async [default: 1; 1000 for --function]
    #[arg(long, value_name = "N")]
    pub instance_concurrency: Option<String>,
}

/// What is tried beside the plugin.
#[derive(Debug, Args)]
#[command(next_help_heading = "Another version of the plugin")]
pub struct TrialArgs {
    /// A version that takes a share of the messages, until it fails more often than the plugin
    #[arg(long, value_name = "FILE")]
    pub canary: Option<String>,
    /// That share, as in 0.05 or 5% [default: 0.1]
    #[arg(long, value_name = "SHARE")]
    pub canary_share: Option<String>,
    /// A version that runs on the same messages with all that reaches out closed, and whose answers
    /// are only compared
    #[arg(long, value_name = "FILE")]
    pub shadow: Option<String>,
    /// Keep messages, and what became of them, in this folder, for `plugin replay`
    #[arg(long, value_name = "FOLDER")]
    pub record: Option<String>,
    /// What is blotted out of them: /customer/email or /items/*/name in a body that is JSON, or
    /// attribute:NAME; may be repeated
    #[arg(long, value_name = "PLACE")]
    pub record_redact: Vec<String>,
    /// Which part of them is kept [default: 1]
    #[arg(long, value_name = "SHARE")]
    pub record_share: Option<String>,
    /// The most that the folder holds; the oldest recordings are deleted [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub record_most: Option<String>,
}

/// Messages for later.
#[derive(Debug, Args)]
#[command(next_help_heading = "Schedule")]
pub struct ScheduleArgs {
    /// How often scheduled messages for SQS are looked for, 1 to 600 seconds [default: 60]
    #[arg(long, value_name = "S")]
    #[arg(allow_negative_numbers = true)]
    pub schedule_interval: Option<String>,
    #[command(flatten)]
    pub table: TableArgs,
}

/// What is told of a run besides its log.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsArgs {
    /// What this program is called in metrics: their namespace is Dispatcher-NAME
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where metrics go: to CloudWatch, as Embedded Metric Format to stdout, or nowhere
    /// [default: cloudwatch with --name, else none]
    #[arg(long, value_name = "cloudwatch|emf|none")]
    pub metrics: Option<String>,
    /// How often metrics are published, 1 to 3600 seconds [default: 60]
    #[arg(long, value_name = "S")]
    #[arg(allow_negative_numbers = true)]
    pub metrics_interval: Option<String>,
    /// Serve /healthz, /readyz, /metrics (Prometheus) and /plugins at this address, as in
    /// 127.0.0.1:9090 [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// The file that holds the token for the admin address: needed for actions, and for addresses
    /// that other machines reach. Read again at SIGHUP
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<String>,
    /// A host name that the admin address answers to, besides IP addresses and localhost; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    pub admin_host: Vec<String>,
}
