-- Ends deliveries. ARGV: the prefix of the dead-letter queue's keys, or nothing; then, for each row
-- of deliveries that end alike: their number, their count, the outcome (d: delete, r: release, b:
-- bury), the delay in ms or the dead letter's attributes, and their ids. Returns a number for each:
-- 0 done, 1 the message is gone, 2 it has been received again since, 3 it has been released, 5 it
-- has been cancelled. Has one key, as all scripts of a queue: a node that a slot is moved to
-- answers calls with several keys only if all of them exist.
local now = to_ms(time_us())
local grave = ARGV[1] ~= '' and keys_of(ARGV[1])
local ids, outcomes = {}, {}
local begin = 2
while begin <= #ARGV do
  local many, count, what, with = unpack(ARGV, begin, begin + 3)
  local outcome = { count = count, what = what, with = with }
  for at = begin + 4, begin + 3 + many do
    ids[#ids + 1] = ARGV[at]
    outcomes[#ids] = outcome
  end
  begin = begin + 4 + many
end
local records = call('HMGET', q.delivery, unpack(ids))
local answers, seen = {}, {}
-- The deliveries by their records: those of one claim have the same, unless they have groups or
-- were received before.
local deliveries = {}
local ended, removed, ungrouped, by_worker = {}, {}, {}, {}
local stirred = false

local function stale(id, what)
  local done = what == 'd' or (what == 'b' and grave and call('HEXISTS', grave.body, id) == 1)
  return done and 0 or 1
end

local function bury(id, d, attributes)
  -- If the payload is gone, that is why the message is dead-lettered; the reason says so.
  local body = call('HGET', q.body, id) or ''
  local there = id
  -- Two queues may share a dead-letter queue, and have ids of one microsecond that are also alike
  -- beyond it.
  while call('HEXISTS', grave.body, there) == 1 do
    there = string.format('%016.0f', tonumber(seq_of(there)) + 1) .. string.sub(there, 17)
  end
  -- Deletes before it adds: a full server has room for one message more, not for a whole batch.
  call('HDEL', q.body, id)
  call('HDEL', q.attributes, id)
  add(grave, there, body, attributes, d.group, 0, now)
  wake(grave)
end

local function finish(id, d, what, with)
  ended[#ended + 1] = id
  local mine = by_worker[d.worker] or {}
  mine[#mine + 1] = id
  by_worker[d.worker] = mine
  if what == 'r' then
    call('HSET', q.delivery, id, write_delivery(d, ''))
    put_back(q, id, d.group, now + with, now)
    stirred = true
    return
  end
  if what == 'b' then bury(id, d, with) end
  removed[#removed + 1] = id
  if d.group ~= '' then
    ungrouped[#ungrouped + 1] = id
    stirred = advance(q, d.group, id, now) or stirred
  end
end

for at, id in ipairs(ids) do
  local count, what, with = outcomes[at].count, outcomes[at].what, outcomes[at].with
  local record = records[at]
  local d = record and (deliveries[record] or read_delivery(record))
  if d then deliveries[record] = d end
  if seen[id] == 'r' then
    answers[at] = what == 'r' and 0 or 3
  elseif seen[id] then
    answers[at] = (what == seen[id] or what == 'd') and 0 or 1
  elseif not d and what ~= 'd' and was_cancelled(q, id, d) then
    answers[at] = 5
  elseif not d then
    answers[at] = stale(id, what)
  elseif d.count ~= count then
    answers[at] = 2
  elseif d.worker == '' then
    answers[at] = what == 'r' and 0 or 3
  elseif is_cancelled(d) then
    seen[id] = 'd'
    stirred = forget(q, id, d, now) or stirred
    answers[at] = what == 'd' and 0 or 5
  else
    seen[id] = what
    finish(id, d, what, with)
    answers[at] = 0
  end
end

if #ended > 0 then
  call('ZREM', q.leases, unpack(ended))
  for worker, mine in pairs(by_worker) do call('SREM', in_process(q, worker), unpack(mine)) end
end
if #removed > 0 then
  call('HDEL', q.body, unpack(removed))
  if may_have(q.attributes, removed) then call('HDEL', q.attributes, unpack(removed)) end
  call('HDEL', q.delivery, unpack(removed))
end
if #ungrouped > 0 then call('HDEL', q.group, unpack(ungrouped)) end
if stirred then wake(q) end
return answers
