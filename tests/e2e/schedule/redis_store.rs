//! What the schedule's port promises, kept on a real Redis: whatever order jobs come in, whoever
//! claims them, and when answers are lost, calls come late or the server is not as it should be.

use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::schedule;
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::{
    ErrorKind, JobCancellation, JobOutcome, JobPage, ScheduleStore, ScheduledJob, decide,
};
use dispatcher_redis::schedule::{Redis, Schedule};
use dispatcher_tests::redis::{RedisReply, RedisServer};
use dispatcher_tests::relay::Relay;
use std::net::SocketAddr;
use std::time::Duration;

fn at(address: SocketAddr, name: &str) -> Schedule {
    let url = format!("redis://{address}");
    Redis::new(&url, "dispatcher")
        .expect("an address")
        .schedule(name)
}

fn fresh() -> Schedule {
    let name = RedisServer::fresh_name("later");
    at(RedisServer::shared().address(), &name)
}

fn job(id: &str, due: Timestamp) -> ScheduledJob {
    let message = OutgoingMessage {
        body: format!("body of {id}, \"\u{e9}\"\n"),
        ..OutgoingMessage::default()
    };
    ScheduledJob {
        id: id.to_owned(),
        ..schedule::job("redis:q", due, message, None)
    }
}

async fn ids(store: &Schedule) -> Vec<String> {
    let jobs = schedule::list(store).await.expect("it answers");
    jobs.into_iter().map(|job| job.id).collect()
}

fn ending(job: &ScheduledJob, token: &str, next: Option<Timestamp>) -> JobOutcome {
    JobOutcome {
        job: job.clone(),
        token: token.into(),
        next,
    }
}

#[tokio::test]
async fn jobs_round_trip_soonest_first() {
    let name = RedisServer::fresh_name("later");
    let address = RedisServer::shared().address();
    let (one, two) = (at(address, &name), at(address, &name));
    let now = clock::wall_clock_now();
    assert_eq!(two.due(now, None).await, Ok(JobPage::default()));
    assert_eq!(two.cancel("a", now).await, Ok(JobCancellation::Unknown));
    let every = Periodic::new("0 9 * * *", "Europe/Berlin").expect("a pattern");
    let mut later = job("later", now + Duration::from_millis(1));
    later.every = Some(every);
    later.message.attributes = vec![Attribute::text("k", "v")];
    later.message.group = Some("g".into());
    let sooner = job("sooner", now);
    for one_of in [&later, &sooner] {
        assert_eq!(one.add(one_of).await, Ok(true));
        assert_eq!(two.add(one_of).await, Ok(false), "it is there");
    }
    let read = |job: ScheduledJob| ScheduledJob {
        queue: format!("redis:{name}"),
        stamp: format!("{:015}", job.due.0),
        ..job
    };
    let found = schedule::list(&two).await.expect("it answers");
    assert_eq!(found, [read(sooner), read(later)]);
    let due = two.due(now, None).await.expect("it answers");
    assert_eq!((due.jobs.len(), due.next), (1, None));
}

#[tokio::test]
async fn claim_goes_to_one_of_many_until_it_expires() {
    let store = fresh();
    let now = clock::wall_clock_now();
    assert_eq!(store.add(&job("a", now)).await, Ok(true));
    let jobs = schedule::list(&store).await.expect("it answers");
    let claims = (0..5).map(|n| {
        let (store, jobs) = (store.clone(), jobs.clone());
        let claim = decide::claim(format!("token-{n}"), now);
        async move { store.claim(&jobs, &claim, now).await == [Ok(true)] }
    });
    let mut winners = Vec::new();
    for won in claims.map(tokio::spawn).collect::<Vec<_>>() {
        winners.push(won.await.expect("no panic"));
    }
    assert_eq!(winners.iter().filter(|won| **won).count(), 1);
    assert_eq!(store.cancel("a", now).await, Ok(JobCancellation::BeingSent));
    let until = now + decide::LEASE;
    let early = decide::claim("early".into(), until);
    assert_eq!(store.claim(&jobs, &early, until).await, [Ok(false)]);
    let later = until + Duration::from_millis(1);
    let claim = decide::claim("late".into(), later);
    assert_eq!(store.claim(&jobs, &claim, later).await, [Ok(true)]);
    // Who has lost it ends nothing.
    let lost = winners.iter().position(|won| *won).expect("one won");
    let lost = ending(&jobs[0], &format!("token-{lost}"), None);
    assert_eq!(store.end(&[lost]).await, [Ok(())]);
    assert_eq!(ids(&store).await, ["a"]);
    let next = Timestamp(now.0 + 5_000);
    let mine = ending(&jobs[0], "late", Some(next));
    assert_eq!(store.end(&[mine]).await, [Ok(())]);
    let left = schedule::list(&store).await.expect("it answers");
    assert_eq!((left[0].due, &left[0].claim), (next, &None));
    // The time that was read is not the one that is there now.
    let stale = decide::claim("stale".into(), later);
    assert_eq!(store.claim(&jobs, &stale, later).await, [Ok(false)]);
    assert_eq!(store.cancel("a", now).await, Ok(JobCancellation::Yes));
    assert_eq!(store.cancel("a", now).await, Ok(JobCancellation::Unknown));
    assert_eq!(store.add(&job("a", now)).await, Ok(true));
}

