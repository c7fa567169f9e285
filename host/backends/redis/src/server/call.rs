//! A call to a node, also by a client that was redirected by `ASK`. Independent of the topology.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, FromRedisValue, Pipeline, RedisFuture, RedisResult, ScriptInvocation, Value};

/// A call to a node.
#[derive(Clone, Copy)]
pub(super) enum RedisCall<'a> {
    /// A script, which is one step.
    Script(&'a ScriptInvocation<'a>),
    /// Commands that are atomic or only read.
    Commands(&'a Pipeline),
}

impl RedisCall<'_> {
    /// Makes the call on a connection.
    pub(super) async fn on<T: FromRedisValue>(
        self,
        connection: &mut (impl ConnectionLike + Send),
    ) -> RedisResult<T> {
        match self {
            Self::Script(script) => script.invoke_async(connection).await,
            Self::Commands(pipeline) => pipeline.query_async(connection).await,
        }
    }
}

/// A connection that sends `ASKING` before each command, so that a node answers for a slot that is
/// being moved to it (Redis Cluster specification, "ASK redirection").
pub(super) struct AskingConnection<'a>(pub &'a mut MultiplexedConnection);

impl ConnectionLike for AskingConnection<'_> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut pipeline = redis::pipe();
            pipeline.cmd("ASKING").add_command(command.clone());
            let mut answers = self
                .0
                .req_packed_commands(&pipeline, 0, 2)
                .await?
                .into_iter()
                .map(whole);
            answers.try_fold(Value::Nil, |_, answer| answer)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut asking = redis::pipe();
            if pipeline.is_transaction() {
                // `ASKING` holds for all queued commands (`resetClient` of Redis 7.0).
                asking.cmd("ASKING").cmd("MULTI");
                for command in pipeline.cmd_iter() {
                    asking.add_command(command.clone());
                }
                asking.cmd("EXEC");
                let answers = self.0.req_packed_commands(&asking, offset + 1, count);
                return answers.await?.into_iter().map(whole).collect();
            }
            for command in pipeline.cmd_iter() {
                asking.cmd("ASKING").add_command(command.clone());
            }
            let mut answers = self
                .0
                .req_packed_commands(&asking, 0, 2 * pipeline.len())
                .await?
                .into_iter();
            let mut kept = Vec::with_capacity(pipeline.len());
            while let (Some(asked), Some(answer)) = (answers.next(), answers.next()) {
                whole(asked)?;
                kept.push(answer);
            }
            Ok(kept)
        })
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }
}

/// Returns an answer, or the error that it contains.
fn whole(answer: Value) -> RedisResult<Value> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}
