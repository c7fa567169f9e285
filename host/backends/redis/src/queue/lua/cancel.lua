-- Removes a task, whether it waits or runs, and notifies the worker that runs it. ARGV: 'id' and an
-- id; or 'body', a payload, and the cursor of the search. Returns the next cursor, '0' at the end,
-- and how many were waiting and how many were running.
local now = to_ms(time_us())
local waiting, running, stirred = 0, 0, false

local function remove(id)
  local d = read_delivery(call('HGET', q.delivery, id))
  if d and d.worker ~= '' then
    call('PUBLISH', q.bell, 'cancel ' .. id .. '.' .. d.count)
    running = running + 1
    if d.group ~= '' then
      for _, key in ipairs({ q.body, q.attributes }) do call('HDEL', key, id) end
      d.claim = '0'
      call('HSET', q.delivery, id, write_delivery(d, d.worker))
      return
    end
    call('SREM', in_process(q, d.worker), id)
    call('SET', tombstone(q, id), '', 'EX', 43200)
  else
    waiting = waiting + 1
    leave_lanes({ id })
  end
  for _, key in ipairs({ q.wait, q.leases, q.delayed }) do call('ZREM', key, id) end
  local group = call('HGET', q.group, id)
  if group and call('HGET', q.heads, group) == id then
    stirred = advance(q, group, id, now) or stirred
  elseif group then
    call('ZREM', q.behind, behind_prefix(group) .. id)
  end
  for _, key in ipairs({ q.body, q.attributes, q.delivery, q.group, q.due }) do call('HDEL', key, id) end
end

local cursor = '0'
if ARGV[1] == 'id' then
  if call('HEXISTS', q.body, ARGV[2]) == 1 then remove(ARGV[2]) end
else
  local page = call('HSCAN', q.body, ARGV[3], 'COUNT', 1000)
  cursor = page[1]
  for at = 1, #page[2], 2 do
    local id, body = page[2][at], page[2][at + 1]
    -- A page may name an id twice.
    if body == ARGV[2] and call('HEXISTS', q.body, id) == 1 then remove(id) end
  end
end
if stirred then wake(q) end
return { cursor, waiting, running }
