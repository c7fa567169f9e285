//! What may befall an invocation, and what each of it proves to the caller.

use super::http::{LambdaConnection, Response};
use aws_smithy_types::base64;
use serde_json::json;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::time::Duration;

/// One invocation, as a script sees it.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// How many came before it.
    pub number: usize,
    /// `NAME` or `NAME:ALIAS`.
    pub function: String,
    /// Whether the caller does not wait for the function.
    pub event: bool,
    /// The trace that it continues.
    pub trace_header: Option<String>,
    /// The tenant that it is for.
    pub tenant: Option<String>,
    /// The event's records; none if it is no event of a queue.
    pub records: Vec<Record>,
}

impl Invocation {
    /// How often its first message came before; 0 for what is not of a queue.
    pub fn before(&self) -> u32 {
        self.records.first().map_or(0, |record| record.before)
    }

    /// Its first message's body.
    pub fn body(&self) -> &str {
        self.records.first().map_or("", |record| &record.body)
    }
}

/// One record of an event.
#[derive(Debug, Clone)]
pub struct Record {
    /// The message's id.
    pub id: String,
    /// Its body.
    pub body: String,
    /// Its queue's ARN.
    pub queue: String,
    /// How often the queue has handed it out, as the event says.
    pub receive_count: u32,
    /// How often it was in an invocation before this one.
    pub before: u32,
}

/// What happens to an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LambdaStep {
    /// The function runs for this long and answers this JSON.
    Answer(Duration, String),
    /// The function runs until `release` and answers this JSON.
    Hold(String),
    /// The function raises; this is the last of its log.
    Fail {
        /// The error's type.
        kind: String,
        /// Its message.
        message: String,
        /// What the function printed.
        log: String,
    },
    /// Lambda has no room for it, for this reason. It does not run.
    Throttle {
        /// One of Lambda's reasons.
        reason: &'static str,
        /// Advice, in seconds.
        retry_after: Option<u64>,
    },
    /// Lambda itself fails, after the function ran or without that.
    Break {
        /// Whether the function ran.
        ran: bool,
    },
    /// The connection is reset, after the function ran or without that.
    Reset {
        /// Whether the function ran.
        ran: bool,
    },
    /// The function runs, and half of the answer comes.
    Half,
    /// The function runs, and no answer comes.
    Never,
    /// The caller may not.
    Deny,
}

/// What an invocation waits for before its answer.
pub(super) enum Wait {
    None,
    For(Duration),
    Release,
    Forever,
}

impl LambdaStep {
    /// The function answers at once.
    pub fn answer(json: &str) -> Self {
        Self::Answer(Duration::ZERO, json.to_owned())
    }

    /// The function lists these message ids as failed.
    pub fn failures<S: AsRef<str>>(ids: impl IntoIterator<Item = S>) -> Self {
        let item = |id: S| json!({"itemIdentifier": id.as_ref()});
        let list: Vec<_> = ids.into_iter().map(item).collect();
        Self::answer(&json!({"batchItemFailures": list}).to_string())
    }

    /// Lambda's usual throttle.
    pub fn throttle() -> Self {
        Self::Throttle {
            reason: "ReservedFunctionConcurrentInvocationLimitExceeded",
            retry_after: None,
        }
    }

    /// Whether the function runs.
    pub fn executes(&self) -> bool {
        match self {
            Self::Answer(..) | Self::Hold(_) | Self::Fail { .. } | Self::Half | Self::Never => true,
            Self::Break { ran } | Self::Reset { ran } => *ran,
            Self::Throttle { .. } | Self::Deny => false,
        }
    }

    /// Whether the caller cannot know if it ran.
    pub fn hides_whether_it_ran(&self) -> bool {
        matches!(
            self,
            Self::Break { .. } | Self::Reset { .. } | Self::Half | Self::Never
        )
    }

    /// Whether the caller learns that it did not run and may be redelivered.
    pub fn proves_it_did_not_run(&self) -> bool {
        matches!(self, Self::Throttle { .. })
    }

