//! Redis Cluster with several nodes, and Sentinel: queues on every node, a failover under load, and
//! what is refused at the start.

use crate::scene::{field, guest, printed, prints, run};
use dispatcher_core::keyvalue::Bucket;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::{ErrorKind, Queue};
use dispatcher_redis::keyvalue::Redis as Store;
use dispatcher_redis::queue::Redis;
use dispatcher_tests::certificates::Certificates;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::redis::{RedisCluster, RedisReply, RedisServer};
use dispatcher_tests::servers::free_port;
use dispatcher_tests::{PATIENCE, queues};
use std::collections::BTreeSet;
use std::time::Duration;

const MESSAGES: usize = 300;

/// Queues on every node of three.
const QUEUES: [&str; 4] = ["a", "b", "c", "d"];

#[tokio::test]
async fn finding_10_queues_on_every_node_are_served_and_receivers_woken() {
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
async fn finding_10_cluster_that_loses_a_master_loses_no_message() {
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
    let copied = cluster.nodes[master].connect().call(&["WAIT", "1", "0"]);
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
    // What a failover did not copy is redelivered; nothing is lost.
    until_empty(&queue).await;
    // One line for the outage of the queue, one for the failover, one for its end.
    running.wait_for_line(|line| line.contains("receives again"));
    let failures = running.lines(|line| line.contains("receive failed"));
    assert_eq!(failures.len(), 1, "{failures:?}");
    let port = format!(":{}", cluster.nodes[master].address().port());
    let changes = running.lines(|line| line.contains("Redis masters changed"));
    let gone = changes
        .iter()
        .filter(|line| field(line, "gone").ends_with(&port));
    assert_eq!(gone.count(), 1, "{changes:?}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let handled: BTreeSet<String> = prints(&running).into_iter().collect();
    assert_eq!(handled.len(), MESSAGES);
}

/// A slot on its way from one node to another, by the steps of `redis-cli --cluster reshard`.
struct Migration<'a> {
    cluster: &'a RedisCluster,
    from: usize,
    to: usize,
    slot: String,
}

impl<'a> Migration<'a> {
    /// Begins to move the slot of a queue's keys to the next node.
    fn begin(cluster: &'a RedisCluster, queue: &str) -> Self {
        let key = format!("{{dispatcher:{queue}}}:body");
        let from = cluster.master_of(&key);
        let slot = cluster.nodes[from].connect();
        let slot = { slot }.call(&["CLUSTER", "KEYSLOT", &key]);
        let slot = slot.expect("an answer").number().to_string();
        let to = (from + 1) % cluster.nodes.len();
        let moved = Self {
            cluster,
            from,
            to,
            slot,
        };
        moved.set(to, "IMPORTING", from);
        moved.set(from, "MIGRATING", to);
        moved
    }

    fn set(&self, node: usize, how: &str, other: usize) {
        let other = self.cluster.nodes[other]
            .connect()
            .call(&["CLUSTER", "MYID"]);
        let other = other.expect("an answer").text();
        let mut node = self.cluster.nodes[node].connect();
        let told = node.call(&["CLUSTER", "SETSLOT", &self.slot, how, &other]);
        assert_eq!(told.expect("an answer"), RedisReply::Text("OK".into()));
    }

    /// The keys that have not moved yet.
    fn left(&self) -> Vec<String> {
        let listed = ["CLUSTER", "GETKEYSINSLOT", &self.slot, "1000"];
        let listed = self.cluster.nodes[self.from].connect().call(&listed);
        listed.expect("an answer").texts()
    }

    fn move_one(&self, key: &str) {
        let port = self.cluster.port_for_nodes(self.to).to_string();
        let told = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
        let told = self.cluster.nodes[self.from].connect().call(&told);
        assert_eq!(told.expect("an answer"), RedisReply::Text("OK".into()));
    }

    fn end(self) {
        assert_eq!(self.left(), Vec::<String>::new());
        // The new node first, as the specification wants it.
        self.set(self.to, "NODE", self.to);
        for node in 0..self.cluster.nodes.len() {
            self.set(node, "NODE", self.to);
        }
        // The next one to get a slot needs a higher epoch than any that it has heard of.
        let id = self.cluster.nodes[self.to]
            .connect()
            .call(&["CLUSTER", "MYID"]);
        let id = id.expect("an answer").text();
        let mut own = self.cluster.nodes[self.to].connect();
        let epoch = own.call(&["CLUSTER", "INFO"]).expect("an answer").text();
        let epoch = epoch
            .lines()
            .find_map(|line| line.strip_prefix("cluster_my_epoch:"));
        let epoch = epoch.expect("an epoch").trim().to_owned();
        for node in &self.cluster.nodes {
            node.wait_for(&["CLUSTER", "NODES"], |nodes| {
                let mut lines = nodes
                    .lines()
                    .map(|line| line.split(' ').collect::<Vec<_>>());
                lines.any(|words| words[0] == id && words[6] == epoch)
            });
        }
    }
}

#[tokio::test]
async fn finding_10_migrating_slot_pauses_until_its_last_key_has_moved() {
    let cluster = RedisCluster::start(3, 0);
    let redis = Redis::new(&cluster.nodes[0].url(), "dispatcher").expect("an address");
    let queue = redis.queue("jobs", None).await.expect("it is there");
    let mut ids = queues::send(&queue, ["a", "b"].map(String::from)).await;
    let moving = Migration::begin(&cluster, "jobs");
    let mut left = moving.left();
    moving.move_one(&left.remove(0));
    // Half of the queue is here and half there: neither half is touched.
    let error = queue.depth().await.expect_err("it stands still");
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    assert!(error.message.contains("being moved"), "{error}");
    let sent = queue.send(&[OutgoingMessage::default()]).await;
    assert!(sent[0].is_err(), "{sent:?}");
    left.iter().for_each(|key| moving.move_one(key));
    // All of it is there, and the cluster does not say so yet but by `ASK`.
    ids.extend(queues::send(&queue, ["c".to_owned()]).await);
    assert_eq!(queue.depth().await.expect("it is served").waiting, 3);
    assert_eq!(moving.left(), Vec::<String>::new());
    let fresh = Redis::new(&cluster.nodes[0].url(), "dispatcher").expect("an address");
    let fresh = fresh.queue("jobs", None).await.expect("it is there");
    assert_eq!(fresh.depth().await.expect("it is served").waiting, 3);
    moving.end();
    let found = queue.peek(10).await.expect("it has arrived");
    let found: Vec<String> = found.into_iter().map(|message| message.id).collect();
    assert_eq!(found, ids);
}

/// What follows `ASK`, script or commands, with keys that are there and keys that are not.
#[tokio::test]
async fn finding_10_bucket_is_read_and_written_on_the_importing_node() {
    let cluster = RedisCluster::start(3, 0);
    let store = Store::new(&cluster.nodes[0].url(), "dispatcher").expect("an address");
    let bucket = store.bucket("b");
    let pair = |key: &str, value: &str| [(key.to_owned(), value.as_bytes().to_vec())];
    bucket.set(&pair("here", "1")).await.expect("it is written");
    let moving = Migration::begin(&cluster, "kv:b");
    for key in moving.left() {
        moving.move_one(&key);
    }
    assert_eq!(bucket.increment("here", 1).await, Ok(2));
    bucket
        .set(&pair("there", "x"))
        .await
        .expect("it is written");
    assert_eq!(bucket.exists("there").await, Ok(true));
    assert_eq!(bucket.exists("nowhere").await, Ok(false));
    bucket
        .delete(&["here".to_owned()])
        .await
        .expect("it is deleted");
    assert_eq!(bucket.exists("here").await, Ok(false));
    moving.end();
    assert_eq!(bucket.exists("there").await, Ok(true));
}

/// Each message is sent while the slot of its queue is on its way, key by key, and is handled once.
#[tokio::test]
async fn finding_10_slot_migration_under_load_loses_and_repeats_nothing() {
    let cluster = RedisCluster::start(3, 0);
    let url = cluster.nodes[0].url();
    let redis = Redis::new(&url, "dispatcher").expect("an address");
    let queue = redis.queue("jobs", None).await.expect("it is there");
    let arguments = [
        "--queues",
        "redis:jobs",
        "--redis-url",
        &url,
        "--concurrency",
        "4",
    ];
    let mut running = run("verdicts", &arguments).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    let mut sent = 0;
    for _ in 0..6 {
        let bodies = (sent..sent + 20).map(|n| format!("print:{n}"));
        queues::send(&queue, bodies).await;
        sent += 20;
        let moving = Migration::begin(&cluster, "jobs");
        // Nobody can add a key here any more.
        for key in moving.left() {
            moving.move_one(&key);
        }
        let bodies = (sent..sent + 20).map(|n| format!("print:{n}"));
        queues::send(&queue, bodies).await;
        sent += 20;
        running.wait_for_lines(sent, printed);
        // Their ends are told where the slot is going, too.
        until_empty(&queue).await;
        moving.end();
    }
    until_empty(&queue).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let mut handled: Vec<usize> = prints(&running)
        .iter()
        .map(|number| number.parse().expect("a number"))
        .collect();
    handled.sort_unstable();
    assert_eq!(handled, (0..sent).collect::<Vec<_>>());
}

/// A user with rights to its keys alone, on every node.
fn user(cluster: &RedisCluster) {
    let rights = "ACL SETUSER app on >s3cret ~{dispatcher}* ~{dispatcher:* &{dispatcher:* +@all \
                  -@dangerous -@admin";
    let rights: Vec<&str> = rights.split(' ').filter(|word| !word.is_empty()).collect();
    for node in &cluster.nodes {
        let made = node.connect().call(&rights);
        assert_eq!(made.expect("an answer").text(), "OK");
    }
}

/// As ElastiCache and MemoryDB are spoken to. However nodes tell where they are, the certificate of
/// each is checked against the host that it announces.
#[tokio::test]
async fn finding_10_cluster_works_over_tls_as_an_acl_user() {
    let certificates = Certificates::of("localhost");
    let hostname = ["--cluster-announce-hostname", "localhost"];
    for preferred in ["hostname", "ip", "unknown-endpoint"] {
        let more = [
            &hostname[..],
            &["--cluster-preferred-endpoint-type", preferred],
        ]
        .concat();
        let cluster = RedisCluster::over_tls(3, &certificates, &more);
        user(&cluster);
        let places = cluster.tls_places("localhost");
        // One address, as the configuration endpoint of a service is one.
        let (one, _) = places.split_once(',').expect("several");
        let url = format!("rediss://app:s3cret@{one}");
        let ca = certificates.authority();
        let send = |body: &str, name: &str| {
            let queue = format!("redis:{name}");
            let sent = Program::new(["send", &queue, body])
                .env("DISPATCHER_REDIS_URL", &url)
                .env("DISPATCHER_REDIS_CA_FILE", &ca)
                .run();
            assert_eq!(sent.code, 0, "{preferred}: {}", sent.stderr);
        };
        for name in QUEUES {
            send(&format!("print:{name}"), name);
        }
        let all: Vec<String> = QUEUES.iter().map(|name| format!("redis:{name}")).collect();
        let all = all.join(",");
        let arguments = [
            "--queues",
            &all,
            "--redis-url",
            &url,
            "--redis-ca-file",
            &ca,
        ];
        let mut running = run("verdicts", &arguments).start();
        running.wait_for_lines(QUEUES.len(), printed);
        // A redirection is followed to a name of the certificate, too.
        let moving = Migration::begin(&cluster, QUEUES[0]);
        for key in moving.left() {
            moving.move_one(&key);
        }
        send("print:asked", QUEUES[0]);
        running.wait_for_lines(QUEUES.len() + 1, printed);
        moving.end();
        send("print:moved", QUEUES[0]);
        running.wait_for_lines(QUEUES.len() + 2, printed);
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
    }
}

#[test]
fn finding_10_tls_refuses_a_node_whose_certificate_has_another_name() {
    let certificates = Certificates::of("localhost");
    let cluster = RedisCluster::over_tls(3, &certificates, &[]);
    let url = format!("rediss://u:s3cret@{}", cluster.tls_places("localhost"));
    user(&cluster);
    let url = url.replace("u:s3cret", "app:s3cret");
    let all: Vec<String> = QUEUES.iter().map(|name| format!("redis:{name}")).collect();
    let hello = guest("hello");
    let ended = Program::new(["check", "--plugin", &hello, "--queues", &all.join(",")])
        .env("DISPATCHER_REDIS_URL", &url)
        .env("DISPATCHER_REDIS_CA_FILE", &certificates.authority())
        .run();
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    for words in ["certificate", "127.0.0.1", "cluster-announce-hostname"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
}

#[test]
fn finding_10_features_a_cluster_does_not_support_are_refused_at_start() {
    let url = RedisServer::cluster().url();
    let check = |more: &[&str]| {
        let hello = guest("hello");
        let common = ["check", "--plugin", &hello, "--redis-url", &url];
        Program::new([&common[..], more].concat()).run()
    };
    let good = check(&["--queues", "redis:q,redis:r"]);
    assert_eq!(good.code, 0, "{}", good.stderr);
    let far = ["--queues", "redis:q", "--dead-letter", "redis:other"];
    for command in ["check", "run", "doctor"] {
        let common = ["--plugin", &guest("hello"), "--redis-url", &url];
        let ended = Program::new([&[command][..], &common, &far].concat()).run();
        assert_eq!(ended.code, 2, "{command}: {}", ended.stderr);
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        for words in [
            "redis:q",
            "in a cluster",
            "`q.dead`",
            "omit the dead-letter queue",
        ] {
            assert!(shown.contains(words), "{command}: {words}: {shown}");
        }
    }
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
    let copied = master.connect().call(&["WAIT", "1", "0"]);
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
    let changes = running.lines(|line| line.contains("Redis masters changed"));
    assert!(!changes.is_empty(), "the failover has a line");
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
