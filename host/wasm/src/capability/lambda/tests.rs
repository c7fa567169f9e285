//! Granting functions: what a plugin may invoke, and how answers and failures arrive.

use crate::capability::lambda::Functions;
use crate::tests::*;
use dispatcher_core::lambda::{Invoke, InvokeError, Request, Response};
use std::sync::{Condvar, Mutex};

/// Answers by the function's name once it is told to.
pub(crate) struct FakeFunctions {
    called: Mutex<usize>,
    changed: Condvar,
    answer: CancellationToken,
    /// Of the last invocation.
    patience: Mutex<Duration>,
}

impl FakeFunctions {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            called: Mutex::new(0),
            changed: Condvar::new(),
            answer: CancellationToken::new(),
            patience: Mutex::default(),
        })
    }

    /// Waits until so many invocations wait for their answer, or have had it.
    pub(crate) fn until_called(&self, times: usize) {
        let mut called = self.called.lock().unwrap();
        while *called < times {
            called = self.changed.wait(called).unwrap();
        }
    }

    /// How many invocations there were.
    pub(crate) fn calls(&self) -> usize {
        *self.called.lock().unwrap()
    }

    /// Answers all, those to come included.
    pub(crate) fn answer_all(&self) {
        self.answer.cancel();
    }
}

#[async_trait::async_trait]
impl Invoke for FakeFunctions {
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        *self.called.lock().unwrap() += 1;
        self.changed.notify_all();
        *self.patience.lock().unwrap() = request.patience;
        if request.function == "never" {
            std::future::pending::<()>().await;
        }
        if request.function != "at-once" {
            self.answer.cancelled().await;
        }
        let why = || "why".to_owned();
        Err(match request.function.as_str() {
            "throttled" => InvokeError::DidNotRun {
                reason: "Throttled".into(),
                retry_after: Some(Duration::from_millis(1500)),
            },
            "starting" => InvokeError::DidNotRun {
                reason: "Starting".into(),
                retry_after: None,
            },
            "reset" => InvokeError::MayHaveRun(why()),
            "unwanted" => InvokeError::Refused(why()),
            "missing" => InvokeError::Permanent(why()),
            function => {
                let id = String::from_utf8(request.payload).unwrap();
                return Ok(Response {
                    payload: format!("{function} {id}").into_bytes(),
                    ..Response::default()
                });
            }
        })
    }
}

pub(crate) fn functions_of(fake: &Arc<FakeFunctions>, allowed: &[&str]) -> Functions {
    Functions {
        invoker: Arc::clone(fake) as Arc<dyn Invoke>,
        allowed: allowed.iter().map(|&pattern| pattern.into()).collect(),
        patience: LONG,
        longest: Some(MINUTE),
        failed: Arc::new(|| ()),
        tenant: None,
    }
}

/// How long an invocation may need.
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn end_of_the_attempt_ends_the_wait() {
    let fake = FakeFunctions::new();
    fake.answer_all();
    let load = |instance_concurrency| {
        let options = PluginOptions {
            instance_concurrency,
            ..granting(|grants| grants.lambda = Some(functions_of(&fake, &["*"])))
        };
        load(&runtime(1), "commands", options)
    };
    let told = |within| format!("invoke-by {} echo", (clock::wall_clock_now() + within).0);
    let (alone, shared) = (load(1), load(10));
    for (plugin, body, within, waits) in [
        (&alone, "invoke echo".into(), 2 * MINUTE, true),
        (&alone, "sync-invoke echo".into(), MINUTE / 2, false),
        (&alone, told(LONG), MINUTE / 2, false),
        (&alone, told(MINUTE / 2), LONG, false),
        (&alone, told(2 * MINUTE), LONG, true),
        (&shared, told(2 * MINUTE), LONG, true),
        (&shared, told(MINUTE / 2), LONG, false),
        (&shared, "invoke-by 0 echo".into(), LONG, false),
    ] {
        let before = fake.calls();
        let verdicts = drive(plugin.handle(attempt(&[&body], within)));
        let [Verdict::Reject(answer)] = &verdicts[..] else {
            panic!("{verdicts:?}");
        };
        assert_eq!(fake.calls() - before, usize::from(waits), "{body}");
        if waits {
            assert_eq!(answer, "echo m0", "{body}");
            let patience = *fake.patience.lock().unwrap();
            assert!(patience <= 2 * MINUTE - MINUTE / 6, "{body}: {patience:?}");
        } else {
            let words = "did not run: the attempt has too little time left";
            assert!(answer.starts_with(words), "{body}: {answer}");
        }
    }
}

/// What the guest says of its invocation, in each flavour, alone and with others.
fn answers(fake: &Arc<FakeFunctions>, allowed: &[&str], function: &str) -> Vec<String> {
    counted(fake, allowed, function).0
}

/// The same, and how many of them were refused.
fn counted(fake: &Arc<FakeFunctions>, allowed: &[&str], function: &str) -> (Vec<String>, usize) {
    let (refused, count) = counting();
    fake.answer_all();
    let mut answers = Vec::new();
    for instance_concurrency in [1, 10] {
        let options = PluginOptions {
            instance_concurrency,
            refused: count.clone(),
            ..granting(|grants| grants.lambda = Some(functions_of(fake, allowed)))
        };
        let plugin = load(&runtime(1), "commands", options);
        for flavour in ["invoke", "sync-invoke"] {
            answers.push(rejection(&plugin, &format!("{flavour} {function}")));
        }
    }
    (answers, refused.load(Ordering::SeqCst))
}

#[test]
fn every_failure_reaches_sync_and_async_guests() {
    for (function, expected) in [
        ("echo", "echo m0"),
        ("throttled", "did not run: Throttled, Some(1500)"),
        ("starting", "did not run: Starting, None"),
        ("reset", "may have run: why"),
        ("unwanted", "refused: why"),
        ("missing", "permanent: why"),
    ] {
        assert_eq!(
            answers(&FakeFunctions::new(), &["*"], function),
            [expected; 4]
        );
    }
}

#[test]
fn function_without_a_grant_is_denied_and_counted() {
    let fake = FakeFunctions::new();
    let (answers, refused) = counted(&fake, &["echo-*", "other"], "echo");
    for answer in answers {
        assert!(answer.starts_with("forbidden: "), "{answer}");
        assert!(answer.contains("echo"), "{answer}");
    }
    assert_eq!(refused, 4);
    assert_eq!(fake.calls(), 0);
}

#[test]
fn waiting_invocation_holds_no_thread() {
    let fake = FakeFunctions::new();
    let options = granting(|grants| grants.lambda = Some(functions_of(&fake, &["*"])));
    let plugin = load(&runtime(4), "commands", options);
    let running: Vec<_> = ["invoke echo", "sync-invoke echo"]
        .map(|body| drive_until_it_waits(plugin.handle(attempt(&[body], LONG))))
        .into();
    fake.until_called(2);
    fake.answer_all();
    for running in running {
        assert_eq!(drive(running), [Verdict::Reject("echo m0".into())]);
    }
}

#[test]
fn plugin_without_function_grants_is_refused() {
    let refused = runtime(1).load(&prebuilt("commands"), options());
    let why = refused.err().unwrap().to_string();
    for wanted in ["lambda@", "lambda-async@", "--allow-lambda"] {
        assert!(why.contains(wanted), "{why}");
    }
}