#[tokio::test]
async fn completed_jobs_leave_no_keys_behind() {
    let name = RedisServer::fresh_name("later");
    let server = RedisServer::shared();
    let store = at(server.address(), &name);
    let now = clock::wall_clock_now();
    for id in ["a", "b"] {
        assert_eq!(store.add(&job(id, now)).await, Ok(true));
    }
    assert_eq!(store.cancel("a", now).await, Ok(JobCancellation::Yes));
    let jobs = schedule::list(&store).await.expect("it answers");
    let claim = decide::claim("mine".into(), now);
    assert_eq!(store.claim(&jobs, &claim, now).await, [Ok(true)]);
    let gone = ending(&jobs[0], "mine", None);
    assert_eq!(store.end(&[gone]).await, [Ok(())]);
    let pattern = format!("{{dispatcher:{name}}}:schedule*");
    let mut plain = server.connect();
    let keys = plain.call(&["KEYS", &pattern]).expect("an answer").texts();
    for key in keys {
        let left = plain.call(&["TTL", &key]).expect("an answer").number();
        assert!((0..=600).contains(&left), "{key} stays: {left}");
    }
}

#[tokio::test]
async fn many_jobs_are_read_in_pages_in_order() {
    let store = fresh();
    let mut wanted = Vec::new();
    for n in 0..1_020 {
        let one = job(&format!("{n}"), Timestamp(n / 300));
        assert_eq!(store.add(&one).await, Ok(true));
        wanted.push((one.due, one.id));
    }
    wanted.sort();
    let page = store.due(Timestamp(9), None).await.expect("it answers");
    assert_eq!(page.jobs.len(), 500);
    let found = schedule::list(&store).await.expect("it answers");
    let found: Vec<_> = found.into_iter().map(|job| (job.due, job.id)).collect();
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn page_is_limited_to_the_bytes_an_answer_can_carry_in_time() {
    let store = fresh();
    for n in 0..3 {
        let mut one = job(&format!("{n}"), Timestamp(n));
        one.message.body = "x".repeat(5_000_000);
        assert_eq!(store.add(&one).await, Ok(true));
    }
    let page = store.due(Timestamp(9), None).await.expect("it answers");
    assert_eq!(page.jobs.len(), 1);
    assert_eq!(ids(&store).await, ["0", "1", "2"]);
    let mut long = job("long", Timestamp(9));
    long.message.body = "x".repeat(32_000_000);
    let error = store.add(&long).await.expect_err("too long");
    assert!(error.message.contains("at most 32000000 fit"), "{error}");
}

#[tokio::test]
async fn step_with_a_lost_answer_is_repeated_with_the_same_result() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let name = RedisServer::fresh_name("later");
    let store = at(relay.address(), &name);
    let now = clock::wall_clock_now();
    assert_eq!(ids(&store).await, [""; 0]);
    let lose = || relay.swallow_answer_with(":1\r\n");
    lose();
    assert_eq!(store.add(&job("a", now)).await, Ok(true));
    let jobs = schedule::list(&store).await.expect("it answers");
    let claim = decide::claim("mine".into(), now);
    lose();
    assert_eq!(store.claim(&jobs, &claim, now).await, [Ok(true)]);
    let next = Timestamp(now.0 + 9);
    lose();
    let again = ending(&jobs[0], "mine", Some(next));
    assert_eq!(store.end(&[again]).await, [Ok(())]);
    let left = schedule::list(&store).await.expect("it answers");
    assert_eq!((left[0].due, left.len()), (next, 1));
    lose();
    assert_eq!(store.cancel("a", now).await, Ok(JobCancellation::Yes));
    assert_eq!(ids(&store).await, [""; 0]);
}

