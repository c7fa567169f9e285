-- Gives up a worker: it may not receive any more, and its messages in flight return to their old
-- positions. ARGV: the worker. Returns how many returned.
local now = to_ms(time_us())
local mine = call('SMEMBERS', in_process(q, ARGV[1]))
call('SREM', q.workers, ARGV[1])
for _, id in ipairs(mine) do give_back(q, id, call('HGET', q.delivery, id), now) end
call('DEL', in_process(q, ARGV[1]), void(q, ARGV[1]))
call('SET', given_up(q, ARGV[1]), '', 'EX', late)
if #mine > 0 then wake(q) end
return #mine
