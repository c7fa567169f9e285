-- A worker is given up: it may receive no more, and what it had in flight takes its old place.
-- ARGV: the worker. Answers with how many came back.
local now = to_ms(time_us())
local mine = call('SMEMBERS', in_process(q, ARGV[1]))
call('SREM', q.workers, ARGV[1])
for _, id in ipairs(mine) do give_back(q, id, call('HGET', q.delivery, id), now) end
call('DEL', in_process(q, ARGV[1]), void(q, ARGV[1]))
call('SET', given_up(q, ARGV[1]), '', 'EX', late)
if #mine > 0 then wake(q) end
return #mine
