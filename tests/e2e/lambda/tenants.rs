//! A function with tenant isolation is told the tenant of its messages, and never gets those of two
//! together.

use crate::lambda::scene::wait;
use crate::scene::{send, until_depth};
use dispatcher_tests::child::Program;
use dispatcher_tests::faulty_lambda::{FaultyLambda, Invocation, LambdaStep};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// What a function was told, and the tenants that its messages name.
type ToldTenant = (Option<String>, Vec<String>);

fn tenants(invocation: &Invocation) -> Vec<String> {
    let of_record = |body: &str| {
        let body: Value = serde_json::from_str(body).expect("JSON");
        body["customer"].as_str().expect("a customer").to_owned()
    };
    let records = invocation.records.iter();
    records.map(|record| of_record(&record.body)).collect()
}

/// Notes what a Lambda whose functions isolate tenants is told.
fn told(lambda: &FaultyLambda) -> Arc<Mutex<Vec<ToldTenant>>> {
    lambda.set_isolates_tenants(true);
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&told);
    lambda.script(move |invocation| {
        let mut kept = kept.lock().expect("no test panicked");
        kept.push((invocation.tenant.clone(), tenants(invocation)));
        LambdaStep::answer("null")
    });
    told
}

fn run(lambda: &FaultyLambda, more: &[&str]) -> Program {
    let arguments = ["run", "--function", "f", "--queues", "local:a"];
    let arguments = arguments.into_iter().chain(more.iter().copied());
    Program::new(arguments).aws(&lambda.url())
}

const BY_TENANT: [&str; 5] = ["--tenant", "/customer", "--tenant-id", "--prefetch", "50"];

#[tokio::test]
async fn batches_of_a_function_belong_to_the_tenant_that_it_is_told() {
    let lambda = FaultyLambda::start();
    let told = told(&lambda);
    let batches = ["--batch-size", "4", "--batch-window", "300ms"];
    let more = [&BY_TENANT[..], &batches, &["--concurrency", "2"]].concat();
    let mut running = run(&lambda, &more).start();
    let path = running.data().path().to_owned();
    let bodies = (0..30).map(|n| format!(r#"{{"customer":"t {}","n":{n}}}"#, n % 3));
    send(&path, "a", bodies).await;
    until_depth(&path, "a", |depth| depth.waiting + depth.in_flight == 0).await;
    running.stop();
    let told = told.lock().expect("no test panicked");
    for (tenant, of_messages) in told.iter() {
        let all: BTreeSet<&String> = of_messages.iter().collect();
        assert_eq!(all, tenant.iter().collect(), "{told:?}");
    }
    let messages: usize = told.iter().map(|(_, of_messages)| of_messages.len()).sum();
    assert_eq!(messages, 30, "{told:?}");
    let largest = told.iter().map(|(_, of_messages)| of_messages.len()).max();
    assert_eq!(largest, Some(4), "{told:?}");
}

#[tokio::test]
async fn message_without_a_usable_tenant_is_dead_lettered_and_its_function_never_invoked() {
    let lambda = FaultyLambda::start();
    let told = told(&lambda);
    let dead = ["--dead-letter", "local:dead", "--batch-size", "10"];
    let mut running = run(&lambda, &[&BY_TENANT[..], &dead].concat()).start();
    let path = running.data().path().to_owned();
    let bodies = ["{}", r#"{"customer":"a;b"}"#, r#"{"customer":"good"}"#];
    send(&path, "a", bodies.map(str::to_owned)).await;
    until_depth(&path, "a", |depth| depth.waiting + depth.in_flight == 0).await;
    until_depth(&path, "dead", |depth| depth.waiting == 2).await;
    for reason in ["names no tenant at", "is no tenant id of Lambda"] {
        running.wait_for_line(|line| line.contains(reason));
    }
    running.stop();
    let good = (Some("good".to_owned()), vec!["good".to_owned()]);
    assert_eq!(*told.lock().expect("no test panicked"), [good]);
}

#[tokio::test]
async fn function_is_told_tenants_exactly_if_it_isolates_them() {
    let lambda = FaultyLambda::start();
    lambda.set_isolates_tenants(true);
    let ended = run(&lambda, &["--tenant", "group"]).run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let said = "function `f` isolates tenants; wanted `tenant-id = true`";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    lambda.set_isolates_tenants(false);
    let ended = run(&lambda, &BY_TENANT).run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let said = "function `f` has no tenant isolation; wanted no `tenant-id`";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
}

/// Each tenant's first message runs beside those of the others, though one attempt could take ten.
#[tokio::test]
async fn tenants_with_one_message_each_run_at_once() {
    let lambda = FaultyLambda::start();
    lambda.set_isolates_tenants(true);
    lambda.script(|_| LambdaStep::Hold("null".into()));
    let more = ["--batch-size", "10", "--concurrency", "8"];
    let mut running = run(&lambda, &[&BY_TENANT[..], &more].concat()).start();
    let path = running.data().path().to_owned();
    let bodies = (0..8).map(|n| format!(r#"{{"customer":"t{n}"}}"#));
    send(&path, "a", bodies).await;
    let lambda = Arc::new(lambda);
    wait(&lambda, |state| (state.in_flight == 8).then_some(())).await;
    lambda.script(|_| LambdaStep::answer("null"));
    lambda.release();
    until_depth(&path, "a", |depth| depth.waiting + depth.in_flight == 0).await;
    running.stop();
}
