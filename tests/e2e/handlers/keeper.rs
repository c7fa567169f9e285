//! The example of a keeper of connections: one connection for every message, in one process, moved
//! when that dies, made anew when it breaks, closed when the message is cancelled. What its README
//! says to type is typed by `readme`.

use crate::backends::redis::scene::RedisScene;
use crate::scene::printed;
use dispatcher_tests::PATIENCE;
use dispatcher_tests::child::{RunningProgram, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that feeds whoever connects.
struct Feed {
    listener: TcpListener,
    address: String,
}

impl Feed {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound").to_string();
        Self { listener, address }
    }

    async fn connection(&self) -> TcpStream {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        accepted.expect("it connects").expect("it does").0
    }
}

fn start(scene: &RedisScene, granted: &str) -> RunningProgram {
    let options = [
        "--visibility",
        "2",
        "--timeout",
        "10h",
        "--allow-connect",
        granted,
    ];
    let running = scene.run("keeper", &options).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    running
}

/// Sends a line, and waits until the process has printed it.
async fn feeds(connection: &mut TcpStream, line: &str, running: &RunningProgram) {
    let bytes = format!("{line}\n");
    connection.write_all(bytes.as_bytes()).await.expect("sent");
    running.wait_for_line(|said| printed(said) && said.contains(line));
}

#[tokio::test]
async fn connection_is_kept_by_one_process_and_moves_when_it_dies() {
    let scene = RedisScene::plain();
    let feed = Feed::start().await;
    let mut holder = start(&scene, &feed.address);
    scene.send([feed.address.clone()]).await;
    let mut first = feed.connection().await;
    feeds(&mut first, "one", &holder).await;
    let heir = start(&scene, &feed.address);

    holder.signal(Signal::KILL);
    assert_eq!(holder.wait_exit(), 137);
    // Nobody connected beside the holder: the next connection is the heir's.
    let mut second = feed.connection().await;
    feeds(&mut second, "two", &heir).await;

    // The feed goes away and comes back; the message stays where it is.
    drop(second);
    let mut third = feed.connection().await;
    feeds(&mut third, "three", &heir).await;

    let ended = scene.command(&["cancel", &scene.full(), &feed.address]);
    assert_eq!(ended.stdout, "0 waiting removed, 1 running stopped\n");
    let closed = tokio::time::timeout(PATIENCE, third.read(&mut [0; 1])).await;
    assert_eq!(closed.expect("it is closed").unwrap_or_default(), 0);
    let depth = scene.until_depth(|_| true).await;
    assert_eq!(depth, Default::default());
}

#[tokio::test]
async fn connect_grant_does_not_allow_listening() {
    let scene = RedisScene::plain();
    let granted = ["--allow-connect", "127.0.0.1:7000"];
    let running = scene.run("verdicts", &granted).start();
    let verbs = ["listen:0.0.0.0:0", "listen:127.0.0.1:0"].map(String::from);
    for id in scene.send(verbs).await {
        running.wait_for_line(|line| {
            line.contains("dead-lettered")
                && line.contains("Permission denied")
                && line.contains(&id)
        });
    }
}

#[tokio::test]
async fn connections_to_other_addresses_are_denied() {
    let scene = RedisScene::plain();
    let (granted, other) = (Feed::start().await, Feed::start().await);
    let running = start(&scene, &granted.address);
    let ids = scene.send([other.address.clone()]).await;
    running.wait_for_line(|line| {
        line.contains("dead-lettered") && line.contains(&ids[0]) && line.contains("is not granted")
    });
    // A name is not even looked up.
    let named = granted.address.replace("127.0.0.1", "localhost");
    scene.send([named.clone()]).await;
    running.wait_for_line(|line| line.contains(&named) && line.contains("failed to lookup"));
}
