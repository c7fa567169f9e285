-- Adds a queue to the set of all queues, and to those that a worker serves. KEYS[1] is `{prefix}`.
-- ARGV: the queue's name, and the worker if there is one. Returns 0 and does nothing if that worker
-- is not alive: no other worker would clean up after it.
local worker = ARGV[2] and KEYS[1] .. ':worker:' .. ARGV[2]
if worker then
  if redis.call('EXISTS', worker) == 0 then return 0 end
  redis.call('SADD', worker .. ':queues', ARGV[1])
end
redis.call('SADD', KEYS[1] .. ':queues', ARGV[1])
return 1
