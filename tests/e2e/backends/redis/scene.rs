//! A queue on a Redis of the test's own, as the program and the test see it.

use crate::scene::run;
use dispatcher_core::queue::{Depth, Queue};
use dispatcher_redis::queue::{NativeQueue, Redis};
use dispatcher_tests::child::{ExitedProgram, Program};
use dispatcher_tests::queues;
use dispatcher_tests::redis::RedisServer;

/// One queue and its server.
pub(crate) struct RedisScene {
    pub(crate) server: RedisServer,
    pub(crate) name: String,
}

impl RedisScene {
    pub(crate) fn new(server: RedisServer) -> Self {
        Self {
            server,
            name: RedisServer::fresh_name("jobs"),
        }
    }

    /// A server that keeps nothing on disk.
    pub(crate) fn plain() -> Self {
        Self::new(RedisServer::start(&[]))
    }

    /// `redis:NAME`.
    pub(crate) fn full(&self) -> String {
        format!("redis:{}", self.name)
    }

    /// The program with a guest, receiving from the queue.
    pub(crate) fn run(&self, guest: &str, more: &[&str]) -> Program {
        self.run_on(&self.full(), guest, more)
    }

    /// The same on other queues of the server.
    pub(crate) fn run_on(&self, queues: &str, guest: &str, more: &[&str]) -> Program {
        let url = self.server.url();
        let mut arguments = vec!["--queues", queues, "--redis-url", &url];
        arguments.extend(more);
        run(guest, &arguments)
    }

    /// Another command of the program, to its end.
    pub(crate) fn command(&self, arguments: &[&str]) -> ExitedProgram {
        Program::new(arguments)
            .env("DISPATCHER_REDIS_URL", &self.server.url())
            .run()
    }

    pub(crate) async fn queue(&self) -> NativeQueue {
        let server = Redis::new(&self.server.url(), "dispatcher").expect("an address");
        server.queue(&self.name, None).await.expect("it is there")
    }

    /// Sends bodies, the way another process would, and tells their ids.
    pub(crate) async fn send(&self, bodies: impl IntoIterator<Item = String>) -> Vec<String> {
        queues::send(&self.queue().await, bodies).await
    }

    /// Returns once the queue's depth is as wanted.
    pub(crate) async fn until_depth(&self, wanted: impl Fn(Depth) -> bool) -> Depth {
        let queue = self.queue().await;
        let looking = async {
            loop {
                // A server that is being restarted tells nothing.
                if let Ok(depth) = queue.depth().await
                    && wanted(depth)
                {
                    return depth;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(dispatcher_tests::PATIENCE, looking)
            .await
            .expect("the queue becomes as wanted")
    }
}

/// Whether a log line says that an attempt begins; shown at `--log-level debug`.
pub(crate) fn begins(line: &str) -> bool {
    line.contains("an attempt begins")
}
