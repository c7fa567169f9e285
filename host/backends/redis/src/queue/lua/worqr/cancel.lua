-- Removes every instance of a task and notifies its workers. ARGV: the queue, the task. Returns how
-- many waited, and how many run or are released for later. A running one only ends if its worker
-- complies.
local q, task = ARGV[1], ARGV[2]
local running = 0
for _, id in ipairs(call('SMEMBERS', working(q))) do
  if call('LINDEX', process_key(id), 0) == task then
    running = running + 1
    if call('ZREM', released(q), id) == 1 then
      call('DEL', process_key(id))
      call('SREM', working(q), id)
    end
  end
end
local waiting = call('LREM', queue_key(q), 0, task)
call('HDEL', counts(q), redis.sha1hex(task))
call('PUBLISH', p .. '_' .. q .. '_cancel', task)
return { waiting, running }
