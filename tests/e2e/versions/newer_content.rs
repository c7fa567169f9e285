//! What a later version left on Redis or in DynamoDB is refused by name and left as it is
//! (host/docs/upgrade.md).

use crate::backends::dynamodb;
use crate::backends::redis::scene::RedisScene;
use crate::scene::guest;
use aws_sdk_dynamodb::types::AttributeValue;
use dispatcher_tests::child::{ExitedProgram, Program};
use dispatcher_tests::redis::Plain;
use dispatcher_tests::servers::MiniStack;

const WANTED: &str =
    "it was written by a newer dispatcher (format 2; this one reads up to 1); use that version";

/// Each of these ends with a plain message. The queue comes in the place of `QUEUE`.
fn all_are_refused(queue: &str, commands: &[&str], call: impl Fn(&[&str]) -> ExitedProgram) {
    let plugin = guest("hello");
    for command in commands {
        let words = command.replace("QUEUE", queue).replace("PLUGIN", &plugin);
        let refused = call(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(refused.code, 2, "{command}: {refused:?}");
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains(WANTED), "{command}: {said}");
    }
}

fn set_format(server: &mut Plain, format: &str) {
    let set = ["SET", "{dispatcher}:format", format];
    server.call(&set).expect("an answer");
}

#[test]
fn redis_of_a_later_version_is_refused_and_left_as_it_is() {
    let scene = RedisScene::plain();
    let mut server = scene.server.connect();
    set_format(&mut server, "2");
    let commands = [
        "run --plugin PLUGIN --queues QUEUE",
        "check --plugin PLUGIN --queues QUEUE",
        "send QUEUE x",
        "peek QUEUE",
        "purge QUEUE --apply",
        "redrive QUEUE --to redis:other --apply",
        "cancel QUEUE x",
        "pause QUEUE",
        "schedule add QUEUE --in 36h --body x",
        "schedule list QUEUE",
    ];
    all_are_refused(&scene.full(), &commands, |words| scene.command(words));
    let keys = server.call(&["KEYS", "*"]).expect("an answer").texts();
    assert_eq!(keys, ["{dispatcher}:format"]);

    // Of npm worqr and of other prefixes it says nothing.
    let format = format!("{}=worqr", scene.name);
    let send = ["send", &*scene.full(), "x"];
    for other in [["--redis-format", &format], ["--redis-prefix", "other"]] {
        let sent = scene.command(&[&send[..], &other].concat());
        assert_eq!(sent.code, 0, "{sent:?}");
    }
    set_format(&mut server, "1");
    assert_eq!(scene.command(&send).code, 0);
}

#[tokio::test]
async fn table_of_a_later_version_is_refused_and_left_as_it_is() {
    let (tables, table, queue) = dynamodb::table("later").await;
    let put = |format: &str| {
        let put = tables.client.put_item().table_name(&table);
        put.item("taskId", AttributeValue::S("dispatcher-shards".into()))
            .item("dispatcherFormat", AttributeValue::N(format.into()))
            .send()
    };
    put("2").await.expect("the table exists");
    let commands = [
        "run --plugin PLUGIN --queues QUEUE",
        "check --plugin PLUGIN --queues QUEUE",
        "send QUEUE x",
        "peek QUEUE",
        "purge QUEUE/FAILURE --apply",
        "redrive QUEUE/FAILURE --apply",
    ];
    let call = |words: &[&str]| Program::new(words).aws(&MiniStack::shared().url()).run();
    all_are_refused(&queue, &commands, call);
    assert_eq!(tables.all(&table).await.len(), 1);
    put("1").await.expect("the table exists");
    let sent = call(&["send", &queue, "x"]);
    assert_eq!(sent.code, 0, "{sent:?}");
}
