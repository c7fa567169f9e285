-- Keeps a worker alive and looks for dead ones. KEYS[1] is `{prefix}`, the prefix of the keys that
-- belong to no queue. ARGV: the worker, its label, the seconds that it lives on, and the ms in
-- which no other worker needs to look. Returns 1 if it was alive, and then for each dead one: its
-- name, the number of its queues, and their names.
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
