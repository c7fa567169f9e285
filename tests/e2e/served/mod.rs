//! `dispatcher local`: the embedded queue as an SQS for applications under development.

mod admin;
mod memory;
mod sdks;

use crate::scene::{depth, prints, run};
use dispatcher_tests::child::{Program, Signal, Stream};
use dispatcher_tests::http;
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::sqs::SqsServer;
use std::collections::BTreeSet;
use std::time::Duration;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

#[tokio::test]
async fn sdk_and_program_share_their_queues() {
    let local = LocalServer::start();
    let sdk = SqsServer::at(local.url());
    let url = sdk.create("shared", &[]).await;
    sdk.send_many(&url, ["print:by an SDK".to_owned()]).await;
    let mut running = run("verdicts", &["--queues", "local:shared"])
        .sharing(local.data())
        .start();
    running.wait_for_line(|line| line.contains("by an SDK"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(prints(&running), ["by an SDK"]);

    // The other way round, waking a long poll from another process.
    let waiting = sdk
        .client
        .receive_message()
        .queue_url(&url)
        .wait_time_seconds(20)
        .send();
    let waiting = tokio::spawn(waiting);
    let folder = local.data().clone();
    let sent = tokio::task::spawn_blocking(move || {
        Program::new(["send", "local:shared", "by the program"])
            .sharing(&folder)
            .run()
    });
    assert_eq!(sent.await.expect("it ran").code, 0);
    let answer = waiting.await.expect("it ran").expect("an answer");
    assert_eq!(answer.messages()[0].body(), Some("by the program"));
}

#[tokio::test]
async fn run_respects_queue_attributes_set_by_an_sdk() {
    let local = LocalServer::start();
    let sdk = SqsServer::at(local.url());
    sdk.create("given-up", &[]).await;
    let policy = "{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:given-up\",\
                  \"maxReceiveCount\":3}";
    let url = sdk.create("set", &[("RedrivePolicy", policy)]).await;
    sdk.send_many(&url, ["reject:why".to_owned()]).await;
    let mut running = run("verdicts", &["--queues", "local:set"])
        .sharing(local.data())
        .start();
    let dead_letter_queue = format!("{}/000000000000/given-up", local.url());
    let dead = sdk.client.receive_message().queue_url(&dead_letter_queue);
    let dead = dead.wait_time_seconds(20).send().await.expect("an answer");
    assert_eq!(dead.messages()[0].body(), Some("reject:why"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn sends_of_the_program_respect_queue_attributes_set_by_an_sdk() {
    let local = LocalServer::start();
    let sdk = SqsServer::at(local.url());
    let slow = [("DelaySeconds", "600"), ("MaximumMessageSize", "1024")];
    sdk.create("slow", &slow).await;
    let send = |body: &str| {
        let sending = Program::new(["send", "local:slow", body]);
        sending.sharing(local.data()).run()
    };
    assert_eq!(send("later").code, 0);
    let long = send(&"x".repeat(1_025));
    assert_eq!(long.code, 1, "{long:?}");
    assert!(long.stderr.contains("accepts at most 1024"), "{long:?}");
    let held = depth(local.data().path(), "slow").await;
    assert_eq!((held.waiting, held.delayed), (0, 1));
}

/// Many senders at once, so that many requests share a transaction when the kill comes.
#[tokio::test]
async fn acknowledged_messages_survive_a_kill() {
    let local = LocalServer::start();
    let sdk = SqsServer::at(local.url());
    let url = sdk.create("killed", &[]).await;
    let (told, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    for sender in 0..8 {
        let (sdk, url, told) = (sdk.clone(), url.clone(), told.clone());
        tokio::spawn(async move {
            for number in 0.. {
                let body = format!("{sender}-{number}");
                let send = sdk.client.send_message().queue_url(&url);
                if send.message_body(&body).send().await.is_err() || told.send(body).is_err() {
                    break;
                }
            }
        });
    }
    drop(told);
    let mut known = BTreeSet::new();
    while known.len() < 300 {
        known.extend(acknowledged.recv().await);
    }
    let folder = local.kill();
    while let Some(body) = acknowledged.recv().await {
        known.insert(body);
    }
    let again = LocalServer::sharing(&folder);
    let url = format!("{}/000000000000/killed", again.url());
    let found = SqsServer::at(again.url()).drain(&url).await;
    let once: BTreeSet<String> = found.iter().cloned().collect();
    assert_eq!(found.len(), once.len(), "nothing is there twice");
    let lost: Vec<_> = known.difference(&once).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

#[tokio::test]
async fn delivery_survives_a_kill() {
    let local = LocalServer::start();
    let sdk = SqsServer::at(local.url());
    let url = sdk.create("held", &[("VisibilityTimeout", "600")]).await;
    sdk.send_many(&url, ["1".to_owned(), "2".to_owned()]).await;
    let receive = sdk.client.receive_message().queue_url(&url);
    let answer = receive.max_number_of_messages(10).send().await;
    let messages = answer.expect("an answer").messages.unwrap_or_default();
    assert_eq!(messages.len(), 2);
    let delete = sdk.client.delete_message().queue_url(&url);
    let receipt = messages[0].receipt_handle().expect("a receipt");
    delete
        .receipt_handle(receipt)
        .send()
        .await
        .expect("deleted");
    let folder = local.kill();
    let again = LocalServer::sharing(&folder);
    let sdk = SqsServer::at(again.url());
    let url = format!("{}/000000000000/held", again.url());
    let counts = sdk.counts(&url).await;
    assert_eq!((counts.waiting, counts.in_flight), (0, 1));
    let delete = sdk.client.delete_message().queue_url(&url);
    let receipt = messages[1].receipt_handle().expect("a receipt");
    delete
        .receipt_handle(receipt)
        .send()
        .await
        .expect("deleted");
    assert_eq!(sdk.counts(&url).await.in_flight, 0);
}

#[tokio::test]
async fn stop_answers_waiting_receives() {
    let program = ["local", "--listen", "127.0.0.1:0", "--log-level", "debug"];
    let mut local = LocalServer::of(Program::new(program));
    let sdk = SqsServer::at(local.url());
    let url = sdk.create("waited", &[]).await;
    let waiting = sdk
        .client
        .receive_message()
        .queue_url(&url)
        .wait_time_seconds(20)
        .send();
    let waiting = tokio::spawn(waiting);
    let (mut local, answer) = {
        let parked = tokio::task::spawn_blocking(move || {
            let process = local.process();
            process.wait_for_line(|line| line.contains("ReceiveMessage"));
            process.signal(Signal::TERM);
            local
        });
        (
            parked.await.expect("it ran"),
            waiting.await.expect("it ran"),
        )
    };
    let answer = answer.expect("an answer, and not a connection that was cut");
    assert_eq!(answer.messages(), []);
    assert_eq!(local.process().wait_exit(), 0);
}

#[test]
fn old_sdks_are_answered_in_xml() {
    let local = LocalServer::start();
    let post =
        |path: &str, form: &str| http::post(&format!("{}{path}", local.url()), &[FORM], form);
    let made = post("/", "Action=CreateQueue&QueueName=old&Version=2012-11-05");
    assert_eq!(made.status, 200);
    let url = format!("<QueueUrl>{}/000000000000/old</QueueUrl>", local.url());
    assert!(made.body.contains(&url), "{}", made.body);
    // Old SDKs name the queue by the path alone.
    let sent = post("/000000000000/old", "Action=SendMessage&MessageBody=a%3Cb");
    assert!(sent.body.contains("<MD5OfMessageBody>"), "{}", sent.body);
    let receive = "Action=ReceiveMessage&AttributeName.1=All&MaxNumberOfMessages=10";
    let received = post("/000000000000/old", receive);
    assert!(
        received.body.contains("<Body>a&lt;b</Body>"),
        "{}",
        received.body
    );
    let count = "<Attribute><Name>ApproximateReceiveCount</Name><Value>1</Value></Attribute>";
    assert!(received.body.contains(count), "{}", received.body);
    for (form, status, code) in [
        ("Action=SendMessage&MessageBody=x", 400, "MissingParameter"),
        (
            "Action=GetQueueUrl&QueueName=none",
            400,
            "AWS.SimpleQueueService.NonExistentQueue",
        ),
        ("Action=Dance", 400, "InvalidAction"),
        ("QueueName=x", 400, "InvalidAction"),
    ] {
        let refused = post("/", form);
        assert_eq!(refused.status, status, "{form}");
        let code = format!("<Type>Sender</Type><Code>{code}</Code>");
        assert!(refused.body.contains(&code), "{form}: {}", refused.body);
    }
}

#[test]
fn cross_site_browser_request_is_refused() {
    let local = LocalServer::start();
    let page = [FORM, ("origin", "http://somewhere")];
    let refused = http::post(local.url(), &page, "Action=CreateQueue&QueueName=q");
    assert_eq!(refused.status, 403);
    let asked = format!("{}/?Action=CreateQueue&QueueName=q", local.url());
    let refused = http::get(&asked);
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("signature"), "{}", refused.body);
    let listed = http::post(local.url(), &[FORM], "Action=ListQueues");
    assert!(!listed.body.contains("QueueUrl"), "{}", listed.body);
}

#[test]
fn serving_beyond_loopback_is_warned_about() {
    let local = LocalServer::of(Program::new(["local", "--listen", "0.0.0.0:0"]));
    // The line for a shell names an address that can be reached.
    assert!(
        local.url().starts_with("http://127.0.0.1:"),
        "{}",
        local.url()
    );
    let mut local = local;
    let warned = |line: &str| line.contains("signatures are not checked");
    local.process().wait_for_line(warned);
    let quiet = LocalServer::start();
    let mut quiet = quiet;
    quiet.process().signal(Signal::TERM);
    assert_eq!(quiet.process().wait_exit(), 0);
    assert_eq!(quiet.process().lines(warned), [""; 0]);
}

#[test]
fn finding_23_shell_output_contains_everything_an_sdk_needs() {
    let lines = "export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:9999\n\
        export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1\n\
        export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local\n";
    for address in ["127.0.0.1:9999", "0.0.0.0:9999"] {
        let printed = Program::new(["local", "--print-env", "--listen", address]).run();
        assert_eq!((printed.code, &*printed.stderr), (0, ""));
        assert_eq!(printed.stdout, lines);
    }
    let unknown = Program::new(["local", "--print-env", "--listen", "127.0.0.1:0"]).run();
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("--listen"), "{}", unknown.stderr);
}

/// As the page says: in a shell, with what `--print-env` prints and nothing else of AWS.
#[test]
fn finding_23_evaluated_shell_lines_reach_the_server() {
    let mut local = LocalServer::start();
    let address = local.url().trim_start_matches("http://").to_owned();
    let words = ["send", "sqs:from-the-shell", "hello"];
    let made = http::post(
        local.url(),
        &[FORM],
        "Action=CreateQueue&QueueName=from-the-shell",
    );
    assert_eq!(made.status, 200);
    let eval = format!("eval \"$(\"$0\" local --print-env --listen {address})\"");
    let sent = Program::new(words).after(&eval).run();
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    local.process().signal(Signal::TERM);
    assert_eq!(local.process().wait_exit(), 0);
}

#[test]
fn unavailable_address_is_reported() {
    let ended = Program::new(["local", "--listen", "somewhere"]).run();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("127.0.0.1:9324"), "{}", ended.stderr);
    let mut local = LocalServer::start();
    let taken = local.url().trim_start_matches("http://").to_owned();
    let ended = Program::new(["local", "--listen", &taken]).run();
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains(&taken), "{}", ended.stderr);
    assert_eq!(
        local.process().text(Stream::Out),
        "",
        "no data, so nothing there"
    );
}

#[tokio::test]
async fn delay_is_kept_and_reported() {
    let local = LocalServer::start();
    let sdk = SqsServer::at(local.url());
    let url = sdk.create("delayed", &[("DelaySeconds", "900")]).await;
    sdk.send_many(&url, ["later".to_owned()]).await;
    assert_eq!(sdk.counts(&url).await.delayed, 1);
    let held = depth(local.data().path(), "delayed").await;
    assert_eq!((held.delayed, held.waiting), (1, 0));
    assert!(
        held.oldest
            .is_some_and(|age| age < Duration::from_secs(900))
    );
}

/// Sends messages of a tenant to a standard queue, as producers do for SQS's fair queues.
async fn send_of(sdk: &SqsServer, url: &str, tenant: &str, count: usize) {
    for number in 0..count {
        let sent = sdk
            .client
            .send_message()
            .queue_url(url)
            .message_group_id(tenant)
            .message_body(format!("{tenant} {number}"))
            .send();
        sent.await.expect("sent");
    }
}

/// Receives ten, and leaves them in flight.
async fn ten(sdk: &SqsServer, url: &str) -> Vec<aws_sdk_sqs::types::Message> {
    let received = sdk
        .client
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(10)
        .message_system_attribute_names(
            aws_sdk_sqs::types::MessageSystemAttributeName::MessageGroupId,
        )
        .send();
    received
        .await
        .expect("an answer")
        .messages
        .unwrap_or_default()
}

#[tokio::test]
async fn groups_of_a_standard_queue_are_tenants_as_for_fair_queues() {
    let local = LocalServer::start();
    let sdk = SqsServer::at(local.url());
    let url = sdk.create("fair", &[("VisibilityTimeout", "600")]).await;
    send_of(&sdk, &url, "noisy", 60).await;
    for _ in 0..3 {
        let received = ten(&sdk, &url).await;
        assert_eq!(received.len(), 10, "no group is kept in order");
    }
    send_of(&sdk, &url, "quiet", 4).await;
    let received = ten(&sdk, &url).await;
    let quiet = received
        .iter()
        .filter(|one| one.body().is_some_and(|body| body.starts_with("quiet")));
    assert_eq!(
        quiet.count(),
        4,
        "they do not wait for the 30 of the noisy one: {received:?}"
    );
    let group = received[0]
        .attributes()
        .and_then(|all| all.get(&aws_sdk_sqs::types::MessageSystemAttributeName::MessageGroupId));
    assert!(group.is_some(), "{received:?}");
    // A message without a group is received, too, and one that comes back.
    sdk.send_many(&url, ["alone".to_owned()]).await;
    let first = received[0].receipt_handle().expect("a handle");
    let change = sdk.client.change_message_visibility().queue_url(&url);
    let change = change.receipt_handle(first).visibility_timeout(0).send();
    change.await.expect("changed");
    let mut left = Vec::new();
    loop {
        let more = ten(&sdk, &url).await;
        if more.is_empty() {
            break;
        }
        left.extend(more.iter().filter_map(|one| one.body().map(str::to_owned)));
    }
    assert_eq!(left.len(), 60 + 4 + 1 - 40 + 1, "{left:?}");
    assert!(left.contains(&"alone".to_owned()), "{left:?}");
}
