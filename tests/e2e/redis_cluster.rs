//! Redis Cluster with several nodes, and Sentinel: queues on every node, a failover under load, and
//! what is refused at the start.

use crate::scene::{field, guest, printed, prints, run};
use dispatcher::queue::redis::Redis;
use dispatcher::queue::{Queue, Trouble};
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::redis::{Answer, RedisCluster, RedisServer};
use dispatcher_tests::servers::free_port;
use dispatcher_tests::{PATIENCE, queues};
use std::collections::BTreeSet;
use std::time::Duration;

const MESSAGES: usize = 300;

/// Queues on every node of three.
const QUEUES: [&str; 4] = ["a", "b", "c", "d"];

#[tokio::test]
async fn finding_10_queues_of_every_node_are_served_and_waiters_are_woken() {
    let cluster = RedisCluster::start(3, 0);
    let url = cluster.nodes[0].url();
    let key = |name: &str| format!("{{dispatcher:{name}}}:body");
    let nodes: BTreeSet<usize> = QUEUES
        .iter()
        .map(|name| cluster.master_of(&key(name)))
        .collect();
    assert!(nodes.len() > 1, "the queues lie on {nodes:?}");
    let all: Vec<String> = QUEUES.iter().map(|name| format!("redis:{name}")).collect();
    let all = all.join(",");
    let mut running = run("verdicts", &["--queues", &all, "--redis-url", &url]).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    let redis = Redis::new(&url, "dispatcher").expect("an address");
    for name in QUEUES {
        let queue = redis.queue(name, None).await.expect("it is there");
        queues::send(&queue, [format!("print:{name}")]).await;
        queues::send(&queue, ["reject:no".to_owned()]).await;
    }
    running.wait_for_lines(QUEUES.len(), printed);
    for name in QUEUES {
        let dead = format!("{name}.dead");
        let dead = redis.queue(&dead, None).await.expect("it is there");
        queues::until_depth(&dead, |depth| depth.waiting == 1).await;
    }
    let workers = Program::new(["workers", "redis:", "--redis-url", &url]).run();
    assert_eq!(workers.code, 0, "{}", workers.stderr);
    for name in QUEUES {
        assert!(
            workers.stdout.contains(&format!("redis:{name}")),
            "{}",
            workers.stdout
        );
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

/// Returns once nothing is left; a cluster that replaces a master tells nothing.
async fn until_empty(queue: &dyn Queue) {
    let looking = async {
        while queue.depth().await != Ok(Default::default()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, looking).await;
    told.expect("the queue becomes empty");
}

#[tokio::test]
async fn finding_10_a_cluster_that_loses_a_master_loses_no_message() {
    let mut cluster = RedisCluster::start(3, 3);
    let urls: Vec<String> = cluster
        .nodes
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    let url = format!("redis://{}", urls.join(","));
    let redis = Redis::new(&url, "dispatcher").expect("an address");
    let queue = redis.queue("jobs", None).await.expect("it is there");
    queues::send(&queue, (0..MESSAGES).map(|n| format!("print:{n}"))).await;
    let master = cluster.master_of("{dispatcher:jobs}:body");
    let copied = cluster.nodes[master].connect().ask(&["WAIT", "1", "0"]);
    assert_eq!(copied.expect("an answer").number(), 1);
    let more = [
        "--concurrency",
        "4",
        "--max-attempts",
        "1000",
        "--visibility",
        "5",
    ];
    let arguments = [&["--queues", "redis:jobs", "--redis-url", &url][..], &more].concat();
    let mut running = run("verdicts", &arguments).start();
    running.wait_for_lines(20, printed);
    cluster.nodes[master].kill();
    // What a failover did not copy is delivered again; nothing is lost.
    until_empty(&queue).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let handled: BTreeSet<String> = prints(&running).into_iter().collect();
    assert_eq!(handled.len(), MESSAGES);
}

#[tokio::test]
async fn finding_10_a_slot_that_is_moved_stands_still_until_it_has_arrived() {
    let cluster = RedisCluster::start(3, 0);
    let redis = Redis::new(&cluster.nodes[0].url(), "dispatcher").expect("an address");
    let queue = redis.queue("jobs", None).await.expect("it is there");
    let ids = queues::send(&queue, ["a", "b"].map(String::from)).await;
    let from = cluster.master_of("{dispatcher:jobs}:body");
    let (from, to) = (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3]);
    let id = |node: &RedisServer| {
        node.connect()
            .ask(&["CLUSTER", "MYID"])
            .expect("an id")
            .text()
    };
    let slot = from
        .connect()
        .ask(&["CLUSTER", "KEYSLOT", "{dispatcher:jobs}"]);
    let slot = slot.expect("an answer").number().to_string();
    let set = |node: &RedisServer, how: &str, other: &str| {
        let told = node
            .connect()
            .ask(&["CLUSTER", "SETSLOT", &slot, how, other]);
        assert_eq!(told.expect("an answer"), Answer::Text("OK".into()));
    };
    set(to, "IMPORTING", &id(from));
    set(from, "MIGRATING", &id(to));
    let port = to.address().port().to_string();
    let keys = |node: &RedisServer| {
        let listed = node
            .connect()
            .ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        listed.expect("an answer").texts()
    };
    let mut left = keys(from);
    let move_one = |key: &str| {
        let told = from
            .connect()
            .ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        assert_eq!(told.expect("an answer"), Answer::Text("OK".into()));
    };
    move_one(&left.remove(0));
    // Half of the queue is here and half there: neither half is touched.
    let error = queue.depth().await.expect_err("it stands still");
    assert_eq!(error.kind, Trouble::Passing, "{error}");
    let sent = queue
        .send(&[dispatcher::message::Outgoing::default()])
        .await;
    assert!(sent[0].is_err(), "{sent:?}");
    left.iter().for_each(|key| move_one(key));
    for node in &cluster.nodes {
        set(node, "NODE", &id(to));
    }
    let found = queue.peek(10).await.expect("it has arrived");
    let found: Vec<String> = found.into_iter().map(|message| message.id).collect();
    assert_eq!(found, ids);
    assert_eq!(keys(from), Vec::<String>::new());
}

#[test]
fn finding_10_what_a_cluster_cannot_hold_is_refused_at_the_start() {
    let url = RedisServer::cluster().url();
    let check = |more: &[&str]| {
        let hello = guest("hello");
        let common = ["check", "--plugin", &hello, "--redis-url", &url];
        Program::new([&common[..], more].concat()).run()
    };
    let good = check(&["--queues", "redis:q,redis:r"]);
    assert_eq!(good.code, 0, "{}", good.stderr);
    let far = check(&["--queues", "redis:q", "--dead-letter", "redis:other"]);
    assert_eq!(far.code, 2, "{}", far.stderr);
    assert!(far.stderr.contains("q.dead"), "{}", far.stderr);
    let package = check(&["--queues", "redis:q", "--redis-format", "q=worqr"]);
    assert_eq!(package.code, 2, "{}", package.stderr);
    assert!(package.stderr.contains("cluster"), "{}", package.stderr);
    let single = RedisServer::shared();
    let several = format!("redis://{},{}", single.address(), single.address());
    let ended = Program::new(["queues", "redis:", "--redis-url", &several]).run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("cluster"), "{}", ended.stderr);
}

#[tokio::test]
async fn finding_10_sentinels_name_the_master_also_after_a_failover() {
    let mut master = RedisServer::start(&[]);
    let port = master.address().port().to_string();
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]);
    let folder = tempfile::tempdir().expect("a folder");
    let sentinel_port = free_port();
    let written = folder.path().join("sentinel.conf");
    let settings = format!(
        "port {sentinel_port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {port} 1\n\
         sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
    );
    std::fs::write(&written, settings).expect("written");
    let sentinel = RedisServer::sentinel(&written, sentinel_port);
    sentinel.wait_for(&["SENTINEL", "REPLICAS", "main"], |answer| {
        answer.contains(&replica.address().port().to_string())
    });
    let url = format!("redis+sentinel://127.0.0.1:{sentinel_port}/main");
    let redis = Redis::new(&url, "dispatcher").expect("an address");
    let queue = redis.queue("jobs", None).await.expect("it is there");
    queues::send(&queue, ["print:before".to_owned()]).await;
    let copied = master.connect().ask(&["WAIT", "1", "0"]);
    assert_eq!(copied.expect("an answer").number(), 1);
    let mut running = run("verdicts", &["--queues", "redis:jobs", "--redis-url", &url]).start();
    running.wait_for_line(printed);
    master.kill();
    sentinel.wait_for(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"], |answer| {
        answer.contains(&replica.address().port().to_string())
    });
    replica.wait_for(&["ROLE"], |answer| answer.contains("master"));
    // The first call may still find the connection to the old master broken.
    while queue.depth().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    queues::send(&queue, ["print:after".to_owned()]).await;
    running.wait_for_line(|line| printed(line) && field(line, "message") == "after");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let plain = format!("redis://127.0.0.1:{sentinel_port}");
    let ended = Program::new(["queues", "redis:", "--redis-url", &plain]).run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("redis+sentinel://"),
        "{}",
        ended.stderr
    );
    let other = format!("redis+sentinel://127.0.0.1:{sentinel_port}/other");
    let ended = Program::new(["queues", "redis:", "--redis-url", &other]).run();
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("knows no master"), "{}", ended.stderr);
}
