//! What the SDK makes of a function's answer, with the guest that leaves it all to `?`.

use super::functions::{Fake, lending};
use super::*;
use crate::aws::lambda::{Invoke, InvokeError, Request, Response};

/// Answers with the event, unless the function is one that fails.
struct Echo;

#[async_trait::async_trait]
impl Invoke for Echo {
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        let fails = request.function == "fails";
        Ok(Response {
            function_error: fails.then(|| "Unhandled".into()),
            payload: request.payload,
            ..Response::default()
        })
    }
}

fn verdicts(options: &PluginOptions, function: &str) -> Vec<Verdict> {
    let plugin = load(&runtime(1), "lent", options.clone());
    let of = |waits| {
        let body = format!(
            r#"{{"do": "invoke", "function": "{function}", "event": {{"n": 7}}, "waits": {waits}}}"#
        );
        one(&plugin, &body)
    };
    vec![of(true), of(false)]
}

fn retry() -> Verdict {
    Verdict::Retry {
        after: None,
        why: Mishap::Asked,
    }
}

#[test]
fn an_answer_is_read_and_a_failed_function_is_a_retry() {
    let mut functions = lending(&Fake::new(), &["*"]);
    functions.invoker = Arc::new(Echo);
    let options = PluginOptions {
        lambda: Some(functions),
        ..options()
    };
    let read = Verdict::Reject(r#"got {"n":7}"#.into());
    assert_eq!(verdicts(&options, "echo"), [read.clone(), read]);
    assert_eq!(verdicts(&options, "fails"), [retry(), retry()]);
}

#[test]
fn an_invocation_that_failed_means_what_it_proves() {
    let fake = Fake::new();
    fake.answer_all();
    let options = PluginOptions {
        lambda: Some(lending(
            &fake,
            &["throttled", "reset", "unwanted", "missing"],
        )),
        ..options()
    };
    let busy = Verdict::Busy {
        after: Some(Duration::from_millis(1500)),
        why: "Throttled".into(),
    };
    for (function, means) in [
        ("throttled", busy),
        ("reset", retry()),
        ("unwanted", Verdict::Reject("why".into())),
        ("missing", Verdict::Closed("why".into())),
    ] {
        let both = [means.clone(), means];
        assert_eq!(verdicts(&options, function), both, "{function}");
    }
    for verdict in verdicts(&options, "another") {
        assert!(matches!(verdict, Verdict::Closed(_)), "{verdict:?}");
    }
}
