//! The records of a fleet on a Redis server. All its keys are in one slot of a cluster, because a
//! start may need several records at once.

use crate::server::errors::unexpected_answer;
use crate::server::link::{Link, RedisAddress};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::fleet::{FleetStore, RecordChange, Snapshot};
use redis::Script;
use std::sync::LazyLock;
use std::time::Duration;

/// The script that reads records. It returns the server's time in milliseconds before them.
static READ: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua flags=no-writes\n\
         local time = redis.call('TIME')\n\
         return { tostring(time[1] * 1000 + math.floor(time[2] / 1000)), redis.call('MGET', unpack(KEYS)) }",
    )
});

/// The script that replaces records, each by three arguments: the text that it must have, with a
/// letter before it that tells an empty text from none; the new text; and the milliseconds for
/// which it is kept. It returns whether it did.
static REPLACE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua\n\
         for at, key in ipairs(KEYS) do\n\
           local text = redis.call('GET', key)\n\
           local stands = ARGV[3 * at - 2]\n\
           if stands ~= (text and 's' .. text or 'n') then return 0 end\n\
         end\n\
         for at, key in ipairs(KEYS) do\n\
           redis.call('SET', key, ARGV[3 * at - 1], 'PX', ARGV[3 * at])\n\
         end\n\
         return 1",
    )
});

/// The script that writes a summary, and removes those that have ended.
static PUBLISH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua\n\
         local time = redis.call('TIME')\n\
         local now = time[1] * 1000 + math.floor(time[2] / 1000)\n\
         for _, process in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)) do\n\
           redis.call('ZREM', KEYS[2], process)\n\
           redis.call('HDEL', KEYS[1], process)\n\
         end\n\
         redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])\n\
         redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])\n\
         return 1",
    )
});

/// The script that returns the summaries which have not ended.
static PUBLISHED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua flags=no-writes\n\
         local time = redis.call('TIME')\n\
         local now = time[1] * 1000 + math.floor(time[2] / 1000)\n\
         local found = {}\n\
         for _, process in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')) do\n\
           found[#found + 1] = process\n\
           found[#found + 1] = redis.call('HGET', KEYS[1], process) or ''\n\
         end\n\
         return found",
    )
});

/// A fleet of one server and one prefix.
pub struct RedisFleet {
    link: Link,
    base: String,
}

impl RedisFleet {
    /// Reads the address. The connection is made when it is first needed. All keys begin with
    /// `{prefix:fleet:name}`.
    ///
    /// # Errors
    /// Fails if the address cannot be read.
    pub fn new(
        place: impl Into<RedisAddress>,
        prefix: &str,
        name: &str,
    ) -> Result<Self, CallError> {
        Ok(Self::on(&Link::new(&place.into())?, prefix, name))
    }

    /// Creates the fleet on a connection that others use as well.
    #[must_use]
    pub fn on(link: &Link, prefix: &str, name: &str) -> Self {
        let base = format!("{{{prefix}:fleet:{name}}}");
        Self {
            link: link.of(&base),
            base,
        }
    }

    fn record(&self, name: &str) -> String {
        format!("{}:limit:{name}", self.base)
    }

    fn processes(&self) -> [String; 2] {
        ["processes", "ends"].map(|part| format!("{}:{part}", self.base))
    }
}

fn milliseconds(time: Duration) -> u64 {
    // Redis refuses a time of 0, and one that overflows.
    u64::try_from(time.as_millis())
        .unwrap_or(u64::MAX)
        .clamp(1, 1 << 40)
}

#[async_trait::async_trait]
impl FleetStore for RedisFleet {
    async fn read(&self, names: &[String]) -> Result<Snapshot, CallError> {
        let mut call = READ.prepare_invoke();
        for name in names {
            call.key(self.record(name));
        }
        let (now, records): (String, Vec<Option<String>>) = self.link.run(&call).await?;
        match now.parse() {
            Ok(now) if records.len() == names.len() => Ok(Snapshot { now, records }),
            _ => Err(unexpected_answer(self.link.place(), "reading limits")),
        }
    }

    async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError> {
        let mut call = REPLACE.prepare_invoke();
        for change in changes {
            let stands = change.stands.as_ref();
            call.key(self.record(&change.name))
                .arg(stands.map_or_else(|| "n".to_owned(), |text| format!("s{text}")))
                .arg(&change.text)
                .arg(milliseconds(change.keep_for));
        }
        self.link.run(&call).await
    }

    async fn publish(
        &self,
        process: &str,
        summary: &str,
        keep_for: Duration,
    ) -> Result<(), CallError> {
        let mut call = PUBLISH.prepare_invoke();
        for key in self.processes() {
            call.key(key);
        }
        call.arg(process).arg(summary).arg(milliseconds(keep_for));
        self.link.run(&call).await
    }

    async fn published(&self) -> Result<Vec<(String, String)>, CallError> {
        let mut call = PUBLISHED.prepare_invoke();
        for key in self.processes() {
            call.key(key);
        }
        self.link.run(&call).await
    }
}
