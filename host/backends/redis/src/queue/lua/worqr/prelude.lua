-- What every script stands on that shares its keys with npm `worqr`. KEYS[1] is the prefix. Beside
-- the package's own keys, under `PREFIX:dispatcher:`, lies what it has no place for:
--
-- workers     set of those that are dispatchers; `held:WORKER` hash, the processes of each to which
--             attempt at its task it is
-- released:Q  sorted set, processes by when their task is to be back in the queue, in ms
-- counts:Q    hash, digest of a task to the last attempt at it that failed, until one does not
local call, p = redis.call, KEYS[1]
local own = p .. ':dispatcher:'

local function queue_key(q) return p .. ':queues:' .. q end
local function working(q) return p .. ':workingProcesses:' .. q end
local function process_key(id) return p .. ':processes:' .. id end
local function timer(w) return p .. ':workerTimers:' .. w end
local function held(w) return own .. 'held:' .. w end
local function released(q) return own .. 'released:' .. q end
local function counts(q) return own .. 'counts:' .. q end
-- A process is called after its queue and a UUID.
local function queue_of(id) return string.sub(id, 1, -38) end

local function time_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function wake(q, count) call('PUBLISH', p .. '_' .. q .. '_work', count) end

-- How long, in seconds, failed attempts are kept in mind: a task that the package finishes is never
-- told of here.
local week = 604800

-- An attempt has failed. Tasks that are alike and fail at once do not count against each other.
local function failed(q, task, attempt)
  local digest = redis.sha1hex(task)
  if tonumber(call('HGET', counts(q), digest) or '0') >= tonumber(attempt) then return end
  call('HSET', counts(q), digest, attempt)
  call('EXPIRE', counts(q), week, 'NX')
end

-- Puts a process's task at the front of its queue: the list's tail. Says whether it had one.
local function give_back(q, id)
  local task = call('RPOP', process_key(id))
  call('DEL', process_key(id))
  call('SREM', working(q), id)
  if task then call('RPUSH', queue_key(q), task) end
  return task and 1 or 0
end