    /// Whether the function itself fails.
    pub fn fails(&self) -> bool {
        matches!(self, Self::Fail { .. })
    }

    pub(super) fn wait(&self) -> Wait {
        match self {
            Self::Answer(time, _) if !time.is_zero() => Wait::For(*time),
            Self::Hold(_) => Wait::Release,
            Self::Never => Wait::Forever,
            _ => Wait::None,
        }
    }

    /// Answers, or breaks the connection; whether it may have another request.
    pub(super) async fn answer_to(
        &self,
        connection: &mut LambdaConnection,
        event: bool,
        tail: bool,
    ) -> io::Result<bool> {
        let response = match self {
            Self::Reset { .. } => {
                connection.reset()?;
                return Ok(false);
            }
            Self::Half => {
                let whole = ran(200, "{\"an answer\": \"that is cut in two\"}".to_owned());
                connection.respond_half(&whole).await?;
                return Ok(false);
            }
            Self::Never => return Ok(false),
            _ if event && self.executes() && !self.hides_whether_it_ran() => {
                ran(202, String::new())
            }
            Self::Answer(_, json) | Self::Hold(json) => ran(200, json.clone()),
            Self::Fail { kind, message, log } => {
                let details = json!({"errorType": kind, "errorMessage": message});
                let failed = ran(200, details.to_string());
                let failed = failed.with("X-Amz-Function-Error", "Unhandled".to_owned());
                if tail {
                    failed.with("X-Amz-Log-Result", base64::encode(log))
                } else {
                    failed
                }
            }
            Self::Throttle {
                reason,
                retry_after,
            } => throttle(reason, *retry_after),
            Self::Break { .. } => Response::error(
                500,
                "ServiceException",
                &json!({"Type": "Service", "Message": "An error occurred and the request cannot be processed."}),
            ),
            Self::Deny => Response::error(
                403,
                "AccessDeniedException",
                &json!({"Message": "User: arn:aws:iam::000000000000:user/tests is not authorized to perform: lambda:InvokeFunction"}),
            ),
        };
        connection.respond(&response).await?;
        Ok(true)
    }
}

fn ran(status: u16, body: String) -> Response {
    Response::new(status, body).with("X-Amz-Executed-Version", "$LATEST".to_owned())
}

fn throttle(reason: &str, retry_after: Option<u64>) -> Response {
    let body = json!({"Type": "User", "Reason": reason, "message": "Rate Exceeded."});
    let throttled = Response::error(429, "TooManyRequestsException", &body);
    match retry_after {
        Some(seconds) => throttled.with("Retry-After", seconds.to_string()),
        None => throttled,
    }
}

/// A script that lets so many of a hundred invocations go wrong, each in one of seven ways, and all
/// others answer `null`. Which ones depends on the seed, on what is invoked and on how often it was,
/// and not on the order in which they come.
pub fn mixed(seed: u64, percent: u64) -> impl Fn(&Invocation) -> LambdaStep + Send + 'static {
    move |invocation| {
        let mut hasher = DefaultHasher::new();
        (seed, invocation.body(), invocation.before()).hash(&mut hasher);
        let mut luck = fastrand::Rng::with_seed(hasher.finish());
        if luck.u64(0..100) >= percent {
            return LambdaStep::answer("null");
        }
        match luck.u8(0..7) {
            0 => LambdaStep::throttle(),
            1 => LambdaStep::Throttle {
                reason: "CallerRateLimitExceeded",
                retry_after: Some(1),
            },
            2 => LambdaStep::Break { ran: luck.bool() },
            3 => LambdaStep::Reset { ran: luck.bool() },
            4 => LambdaStep::Half,
            5 => LambdaStep::Answer(Duration::from_millis(luck.u64(1..300)), "null".to_owned()),
            _ => LambdaStep::Fail {
                kind: "HandlerError".to_owned(),
                message: "too bad".to_owned(),
                log: "a line before it\n".to_owned(),
            },
        }
    }
}
