-- Removes some of the released tasks, then of those that wait. ARGV: the queue, the maximum number.
-- Returns how many were removed, and 1 if there are more. Locks of unique tasks stay, as when the
-- package deletes a queue.
local q, most = ARGV[1], tonumber(ARGV[2])
local removed = 0
local function forget(task) call('HDEL', counts(q), redis.sha1hex(task)) end
for _, id in ipairs(call('ZRANGE', released(q), 0, most - 1)) do
  local task = call('RPOP', process_key(id))
  call('ZREM', released(q), id)
  call('DEL', process_key(id))
  call('SREM', working(q), id)
  if task then
    forget(task)
    removed = removed + 1
  end
end
while removed < most do
  local task = call('RPOP', queue_key(q))
  if not task then break end
  forget(task)
  removed = removed + 1
end
local left = call('LLEN', queue_key(q)) + call('ZCARD', released(q))
return { removed, left > 0 and 1 or 0 }
