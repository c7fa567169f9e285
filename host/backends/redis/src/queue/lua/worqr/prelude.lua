-- The base of every script that shares its keys with npm `worqr`. KEYS[1] is the prefix. Data for
-- which the package has no place is beside the package's keys, under `PREFIX:dispatcher:`:
--
-- workers     set of the workers that are dispatchers; `held:WORKER` hash, the processes of each to
--             the number of the attempt at the task
-- lives       sorted set, dispatchers by the time in ms at which they are dead without a heartbeat
-- released:Q  sorted set, processes by the time in ms at which their task returns to the queue
-- counts:Q    hash, digest of a task to the last failed attempt at it, until one succeeds
local call, p = redis.call, KEYS[1]
local own = p .. ':dispatcher:'

local function queue_key(q) return p .. ':queues:' .. q end
local function working(q) return p .. ':workingProcesses:' .. q end
local function process_key(id) return p .. ':processes:' .. id end
local function timer(w) return p .. ':workerTimers:' .. w end
local function held(w) return own .. 'held:' .. w end
local function released(q) return own .. 'released:' .. q end
local function counts(q) return own .. 'counts:' .. q end
-- The name of a process is that of its queue and a UUID.
local function queue_of(id) return string.sub(id, 1, -38) end

local function time_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- The ms that a dispatcher lives without a heartbeat, as the package's workers do.
local life = 3000
-- The seconds for which the package believes that a dispatcher lives. The package's supervisor
-- returns the tasks of all workers of a queue, so the living dispatchers find a dead one long
-- before it does.
local believed = 12

local function give_life(w, ...)
  local known = call('SET', timer(w), 'RUN', 'EX', believed, ...)
  if known then call('ZADD', own .. 'lives', string.format('%.0f', time_ms() + life), w) end
  return known
end

-- The package's own workers live as long as their timer; they have no time in `lives`.
local function is_alive(w)
  if call('EXISTS', timer(w)) == 0 then return false end
  local until_ms = call('ZSCORE', own .. 'lives', w)
  return not until_ms or tonumber(until_ms) >= time_ms()
end

local function wake(q, count) call('PUBLISH', p .. '_' .. q .. '_work', count) end

-- The seconds for which failed attempts are remembered: tasks that the package finishes are never
-- reported here.
local week = 604800

-- Records a failed attempt. Equal tasks that fail at once do not count against each other.
local function failed(q, task, attempt)
  local digest = redis.sha1hex(task)
  if tonumber(call('HGET', counts(q), digest) or '0') >= tonumber(attempt) then return end
  call('HSET', counts(q), digest, attempt)
  call('EXPIRE', counts(q), week, 'NX')
end

-- Puts a process's task at the front of its queue, the tail of the list. Returns 1 if it had one,
-- else 0.
local function give_back(q, id)
  local task = call('RPOP', process_key(id))
  call('DEL', process_key(id))
  call('SREM', working(q), id)
  if task then call('RPUSH', queue_key(q), task) end
  return task and 1 or 0
end

-- Puts the tasks of processes at the front of their queue, in their old order: ids of one worker
-- sort in the order in which they were taken. Returns how many there were.
local function return_all(q, ids)
  table.sort(ids, function(a, b) return a > b end)
  local back = 0
  for _, id in ipairs(ids) do
    call('ZREM', released(q), id)
    back = back + give_back(q, id)
  end
  if back > 0 then wake(q, back) end
  return back
end

-- Removes all data of a worker.
local function forget(w)
  for _, set in ipairs({ 'workers', 'expiringWorkers', 'permanentWorkers' }) do
    call('SREM', p .. ':' .. set, w)
  end
  call('SREM', own .. 'workers', w)
  call('ZREM', own .. 'lives', w)
  call('DEL', timer(w), p .. ':workingQueues:' .. w, held(w))
end
