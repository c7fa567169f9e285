//! Lending functions: what a plugin may invoke, and how answers and failures arrive.

use super::*;
use crate::aws::lambda::{Invoke, InvokeError, Request, Response};
use crate::plugin::capability::lambda::Functions;
use std::sync::atomic::AtomicUsize;
use std::sync::{Condvar, Mutex};
use tokio_util::sync::CancellationToken;

/// Answers by the function's name once it is told to.
pub(super) struct Fake {
    called: Mutex<usize>,
    changed: Condvar,
    answer: CancellationToken,
    pub(super) refused: AtomicUsize,
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            called: Mutex::new(0),
            changed: Condvar::new(),
            answer: CancellationToken::new(),
            refused: AtomicUsize::new(0),
        })
    }

    /// Waits until so many invocations wait for their answer, or have had it.
    pub(super) fn until_called(&self, times: usize) {
        let mut called = self.called.lock().unwrap();
        while *called < times {
            called = self.changed.wait(called).unwrap();
        }
    }

    /// Answers all, those to come included.
    pub(super) fn answer_all(&self) {
        self.answer.cancel();
    }
}

#[async_trait::async_trait]
impl Invoke for Fake {
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        *self.called.lock().unwrap() += 1;
        self.changed.notify_all();
        assert_eq!(request.patience, LONG);
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
            "large" => InvokeError::TooLarge(why()),
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

pub(super) fn lending(fake: &Arc<Fake>, allowed: &[&str]) -> Functions {
    let counted = Arc::clone(fake);
    Functions {
        invoker: Arc::clone(fake) as Arc<dyn Invoke>,
        allowed: allowed.iter().map(|&pattern| pattern.into()).collect(),
        patience: LONG,
        refused: Arc::new(move || {
            counted.refused.fetch_add(1, Ordering::SeqCst);
        }),
    }
}
