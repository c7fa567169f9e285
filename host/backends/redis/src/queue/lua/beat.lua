-- Keeps a worker alive and looks for those that are not. KEYS[1] is `{prefix}`, before the names of
-- what belongs to no queue. ARGV: the worker, what to say of it, for how many seconds it lives on,
-- and for how many ms nobody else need look. Answers with 1 if it was alive, and then for each dead
-- one: its name, how many queues it served, their names.
local base = KEYS[1]
local alive = redis.call('SET', base .. ':worker:' .. ARGV[1], ARGV[2], 'XX', 'EX', ARGV[3])
local answer = { alive and '1' or '0' }
if redis.call('SET', base .. ':sweep', ARGV[1], 'NX', 'PX', ARGV[4]) then
  for _, worker in ipairs(redis.call('SMEMBERS', base .. ':workers')) do
    if redis.call('EXISTS', base .. ':worker:' .. worker) == 0 then
      local queues = redis.call('SMEMBERS', base .. ':worker:' .. worker .. ':queues')
      answer[#answer + 1] = worker
      answer[#answer + 1] = tostring(#queues)
      for _, queue in ipairs(queues) do answer[#answer + 1] = queue end
    end
  end
end
return answer
