//! Buckets on a Redis server. A bucket is a hash, plus a set of its keys' names, because paging
//! through a hash would read the values as well. Independent of queues.

use crate::server::errors::unexpected_answer;
use crate::server::link::{Link, RedisAddress};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::keyvalue::{Bucket, CALL, Page, not_a_number, too_long};
use redis::{Script, Value, pipe};
use std::sync::LazyLock;

/// The approximate number of keys in a page.
const PAGE: usize = 1_000;

/// The script that reads values in one answer. It returns false if they are too many bytes.
static GET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua flags=allow-oom\n\
         local bytes = 0\n\
         for at = 2, #ARGV do bytes = bytes + redis.call('HSTRLEN', KEYS[1], ARGV[at]) end\n\
         if bytes > tonumber(ARGV[1]) then return false end\n\
         return redis.call('HMGET', KEYS[1], unpack(ARGV, 2))",
    )
});

/// The script that increments a value. It returns the sum as text, because Lua's numbers are exact
/// only up to 2^53, and false if the value is not a number.
static INCREMENT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua\n\
         local sum = redis.pcall('HINCRBY', KEYS[1], ARGV[1], ARGV[2])\n\
         if type(sum) == 'table' then\n\
           local why = sum.err or ''\n\
           if why:find('not an integer') or why:find('overflow') then return false end\n\
           return sum\n\
         end\n\
         redis.call('SADD', KEYS[2], ARGV[1])\n\
         return redis.call('HGET', KEYS[1], ARGV[1])",
    )
});

/// The script that swaps a value. It returns whether it did. The third argument tells an expected
/// empty value from none.
static SWAP: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua\n\
         local stands = redis.call('HGET', KEYS[1], ARGV[1])\n\
         if ARGV[3] == '0' then\n\
           if stands then return 0 end\n\
         elseif stands ~= ARGV[4] then return 0 end\n\
         redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])\n\
         redis.call('SADD', KEYS[2], ARGV[1])\n\
         return 1",
    )
});

/// The buckets of one server under one prefix.
pub struct Redis {
    link: Link,
    prefix: String,
}

impl Redis {
    /// Reads the address. The connection is made when it is first needed. All keys begin with
    /// `{prefix:kv:`.
    ///
    /// # Errors
    /// Fails if the address cannot be read.
    pub fn new(place: impl Into<RedisAddress>, prefix: &str) -> Result<Self, CallError> {
        Ok(Self::on(Link::new(&place.into())?, prefix))
    }

    /// Creates the buckets on a connection that others use as well.
    pub fn on(link: Link, prefix: &str) -> Self {
        Self {
            link,
            prefix: prefix.to_owned(),
        }
    }

    /// Returns the bucket of this name.
    pub fn bucket(&self, name: &str) -> RedisBucket {
        let base = format!("{{{}:kv:{name}}}", self.prefix);
        RedisBucket {
            link: self.link.of(&base),
            values: format!("{base}:values"),
            names: format!("{base}:names"),
        }
    }
}

/// One bucket of the server. Both of its keys are in one slot of a cluster.
pub struct RedisBucket {
    link: Link,
    values: String,
    names: String,
}

impl RedisBucket {
    fn unexpected_answer(&self, what: &str) -> CallError {
        unexpected_answer(self.link.place(), what)
    }
}

#[async_trait::async_trait]
impl Bucket for RedisBucket {
    async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut call = GET.key(&self.values);
        call.arg(CALL).arg(keys);
        let found: Option<Vec<Option<Vec<u8>>>> = self.link.run(&call).await?;
        let values = found.ok_or_else(too_long)?;
        if values.len() == keys.len() {
            Ok(values)
        } else {
            Err(self.unexpected_answer("reading values"))
        }
    }

    async fn exists(&self, key: &str) -> Result<bool, CallError> {
        let mut call = pipe();
        call.hexists(&self.values, key);
        let (exists,) = self.link.pipe(&call).await?;
        Ok(exists)
    }

    async fn set(&self, pairs: &[(String, Vec<u8>)]) -> Result<(), CallError> {
        if pairs.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
        let mut call = pipe();
        call.atomic()
            .hset_multiple(&self.values, pairs)
            .ignore()
            .sadd(&self.names, names)
            .ignore();
        self.link.pipe(&call).await
    }

    async fn delete(&self, keys: &[String]) -> Result<(), CallError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut call = pipe();
        call.atomic()
            .hdel(&self.values, keys)
            .ignore()
            .srem(&self.names, keys)
            .ignore();
        self.link.pipe(&call).await
    }

    async fn increment(&self, key: &str, by: i64) -> Result<i64, CallError> {
        let mut call = INCREMENT.key(&self.values);
        call.key(&self.names).arg(key).arg(by);
        let answer: Option<String> = self.link.run(&call).await?;
        let sum = answer.ok_or_else(|| not_a_number(key))?;
        sum.parse()
            .map_err(|_| self.unexpected_answer("an increment"))
    }

    async fn swap(
        &self,
        key: &str,
        stands: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, CallError> {
        let mut call = SWAP.key(&self.values);
        call.key(&self.names)
            .arg(key)
            .arg(value)
            .arg(i32::from(stands.is_some()))
            .arg(stands.unwrap_or_default());
        self.link.run(&call).await
    }

    async fn keys(&self, from: Option<u64>) -> Result<Page, CallError> {
        let mut call = pipe();
        call.cmd("SSCAN")
            .arg(&self.names)
            .arg(from.unwrap_or(0))
            .arg("COUNT")
            .arg(PAGE);
        let (answer,): (Value,) = self.link.pipe(&call).await?;
        let read: Result<(String, Vec<String>), _> = redis::from_redis_value(answer);
        let page = read.ok().and_then(|(next, keys)| {
            let next: u64 = next.parse().ok()?;
            Some(Page {
                keys,
                next: (next != 0).then_some(next),
            })
        });
        page.ok_or_else(|| self.unexpected_answer("listing keys"))
    }
}
