-- The base of every script of a queue: the names of its keys, the time, and how a message moves
-- from one key to another. KEYS[1] is the prefix of all keys of the queue, `{prefix:queue}`. The
-- part in braces decides the slot of a cluster, so all keys are in one.
--
-- wait     sorted set, id by seq: the messages that can be received, the oldest first
-- leases   sorted set, id by the end of its lease in ms: the messages in flight
-- delayed  sorted set, id by the time in ms from which it can be received
-- body     hash, id to the unchanged payload; `attributes` and `group` likewise if there are any
-- delivery hash, id to "count first received claim worker group" once it was received; without a
--          worker it is not in flight; a group is "=name"
-- heads    hash, group to the id that its other messages wait behind
-- behind   sorted set without scores, "length:group:id": what waits behind; `due` hash, id to ms
-- workers  set of workers that may receive; `w:ID` set, the messages in flight of each; `w:ID:void`
--          sorted set, its claims whose answers were lost, by the time in ms when it reported them;
--          `w:ID:gone` once it was given up: both guard against late calls, for an hour
-- sharing  hash, the rules by which messages are shared out, if there are any; see `lanes.lua`
-- entries  list, id and time in ms from which it can be received: messages in `wait` that are not in
--          a lane yet, if there are rules
--
-- If the head of a group is cancelled while it runs, it loses its payload, and the claim of its
-- delivery becomes 0: the delivery holds the group back until it ends. A message that has no
-- payload and was not cancelled has lost it: the server evicted it, or another client deleted it.
--
-- An id is 16 digits, the microsecond of sending; `a` if the message was sent with attributes, else
-- `-`; and 8 hexadecimal digits of the queue.
local call = redis.call

local function keys_of(base)
  return {
    base = base, seq = base .. ':seq', wait = base .. ':wait', leases = base .. ':leases',
    delayed = base .. ':delayed', body = base .. ':body', attributes = base .. ':attributes',
    group = base .. ':group', due = base .. ':due', delivery = base .. ':delivery',
    heads = base .. ':heads', behind = base .. ':behind', workers = base .. ':workers',
    bell = base .. ':bell', sharing = base .. ':sharing', entries = base .. ':entries',
  }
end

local q = keys_of(KEYS[1])

-- Lua itself does not write whole numbers beyond 14 digits as such. Constants that every claim
-- passes are text, because the server prints a number argument with 17 digits.
local function num(n) return string.format('%.0f', n) end

local function time_us()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

local function to_ms(us) return math.floor(us / 1000) end

-- An id begins with its position in the order of sending.
local function seq_of(id) return string.sub(id, 1, 16) end

local function in_process(keys, worker) return keys.base .. ':w:' .. worker end

local function void(keys, worker) return in_process(keys, worker) .. ':void' end

local function given_up(keys, worker) return in_process(keys, worker) .. ':gone' end

-- The seconds that a call may be on its way.
local late = 3600

local function read_delivery(record)
  if not record then return nil end
  local count, first, received, claim, worker, group =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%S*) (.*)$')
  if not count then return nil end
  return {
    count = count, first = first, received = received, claim = claim, worker = worker, group = group,
  }
end

local function write_delivery(d, worker)
  return d.count .. ' ' .. d.first .. ' ' .. d.received .. ' ' .. d.claim .. ' ' .. worker .. ' ' .. d.group
end

local function is_cancelled(d) return d.claim == '0' end

-- The key that remains, for half a day and for its holder, of a message that was cancelled while it
-- ran.
local function tombstone(keys, id) return keys.base .. ':cancelled:' .. id end

local function was_cancelled(keys, id, d)
  if d then return is_cancelled(d) end
  return call('EXISTS', tombstone(keys, id)) == 1
end

-- Whether a hash may have values for these messages. For one message, reading it takes no longer.
local function may_have(key, ids)
  return #ids == 1 or #ids > 1 and call('EXISTS', key) == 1
end

-- Returns the values of a hash for these messages, false where it has none; an empty list if the
-- hash does not exist.
local function column(key, ids)
  return may_have(key, ids) and call('HMGET', key, unpack(ids)) or {}
end