#[tokio::test]
async fn late_add_does_not_add_a_second_time() {
    let server = RedisServer::shared();
    let relay = Relay::before(server.address());
    let name = RedisServer::fresh_name("later");
    let (store, other) = (at(relay.address(), &name), at(server.address(), &name));
    let now = clock::wall_clock_now();
    // The server knows the script by now, so that the next call is one.
    assert_eq!(store.add(&job("known", now)).await, Ok(true));
    let on_its_way = relay.delay_call_with("body of late");
    assert_eq!(store.add(&job("late", now)).await, Ok(true));
    assert_eq!(other.cancel("late", now).await, Ok(JobCancellation::Yes));
    let calls = || {
        let info = server.connect().call(&["INFO", "commandstats"]);
        let info = info.expect("an answer").text();
        let line = info.lines().find(|line| line.contains("cmdstat_evalsha:"));
        line.unwrap_or_default().to_owned()
    };
    let before = calls();
    drop(on_its_way);
    let deadline = clock::now() + dispatcher_tests::PATIENCE;
    while calls() == before {
        assert!(clock::now() < deadline, "the late call never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ids(&other).await, ["known"]);
}

#[tokio::test]
async fn replica_and_full_server_are_reported_and_survived() {
    let server = RedisServer::start(&[]);
    let store = at(server.address(), "q");
    let now = clock::wall_clock_now();
    assert_eq!(store.add(&job("a", now)).await, Ok(true));
    let mut plain = server.connect();
    let mut say = |words: &[&str]| drop(plain.call(words).expect("an answer"));
    say(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = store.due(now, None).await.expect_err("it may be behind");
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    say(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(ids(&store).await, ["a"]);
    say(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.add(&job("b", now)).await.expect_err("it is full");
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    let jobs = schedule::list(&store).await.expect("it answers");
    let claim = decide::claim("mine".into(), now);
    assert_eq!(store.claim(&jobs, &claim, now).await, [Ok(true)]);
    let gone = ending(&jobs[0], "mine", None);
    assert_eq!(store.end(&[gone]).await, [Ok(())]);
    assert_eq!(ids(&store).await, [""; 0]);
}

#[tokio::test]
async fn jobs_survive_a_crash_of_a_persistent_server() {
    let server = RedisServer::durable();
    let store = at(server.address(), "q");
    let now = clock::wall_clock_now();
    assert_eq!(store.add(&job("a", now)).await, Ok(true));
    let _server = server.again();
    assert_eq!(ids(&store).await, ["a"]);
}

#[tokio::test]
async fn cluster_node_accepts_every_step() {
    let server = RedisServer::start(&["--cluster-enabled", "yes"]);
    let mut plain = server.connect();
    let all = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    plain.call(&all).expect("the slots are its own");
    let deadline = clock::now() + dispatcher_tests::PATIENCE;
    let state = |answer: std::io::Result<RedisReply>| answer.expect("an answer").text();
    while !state(plain.call(&["CLUSTER", "INFO"])).contains("cluster_state:ok") {
        assert!(clock::now() < deadline, "the cluster does not begin");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let store = at(server.address(), "q");
    let now = clock::wall_clock_now();
    for id in ["a", "b"] {
        assert_eq!(store.add(&job(id, now)).await, Ok(true));
    }
    assert_eq!(store.cancel("b", now).await, Ok(JobCancellation::Yes));
    let jobs = schedule::list(&store).await.expect("it answers");
    let claim = decide::claim("mine".into(), now);
    assert_eq!(store.claim(&jobs, &claim, now).await, [Ok(true)]);
    let gone = ending(&jobs[0], "mine", None);
    assert_eq!(store.end(&[gone]).await, [Ok(())]);
    assert_eq!(ids(&store).await, [""; 0]);
}

#[tokio::test]
async fn finding_03_job_without_its_message_is_set_aside_once_unless_claimed() {
    let name = RedisServer::fresh_name("later");
    let address = RedisServer::shared().address();
    let store = at(address, &name);
    let now = clock::wall_clock_now();
    for id in ["a", "b", "c"] {
        assert_eq!(store.add(&job(id, now)).await, Ok(true));
    }
    let jobs = schedule::list(&store).await.expect("it answers");
    let claim = decide::claim("theirs".into(), now);
    assert_eq!(store.claim(&jobs[2..], &claim, now).await, [Ok(true)]);
    let base = format!("{{dispatcher:{name}}}:schedule");
    let mut plain = RedisServer::shared().connect();
    let mut ask = |words: &[&str]| plain.call(words).expect("an answer");
    let key = |what: &str| format!("{base}:{what}");
    ask(&["HDEL", &key("job"), "a"]);
    ask(&["HSET", &key("job"), "b", "{"]);
    ask(&["HSET", &key("job"), "c", "{"]);
    let page = store.due(now, None).await.expect("it answers");
    assert_eq!((page.jobs.len(), page.unreadable.len()), (0, 3));
    for (bad, wanted) in page.unreadable.iter().zip([true, true, false]) {
        assert_eq!(
            store.set_aside(bad, "why", now).await,
            Ok(wanted),
            "{bad:?}"
        );
        assert_eq!(store.set_aside(bad, "why", now).await, Ok(false));
    }
    let left = store.due(now, None).await.expect("it answers").unreadable;
    assert_eq!(left.iter().map(|bad| &*bad.id).collect::<Vec<_>>(), ["c"]);
    let [a, b] = [0, 1].map(|at| page.unreadable[at].stamp.clone());
    assert_eq!(ask(&["HGET", &key("dead"), &b]).text(), "{");
    assert_eq!(ask(&["HGET", &key("reason"), &a]).text(), "why");
    assert_eq!(ask(&["HLEN", &key("dead")]).number(), 1);
}