-- Keeps as many of these messages, at least one, as fit into `most` bytes. Returns the others.
local function fit(keys, ids, most)
  local others = {}
  if #ids < 2 then return others end
  local bytes, attributes, count = 0, call('EXISTS', keys.attributes) == 1, #ids
  for at = 1, #ids do
    bytes = bytes + call('HSTRLEN', keys.body, ids[at])
    if attributes then bytes = bytes + call('HSTRLEN', keys.attributes, ids[at]) end
    if bytes > most then
      count = math.max(at - 1, 1)
      break
    end
  end
  for at = #ids, count + 1, -1 do
    others[#others + 1] = ids[at]
    ids[at] = nil
  end
  return others
end

-- Returns the bodies of these messages. `fit` only lets a body of more than `most` bytes come
-- alone: it is not loaded, and its length is returned.
local function bodies_of(keys, ids, most)
  if #ids == 0 then return {} end
  if #ids == 1 then
    local bytes = call('HSTRLEN', keys.body, ids[1])
    if bytes > most then return { bytes } end
  end
  return call('HMGET', keys.body, unpack(ids))
end

-- Returns the rules by which the messages of a queue are shared out, false if there are none:
-- `by_group`, whether groups are not kept in order; `order` while they are being put in order again,
-- and `cursor` while lanes are being filled from `wait`.
local function rules_of(keys)
  if keys.rules == nil then
    local found = call('HMGET', keys.sharing, 'by_group', 'order', 'cursor')
    keys.rules = found[1] and { by_group = found[1] == '1', order = found[2], cursor = found[3] }
  end
  return keys.rules
end

-- The maximum number of entries. Beyond it, lanes are filled from `wait`.
local most_entries = 100000

-- Notes that messages have entered `wait`, so that the next claim puts them into their lanes.
local function announce(keys, entries)
  if rules_of(keys) and call('RPUSH', keys.entries, unpack(entries)) > most_entries then
    call('UNLINK', keys.entries)
    call('HSET', keys.sharing, 'cursor', '0')
  end
end

-- Lets a message be received from `since` on, at its old position.
local function let_wait(keys, id, since)
  call('ZADD', keys.wait, seq_of(id), id)
  announce(keys, { id .. num(since) })
end

local function wake(keys) call('PUBLISH', keys.bell, 'wake') end

-- Puts a message where it waits: at its old position among those that can be received, or among the
-- delayed ones until `due`.
local function place(keys, id, due, now)
  if due > now then
    call('ZADD', keys.delayed, num(due), id)
  else
    let_wait(keys, id, now)
  end
end

local function behind_prefix(group) return #group .. ':' .. group .. ':' end

-- The end of the range of all members that begin with a prefix.
local function beyond(prefix) return '(' .. string.sub(prefix, 1, -2) .. ';' end

-- Lets a message wait behind the head of its group.
local function line_up(keys, id, group, due, now)
  call('ZADD', keys.behind, 0, behind_prefix(group) .. id)
  if due > now then call('HSET', keys.due, id, num(due)) end
end

-- Places a message that was received. It waits behind the head of its group, if that is another:
-- the group may have been put in order since.
local function put_back(keys, id, group, due, now)
  local head = group ~= '' and call('HGET', keys.heads, group)
  if group ~= '' and head ~= id then
    local rules = rules_of(keys)
    if not (rules and rules.by_group) then
      if head then
        line_up(keys, id, group, due, now)
        return
      end
      call('HSET', keys.heads, group, id)
    end
  end
  place(keys, id, due, now)
end

-- Adds a message with its payload. A message of a group that has others waits behind them, unless
-- the rules share messages out by group.
local function add(keys, id, body, attributes, group, due, now)
  call('HSET', keys.body, id, body)
  if attributes ~= '' then call('HSET', keys.attributes, id, attributes) end
  if group ~= '' then
    call('HSET', keys.group, id, group)
    local rules = rules_of(keys)
    if not (rules and rules.by_group) and call('HSETNX', keys.heads, group, id) == 0 then
      line_up(keys, id, group, due, now)
      return
    end
  end
  place(keys, id, due, now)
end

-- Moves up the next message of a group after one has ended, unless another is the head: several may
-- have been in flight before the group was put in order. Returns whether there is a next one.
local function advance(keys, group, ended, now)
  local head = call('HGET', keys.heads, group)
  if head and head ~= ended then return false end
  local prefix = behind_prefix(group)
  local found = call('ZRANGEBYLEX', keys.behind, '[' .. prefix, beyond(prefix), 'LIMIT', 0, 1)
  if not found[1] then
    call('HDEL', keys.heads, group)
    return false
  end
  call('ZREM', keys.behind, found[1])
  local id = string.sub(found[1], #prefix + 1)
  call('HSET', keys.heads, group, id)
  local due = call('HGET', keys.due, id)
  if due then call('HDEL', keys.due, id) end
  place(keys, id, tonumber(due or '0'), now)
  return true
end

-- Ends the delivery of a cancelled head. Returns whether another message moves up.
local function forget(keys, id, d, now)
  call('SREM', in_process(keys, d.worker), id)
  call('ZREM', keys.leases, id)
  call('HDEL', keys.delivery, id)
  call('HDEL', keys.group, id)
  return advance(keys, d.group, id, now)
end

-- Returns a delivery's message to its old position. It can be received since `now`.
local function give_back(keys, id, record, now)
  local d = read_delivery(record)
  if d and is_cancelled(d) then
    forget(keys, id, d, now)
    return
  end
  if d then
    if d.worker ~= '' then call('SREM', in_process(keys, d.worker), id) end
    call('HSET', keys.delivery, id, write_delivery(d, ''))
  end
  call('ZREM', keys.leases, id)
  put_back(keys, id, d and d.group or '', 0, now)
end

-- Returns the first 1000 ids of a key whose times have come, and the times.
local function due_by(key, now)
  local found = call('ZRANGEBYSCORE', key, '-inf', num(now), 'WITHSCORES', 'LIMIT', '0', '1000')
  local ids, times = {}, {}
  for at = 1, #found, 2 do ids[#ids + 1], times[#times + 1] = found[at], tonumber(found[at + 1]) end
  return ids, times
end

-- Makes messages receivable whose lease has ended or that have become due, at most 1000 of each.
local function promote(keys, now)
  local over, ends = due_by(keys.leases, now)
  if #over > 0 then
    local records = call('HMGET', keys.delivery, unpack(over))
    for at, id in ipairs(over) do give_back(keys, id, records[at], ends[at]) end
  end
  local due, times = due_by(keys.delayed, now)
  if #due > 0 then
    call('ZREM', keys.delayed, unpack(due))
    for at, id in ipairs(due) do let_wait(keys, id, times[at]) end
  end
end

-- Leases messages that were taken from where they waited. `by` has the `worker`, the `claim`, the
-- `visibility` in ms, the maximum bytes of a body that is loaded (`most`), and the first number of
-- the answer (`more`). Returns as `claim`.
local function hand_out(keys, ids, by, now)
  local bodies, before = bodies_of(keys, ids, by.most), column(keys.delivery, ids)
  local attributes, groups = column(keys.attributes, ids), column(keys.group, ids)
  local leases, records, counts, firsts, again = {}, {}, {}, {}, false
  local at_ms, deadline = num(now), num(now + by.visibility)
  local receive = ' ' .. at_ms .. ' ' .. by.claim .. ' ' .. by.worker .. ' '
  local first_receive = '1 ' .. at_ms .. receive
  for at, id in ipairs(ids) do
    local old = before[at] and read_delivery(before[at])
    local record = first_receive
    counts[at], firsts[at] = '1', at_ms
    if old then
      again = true
      counts[at], firsts[at] = num(old.count + 1), old.first
      record = counts[at] .. ' ' .. old.first .. receive
    end
    leases[at * 2 - 1], leases[at * 2] = deadline, id
    records[at * 2 - 1], records[at * 2] = id, record .. (groups[at] or '')
  end
  call('HSET', keys.delivery, unpack(records))
  call('ZADD', keys.leases, unpack(leases))
  call('SADD', in_process(keys, by.worker), unpack(ids))
  if not again then counts, firsts = {}, {} end
  return { by.more, at_ms, ids, bodies, attributes, groups, counts, firsts }
end

-- Chooses the messages of a claim by rules; only scripts with `share.lua` have it.
local share

-- Returns messages without changing them, in an answer like that of `claim` that begins with
-- `first`.
local function describe(keys, ids, most, first)
  local records, shown, counts, firsts = column(keys.delivery, ids), {}, {}, {}
  for at, id in ipairs(ids) do
    local d = records[at] and read_delivery(records[at])
    if not (d and is_cancelled(d)) then
      shown[#shown + 1] = id
      counts[#shown], firsts[#shown] = d and d.count or '0', d and d.first or ''
    end
  end
  if #shown == 0 then return { first } end
  return {
    first, '', shown, bodies_of(keys, shown, most), column(keys.attributes, shown), column(keys.group, shown),
    counts, firsts,
  }
end
